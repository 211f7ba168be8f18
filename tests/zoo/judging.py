"""Compares compiled models with eager: outputs, loss, gradients, buffers, in two sizes of inputs.

Rounding is judged by the distance from float64. What differs from eager is run through
`torch.compile(backend="aot_eager")` too: thunder has to do what that does, not more.
"""

from __future__ import annotations

import copy
import enum
import os
import warnings
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import nn
from torch.utils._pytree import tree_map

from tests.zoo.cases import Case, loss_of, tensors_of
from tests.zoo.inputs import Inputs
from thunder import get_subgraph_info, thunderfx
from thunder.trace.accuracy import compare_to_reference
from thunder.trace.float64 import RandomDraws, run_in_float64

Model = Callable[..., Any]
Seen = dict[str, Any]

EXECUTORS = os.environ.get("ZOO_EXECUTORS", "aten")
"""`auto` goes through Inductor, and takes long."""


class Verdict(enum.Enum):
    """What became of a model in one mode."""

    PASSED = "passed"
    AS_AOT_EAGER = "as aot_eager"
    """It differs from eager, and `torch.compile(backend="aot_eager")` does so in the same way."""

    FAILED = "failed"
    NOT_IN_EAGER = "not in eager"
    """Eager cannot run it in this mode."""


class Mode(enum.Enum):
    """How a model is run."""

    TRAIN = "train"
    """Backward too; in two sizes, of which the second makes Dynamo capture again."""

    EVALUATE = "eval"
    """Without gradients; in two sizes, with one graph that is dynamic from the beginning."""

    TRAIN_BFLOAT16 = "train bfloat16"
    """Backward too; in one size."""

    EVALUATE_BFLOAT16 = "eval bfloat16"
    """Without gradients; in one size."""

    @property
    def trains(self) -> bool:
        return self in (Mode.TRAIN, Mode.TRAIN_BFLOAT16)

    @property
    def dtype(self) -> torch.dtype:
        return torch.float32 if self in (Mode.TRAIN, Mode.EVALUATE) else torch.bfloat16

    @property
    def dynamic(self) -> bool | None:
        return True if self is Mode.EVALUATE else None

    def calls(self, case: Case) -> list[Inputs]:
        sizes = [case.inputs] if self.dtype is torch.bfloat16 else [case.inputs, case.other]
        return [_in_dtype(inputs, self.dtype) for inputs in sizes]


@dataclass(frozen=True, kw_only=True, slots=True)
class Judgement:
    """A verdict with what there is to know about it.

    Attributes:
        mode: The mode's name.
        verdict: The verdict's name.
        graphs: Number of graphs that Dynamo captured.
        splits: Reasons for splits of these graphs.
        problem: What differs or was raised; empty if nothing.
        rule: What differs through aot_eager, or was raised there.
    """

    mode: str
    verdict: str
    graphs: int = 0
    splits: tuple[str, ...] = ()
    problem: str = ""
    rule: str = ""

    @property
    def acceptable(self) -> bool:
        return self.verdict != Verdict.FAILED.value

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


Compile = Callable[[nn.Module, Mode], Model]


def by_thunder(model: nn.Module, mode: Mode) -> Model:
    return thunderfx(model, executors=EXECUTORS, on_failure="raise", dynamic=mode.dynamic)


def by_aot_eager(model: nn.Module, mode: Mode) -> Model:
    return torch.compile(model, backend="aot_eager", dynamic=mode.dynamic)


def judge(case: Case, mode: Mode, compile: Compile = by_thunder) -> Judgement:
    """Runs a model compiled, and says whether it does what it does in eager mode.

    Args:
        case: The model and its inputs.
        mode: How to run it.
        compile: The compiler.
    """
    model = copy.deepcopy(case.model).to(mode.dtype)
    calls = mode.calls(case)
    try:
        wanted = _observe(model, None, calls, mode)
    except Exception as error:  # noqa: BLE001 - then there is nothing to compare with
        return Judgement(
            mode=mode.value, verdict=Verdict.NOT_IN_EAGER.value, problem=describe(error)
        )
    torch._dynamo.reset()
    compiled: list[Model] = []

    def kept(twin: nn.Module, mode: Mode) -> Model:
        compiled.append(compile(twin, mode))
        return compiled[0]

    problem, got = _problem(model, kept, calls, mode, wanted)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # there may be no graph
        infos = get_subgraph_info(compiled[0]) if compiled else []
    facts = {
        "mode": mode.value,
        "graphs": len(infos),
        "splits": tuple(str(reason) for info in infos for reason in info.split_reasons),
        "problem": problem,
    }
    if not problem:
        return Judgement(**facts, verdict=Verdict.PASSED.value)
    torch._dynamo.reset()
    rule, ruled = _problem(model, by_aot_eager, calls, mode, wanted)
    is_rule = bool(rule) and _same_way(problem, got, rule, ruled)
    verdict = Verdict.AS_AOT_EAGER if is_rule else Verdict.FAILED
    return Judgement(**facts, verdict=verdict.value, rule=rule)


