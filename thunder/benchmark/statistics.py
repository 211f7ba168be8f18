"""What pairs of timings say: a ratio, an interval that holds, and a verdict.

Contestants are timed in rounds, in an order drawn anew for every round (`interleaving.py` does
that). The unit of evidence is a round's ratio of two timings.

Why that is enough: when two contestants are alike, exchanging them within a round changes nothing,
so the sign of the round's log ratio is a fair coin thrown by us, independent of all other rounds.
That holds whatever the noise is: drift, heavy tails, autocorrelation, a second place that is always
slower. So the sign test and its inversion, the interval of the median between two order statistics
(W. J. Conover, Practical Nonparametric Statistics, 3rd ed., 1999, sections 3.2 and 3.4), are exact.
When one contestant is faster by a constant factor, the same holds for the ratios divided by it.

Why one may look while rounds still come: by Lévy's inequality the largest of the partial sums of
N fair signs exceeds c at most twice as often as the last one does (P. Billingsley, Probability and
Measure, 3rd ed., 1995, section 22), so an interval that uses the c of the last of N planned rounds
at half the error rate holds for all rounds at once: stopping early, or at a key press, costs
nothing but width.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

from thunder.benchmark.records import Measurement, Verdict
from thunder.errors import OptionError

MAXIMUM_ROUNDS = 4000


@dataclass(frozen=True, kw_only=True, slots=True)
class Settings:
    """What a comparison must show, and what it may cost.

    Attributes:
        confidence: How often the interval must hold the true ratio. For many comparisons, of
            which hardly any may raise a false alarm, ask for more: `1 - 0.05 / count`.
        threshold: The smallest difference that matters: 0.03 stands for 3 %.
        seconds: Time that timing may take, warm-up included. A comparison that is decided
            earlier stops earlier.
        seed: Seed of the order within the rounds.
    """

    confidence: float = 0.95
    threshold: float = 0.03
    seconds: float = 2.0
    seed: int = 0

    def __post_init__(self) -> None:
        """Checks the ranges.

        Raises:
            OptionError: A value is outside of what makes sense.
        """
        if not 0.5 <= self.confidence < 1:
            raise OptionError(f"confidence={self.confidence!r} must be from 0.5 to below 1")
        if not 0 < self.threshold < 1:
            raise OptionError(f"threshold={self.threshold!r} must be between 0 and 1: 0.03 is 3 %")
        if not (self.seconds > 0 and math.isfinite(self.seconds)):
            raise OptionError(f"seconds={self.seconds!r} must be a positive, finite time")

    @property
    def least_rounds(self) -> int:
        """How many rounds it takes until an interval can have two ends."""
        return next(n for n in range(1, MAXIMUM_ROUNDS) if critical_sum(n, self.confidence) <= n)


@dataclass(frozen=True, kw_only=True, slots=True)
class Estimate:
    """A median ratio.

    Attributes:
        ratio: The median of the rounds' ratios, candidate's time over baseline's.
        low: Lower end of the interval; 0 when there are too few rounds.
        high: Upper end; infinite when there are too few rounds.
    """

    ratio: float
    low: float
    high: float


@functools.cache
def critical_sum(rounds: int, confidence: float) -> int:
    """Returns how far the sum of `rounds` fair signs hardly ever strays, at any time on the way.

    Args:
        rounds: How many signs are summed in the end.
        confidence: How often all partial sums must stay below the result.

    Returns:
        The smallest c with `2 * P(|S| >= c) <= 1 - confidence`, where S is the sum of all signs.
        It exceeds `rounds` when there is none.
    """
    tail, allowed = 0.0, (1 - confidence) / 4
    log_half = rounds * math.log(0.5)
    for heads in range(rounds, rounds // 2, -1):
        log_choose = math.lgamma(rounds + 1) - math.lgamma(heads + 1)
        tail += math.exp(log_choose - math.lgamma(rounds - heads + 1) + log_half)
        if tail > allowed:
            return 2 * (heads + 1) - rounds
    return 1


def estimate(
    baseline: Sequence[float],
    candidate: Sequence[float],
    *,
    planned_rounds: int,
    confidence: float = 0.95,
) -> Estimate:
    """Estimates the median ratio from timings of the same rounds.

    Args:
        baseline: One timing a round, in any unit.
        candidate: The other contestant's timings of the same rounds.
        planned_rounds: How many rounds were planned before the first one; at least as many as
            there are.
        confidence: How often the interval must hold the true ratio.

    Returns:
        The median of the ratios, and its interval.

    Example:
        >>> estimate([1.0] * 9, [2.0] * 9, planned_rounds=9)
        Estimate(ratio=2.0, low=2.0, high=2.0)
    """
    ratios = np.sort(log_ratios(baseline, candidate))
    rounds = len(ratios)
    if rounds == 0:
        return Estimate(ratio=math.nan, low=0.0, high=math.inf)
    # The k-th smallest ratio is excluded when the signs of all ratios around it sum to c or more.
    cut = (rounds - critical_sum(max(planned_rounds, rounds), confidence)) // 2 + 1
    low, high = (ratios[cut - 1], ratios[rounds - cut]) if cut >= 1 else (-math.inf, math.inf)
    with np.errstate(over="ignore"):
        middle, low, high = (float(np.exp(value)) for value in (_median(ratios), low, high))
    return Estimate(ratio=middle, low=low, high=high)


def log_ratios(baseline: Sequence[float], candidate: Sequence[float]) -> NDArray[np.float64]:
    """Returns the logarithm of each round's ratio; two zeros are equal."""
    first, second = np.asarray(baseline, float), np.asarray(candidate, float)
    with np.errstate(divide="ignore", invalid="ignore"):
        ratios = np.log(second) - np.log(first)
    ratios[first == second] = 0.0
    return ratios


