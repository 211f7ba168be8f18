"""`torch.compile(f, backend="thunder")`: the function that torch finds by that name.

torch calls it once a graph and does not say for which `torch.compile` call. This module finds
that call, so that each has a `ThunderCompiler` of its own, made when the first graph arrives.
"""

from __future__ import annotations

import functools
import inspect
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import fx

from thunder.dynamo.compiler import ThunderCompiler


def thunder_backend(
    graph_module: fx.GraphModule, example_inputs: Sequence[Any], **keywords: Any
) -> Callable[..., Any]:
    """Compiles one Dynamo graph; the registered backend `"thunder"`.

    `torch.compile` has no room for a backend's own keywords, so those of `ThunderCompiler` may
    stand in `options=`, next to Inductor's settings.

    Args:
        graph_module: The graph.
        example_inputs: One value for each of its placeholders.
        keywords: `mode` and `options`, as torch.compile passes them on.

    Returns:
        The callable that runs the graph.

    Raises:
        OptionError: A key of `options=` is neither an option nor an Inductor setting.

    Example:
        >>> import torch
        >>> f = torch.compile(torch.sin, backend="thunder", options={"executors": ["aten"]})
        >>> f(torch.zeros(2))
        tensor([0., 0.])
    """
    compiler = compiler_of_call(sys._getframe(1).f_locals.get("self"))
    if compiler is not None:
        return compiler(graph_module, example_inputs)
    return shared_compiler()(graph_module, example_inputs, **keywords)


def compiler_of_call(call: object) -> ThunderCompiler | None:
    """Returns the compiler of one `torch.compile` call.

    Args:
        call: The object in which torch keeps the backend of a `torch.compile` call. For
            `backend="thunder"` the compiler is made when it is first asked for, and put there:
            from then on torch calls it directly.

    Returns:
        The compiler; None when the call has another backend, or is no such object.
    """
    if not isinstance(call, torch._TorchCompileWrapper):
        return None
    if call.compiler_fn is thunder_backend:
        call.compiler_fn = ThunderCompiler(**_compiler_options(call.kwargs))
        call.kwargs = {}
    return call.compiler_fn if isinstance(call.compiler_fn, ThunderCompiler) else None


@functools.cache
def shared_compiler() -> ThunderCompiler:
    """Returns the compiler of all graphs that come from no `torch.compile` call.

    `torch._dynamo.optimize("thunder")` calls the backend without anything in between.
    """
    return ThunderCompiler()


def _compiler_options(keywords: Mapping[str, Any]) -> dict[str, Any]:
    """Moves keywords of ThunderCompiler from `options` to the side of `mode` and `options`."""
    declared = inspect.signature(ThunderCompiler).parameters.keys() - {"mode", "options"}
    settings = dict(keywords.get("options") or {})
    own = {name: settings.pop(name) for name in declared & settings.keys()}
    return {**own, "mode": keywords.get("mode"), "options": settings or None}
