"""Lowers an ATen graph, and goes on in a plainer way when that fails.

The ways, in order: as asked for; by Inductor alone, without the user's transforms; op by op. A
failure counts when compiling and in the first run, whose effects are undone before the next way
is tried; what was sent to other ranks cannot be undone, and is the end of it.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from typing import Any, final

import torch
from torch import fx
from torch._dynamo.exc import RestartAnalysis, SkipFrame

from thunder.debug import DebugFlag, enabled
from thunder.errors import UnrepeatableRunError
from thunder.executors.base import AbstractFusionExecutor
from thunder.executors.registry import get_executor
from thunder.pipeline.check_trace import require_faithful_stages
from thunder.pipeline.contest import Contest, contest_over
from thunder.pipeline.first_run import Run, run_checked, take_snapshot
from thunder.pipeline.lowering import GraphRequest, LoweredGraph, lower_graph
from thunder.pipeline.options import CompileOptions
from thunder.pipeline.promises import promised_outputs
from thunder.pipeline.verdicts import ContestVerdict
from thunder.trace.trace import Direction, TraceCtx

CONTROL_FLOW = (RestartAnalysis, SkipFrame)
"""What torch raises to start a compile over; never a failure."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Failure:
    """A way that failed.

    Attributes:
        direction: The graph.
        stage: `"compile"` or `"first run"`.
        way: What was tried, in words.
        next_way: What is tried next, in words; None when nothing is left and it is raised.
        error: What it raised.
    """

    direction: Direction
    stage: str
    way: str
    next_way: str | None
    error: Exception


@final
class GuardedGraph:
    """A lowered graph with a net under its first run. Called with one list of inputs."""

    def __init__(
        self,
        request: GraphRequest,
        options: CompileOptions,
        *,
        on_lowered: Callable[[Sequence[TraceCtx]], None],
        on_verdict: Callable[[ContestVerdict], None],
        on_failure: Callable[[Failure], None],
        around_first_run: Callable[[], AbstractContextManager[None]] = nullcontext,
    ) -> None:
        """Lowers the graph.

        Args:
            request: The graph.
            options: The user's options; `on_failure="raise"` leaves one way only.
            on_lowered: Told the traces of each way that compiled.
            on_verdict: Told the verdict of the contest.
            on_failure: Told each failure.
            around_first_run: Makes the context of the first run.

        Raises:
            Exception: Whatever the last way raised.
        """
        self._boxed_call = True  # torch's mark for the one-list calling convention
        self.calls = 0
        self._promised = promised_outputs(request.graph_module.graph)
        self._contest = contest_over(request, options)
        self._ways = _ways(options if self._contest is None else self._contest.options)
        self._pristine: GraphRequest | None = request
        self._on_lowered = on_lowered
        self._on_verdict = on_verdict
        self._on_failure = on_failure
        self._around_first_run = around_first_run
        self._lock = threading.RLock()
        self._checks_stages = enabled(DebugFlag.CHECK_TRACE)
        self._lowered = self._lower_next(None)
        self._run: Run = self._first_run

    def __call__(self, inputs: list[Any]) -> Sequence[Any]:
        """Runs the graph."""
        self.calls += 1
        return self._run(inputs)

    def _lower_next(self, failed: tuple[str, str, Exception] | None) -> LoweredGraph:
        while True:
            way, options = self._ways.pop(0)
            if failed is not None:
                self._report(*failed, way)
            request = self._pristine
            assert request is not None
            if self._ways or self._is_undecided:
                request = request.copy()
            try:
                lowered = lower_graph(request, options)
            except CONTROL_FLOW:
                raise
            except Exception as error:  # the fence around compiling
                if not self._ways:
                    self._report("compile", way, error, None)
                    raise
                failed = ("compile", way, error)
                continue
            self._way = way
            return self._told(lowered, options)

    def _report(self, stage: str, way: str, error: Exception, next_way: str | None) -> None:
        assert self._pristine is not None
        self._on_failure(
            Failure(
                direction=self._pristine.direction,
                stage=stage,
                way=way,
                next_way=next_way,
                error=error,
            )
        )

    @property
    def _is_undecided(self) -> bool:
        return self._contest is not None and self._contest.is_open

    def _hold(self, contest: Contest, request: GraphRequest, inputs: Sequence[Any]) -> None:
        winner = contest.hold(
            self._lowered, lambda options: lower_graph(request.copy(), options), inputs
        )
        (self._way, options), *self._ways = _ways(contest.options)
        self._lowered = self._told(winner, options)

    def _told(self, lowered: LoweredGraph, options: CompileOptions) -> LoweredGraph:
        """Tells what was lowered, and the verdict behind it."""
        contest = self._contest
        if contest is not None and contest.verdict is not None and options == contest.options:
            lowered = lowered.with_note(contest.verdict.sentence)
            self._on_verdict(contest.verdict)
        self._on_lowered(lowered.traces)
        return lowered

    def _first_run(self, inputs: list[Any]) -> Sequence[Any]:
        with self._lock:
            if self._pristine is not None:
                if self._contest is not None and self._contest.is_open:
                    self._hold(self._contest, self._pristine, inputs)
                return self._run_watched(self._pristine.graph_module.graph, inputs)
        return self._run(inputs)  # another thread was first

    def _run_watched(self, graph: fx.Graph, inputs: list[Any]) -> Sequence[Any]:
        snapshot = take_snapshot(graph, inputs) if self._ways else None
        while True:
            try:
                if self._checks_stages:
                    require_faithful_stages(self._lowered.traces, inputs)
                with self._around_first_run():
                    outputs = run_checked(
                        self._lowered.traces[-1],
                        self._lowered.run,
                        inputs,
                        self._promised,
                    )
            except torch.OutOfMemoryError:
                raise
            except Exception as error:  # the fence around the first run
                repeatable = not isinstance(error, UnrepeatableRunError)
                if snapshot is None or not self._ways or not repeatable:
                    self._report("first run", self._way, error, None)
                    raise
                inputs = snapshot.restore()
                self._lowered = self._lower_next(("first run", self._way, error))
                continue
            self._run, self._pristine = self._lowered.recorded_run(), None
            self._promised = ()
            return outputs


def _ways(options: CompileOptions) -> list[tuple[str, CompileOptions]]:
    asked = [("as asked for", options)]
    if options.on_failure == "raise":
        return asked
    inductor, aten = get_executor("inductor"), get_executor("aten")
    plain = replace(options, transforms=(), executors=(inductor, aten))
    op_by_op = replace(options, transforms=(), executors=(aten,))
    fuses = any(isinstance(e, AbstractFusionExecutor) for e in options.executors)
    if fuses and _differs(options, plain):
        asked.append(("Inductor", plain))
    if _differs(options, op_by_op):
        asked.append(("ATen, op by op", op_by_op))
    return asked


def _differs(options: CompileOptions, other: CompileOptions) -> bool:
    return bool(options.transforms) or options.executors != other.executors
