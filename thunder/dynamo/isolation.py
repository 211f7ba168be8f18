"""Calls torch.compile so that one compiled callable never uses up another's recompile limit.

Dynamo keeps what it compiled with the code object of the function, and all `torch.compile` calls
on that function share one limit (8); beyond it they run eagerly without a word. Every `thunderfx`
call has a compiler of its own, so nothing of an earlier call can be reused, and the ninth call on
one function would not be compiled. torch 2.12 and later can keep calls apart; for earlier
versions the function gets a code object of its own. There, functions that it calls and that break
the graph are compiled by themselves and still share one limit.
"""

from __future__ import annotations

import functools
import types
from collections.abc import Callable
from typing import Any

import torch
from torch._dynamo.eval_frame import innermost_fn

from thunder.dynamo.compiler import EntryPoint, ThunderCompiler
from thunder.dynamo.failing_calls import with_scripts
from thunder.dynamo.graph_break import whole_function
from thunder.dynamo.options import DividedOptions


def torch_compile(
    function: Callable[..., Any], compiler: ThunderCompiler, options: DividedOptions
) -> Callable[..., Any]:
    """Returns `torch.compile(function, backend=compiler)`, kept apart from other calls.

    Args:
        function: A callable that is no module and no class.
        compiler: The backend.
        options: The keywords for torch.compile are taken from here.

    Returns:
        The compiled callable, or `function` itself when compilation is switched off: by
        `disable=True`, by `TORCHDYNAMO_DISABLE=1`, or inside torch.export.
    """
    keywords = options.make_torch_options()
    target = function if "isolate_recompiles" in keywords else with_own_code(function)
    compiled = torch.compile(target, backend=compiler, **keywords)
    if compiled is target:
        return function
    if options.entry_point is EntryPoint.JIT:
        compiled = whole_function(compiled)
    return with_scripts(compiled, function, compiler, options)


def with_own_code(function: Callable[..., Any]) -> Callable[..., Any]:
    """Returns a callable that does what `function` does and shares its code with no other.

    Args:
        function: A function is copied; anything else, and what belongs to torch (Dynamo does not
            look into torch's own files from outside), is called by a new function.
    """
    function = innermost_fn(function)
    if isinstance(function, types.MethodType):
        if not _is_of_torch(function):
            return types.MethodType(with_own_code(function.__func__), function.__self__)
    elif isinstance(function, types.FunctionType) and not _is_of_torch(function):
        return _copy(function)

    def call(*args: Any, **kwargs: Any) -> Any:
        return function(*args, **kwargs)

    call.__code__ = call.__code__.replace()
    return functools.update_wrapper(call, function)


def _copy(function: types.FunctionType) -> types.FunctionType:
    clone = types.FunctionType(
        function.__code__.replace(),
        function.__globals__,
        function.__name__,
        function.__defaults__,
        function.__closure__,
    )
    clone.__kwdefaults__ = function.__kwdefaults__
    functools.update_wrapper(clone, function)
    return clone


def _is_of_torch(function: Callable[..., Any]) -> bool:
    return (getattr(function, "__module__", None) or "").partition(".")[0] == "torch"
