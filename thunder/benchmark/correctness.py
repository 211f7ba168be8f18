"""Checks a compiled program before anybody times it: against eager, judged by float64.

Eager runs once as it is and once in float64. A result that then looks wrong gets two more chances
to be explained: float64 on inputs that are one rounding away, which shows how much the program
itself magnifies rounding, and, when the program draws random numbers, eager with other seeds,
since compilers may draw others. The judgement itself is `thunder.trace.accuracy`'s.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, final

import torch

from thunder.benchmark.inputs import (
    Inputs,
    fingerprint,
    nudged,
    plain_parts,
    storage_key,
    widened,
)
from thunder.benchmark.program import Compute, Program, Results
from thunder.benchmark.workload import devices_of
from thunder.benchmark.writes import WriteWatcher
from thunder.errors import BenchmarkError
from thunder.trace.accuracy import AccuracyVerdict, OutputVerdict, compare_to_reference
from thunder.trace.float64 import RandomDraws, run_in_float64

_OTHER_SEEDS = range(1_000_003, 1_000_011)
"""Of runs that show how far results of other random numbers lie. One may lie close by chance, above
all where the result is a single number such as a loss; eight hardly ever do."""

_LARGE = 1 << 30


@final
@dataclass(frozen=True, kw_only=True, slots=True)
class Expectation:
    """What a program is expected to give.

    Attributes:
        function: The program as it is.
        inputs: Its inputs, which no run changes.
        compute: What is run.
        seed: Seed of the checked runs.
        eager: What eager gives.
        reference: What float64 gives; None when it cannot run.
        written: Names of the inputs that the program writes to.
        drawn: What eager drew at random.
        note: Why there is no float64 result; empty otherwise.
    """

    function: Callable[..., Any]
    inputs: Inputs
    compute: Compute
    seed: int
    eager: Results
    reference: Results | None
    written: frozenset[str]
    drawn: tuple[Any, ...] = field(repr=False)
    note: str = ""

    def copied_inputs(self) -> Inputs:
        """Returns inputs with memory of their own where the program writes."""
        return self.inputs.copy(only=self.inputs.keys_of(self.written))

    def program(self) -> Program:
        """Returns the program with memory of its own where it writes."""
        return _bind(self, self.copied_inputs(), seed=self.seed)

    def run(self, program: Program) -> tuple[Results, tuple[str, ...]]:
        """Runs a contestant and watches the inputs that it shares with the others.

        Args:
            program: What `program` returned, compiled.

        Returns:
            The results, and the names of inputs that it wrote to although eager does not.
        """
        tensors = self.inputs.tensors()
        before = fingerprint(tensors.values())
        results = program.results(self.written)
        after = fingerprint(tensors.values())
        changed = tuple(name for name, tensor in tensors.items() if _differs(tensor, before, after))
        return results, changed

    def judge(self, compiled: Results, changed: tuple[str, ...] = ()) -> AccuracyVerdict:
        """Judges a contestant's results.

        Args:
            compiled: What `run` returned.
            changed: Inputs that must not have been written to and were.
        """
        verdict = compare_to_reference(
            self.eager, compiled, self.reference, note=self._note(self.note)
        )
        explained: list[Results] = []
        for further in self._explanations() if not verdict.accurate else ():
            explained.append(further)
            verdict = compare_to_reference(
                self.eager,
                compiled,
                self.reference,
                explained=explained,
                note=self._note(self.note),
            )
            if verdict.accurate:
                break
        strays = tuple(
            OutputVerdict(
                name=name,
                description="input",
                accurate=False,
                reason="was written to, which eager does not do",
            )
            for name in changed
        )
        return replace(verdict, outputs=verdict.outputs + strays)

    def _note(self, note: str) -> str:
        random = "draws random numbers; other draws were not held against it" if self.drawn else ""
        return "; ".join(filter(None, [note, random]))

    def _explanations(self) -> Iterator[Results]:
        """Yields further results of eager that explain a distance, one at a time."""
        if self.reference is None:
            return
        moved, _ = _float64_results(self, nudged)
        if moved is not None:
            yield moved
        for seed in _OTHER_SEEDS if self.drawn else ():
            yield _bind(self, self.copied_inputs(), seed=seed).results(self.written)


def expect(
    function: Callable[..., Any], inputs: Inputs, *, compute: Compute, seed: int = 0
) -> Expectation:
    """Runs a program in eager mode and in float64.

    Args:
        function: The program.
        inputs: Its inputs. They hold the same values afterwards.
        compute: What to run.
        seed: Seed of the random generators.

    Returns:
        What a compiled version must give.

    Raises:
        BenchmarkError: The program writes to an input in a way that torch is not told.
        Exception: Whatever the program raises in eager mode.

    Example:
        >>> import torch
        >>> x = torch.linspace(0, 1, 100)
        >>> expected = expect(torch.sin, Inputs(args=(x,)), compute=Compute.FORWARD)
        >>> wrong = expected.program().replaced(torch.cos)
        >>> expected.judge(*expected.run(wrong)).accurate
        False
    """
    tensors = inputs.tensors()
    before = fingerprint(tensors.values())
    own = inputs.copy(only=())  # the same memory, as tensors with gradients of their own
    program = Program.bind(function, own, compute=compute, seed=seed, original=inputs)
    with WriteWatcher(tensors.values()) as watcher, RandomDraws() as draws:
        # Results must be copied before the writes are undone.
        eager = program.results(_NamesSeen(watcher, own))
    watcher.undo()
    after = fingerprint(tensors.values())
    if before != after:
        changed = [name for name, tensor in tensors.items() if _differs(tensor, before, after)]
        raise BenchmarkError(
            f"the program writes to {', '.join(changed)} in a way that no operator declares, so "
            "its runs cannot be kept apart; declare it with torch.library (mutates_args)"
        )
    expected = Expectation(
        function=function,
        inputs=inputs,
        compute=compute,
        seed=seed,
        eager=eager,
        reference=None,
        written=own.names_in(watcher.written),
        drawn=tuple(draws.drawn),
    )
    reference, note = _float64_results(expected, widened)
    return replace(expected, reference=reference, note=note)


class _NamesSeen:
    """The inputs that a watcher has seen written to by the time that somebody asks."""

    def __init__(self, watcher: WriteWatcher, inputs: Inputs) -> None:
        self._watcher = watcher
        self._inputs = inputs

    def __contains__(self, name: object) -> bool:
        return name in self._inputs.names_in(self._watcher.written)


def _differs(tensor: torch.Tensor, before: Mapping[int, int], after: Mapping[int, int]) -> bool:
    keys = map(storage_key, plain_parts(tensor))
    return any(before[key] != after[key] for key in keys)


def _is_large(inputs: Inputs) -> bool:
    """Whether a copy in float64 is a load for a device that a model may fill."""
    on_device = any(device.type != "cpu" for device in devices_of(inputs.tensors().values()))
    return on_device and inputs.widened_nbytes() > _LARGE


def _bind(expected: Expectation, inputs: Inputs, *, seed: int) -> Program:
    return Program.bind(
        expected.function,
        inputs,
        compute=expected.compute,
        seed=seed,
        original=expected.inputs,
    )


def _float64_results(
    expected: Expectation, convert: Callable[[torch.Tensor], torch.Tensor]
) -> tuple[Results | None, str]:
    """Runs the program in float64, or says why not."""
    is_large = _is_large(expected.inputs)
    if is_large and (expected.compute is not Compute.FORWARD or convert is nudged):
        return None, "no float64 result: the inputs are too large to be held twice on the device"
    try:
        # Operators widen what they use by themselves; only gradients need float64 inputs.
        inputs = expected.copied_inputs() if is_large else expected.inputs.copy(convert=convert)
        program = _bind(expected, inputs, seed=expected.seed)
        return run_in_float64(lambda: program.results(expected.written), expected.drawn), ""
    except Exception as error:  # noqa: BLE001 - an operator that does not know float64, or memory
        first_line = (str(error).splitlines() or [""])[0]
        return None, f"no float64 result: {type(error).__name__}: {first_line}"
