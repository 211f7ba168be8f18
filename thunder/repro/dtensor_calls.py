"""The functions that Dynamo makes on the fly for distributed tensors, before torch 2.13.

Dynamo puts placements and other arguments that no graph takes into the closure of a local function.
Here they are taken out again, so that a script can name the method that is called.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import FunctionType
from typing import Any

_METHODS = {
    "redistribute_fn_with_prim_types": "redistribute",
    "to_local_fn_with_prim_types": "to_local",
}


@dataclass(frozen=True, kw_only=True, slots=True)
class MethodCall:
    """A method to call on a tensor.

    Attributes:
        method: Its name.
        positional: Arguments after the tensor.
        keywords: Arguments by name.
    """

    method: str
    positional: Sequence[Any]
    keywords: Mapping[str, Any]


def method_call(function: FunctionType) -> MethodCall | None:
    """Returns the call behind a function that Dynamo made, or None for all other functions."""
    method = _METHODS.get(function.__code__.co_name)
    if method is None or function.__module__ != "torch._dynamo.variables.tensor":
        return None
    held = inspect.getclosurevars(function).nonlocals
    return MethodCall(
        method=method, positional=held["args_as_value"], keywords=held["kwargs_as_value"]
    )
