"""Runs an operator's samples compiled and in eager mode, many samples in one graph.

A sample that differs, or a batch that raises, is tried alone. What fails alone is given to
`torch.compile(backend="aot_eager")`, with `fullgraph=True` for `jit`: a sample that fails there as
well is not counted against us.
"""

from __future__ import annotations

import contextlib
import linecache
import logging
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from tests.opinfo.calls import (
    OPERATORS,
    UNDEFINED_VALUES,
    Call,
    Form,
    calls,
    forms,
    supported_dtypes,
)
from tests.opinfo.observing import Batch, Observation, difference, observe
from thunder import get_subgraph_info, jit, thunderfx

BATCH_SIZE = 24
"""Samples in one graph: enough to share Dynamo's and AOTAutograd's fixed costs."""

Compile = Callable[[Callable[..., Any]], Callable[..., Any]]


@dataclass(frozen=True, kw_only=True, slots=True)
class Failure:
    """A sample that passes through aot_eager and not through thunder.

    Attributes:
        operator: Its name in `OPERATORS`.
        dtype: Of the sample, without `torch.`.
        form: How it was called.
        sample: Which of the samples.
        problem: The difference or the exception.
    """

    operator: str
    dtype: str
    form: Form
    sample: int
    problem: str

    def __str__(self) -> str:
        where = f"{self.operator} {self.dtype} {self.form.value}, sample {self.sample}"
        return f"{where}: {self.problem}"


@dataclass(slots=True)
class Outcome:
    """What became of samples.

    Attributes:
        counts: Samples by what became of them: `passed`, `failed`, `eager refuses` and
            `aot_eager fails too`; also `only in eager mode`, at most so many of them have an
            operator that Dynamo left out of graphs, and `splits` within graphs.
        failures: Those that count.
        by_rule: What aot_eager fails at too, as text.
    """

    counts: Counter[str] = field(default_factory=Counter)
    failures: list[Failure] = field(default_factory=list)
    by_rule: list[str] = field(default_factory=list)


def by_thunder(function: Callable[..., Any]) -> Callable[..., Any]:
    return thunderfx(function, executors=["aten"], on_failure="raise")


def by_jit(function: Callable[..., Any]) -> Callable[..., Any]:
    return jit(function, executors=["aten"])


def by_aot_eager(function: Callable[..., Any]) -> Callable[..., Any]:
    return torch.compile(function, backend="aot_eager")


def by_aot_eager_whole(function: Callable[..., Any]) -> Callable[..., Any]:
    return torch.compile(function, backend="aot_eager", fullgraph=True)


