"""The contest of `executors="auto"`: the fastest correct way to run one ATen graph.

Forward and backward are graphs of their own with fixed inputs and outputs, so each is decided by
itself. With `contest="full"` every entrant is compiled at the first run, judged against ATen op by
op, and timed on copies of the inputs of that run; `"cached"` uses verdicts that are known, and
`"off"` none. A graph without a verdict runs as the first entrant does it: Inductor, as
`torch.compile` would.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, final

import torch
from torch import fx
from torch.utils._pytree import tree_leaves

from thunder.executors.base import AbstractExecutor
from thunder.executors.entrants import Entrant, contest_entrants
from thunder.executors.registry import get_executor
from thunder.pipeline.first_run import Run, written_inputs
from thunder.pipeline.graph_key import graph_key
from thunder.pipeline.judged_run import (
    Program,
    call_results,
    copy_values,
    judge_run,
    random_state_kept,
)
from thunder.pipeline.lowering import LoweredGraph
from thunder.pipeline.options import CompileOptions
from thunder.pipeline.verdicts import ContestVerdict, keep_verdict, known_verdict
from thunder.trace.trace import Direction

MARGIN = 0.02
"""By which part of its time an entrant must beat the first: more than noise."""

_WARM_UP_ROUNDS = 3
_ROUNDS = 15
_SECONDS = 1.0

_COPIES = 8
"""How often the inputs must fit into the free memory of their device: there are those of two runs,
of one in float64, and what they return."""

_REPEATABLE = ("aten", "prims")
"""Namespaces of operators that do nothing but compute; running a collective or an operator of the
user's more often than the program does could hang or change it."""

Lower = Callable[[CompileOptions], LoweredGraph]


@final
class Contest:
    """The contest over one graph.

    Attributes:
        verdict: The verdict, once there is one.
    """

    def __init__(
        self, graph_module: fx.GraphModule, direction: Direction, options: CompileOptions
    ) -> None:
        """Looks for a known verdict.

        Args:
            graph_module: The ATen graph.
            direction: Which way it runs.
            options: The user's options.
        """
        self.verdict: ContestVerdict | None = None
        self._options = options
        self._is_backward = direction is Direction.BACKWARD
        self._entrants: dict[str, Entrant] = {}
        entrants = _entrants(graph_module, options)
        if len(entrants) < 2:
            return
        self._entrants = {entrant.name: entrant for entrant in entrants}
        self._written = written_inputs(graph_module.graph)
        names = list(self._entrants)
        self._key = graph_key(graph_module, names, options.inductor_config)
        self.verdict = known_verdict(self._key, names, binding=options.contest == "cached")

    @property
    def is_open(self) -> bool:
        """Whether the first run has to decide it."""
        return bool(self._entrants) and self.verdict is None and self._options.contest == "full"

    @property
    def options(self) -> CompileOptions:
        """The options to lower the graph with: those of the winner, if it is known."""
        if self.verdict is None:
            return self._options
        return self._with(self._entrants[self.verdict.winner].executors)

    def hold(self, first: LoweredGraph, lower: Lower, inputs: Sequence[Any]) -> LoweredGraph:
        """Decides the contest.

        Args:
            first: The graph as the first entrant runs it.
            lower: Lowers a copy of the graph with the options that it is given.
            inputs: What the graph is about to run with. They stay as they are, and so does the
                random state.

        Returns:
            The graph as the winner runs it.
        """
        if not _affordable(inputs):
            return first
        admitted, rejected = {next(iter(self._entrants)): first}, dict[str, str]()
        with random_state_kept():
            plain = lower(self._with((get_executor("aten"),)))
            for entrant in list(self._entrants.values())[1:]:
                try:
                    lowered = lower(self._with(entrant.executors))
                    objection = self._objection(lowered, first, plain, inputs)
                except Exception as error:  # noqa: BLE001 - the fence around what is on trial
                    objection = f"failed ({type(error).__name__}: {_first_line(error)})"
                else:
                    admitted[entrant.name] = lowered
                if objection:
                    admitted.pop(entrant.name, None)
                    rejected[entrant.name] = objection
            times = self._times({name: one.run for name, one in admitted.items()}, inputs)
        self.verdict = keep_verdict(
            self._key,
            ContestVerdict(winner=_winner(times), milliseconds=times, rejected=rejected),
        )
        return admitted.get(self.verdict.winner, first)

    def _objection(
        self, lowered: LoweredGraph, first: LoweredGraph, plain: LoweredGraph, inputs: Sequence[Any]
    ) -> str:
        """Returns why an entrant may not run the graph; nothing when it may."""
        wanted, found = (_layouts(one.run(copy_values(list(inputs)))) for one in (first, lowered))
        if wanted != found:
            return "returns another memory layout than the other graph was compiled for"
        verdict = judge_run(
            _program(plain.run), _program(lowered.run), inputs, donated=self._is_backward
        )
        return "" if verdict.accurate else f"is not accurate ({verdict.wrong[0]})"

    def _times(self, runs: Mapping[str, Run], inputs: Sequence[Any]) -> dict[str, float]:
        """Returns the median milliseconds of each, run in turns.

        torch's benchmarkers cannot give each run fresh inputs, which graphs need that write to
        theirs: a second run on spoilt indices would read anywhere.
        """
        devices = sorted(
            {str(x.device) for x in inputs if isinstance(x, torch.Tensor) and x.is_cuda}
        )
        found: dict[str, list[float]] = {name: [] for name in runs}
        started = time.perf_counter()
        for turn in range(_WARM_UP_ROUNDS + _ROUNDS):
            for name, run in runs.items():
                milliseconds = _time(run, self._fresh(inputs), devices)
                if turn >= _WARM_UP_ROUNDS:
                    found[name].append(milliseconds)
            if turn >= _WARM_UP_ROUNDS and time.perf_counter() - started > _SECONDS * len(runs):
                break
        return {name: statistics.median(times) for name, times in found.items()}

    def _fresh(self, inputs: Sequence[Any]) -> list[Any]:
        """Copies what a run may write to; kernels of a backward graph reuse all they can."""
        if self._is_backward:
            return copy_values(list(inputs))
        copies = iter(copy_values([inputs[position] for position in self._written]))
        return [next(copies) if i in self._written else x for i, x in enumerate(inputs)]

    def _with(self, executors: tuple[AbstractExecutor, ...]) -> CompileOptions:
        return replace(self._options, executors=executors)


