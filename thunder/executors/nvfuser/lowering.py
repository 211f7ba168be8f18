"""What one entry of the operator tables says. The tables are in `lowerings/`."""

from __future__ import annotations

import enum
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from torch import fx


class Kind(enum.Enum):
    """What an operator does to data, which decides where it may stand in a fusion."""

    COMPUTE = "compute"
    """Elementwise arithmetic."""

    REDUCTION = "reduction"
    """Reduces, scans or normalises: a fusion of its own is worth while."""

    MOVEMENT = "movement"
    """Moves data into a new tensor: cat, pad, repeat."""

    VIEW = "view"
    """Returns a view of its first argument. At the end of a region ATen does it, for free."""

    COPY = "copy"
    """Returns the elements of its first argument in a tensor of its own."""

    SIZE = "size"
    """Computes a symbolic size. Python does it where a region returns it."""

    FACTORY = "factory"
    """Makes a tensor out of numbers."""


def _accept(*_: Any, **__: Any) -> None:
    return None


@dataclass(frozen=True, kw_only=True, slots=True)
class Lowering:
    """How an ATen operator becomes nvFuser operators.

    Attributes:
        lower: Takes the `Builder` and the operator's arguments, as in its ATen signature, with
            values in place of tensors; returns the value, or a tuple for several results.
        kind: What the operator does to data.
        refuse: Takes the node's fake result and the operator's arguments with fake tensors;
            returns why the call cannot be translated, as a sentence, or None.
        refuse_node: The same for reasons that lie in the graph around the node.
    """

    lower: Callable[..., Any]
    kind: Kind
    refuse: Callable[..., str | None] = _accept
    refuse_node: Callable[[fx.Node], str | None] = _accept
