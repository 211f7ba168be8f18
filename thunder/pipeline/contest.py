"""The contest of `executors="auto"`: the fastest correct way to run one ATen graph.

Forward and backward are graphs of their own with fixed inputs and outputs, so each is decided by
itself. With `contest="full"` every entrant is compiled at the first run, judged against ATen op by
op, and timed on copies of the inputs of that run; `"cached"` uses verdicts that are known, and
`"off"` none. Verdicts are kept where all entrants have a version and none failed. A graph without
a verdict runs as the first entrant does it: Inductor, as `torch.compile` would.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
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
    RandomState,
    call_results,
    copy_values,
    judge_run,
    random_state_kept,
)
from thunder.pipeline.lowering import GraphRequest, LoweredGraph
from thunder.pipeline.options import CompileOptions
from thunder.pipeline.timing import Prepare, times_in_turns
from thunder.pipeline.verdicts import (
    ContestVerdict,
    agreed_verdict,
    keep_verdict,
    known_verdict,
    winner,
)
from thunder.trace.trace import Direction

_COPIES = 8
"""How often the inputs must fit into the free memory of their device: there are those of two runs,
of one in float64, and what they return."""

_REPEATABLE = ("aten", "prims")
"""Namespaces of operators that do nothing but compute; running a collective or an operator of the
user's more often than the program does could hang or change it."""

Lower = Callable[[CompileOptions], LoweredGraph]


def contest_over(request: GraphRequest, options: CompileOptions) -> Contest | None:
    """Returns the contest over a graph; None where there is nothing to decide.

    Args:
        request: The graph.
        options: The user's options.
    """
    if options.requested_executors != "auto" or options.contest == "off":
        return None
    entrants = _entrants(request.graph_module, options)
    return Contest(request, options, entrants) if len(entrants) > 1 else None


@final
class Contest:
    """A contest over one graph.

    Attributes:
        verdict: The verdict, once there is one.
    """

    def __init__(
        self, request: GraphRequest, options: CompileOptions, entrants: Sequence[Entrant]
    ) -> None:
        """Looks for a known verdict.

        Args:
            request: The graph.
            options: The user's options.
            entrants: Two or more, the one that needs no contest first.
        """
        self._options = options
        self._entrants = {entrant.name: entrant for entrant in entrants}
        self._donated = request.donated
        self._is_backward = request.direction is Direction.BACKWARD
        self._written = written_inputs(request.graph_module.graph)
        versions = [f"{one.name} {one.executors[0].version}" for one in entrants]
        self._key = graph_key(request.graph_module, versions, options.inductor_config)
        self._may_be_kept = all(one.executors[0].version is not None for one in entrants)
        self.verdict: ContestVerdict | None = known_verdict(
            self._key, list(self._entrants), binding=options.contest == "cached"
        )

    @property
    def is_open(self) -> bool:
        """Whether the first run has to decide it."""
        return self.verdict is None and self._options.contest == "full"

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
        is_lasting = self._may_be_kept
        with random_state_kept():
            plain = lower(self._with((get_executor("aten"),)))
            for entrant in list(self._entrants.values())[1:]:
                try:
                    lowered = lower(self._with(entrant.executors))
                    objection = self._objection(lowered, first, plain, inputs)
                except Exception as error:  # noqa: BLE001 - the fence around what is on trial
                    objection = f"failed ({type(error).__name__}: {_first_line(error)})"
                    is_lasting = False  # such as for want of memory
                else:
                    admitted[entrant.name] = lowered
                if objection:
                    admitted.pop(entrant.name, None)
                    rejected[entrant.name] = objection
            times = self._times({name: one.run for name, one in admitted.items()}, inputs)
        verdict = ContestVerdict(winner=winner(times), milliseconds=times, rejected=rejected)
        self.verdict = agreed_verdict(self._key, verdict)
        if is_lasting and self.verdict is verdict:
            keep_verdict(self._key, verdict)
        return admitted.get(self.verdict.winner, first)

    def _objection(
        self, lowered: LoweredGraph, first: LoweredGraph, plain: LoweredGraph, inputs: Sequence[Any]
    ) -> str:
        """Returns why an entrant may not run the graph; nothing when it may."""
        wanted, state = _run_on_copies(first.run, inputs)
        found, other_state = _run_on_copies(lowered.run, inputs)
        if wanted != found:
            return "returns another memory layout than the other graph was compiled for"
        if not state.equals(other_state):
            return "leaves another random state behind"
        verdict = judge_run(
            _program(plain.run), _program(lowered.run), inputs, donated=self._donated
        )
        return "" if verdict.accurate else f"is not accurate ({verdict.wrong[0]})"

    def _times(self, runs: Mapping[str, Run], inputs: Sequence[Any]) -> dict[str, float]:
        devices = {str(x.device) for x in inputs if isinstance(x, torch.Tensor) and x.is_cuda}

        def ready(run: Run) -> Prepare:
            return lambda: partial(run, self._fresh(inputs))

        return times_in_turns({name: ready(run) for name, run in runs.items()}, sorted(devices))

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


def _run_on_copies(run: Run, inputs: Sequence[Any]) -> tuple[list[Any], RandomState]:
    """Returns the layouts of a run's results and the random state after it, and undoes that."""
    with random_state_kept():
        return _layouts(run(copy_values(list(inputs)))), RandomState.current()


def _layouts(results: Sequence[Any]) -> list[Any]:
    return [
        (x.dtype, x.device, x.shape, x.stride() if x.layout is torch.strided else x.layout)
        if isinstance(x, torch.Tensor)
        else type(x)
        for x in results
    ]


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or [""])[0]