def _entrants(graph_module: fx.GraphModule, options: CompileOptions) -> tuple[Entrant, ...]:
    """Returns who takes part; none where there is no contest."""
    if options.requested_executors != "auto" or options.contest == "off":
        return ()
    if options.inductor_config.get("triton.cudagraphs"):
        return ()  # recording belongs to the run that is replayed later
    if not all(map(_is_repeatable, graph_module.graph.nodes)):
        return ()
    values = [
        leaf for node in graph_module.graph.nodes for leaf in tree_leaves(node.meta.get("val"))
    ]
    return contest_entrants({x.device.type for x in values if isinstance(x, torch.Tensor)})


def _is_repeatable(node: fx.Node) -> bool:
    if node.op != "call_function":
        return True
    if isinstance(node.target, torch._ops.OpOverload):
        return node.target.namespace in _REPEATABLE
    return not isinstance(node.target, torch._ops.HigherOrderOperator)


def _affordable(inputs: Sequence[Any]) -> bool:
    sizes: dict[int, int] = {}
    for x in inputs:
        if isinstance(x, torch.Tensor) and x.is_cuda:
            sizes[x.device.index] = sizes.get(x.device.index, 0) + x.nbytes
    return all(_COPIES * size < torch.cuda.mem_get_info(index)[0] for index, size in sizes.items())


def _program(run: Run) -> Program:
    return lambda inputs: call_results(lambda *values: run(list(values)), inputs)


def _layouts(results: Sequence[Any]) -> list[Any]:
    return [
        (x.dtype, x.device, x.shape, x.stride() if x.layout is torch.strided else x.layout)
        if isinstance(x, torch.Tensor)
        else type(x)
        for x in results
    ]


def _time(run: Run, inputs: list[Any], devices: Sequence[str]) -> float:
    """Returns the milliseconds of one run, on its device where it has one."""
    if len(devices) != 1:
        for device in devices:
            torch.cuda.synchronize(device)
        started = time.perf_counter()
        run(inputs)
        for device in devices:
            torch.cuda.synchronize(device)
        return (time.perf_counter() - started) * 1e3
    with torch.cuda.device(devices[0]):
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        torch.cuda.synchronize()
        begin.record()
        run(inputs)
        end.record()
        torch.cuda.synchronize()
        return begin.elapsed_time(end)


def _winner(times: Mapping[str, float]) -> str:
    """Returns the fastest; the first where that is not clear."""
    first = next(iter(times))
    fastest = min(times, key=lambda name: times[name])
    return fastest if times[fastest] < times[first] * (1 - MARGIN) else first


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or [""])[0]
