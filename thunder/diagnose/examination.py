"""Compiles and runs a piece, and says how that ended. This is what workers do."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

import torch
from torch import fx
from torch._inductor import config as inductor_config
from torch.utils._pytree import tree_leaves

from thunder.debug.variables import REPRODUCERS
from thunder.diagnose.finding import Finding, Kind
from thunder.diagnose.problem import Piece, Problem
from thunder.pipeline.judged_run import Program, Results, call_results, copy_values, judge_run
from thunder.trace.copying import copy_graph_module

Compile = Callable[[fx.GraphModule], Callable[..., Any]]
UserCheck = Callable[[fx.GraphModule, Sequence[Any]], bool]


@dataclass(frozen=True, slots=True)
class Query:
    """What a worker is asked.

    Attributes:
        piece: The piece; None for the graph as it is.
        accuracy: Whether results are judged; otherwise it is enough that it runs. None looks at
            them only when it runs.
    """

    piece: Piece | None
    accuracy: bool | None


@dataclass(frozen=True, kw_only=True, slots=True)
class Examination:
    """How pieces are examined.

    Attributes:
        problem: What they are pieces of.
        compile: Compiles a graph module; takes it over.
        user_check: Decides instead of everything else, when there is one.
        around: Makes the context that pieces are compiled and called in.
    """

    problem: Problem
    compile: Compile
    around: Callable[[], AbstractContextManager[Any]] = contextlib.nullcontext
    user_check: UserCheck | None = None

    def answer(self, query: Query) -> Finding:
        """Examines a piece, or the graph as it is."""
        if query.piece is None:
            return self._whole(query.accuracy)
        try:
            graph_module, inputs = self.problem.build(query.piece)
        except LookupError as error:
            return Finding(kind=Kind.IMPOSSIBLE, text=str(error))
        return self._examine(graph_module, inputs, bool(query.accuracy))

    def _whole(self, accuracy: bool | None) -> Finding:
        graph_module, inputs = self.problem.graph_module, list(self.problem.inputs)
        finding = self._examine(copy_graph_module(graph_module), inputs, bool(accuracy))
        if accuracy is None and finding.kind is Kind.PASSES:
            return self._examine(copy_graph_module(graph_module), inputs, True)
        return finding

    def _examine(self, graph_module: fx.GraphModule, inputs: list[Any], accuracy: bool) -> Finding:
        torch._dynamo.reset()
        torch.manual_seed(0)
        with _without_reproducers():
            if self.user_check is not None:
                return _ask_user(self.user_check, graph_module, inputs)
            return self._run(graph_module, inputs, accuracy)

    def _run(self, graph_module: fx.GraphModule, inputs: list[Any], accuracy: bool) -> Finding:
        outputs = len(tree_leaves(graph_module.graph.output_node().args[0]))
        try:
            if not accuracy:
                run = self.compile(copy_graph_module(graph_module))
                self._program(run)(copy_values(inputs))
                return Finding(kind=Kind.PASSES)
            # Otherwise compiled code draws other random numbers than eager.
            with inductor_config.patch(fallback_random=True):
                run = self.compile(copy_graph_module(graph_module))
                verdict = judge_run(self._program(graph_module), self._program(run), inputs)
        except Exception as error:  # noqa: BLE001 (the fence around what is examined)
            return Finding.of_error(error)
        if verdict.accurate:
            return Finding(kind=Kind.PASSES)
        wrong = [i for i, output in enumerate(verdict.outputs[:outputs]) if not output.accurate]
        return Finding(kind=Kind.INACCURATE, text=str(verdict), wrong_outputs=tuple(wrong))

    def _program(self, function: Callable[..., Any]) -> Program:
        return lambda inputs: run_both_ways(function, inputs, self.around)


def run_both_ways(
    function: Callable[..., Any],
    inputs: list[Any],
    around: Callable[[], AbstractContextManager[Any]] = contextlib.nullcontext,
) -> Results:
    """Calls a function, and differentiates it where its inputs ask for it.

    Args:
        function: Takes the inputs positionally.
        inputs: The inputs; leaves of autograd.
        around: Makes the context of the call; the backward run is outside.

    Returns:
        Outputs, and gradients of the inputs. The backward run
        starts from slopes that differ from element to element.
    """
    wanted = [x for x in inputs if isinstance(x, torch.Tensor) and x.requires_grad]
    outputs: list[torch.Tensor] = []

    def call(*arguments: Any) -> Any:
        with around():
            result = function(*arguments)
        outputs.extend(x for x in tree_leaves(result) if isinstance(x, torch.Tensor))
        return result

    results = call_results(call, inputs)
    roots = [x for x in outputs if x.requires_grad]
    if not (wanted and roots):
        return results
    gradients = torch.autograd.grad(roots, wanted, [slope(x) for x in roots], allow_unused=True)
    return {**results, "gradients": gradients}


def slope(x: torch.Tensor) -> torch.Tensor:
    """Returns the gradient that a backward run starts from: another number for each element."""
    slopes = torch.linspace(0.5, 1.5, x.numel(), dtype=torch.float64, device=x.device)
    return slopes.view(x.shape).to(x.dtype)


@contextlib.contextmanager
def _without_reproducers() -> Iterator[None]:
    """Keeps the failures that are looked for from leaving scripts of their own."""
    with REPRODUCERS.restored():
        os.environ[REPRODUCERS.name] = "off"
        yield


def _ask_user(check: UserCheck, graph_module: fx.GraphModule, inputs: list[Any]) -> Finding:
    try:
        holds = check(graph_module, inputs)
    except Exception as error:  # noqa: BLE001 (the fence around a user's check)
        return Finding(kind=Kind.CHECK_FAILS, text=f"{type(error).__name__}: {error}")
    return Finding(kind=Kind.HOLDS if holds else Kind.PASSES)
