"""Runs each stage of a graph against the one before, and names the first that changes the result.

This is what the debug flag `CHECK_TRACE` does when a graph is first run. Stages are run op by op
on copies of the inputs; random state and inputs are as before afterwards.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from thunder.errors import ExecutorError, TransformError
from thunder.pipeline.judged_run import Program, call_results, judge_run
from thunder.trace.accuracy import AccuracyVerdict
from thunder.trace.targets import ClaimedOperator, FusedRegion
from thunder.trace.trace import Direction, TraceCtx


@dataclass(frozen=True, kw_only=True, slots=True)
class StageCheck:
    """What running the stages showed.

    Attributes:
        direction: The graph.
        passes: The passes that were checked, in order, up to the first that is wrong.
        culprit: The first stage that gives another result than the one before; None when there
            is none.
        before: The stage before it.
        verdict: The judgement on the culprit.
    """

    direction: Direction
    passes: tuple[str, ...]
    culprit: TraceCtx | None = None
    before: TraceCtx | None = None
    verdict: AccuracyVerdict | None = None

    @property
    def faithful(self) -> bool:
        """Whether every stage gives the result of the one before, but for rounding."""
        return self.culprit is None

    def __str__(self) -> str:
        """Names the pass and what is wrong with its results."""
        if self.culprit is None:
            return f"{self.direction.value}: {len(self.passes)} stages give the same result"
        return (
            f"pass {self.culprit.provenance.pass_name!r} changes the result of the "
            f"{self.direction.value} graph: {self.verdict}"
        )


def check_stages(traces: Sequence[TraceCtx], inputs: Sequence[Any]) -> StageCheck:
    """Runs each stage against the one before.

    Args:
        traces: The stages of one graph, in order; the first is as it was captured.
        inputs: One real value for each placeholder; they stay as they are.

    Returns:
        The first stage that is further from float64 than rounding explains, if any.

    Raises:
        Exception: Whatever a stage raised.

    Example:
        >>> import torch, thunder
        >>> f = thunder.jit(lambda x: x.exp(), executors=["aten"])
        >>> _ = f(torch.ones(2))
        >>> print(check_stages(thunder.last_traces(f), [torch.ones(2)]))
        inference: 2 stages give the same result
    """
    passes: list[str] = []
    with torch.no_grad():
        for before, stage in itertools.pairwise(traces):
            passes.append(stage.provenance.pass_name)
            # Compiled code does not run in float64, so the last stage that is plain stands in.
            plain = next(t for t in reversed(traces[: traces.index(stage)]) if is_plain(t))
            verdict = judge_run(_program(plain), _program(stage), inputs, donated=stage.donated)
            if not verdict.accurate:
                return StageCheck(
                    direction=stage.direction,
                    passes=tuple(passes),
                    culprit=stage,
                    before=before,
                    verdict=verdict,
                )
    return StageCheck(direction=traces[-1].direction, passes=tuple(passes))


def require_faithful_stages(traces: Sequence[TraceCtx], inputs: Sequence[Any]) -> None:
    """Raises when a pass changes the result; see `check_stages`.

    Args:
        traces: The stages of one graph.
        inputs: One real value for each placeholder.

    Raises:
        TransformError: A transform is wrong; names it.
        ExecutorError: The stage in which executors take over is wrong.
    """
    check = check_stages(traces, inputs)
    if check.culprit is None:
        return
    if is_plain(check.culprit):
        raise TransformError(f"{check}\n{_ADVICE}")
    raise ExecutorError(f"{check}\n{_ADVICE}")


_ADVICE = "thunder.debug.find_divergence(f, *args) names the operator and the line."


def is_plain(trace: TraceCtx) -> bool:
    """Whether a trace consists of PyTorch operators alone, with nothing compiled in it."""
    return not any(
        isinstance(node.target, FusedRegion | ClaimedOperator) for node in trace.graph.nodes
    )


def _program(trace: TraceCtx) -> Program:
    function = trace.python_callable()
    return lambda inputs: call_results(function, inputs)