def verdict(found: Estimate, threshold: float) -> Verdict:
    """Says what an estimate shows.

    Two gates stand before `FASTER` and `SLOWER`: the interval must exclude 1, and the estimate
    must differ from 1 by the threshold. `NO_DIFFERENCE` needs all of the interval within the
    threshold: it is shown, not assumed.

    Args:
        found: The estimate.
        threshold: The smallest difference that matters.

    Example:
        >>> verdict(Estimate(ratio=0.9, low=0.85, high=0.95), 0.03)
        <Verdict.FASTER: 'faster'>
        >>> verdict(Estimate(ratio=0.99, low=0.985, high=0.995), 0.03)
        <Verdict.NO_DIFFERENCE: 'no difference'>
    """
    fast, slow = 1 / (1 + threshold), 1 + threshold
    if fast < found.low and found.high < slow:
        return Verdict.NO_DIFFERENCE
    if found.high < 1 and found.ratio <= fast:
        return Verdict.FASTER
    if found.low > 1 and found.ratio >= slow:
        return Verdict.SLOWER
    return Verdict.UNDECIDED


def is_settled(found: Estimate, threshold: float) -> bool:
    """Whether more rounds could hardly change the verdict: the interval is on one side."""
    fast, slow = 1 / (1 + threshold), 1 + threshold
    inside = fast < found.low and found.high < slow
    return inside or found.high < fast or found.low > slow


def rounds_to_resolve(
    baseline: Sequence[float], candidate: Sequence[float], *, confidence: float, difference: float
) -> int | None:
    """Estimates how many rounds would decide whether there is a difference of this size.

    That is when the interval is no wider than the difference: then it cannot hold both no
    difference and this one. The interval lies between two quantiles of the ratios, which close in
    on the median as `z / (2 * sqrt(rounds))`; the ratios seen so far say how far apart these are.

    Args:
        baseline: One timing a round.
        candidate: The other contestant's.
        confidence: The interval's confidence.
        difference: The difference to be resolved: 0.02 stands for 2 %.

    Returns:
        The total number of rounds, or None when what is there is too little to tell.
    """
    ratios = log_ratios(baseline, candidate)
    ratios = ratios[np.isfinite(ratios)]
    if len(ratios) < 4:
        return None
    offsets = np.linspace(0.5, 0.002, 250)
    widths = np.quantile(ratios, 0.5 + offsets) - np.quantile(ratios, 0.5 - offsets)
    narrow = offsets[widths <= math.log1p(difference)]
    offset = float(narrow[0]) if len(narrow) else float(offsets[-1])
    return math.ceil((NormalDist().inv_cdf(1 - (1 - confidence) / 4) / (2 * offset)) ** 2)


def compare_separate_runs(
    baseline: Measurement, candidate: Measurement, *, confidence: float = 0.95
) -> Estimate:
    """Estimates the ratio of two measurements that were not interleaved, of two processes say.

    Nothing cancels here, so this is weaker: each median gets an interval at half the error rate,
    with as many samples as the autocorrelation leaves (effective sample size), and the ratio's
    interval spans both. What differs between processes as a whole, such as clocks or memory
    layout, is not in it: use a threshold well above that, or compare the ratios to a baseline
    that both runs timed themselves.

    Args:
        baseline: The older measurement.
        candidate: The newer one, in the same unit.
        confidence: How often the interval must hold the true ratio, processes aside.
    """
    each = 1 - (1 - confidence) / 2
    ends = [_median_interval(np.asarray(one.samples, float), each) for one in (baseline, candidate)]
    (low_base, high_base), (low, high) = ends
    return Estimate(
        ratio=_divide(candidate.median, baseline.median),
        low=_divide(low, high_base),
        high=_divide(high, low_base),
    )


def _median_interval(samples: NDArray[np.float64], confidence: float) -> tuple[float, float]:
    effective = len(samples) / _autocorrelation_time(samples)
    offset = NormalDist().inv_cdf(1 - (1 - confidence) / 2) / (2 * math.sqrt(max(effective, 1.0)))
    if offset >= 0.5:
        return 0.0, math.inf
    low, high = np.quantile(samples, [0.5 - offset, 0.5 + offset])
    return float(low), float(high)


def _autocorrelation_time(samples: NDArray[np.float64]) -> float:
    """Sums the autocorrelations of the ranks up to the first one that is not positive.

    Ranks, so that single spikes do not hide the rest. The cut is the initial positive sequence of
    C. J. Geyer, Practical Markov Chain Monte Carlo, Statistical Science 7 (1992), without pairing.
    """
    _, place, counts = np.unique(samples, return_inverse=True, return_counts=True)
    ranks = (np.cumsum(counts) - counts / 2)[place]  # equal samples share their mean rank
    centered = ranks - ranks.mean()
    power = float(centered @ centered) or 1.0
    total = 1.0
    for lag in range(1, len(centered) // 2):
        correlation = float(centered[lag:] @ centered[:-lag]) / power
        if correlation <= 0:
            break
        total += 2 * correlation
    return total


def _median(values: NDArray[np.float64]) -> float:
    """The middle of sorted values, which may be infinite."""
    middle = len(values) // 2
    low, high = float(values[(len(values) - 1) // 2]), float(values[middle])
    return low if low == high else (low + high) / 2


def _divide(numerator: float, denominator: float) -> float:
    if denominator == 0:
        return 1.0 if numerator == 0 else math.inf
    return numerator / denominator
