"""`thunder.jit`: the whole function as one graph."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from torch import fx, nn

from thunder.dynamo.compiler import EntryPoint
from thunder.dynamo.graph_module import CompiledGraphModule
from thunder.dynamo.options import divide_options, option_parameters
from thunder.dynamo.thunderfx import compile_callable
from thunder.errors import OptionError

_DEFAULTS = {"on_failure": "raise", "fullgraph": True}
"""Where `thunder.jit` differs from `thunderfx`."""


def jit(fn: Any = None, /, **options: Any) -> Any:
    """Compiles a function or module as one graph; a graph break is an error.

    Args:
        fn: A function, method, callable or module; without it, a decorator comes back. An fx
            `GraphModule` is compiled as it is, without Dynamo: positional inputs, one compile
            for each kind of inputs.
        options: As for `thunderfx`, except `fullgraph`, which is on. `on_failure` is `"raise"`
            unless you say otherwise.

    Returns:
        The compiled callable, as `thunderfx` returns it. `thunder.last_traces` gives all stages
        of the graph compiled last.

    Raises:
        OptionError: An option is unknown, belongs elsewhere, or has a value that is not accepted.
        NotCallableError: `fn` cannot be compiled.
        GraphBreakError: (when called) the function cannot be captured as one graph; names the
            line.

    Example:
        >>> import torch
        >>> from thunder.dynamo.jit import jit
        >>> f = jit(lambda x: x.sin() + 1, executors=["aten"])
        >>> f(torch.zeros(2))
        tensor([1., 1.])
    """
    if options.get("fullgraph", True) is not True:
        raise OptionError(
            "fullgraph=False is not for thunder.jit, which takes whole functions: use thunderfx"
        )
    options = {**_DEFAULTS, **options}
    divided = divide_options(options, EntryPoint.JIT)
    if fn is None:
        divided.make_compiler()
        return lambda function: jit(function, **options)
    if isinstance(fn, fx.GraphModule):
        return CompiledGraphModule(fn, divided.make_compiler())
    return compile_callable(fn, divided)


def _signature() -> inspect.Signature:
    """The explicit form of `jit`'s signature, for `help` and editors."""
    fn = inspect.signature(jit).parameters["fn"]
    options = [p.replace(default=_DEFAULTS.get(p.name, p.default)) for p in option_parameters()]
    fn = fn.replace(annotation=Callable[..., Any] | nn.Module)
    return inspect.Signature([fn, *options], return_annotation=Callable[..., Any])


jit.__signature__ = _signature()  # pyright: ignore[reportFunctionMemberAccess] - inspect's
