"""The contest of `executors="auto"` between torch's attention kernels on a GPU.

Which kernel computes attention must be known before AOTAutograd makes forward and backward of it,
so it is decided on the captured graph, for each call by itself, on random inputs with its sizes
and strides: forward, and backward where gradients are wanted. As in `contest.py`, `"full"`
measures, `"cached"` uses verdicts that are known, and torch's own choice stays where nobody is
clearly faster.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, final

import torch
from torch import fx
from torch.backends import cuda, cudnn
from torch.nn.attention import SDPBackend
from torch.nn.functional import scaled_dot_product_attention
from torch.utils._python_dispatch import _disable_current_modes

from thunder.pipeline.attention_problem import Attention, AttentionProblem, attention_problem
from thunder.pipeline.graph_key import measurement_key
from thunder.pipeline.judged_run import Program, judge_run, random_state_kept
from thunder.pipeline.options import CompileOptions
from thunder.pipeline.timing import Prepare, times_in_turns
from thunder.pipeline.verdicts import (
    ContestVerdict,
    agreed_verdict,
    keep_verdict,
    known_verdict,
    winner,
)
from thunder.transforms.attention_backend import by_backend
from thunder.transforms.base import AbstractTransform, Stage

_log = logging.getLogger(__name__)

_KERNELS = (
    SDPBackend.CUDNN_ATTENTION,
    SDPBackend.FLASH_ATTENTION,
    SDPBackend.EFFICIENT_ATTENTION,
)

_SCORES = 12
"""How many float64 tensors like the scores must fit into free memory to judge a kernel."""

_RUNS = 5
"""Runs that are timed as one: the GPU works while the next is launched, as in a model."""


def attention_contest(options: CompileOptions) -> AttentionContest | None:
    """Returns the contest that a region's captured graph takes part in; None where there is none.

    Args:
        options: The user's options.
    """
    if options.requested_executors != "auto" or options.contest == "off":
        return None
    return AttentionContest(measures=options.contest == "full")


@final
class AttentionContest(AbstractTransform):
    """Names the fastest kernel in each call of attention that can be measured.

    Attributes:
        verdicts: By the name of the call's node.
    """

    stage = Stage.CAPTURED

    def __init__(self, *, measures: bool, device_type: str = "cuda") -> None:
        """Makes the transform.

        Args:
            measures: Whether to measure what is not known.
            device_type: Where calls take part; on a CPU, torch's choice is not worth a contest.
        """
        self._measures = measures
        self._device_type = device_type
        self._decided: dict[AttentionProblem, ContestVerdict | None] = {}
        self.verdicts: dict[str, ContestVerdict] = {}

    @property
    def name(self) -> str:
        """`"attention contest"`."""
        return "attention contest"

    def apply(self, graph_module: fx.GraphModule) -> tuple[fx.GraphModule, bool]:
        """Names kernels, in the graph and in bodies that it calls.

        Args:
            graph_module: A graph from Dynamo.

        Returns:
            The same graph module, and whether a call was changed.
        """
        changed = False
        if torch.are_deterministic_algorithms_enabled():
            return graph_module, changed
        for node, problem in _problems(graph_module):
            if problem.query.device.type != self._device_type:
                continue
            if problem not in self._decided:
                self._decided[problem] = self._decide(problem)
            verdict = self._decided[problem]
            if verdict is None:
                continue
            self.verdicts[node.name] = verdict
            if verdict.winner != next(iter(verdict.milliseconds)):
                node.target = by_backend(SDPBackend.__members__[verdict.winner])
                changed = True
        for module in graph_module.modules() if changed else ():
            if isinstance(module, fx.GraphModule):
                module.recompile()
        return graph_module, changed

    def _decide(self, problem: AttentionProblem) -> ContestVerdict | None:
        key = _key(problem)
        names = [kernel.name for kernel in _KERNELS]
        verdict = known_verdict(key, names, binding=not self._measures)
        if verdict is not None or not self._measures:
            return verdict
        try:
            with _disable_current_modes(), random_state_kept():
                verdict = hold(problem, problem.kernels())
        except RuntimeError as error:  # such as for want of memory: torch's choice stays
            _log.info("no contest over %s: %s", problem, error)
            return None
        if verdict is None:
            return None
        agreed = agreed_verdict(key, verdict)
        if agreed is verdict:
            keep_verdict(key, verdict)
        return agreed


def hold(problem: AttentionProblem, kernels: Sequence[SDPBackend]) -> ContestVerdict | None:
    """Judges and times kernels on random inputs.

    Args:
        problem: A call of attention.
        kernels: Those that can run it, torch's choice first.

    Returns:
        The verdict; None where there is no choice, or no memory to judge it.
    """
    part = problem.of_one_group()
    if len(kernels) < 2 or not _affordable(part):
        return None
    rejected: dict[str, str] = {}
    inputs, small = problem.make_inputs(), part.make_inputs()
    layout = _layout(problem.run(by_backend(kernels[0]), inputs)[0])
    for kernel in kernels[1:]:
        if _layout(problem.run(by_backend(kernel), inputs)[0]) != layout:
            rejected[kernel.name] = "returns another memory layout"
            continue
        verdict = judge_run(
            _program(part, scaled_dot_product_attention), _program(part, by_backend(kernel)), small
        )
        if not verdict.accurate:
            rejected[kernel.name] = f"is not accurate ({verdict.wrong[0]})"
    admitted = [kernel for kernel in kernels if kernel.name not in rejected]
    devices = [str(problem.query.device)] if problem.query.device.type == "cuda" else []
    ready = {kernel.name: _repeated(problem, by_backend(kernel), inputs) for kernel in admitted}
    times = {name: ms / _RUNS for name, ms in times_in_turns(ready, devices).items()}
    return ContestVerdict(winner=winner(times), milliseconds=times, rejected=rejected)


def _problems(graph_module: fx.GraphModule) -> Iterator[tuple[fx.Node, AttentionProblem]]:
    """Yields the calls that can be measured; none where the program itself names kernels."""
    modules = [module for module in graph_module.modules() if isinstance(module, fx.GraphModule)]
    nodes = [node for module in modules for node in module.graph.nodes]
    if any(getattr(node.target, "__module__", "") == "torch.nn.attention" for node in nodes):
        return
    for node in nodes:
        if (problem := attention_problem(node)) is not None:
            yield node, problem


def _key(problem: AttentionProblem) -> str:
    device = problem.query.device
    return measurement_key(
        [
            f"{problem!r}",
            torch.cuda.get_device_name(device) if device.type == "cuda" else device.type,
            f"cuDNN {cudnn.version()}",
            f"allowed: {cuda.cudnn_sdp_enabled()} {cuda.flash_sdp_enabled()} "
            f"{cuda.mem_efficient_sdp_enabled()}",
        ]
    )


def _affordable(part: AttentionProblem) -> bool:
    device = part.query.device
    return device.type != "cuda" or _SCORES * part.score_bytes < torch.cuda.mem_get_info(device)[0]


def _program(part: AttentionProblem, attention: Attention) -> Program:
    return lambda inputs: {"outputs": [x.detach() for x in part.run(attention, inputs)]}


def _repeated(problem: AttentionProblem, attention: Attention, inputs: list[Any]) -> Prepare:
    once: Callable[[], object] = partial(problem.run, attention, inputs)
    return lambda: lambda: [once() for _ in range(_RUNS)]


def _layout(result: torch.Tensor) -> Any:
    return (result.dtype, result.shape, result.stride())
