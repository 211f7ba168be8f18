"""The helpers: what to ask any compiled callable.

Each takes what `thunderfx`, `thunder.jit` or `torch.compile` with a `ThunderCompiler` returned,
a module after `module.compile(backend=ThunderCompiler(...))`, or a `ThunderCompiler`. The trace
functions also take one region from `SubgraphInfo.thunder_compiled_fns`.
"""

from __future__ import annotations

import os
import warnings
from pathlib import Path
from typing import Any

from thunder.dynamo.compiler import EntryPoint
from thunder.dynamo.lookup import get_compiler
from thunder.dynamo.subgraph_info import SubgraphInfo
from thunder.pipeline.region import CompiledRegion
from thunder.pipeline.stats import CompileStats
from thunder.trace.trace import Direction, TraceCtx


def get_subgraph_info(f: Any) -> list[SubgraphInfo]:
    """Returns what became of each Dynamo graph of a compiled callable.

    Args:
        f: A compiled callable or a `ThunderCompiler`.

    Returns:
        One record for each graph, in the order of compiling. Before the first call there is
        none: the list is empty and a warning says so.

    Raises:
        NotCompiledError: No `ThunderCompiler` is behind `f`.

    Example:
        >>> import torch
        >>> from thunder import thunderfx
        >>> from thunder.dynamo import get_subgraph_info
        >>> f = thunderfx(lambda x: x.cos(), executors=["aten"])
        >>> _ = f(torch.zeros(2))
        >>> print(get_subgraph_info(f)[0])
        Dynamo graph with 1 operators in 1 partition(s)
          thunder_0: thunder, 1 operators, forward op by op
        nothing was split off
    """
    compiler = get_compiler(f)
    if not compiler.subgraph_infos:
        warnings.warn(
            "nothing has been compiled yet, so there is no graph to show: call the compiled "
            "function first. If it has been called, torch left all of it to eager; "
            "TORCH_LOGS=+dynamo says why",
            UserWarning,
            stacklevel=2,
        )
    return list(compiler.subgraph_infos)


def save_reproducer(
    f: Any,
    folder: str | os.PathLike[str],
    *,
    use_pytest_benchmark: bool = False,
    serialize_inputs: bool = False,
) -> list[Path]:
    """Writes a script for each thunder region of a compiled callable.

    Args:
        f: A compiled callable or a `ThunderCompiler`, called at least once.
        folder: Where to write; made when missing.
        use_pytest_benchmark: Write pytest-benchmark scripts that compare thunder, torch.compile
            and eager, forward and backward apart.
        serialize_inputs: Save the real inputs beside the script, instead of drawing inputs of
            the same kind.

    Returns:
        The scripts.

    Raises:
        NotCompiledError: `f` has not been called yet, or no `ThunderCompiler` is behind it.
        ReproducerError: The folder cannot be written.
    """
    return get_compiler(f).save_reproducer_to_folder(
        folder, use_pytest_benchmark=use_pytest_benchmark, serialize_inputs=serialize_inputs
    )


def last_traces(f: Any) -> list[TraceCtx]:
    """Returns forward (or inference) traces.

    Args:
        f: A region, a `thunder.jit` callable, or any other compiled callable.

    Returns:
        For a region or a `thunder.jit` callable, the stages of the graph compiled last; the
        last stage is the one executed. Otherwise the executed trace of every region in order.

    Raises:
        NotCompiledError: No `ThunderCompiler` is behind `f`.
    """
    return _traces(f, (Direction.FORWARD, Direction.INFERENCE))


def last_backward_traces(f: Any) -> list[TraceCtx]:
    """Returns backward traces, in the manner of `last_traces`.

    Args:
        f: A region, a `thunder.jit` callable, or any other compiled callable.

    Returns:
        The traces; empty where no gradient was asked for. With symbolic sizes a backward graph
        may be compiled at the first backward only.
    """
    return _traces(f, (Direction.BACKWARD,))


def last_prologue_traces(f: Any) -> list[TraceCtx]:
    """Returns the programs of checks on the inputs, in the manner of `last_traces`.

    Args:
        f: A region, a `thunder.jit` callable, or any other compiled callable.
    """
    return _traces(f, (Direction.PROLOGUE,))


def compile_stats(f: Any) -> CompileStats:
    """Returns cache hits and misses, the time of each stage, and recompiles with their reasons.

    Args:
        f: A compiled callable or a `ThunderCompiler`.
    """
    return get_compiler(f).compile_stats()


def _traces(f: Any, directions: tuple[Direction, ...]) -> list[TraceCtx]:
    if isinstance(f, CompiledRegion):
        return _stages(f, directions)
    compiler = get_compiler(f)
    if compiler.entry_point is EntryPoint.JIT:
        return _stages(compiler.regions[-1], directions) if compiler.regions else []
    executed = [_stages(region, directions)[-1:] for region in compiler.regions]
    return [trace for stages in executed for trace in stages]


def _stages(region: CompiledRegion, directions: tuple[Direction, ...]) -> list[TraceCtx]:
    return next(filter(None, (region.traces(direction) for direction in directions)), [])