def run_operator(
    name: str,
    compile: Compile = by_thunder,
    *,
    rule: Compile = by_aot_eager,
    dtypes: Sequence[torch.dtype] = (),
    limit: int = 0,
    rounding_matters: bool = True,
) -> Outcome:
    """Compares all samples of an operator with eager.

    Args:
        name: In `OPERATORS`.
        compile: The compiler.
        rule: What passes through this compiler must pass.
        dtypes: Those to try; all that are supported by default.
        limit: About how many samples of each dtype and form; 0 for all.
        rounding_matters: False for compilers that fuse: see `difference`.
    """
    outcome = Outcome()
    op = OPERATORS[name]
    with _quiet():
        for dtype in supported_dtypes(op):
            if dtypes and dtype not in dtypes:
                continue
            for form in forms(op, dtype):
                made = list(calls(op, dtype, form))
                made = made[:: max(1, len(made) // limit)] if limit else made
                comparison = _Comparison(name, dtype, form, compile, outcome)
                comparison.rule = rule
                comparison.rounding_matters = rounding_matters
                comparison.run(made)
    return outcome


class _Comparison:
    """Compares samples of one operator, dtype and form."""

    def __init__(
        self, name: str, dtype: torch.dtype, form: Form, compile: Compile, outcome: Outcome
    ) -> None:
        self.name = name
        self.dtype = str(dtype).removeprefix("torch.")
        self.form = form
        self.compile = compile
        self.outcome = outcome
        self.values_matter = name not in UNDEFINED_VALUES
        self.rounding_matters = True
        self.rule: Compile = by_aot_eager
        self.breaks_graph = False

    def run(self, made: Sequence[Call]) -> None:
        numbered: list[tuple[int, Call]] = []
        for at, call in enumerate(made):
            gradients = _eager_takes(call)
            if gradients is None:
                self.outcome.counts["eager refuses"] += 1
            else:
                numbered.append((at, call if gradients else _detached(call)))
        self._run_batch(numbered[:1])  # tells whether Dynamo breaks the graph
        numbered = numbered[1:]
        while numbered:
            size = 1 if self.breaks_graph else BATCH_SIZE
            self._run_batch(numbered[:size])
            numbered = numbered[size:]

    def _run_batch(self, numbered: Sequence[tuple[int, Call]]) -> None:
        if not numbered:
            return
        made = [call for _, call in numbered]
        wanted = observe(_batch(made), made)
        got = self._observe(made)
        if isinstance(got, Exception):
            if len(numbered) == 1:
                self._judge_alone(numbered[0], _text(got))
                return
            middle = len(numbered) // 2
            self._run_batch(numbered[:middle])
            self._run_batch(numbered[middle:])
            return
        for (at, call), one, other in zip(numbered, got, wanted, strict=True):
            problem = self._difference(call, one, other)
            if problem is None:
                self.outcome.counts["passed"] += 1
            else:
                self._judge_alone((at, call), problem, made)

    def _judge_alone(
        self, numbered: tuple[int, Call], problem: str, batch: Sequence[Call] = ()
    ) -> None:
        at, call = numbered
        wanted = observe(_batch([call]), [call])[0]
        again = self._problem_alone(self.compile, call, wanted)
        rule = self._problem_alone(self.rule, call, wanted)
        if again is None and rule is None and batch:
            rule = self._problem_among(batch, call)
        failure = Failure(
            operator=self.name,
            dtype=self.dtype,
            form=self.form,
            sample=at,
            problem=again or f"only among other samples: {problem}",
        )
        if rule is not None:
            self.outcome.counts["aot_eager fails too"] += 1
            self.outcome.by_rule.append(f"{failure} | aot_eager: {rule}")
            return
        self.outcome.counts["failed"] += 1
        self.outcome.failures.append(failure)

    def _problem_alone(self, compile: Compile, call: Call, wanted: Observation) -> str | None:
        torch._dynamo.reset()
        try:
            got = observe(compile(_batch([call])), [call])[0]
        except Exception as error:  # noqa: BLE001 - whatever a compiler raises is its failure
            return _text(error)
        return self._difference(call, got, wanted)

    def _problem_among(self, batch: Sequence[Call], call: Call) -> str | None:
        """What the rule makes of a call among others: one may draw more numbers than in eager."""
        wanted = observe(_batch(batch), batch)
        torch._dynamo.reset()
        try:
            got = observe(self.rule(_batch(batch)), batch)
        except Exception as error:  # noqa: BLE001 - as above
            return _text(error)
        position = next(i for i, other in enumerate(batch) if other is call)
        return self._difference(call, got[position], wanted[position])

    def _observe(self, made: Sequence[Call]) -> list[Observation] | Exception:
        torch._dynamo.reset()
        compiled = self.compile(_batch(made))
        try:
            got = observe(compiled, made)
        except Exception as error:  # noqa: BLE001 - as above
            return error
        self._count_graphs(compiled, len(made))
        return got

    def _count_graphs(self, compiled: Callable[..., Any], samples: int) -> None:
        if not hasattr(compiled, "_backend"):
            return
        infos = get_subgraph_info(compiled)
        nodes = [node for info in infos for node in info.original_graph_module.graph.nodes]
        operations = sum(node.op.startswith("call") for node in nodes)
        self.outcome.counts["splits"] += sum(len(info.split_reasons) for info in infos)
        self.outcome.counts["only in eager mode"] += max(0, samples - operations)
        if len(infos) != 1:  # after each graph break Dynamo looks at the whole rest again
            self.breaks_graph = True

    def _difference(self, call: Call, got: Observation, wanted: Observation) -> str | None:
        return difference(
            call,
            got,
            wanted,
            values_matter=self.values_matter,
            rounding_matters=self.rounding_matters,
        )


def _eager_takes(call: Call) -> bool | None:
    """Whether eager makes the call with gradients, without (False), or refuses (None)."""
    for gradients in (True, False):
        try:
            observe(_batch([call]), [call], gradients=gradients)
        except Exception:  # noqa: BLE001 - samples that eager refuses are of no interest
            continue
        return gradients
    return None


def _detached(call: Call) -> Call:
    args, kwargs = torch.utils._pytree.tree_map_only(
        torch.Tensor, torch.Tensor.detach, (call.args, call.kwargs)
    )
    return Call(function=call.function, args=args, kwargs=kwargs)


def _batch(made: Sequence[Call]) -> Batch:
    """Writes a function with one line a call, so that Dynamo goes on after a graph break."""
    lines = [f"    r{at} = call(*given[{at}][0], **given[{at}][1])" for at in range(len(made))]
    results = "".join(f"r{at}, " for at in range(len(made)))
    source = "\n".join(["def batch(given):", *lines, f"    return ({results})", ""])
    name = f"<{len(made)} samples>"
    linecache.cache[name] = (len(source), None, source.splitlines(True), name)
    namespace: dict[str, Any] = {"call": made[0].function}
    exec(compile(source, name, "exec"), namespace)
    return namespace["batch"]


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Keeps warnings of single samples, and what Dynamo logs about graph breaks, to itself."""
    logger = logging.getLogger("torch._dynamo")
    before = logger.level
    logger.setLevel(logging.CRITICAL)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logger.setLevel(before)


def _text(error: Exception) -> str:
    return " ".join(f"{type(error).__name__}: {error}".split())[:600]
