"""Runs transforms one after another and records what each did."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence

from torch import fx

from thunder.errors import TransformError
from thunder.trace.copying import copy_graph_module
from thunder.trace.trace import Direction, Provenance, TraceCtx
from thunder.transforms.base import AbstractTransform, Stage
from thunder.transforms.dead_code_elimination import DeadCodeElimination

DEFAULT_TRANSFORMS: tuple[AbstractTransform, ...] = (DeadCodeElimination(),)
"""What runs on every ATen graph after the user's transforms."""


def run_transforms(
    graph_module: fx.GraphModule,
    transforms: Iterable[AbstractTransform],
    *,
    stage: Stage,
    direction: Direction,
) -> tuple[fx.GraphModule, list[TraceCtx]]:
    """Applies the transforms of one stage.

    Args:
        graph_module: The graph; may be changed in place.
        transforms: In the order in which they run; those of other stages are passed over.
        stage: Which transforms apply.
        direction: Which way the graph runs.

    Returns:
        The final graph module and a trace for each transform that changed something.

    Raises:
        TransformError: A transform raised, broke its contract or left an illegal graph. The
            message names it and those that ran before it; the cause is attached.
    """
    traces: list[TraceCtx] = []
    done: list[str] = []
    for transform in transforms:
        if transform.stage is not stage:
            continue
        started = time.perf_counter()
        try:
            graph_module, changed = _apply(transform, graph_module)
        except Exception as error:
            raise _failure(transform, done, direction, error) from error
        done.append(transform.name)
        if changed:
            milliseconds = (time.perf_counter() - started) * 1e3
            traces.append(
                TraceCtx(
                    graph_module=copy_graph_module(graph_module),
                    direction=direction,
                    provenance=Provenance(transform.name, milliseconds),
                )
            )
    return graph_module, traces


def _apply(
    transform: AbstractTransform, graph_module: fx.GraphModule
) -> tuple[fx.GraphModule, bool]:
    transform.requires(graph_module)
    result, changed = transform.apply(graph_module)
    if changed:
        result.graph.lint()
        result.recompile()
    transform.ensures(result)
    return result, changed


def _failure(
    transform: AbstractTransform, done: Sequence[str], direction: Direction, error: Exception
) -> TransformError:
    before = ", ".join(done) or "none"
    return TransformError(
        f"transform {transform.name!r} failed on the {direction.value} graph: "
        f"{type(error).__name__}: {error} (transforms that ran before it: {before})"
    )