def describe(error: BaseException) -> str:
    """Returns an exception's type and the beginning of its text.

    Args:
        error: The exception.
    """
    return f"{type(error).__name__}: {str(error).strip()[:600]}"


def _problem(
    model: nn.Module,
    compile: Compile,
    calls: list[Inputs],
    mode: Mode,
    wanted: Seen,
) -> tuple[str, Seen | None]:
    """Returns what is wrong, empty if nothing is, and what was seen, None if it was raised."""
    try:
        got = _observe(model, compile, calls, mode)
    except Exception as error:  # noqa: BLE001 - whatever a compiler raises is its failure
        return describe(error), None
    try:
        torch.testing.assert_close(got, wanted)
    except AssertionError as error:
        return _unexplained(model, calls, mode, wanted, got, str(error)), got
    return "", got


def _same_way(problem: str, got: Seen | None, rule: str, ruled: Seen | None) -> bool:
    """Whether thunder does what aot_eager does; where that raises, results are none the worse."""
    if ruled is None:
        reason = rule.splitlines()[0].partition(": ")[2]
        return got is not None or reason in problem
    try:
        torch.testing.assert_close(got, ruled)
    except AssertionError:
        return False
    return True


def _unexplained(
    model: nn.Module, calls: list[Inputs], mode: Mode, wanted: Seen, got: Seen, found: str
) -> str:
    """Says what is worse than rounding explains."""
    with RandomDraws() as draws:
        _observe(model, None, calls, mode)
    twin = _copy(model, mode).double()
    wide = [_in_dtype(copy.deepcopy(inputs), torch.float64) for inputs in calls]
    try:
        truth = run_in_float64(lambda: _run(twin, wide, mode, twin), draws.drawn)
    except Exception as error:  # noqa: BLE001 - an operator without float64, for instance
        return f"{found[:600]} (no float64 reference: {describe(error)[:200]})"
    verdict = compare_to_reference(wanted, got, truth)
    return "" if verdict.accurate else str(verdict)[:1500]


def _observe(model: nn.Module, compile: Compile | None, calls: list[Inputs], mode: Mode) -> Seen:
    """Makes the calls on a copy of the model."""
    twin = _copy(model, mode)
    return _run(twin, copy.deepcopy(calls), mode, compile(twin, mode) if compile else twin)


def _copy(model: nn.Module, mode: Mode) -> nn.Module:
    return copy.deepcopy(model).train(mode.trains)


def _run(twin: nn.Module, calls: list[Inputs], mode: Mode, run: Model) -> Seen:
    seen: Seen = {}
    for number, inputs in enumerate(calls):
        torch.manual_seed(11)
        with torch.set_grad_enabled(mode.trains):
            outputs = run(**inputs)
            seen[f"call {number}"] = [x.detach().clone() for x in tensors_of(outputs)]
        if mode.trains:
            loss = loss_of(outputs)
            loss.backward()
            seen[f"loss {number}"] = loss.detach().clone()
            seen[f"gradients {number}"] = {
                name: p.grad.clone() for name, p in twin.named_parameters() if p.grad is not None
            }
            twin.zero_grad()
    seen["buffers"] = {name: x.clone() for name, x in twin.named_buffers()}
    return seen


def _in_dtype(inputs: Inputs, dtype: torch.dtype) -> Inputs:
    return tree_map(
        lambda x: x.to(dtype) if isinstance(x, torch.Tensor) and x.is_floating_point() else x,
        inputs,
    )
