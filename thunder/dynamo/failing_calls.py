"""Calls that fail in Dynamo, before there is a graph: the script has the callable itself.

What fails later, in a region, has a script already: that of the region's graph.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
from torch._dynamo.exc import TorchDynamoException

from thunder.debug import DebugFlag, GraphDump, active, enabled
from thunder.debug.variables import REPRODUCERS
from thunder.dynamo.compiler import EntryPoint, ThunderCompiler
from thunder.dynamo.failures import fence, write_checked
from thunder.dynamo.options import DividedOptions
from thunder.dynamo.reproducers import user_options
from thunder.errors import GraphBreakError, add_to_message, end_with_reproducer
from thunder.repro import (
    Fails,
    ReproScript,
    call_with_keywords,
    callable_source,
    jit_source,
    record_inputs,
    thunderfx_source,
)

_OF_DYNAMO = (TorchDynamoException, GraphBreakError)


def with_scripts(
    compiled: Callable[..., Any],
    function: Callable[..., Any],
    compiler: ThunderCompiler,
    options: DividedOptions,
) -> Callable[..., Any]:
    """Lets calls that fail in Dynamo leave a script, if `SAVE_REPRODUCER` is on.

    Args:
        compiled: What torch.compile made of the function.
        function: The user's callable.
        compiler: The backend; its options say which debug flags are on.
        options: What the user compiled with.

    Returns:
        A callable that does the same; its errors end with the path of the script. Without the
        flag, `compiled` itself: nothing is added to the cost of a call.
    """
    with active(compiler.options.debug):
        if not enabled(DebugFlag.SAVE_REPRODUCER):
            return compiled
    scripts: dict[Fails, Path | None] = {}

    @functools.wraps(compiled)
    def call(*args: Any, **kwargs: Any) -> Any:
        try:
            return compiled(*args, **kwargs)
        except _OF_DYNAMO as error:
            if REPRODUCERS.read() and not end_with_reproducer(error):
                expected = Fails.like(error)
                if expected not in scripts:
                    scripts[expected] = _write(function, args, kwargs, compiler, options, expected)
                add_to_message(error, scripts[expected])
            raise

    return call


def _write(
    function: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
    compiler: ThunderCompiler,
    options: DividedOptions,
    expected: Fails,
) -> Path | None:
    owner = getattr(function, "__self__", None)
    subject = type(owner) if isinstance(owner, torch.nn.Module) else function
    name = getattr(subject, "__name__", type(function).__name__)
    with fence(name):
        source = callable_source(function, keywords=tuple(kwargs))
        written = _options(compiler, options)
        is_jit = options.entry_point is EntryPoint.JIT
        compile_source = jit_source(written) if is_jit else thunderfx_source(written)
        script = ReproScript(
            title=f"A failure of Dynamo in {name}",
            module=source,
            inputs=record_inputs(
                [*args, *kwargs.values()], names=[*_names(function, len(args)), *kwargs]
            ),
            compilers=(call_with_keywords(compile_source) if kwargs else compile_source,),
            backward=False,
            expected=expected,
        )
        return write_checked(script, expected, graph=GraphDump(f"call_{name}").name, always=True)
    return None


def _options(compiler: ThunderCompiler, options: DividedOptions) -> dict[str, Any]:
    """Returns the keywords that were given, of both sides, without defaults."""
    defaults: dict[str, Any] = {"isolate_recompiles": True}
    if options.entry_point is EntryPoint.JIT:
        defaults |= {"fullgraph": True, "on_failure": "raise"}
    of_thunder = user_options(compiler.options)
    if "options" in options.compiler or "mode" in options.compiler:
        of_thunder = {k: v for k, v in of_thunder.items() if k != "options"}  # as the user wrote it
    given = {**of_thunder, **options.torch_compile}
    return {k: v for k, v in given.items() if v is not None and defaults.get(k, ...) != v}


def _names(function: Callable[..., Any], count: int) -> list[str]:
    try:
        parameters = list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError):  # a builtin that does not say
        return [f"input_{index}" for index in range(count)]
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    names = [parameter.name for parameter in parameters if parameter.kind in kinds][:count]
    return [*names, *(f"input_{index}" for index in range(len(names), count))]
