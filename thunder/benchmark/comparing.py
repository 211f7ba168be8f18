"""Compares the speed of callables: the way from workloads to measurements and verdicts.

`runner.py` does more: it compiles, checks results and survives failures. This is for contestants
that are known to work.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from thunder.benchmark.interleaving import Rounds, interleave
from thunder.benchmark.progress import ProgressHook, ignore_progress
from thunder.benchmark.records import Comparison, Measurement, Verdict
from thunder.benchmark.statistics import Settings, estimate, rounds_to_resolve, verdict
from thunder.benchmark.timers import AbstractTimer, WallTime
from thunder.benchmark.workload import Workload
from thunder.errors import BenchmarkError, ContestantError

_SAMPLE_SECONDS = 1e-3
_MOST_CALLS = 1 << 14
_SLOWER_BY_FAR = 20


@dataclass(frozen=True, kw_only=True, slots=True)
class SpeedResult:
    """Measurements of all contestants, and their comparisons with the first one.

    Attributes:
        measurements: One for each contestant, in order.
        comparisons: One for each contestant but the first.
        interrupted: Whether a key press ended the measurement.
    """

    measurements: tuple[Measurement, ...]
    comparisons: tuple[Comparison, ...]
    interrupted: bool = False

    def __str__(self) -> str:
        """Returns one line for each measurement and comparison."""
        return "\n".join(map(str, (*self.measurements, *self.comparisons)))


def compare_speed(
    contestants: Mapping[str, Workload | Callable[[], Any]],
    *,
    timer: AbstractTimer | None = None,
    settings: Settings | None = None,
    progress: ProgressHook = ignore_progress,
) -> SpeedResult:
    """Times contestants in interleaved rounds and compares each with the first.

    Args:
        contestants: Name to what is called. A plain function must wait for its device itself.
        timer: How to time; wall time by default.
        settings: Confidence, threshold, time and seed.
        progress: Called between rounds.

    Returns:
        Measurements and comparisons. After a key press those that the complete rounds give.

    Raises:
        BenchmarkError: There is no contestant.
        ContestantError: A contestant failed.

    Example:
        >>> result = compare_speed(
        ...     {"one": lambda: sum(range(500)), "four": lambda: sum(range(2000))},
        ...     settings=Settings(seconds=1.0),
        ... )
        >>> result.comparisons[0].verdict
        <Verdict.SLOWER: 'slower'>
    """
    if not contestants:
        raise BenchmarkError("there is nothing to compare: give at least one contestant")
    timer, settings = timer or WallTime(), settings or Settings()
    workloads = {
        name: one if isinstance(one, Workload) else Workload(function=one)
        for name, one in contestants.items()
    }
    calls = _calls_in_samples(workloads)
    samplers = [
        _sampler(name, timer, workload, calls[name]) for name, workload in workloads.items()
    ]
    rounds = interleave(samplers, settings, progress=progress)
    measurements = tuple(
        Measurement(
            name=name,
            timer=timer.name,
            samples=rounds.samples[index],
            calls=calls[name],
            warm_up_rounds=rounds.warm_up_rounds,
            steady=rounds.steady[index],
            peak_bytes=None if rounds.interrupted else _peak_bytes(name, timer, workload),
        )
        for index, (name, workload) in enumerate(workloads.items())
    )
    comparisons = tuple(
        _compare(measurements[0], candidate, rounds, settings) for candidate in measurements[1:]
    )
    return SpeedResult(
        measurements=measurements, comparisons=comparisons, interrupted=rounds.interrupted
    )


def _peak_bytes(name: str, timer: AbstractTimer, workload: Workload) -> int | None:
    with _blaming(name):
        return timer.peak_bytes(workload)


def _compare(
    baseline: Measurement, candidate: Measurement, rounds: Rounds, settings: Settings
) -> Comparison:
    found = estimate(
        baseline.samples,
        candidate.samples,
        planned_rounds=rounds.planned,
        confidence=settings.confidence,
    )
    said = verdict(found, settings.threshold)
    seconds = None
    if said is Verdict.UNDECIDED:
        seconds = _seconds_to_resolve(baseline, candidate, rounds, settings)
    return Comparison(
        baseline=baseline.name,
        candidate=candidate.name,
        ratio=found.ratio,
        low=found.low,
        high=found.high,
        confidence=settings.confidence,
        threshold=settings.threshold,
        verdict=said,
        rounds=len(candidate.samples),
        seconds_to_resolve=seconds,
    )


def _seconds_to_resolve(
    baseline: Measurement, candidate: Measurement, rounds: Rounds, settings: Settings
) -> float | None:
    needed = rounds_to_resolve(
        baseline.samples,
        candidate.samples,
        confidence=settings.confidence,
        difference=settings.threshold,
    )
    if needed is None:
        return None
    more = max(needed, settings.least_rounds, len(candidate.samples) + 1) - len(candidate.samples)
    return more * rounds.seconds_per_round


def _calls_in_samples(workloads: Mapping[str, Workload]) -> dict[str, int]:
    """Returns how many calls a sample of each contestant is made of.

    The fastest one's take about a millisecond, against which reading the clock is little, and no
    longer, since in short rounds more of the drift cancels. All others get the same number, or
    two equal contestants would not be exchangeable; but for those that are slower by far.
    """
    seconds = {name: _seconds_of_a_call(name, workload) for name, workload in workloads.items()}
    calls = max(1, min(_MOST_CALLS, math.ceil(_SAMPLE_SECONDS / min(seconds.values()))))
    most = {name: int(_SLOWER_BY_FAR * _SAMPLE_SECONDS / each) for name, each in seconds.items()}
    return {name: max(1, min(calls, most[name])) for name in workloads}


def _seconds_of_a_call(name: str, workload: Workload) -> float:
    calls = 1
    while True:
        with _blaming(name):
            seconds = min(WallTime().measure(workload, calls=calls) for _ in range(3))
        if seconds * calls >= _SAMPLE_SECONDS / 10 or calls >= _MOST_CALLS:
            return max(seconds, 1e-9)
        calls *= 4


def _sampler(
    name: str, timer: AbstractTimer, workload: Workload, calls: int
) -> Callable[[], float]:
    def sample() -> float:
        with _blaming(name):
            return timer.measure(workload, calls=calls)

    return sample


@contextlib.contextmanager
def _blaming(name: str) -> Iterator[None]:
    """Says whose exception it is."""
    try:
        yield
    except Exception as error:
        message = f"{name} failed while it was timed: {type(error).__name__}: {error}"
        raise ContestantError(message, contestant=name) from error
