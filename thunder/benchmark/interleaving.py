"""Rounds of timings: every contestant in turn, in a new random order each round, and back again.

Contestants that are timed close together share the machine's state, so drift cancels. A drawn
order keeps a place in the round from helping any of them, and going back in reverse order evens
out what a place costs; what counts for a contestant is the geometric mean of its two timings.
On repetition and steady state see A. Georges, D. Buytaert, L. Eeckhout, Statistically Rigorous
Java Performance Evaluation, OOPSLA 2007; on randomisation T. Mytkowicz and others, Producing Wrong
Data Without Doing Anything Obviously Wrong, ASPLOS 2009.

What the numbers show is `statistics.py`'s business.
"""

from __future__ import annotations

import math
import random
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from thunder.benchmark.progress import ProgressEvent, ProgressHook, Step, ignore_progress
from thunder.benchmark.statistics import (
    MAXIMUM_ROUNDS,
    Settings,
    estimate,
    is_settled,
)

_WINDOW = 4
_FALL = 0.02
_WARM_UP_SHARE = 0.25


@dataclass(frozen=True, kw_only=True, slots=True)
class Rounds:
    """Timings of interleaved rounds.

    Attributes:
        samples: For each contestant, one value a round: the geometric mean of there and back.
        planned: How many rounds were planned after the warm-up.
        warm_up_rounds: How many rounds came before those kept.
        steady: For each contestant, whether its timings had stopped falling by then.
        seconds_per_round: What a round costs on the clock; 0 when none was finished.
        interrupted: Whether a key press ended the rounds.
    """

    samples: tuple[tuple[float, ...], ...]
    planned: int
    warm_up_rounds: int
    steady: tuple[bool, ...]
    seconds_per_round: float
    interrupted: bool = False


def interleave(
    samplers: Sequence[Callable[[], float]],
    settings: Settings,
    *,
    progress: ProgressHook = ignore_progress,
    clock: Callable[[], float] = time.perf_counter,
) -> Rounds:
    """Times contestants in rounds until the comparison is settled or the time is over.

    Warm-up ends when no contestant's timings fall any more, at the latest after a quarter of the
    time. Then rounds follow, as many as fit into the rest, fewer when all candidates' intervals
    lie on one side of the threshold. When time is short, rounds do not go back. One round is
    always finished, however long it takes.

    Args:
        samplers: One function a contestant, the baseline first; each returns a timing.
        settings: Confidence, threshold, time and seed.
        progress: Called between rounds.
        clock: Returns the time in seconds.

    Returns:
        The timings. A key press (KeyboardInterrupt) ends the rounds, too, and keeps what is
        complete.
    """
    run = _Run(samplers, random.Random(settings.seed), clock)
    start = clock()
    deadline = start + settings.seconds
    warm: list[tuple[float, ...]] = []
    kept: list[tuple[float, ...]] = []
    planned, interrupted, began = 0, False, start
    try:
        _warm_up(run, warm, start + _WARM_UP_SHARE * settings.seconds, settings.seconds, progress)
        began = clock()
        per_round = max((began - start) / len(warm), 1e-9)
        fitting = int((deadline - began) / per_round)
        back = fitting >= 2 * settings.least_rounds
        planned = min(max(fitting // (1 + back), settings.least_rounds), MAXIMUM_ROUNDS)
        look = settings.least_rounds
        while len(kept) < planned and (not kept or clock() < deadline):
            kept.append(run.round_there_and_back() if back else run.round_there())
            if len(kept) >= look:
                look = int(1.1 * look) + 1
                progress(ProgressEvent(step=Step.MEASURE, fraction=_over(clock(), began, deadline)))
                if _all_settled(kept, planned, settings):
                    break
    except KeyboardInterrupt:
        interrupted = True
    return Rounds(
        samples=_by_contestant(kept, len(samplers)),
        planned=max(planned, len(kept)),
        warm_up_rounds=len(warm),
        steady=tuple(_is_steady(one) for one in _by_contestant(warm, len(samplers))),
        seconds_per_round=(clock() - began) / len(kept) if kept else 0.0,
        interrupted=interrupted,
    )


class _Run:
    """Draws an order and takes one timing of each contestant."""

    def __init__(
        self,
        samplers: Sequence[Callable[[], float]],
        generator: random.Random,
        clock: Callable[[], float],
    ) -> None:
        self.clock = clock
        self._samplers = samplers
        self._generator = generator

    def round_there(self) -> tuple[float, ...]:
        return self._in_order(self._drawn_order())

    def round_there_and_back(self) -> tuple[float, ...]:
        order = self._drawn_order()
        there, back = self._in_order(order), self._in_order(order[::-1])
        return tuple(math.sqrt(one * other) for one, other in zip(there, back, strict=True))

    def _drawn_order(self) -> list[int]:
        order = list(range(len(self._samplers)))
        self._generator.shuffle(order)
        return order

    def _in_order(self, order: Sequence[int]) -> tuple[float, ...]:
        found = {index: self._samplers[index]() for index in order}
        return tuple(found[index] for index in range(len(order)))


def _warm_up(
    run: _Run,
    rounds: list[tuple[float, ...]],
    deadline: float,
    seconds: float,
    progress: ProgressHook,
) -> None:
    while True:
        rounds.append(run.round_there())
        now = run.clock()
        left = max(0.0, deadline - now) / (_WARM_UP_SHARE * seconds)
        progress(ProgressEvent(step=Step.WARM_UP, fraction=1 - left))
        if now >= deadline:
            return
        enough = len(rounds) >= 2 * _WINDOW
        if enough and all(map(_is_steady, _by_contestant(rounds, len(rounds[0])))):
            return


def _is_steady(samples: Sequence[float]) -> bool:
    """Whether the last few timings are not below the few before them."""
    window = min(_WINDOW, len(samples) // 2)
    if window == 0:
        return True
    before = statistics.median(samples[-2 * window : -window])
    return statistics.median(samples[-window:]) >= (1 - _FALL) * before


def _all_settled(rounds: Sequence[tuple[float, ...]], planned: int, settings: Settings) -> bool:
    baseline, *candidates = _by_contestant(rounds, len(rounds[0]))
    return bool(candidates) and all(
        is_settled(
            estimate(baseline, candidate, planned_rounds=planned, confidence=settings.confidence),
            settings.threshold,
        )
        for candidate in candidates
    )


def _by_contestant(
    rounds: Sequence[tuple[float, ...]], count: int
) -> tuple[tuple[float, ...], ...]:
    return tuple(tuple(one[index] for one in rounds) for index in range(count))


def _over(now: float, began: float, deadline: float) -> float:
    return min(1.0, (now - began) / max(deadline - began, 1e-9))
