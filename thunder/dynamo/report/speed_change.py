"""How much longer a region takes than in an earlier run, and how much of that eager does not share.

The two runs were not timed together: the machine may have been slower in one of them. Eager was
timed in the same rounds as the region, so its time says how fast the machine was. The region's time
over eager's in the new run, divided by the same in the old run, is what is left of the change.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import final

from thunder.benchmark import Measurement, compare_separate_runs
from thunder.benchmark.records import format_seconds
from thunder.benchmark.statistics import Estimate, estimate

_CONFIDENCE = 0.95


@final
@dataclass(frozen=True, kw_only=True, slots=True)
class SpeedRun:
    """What one run says about a region's time.

    Attributes:
        region: The region's timings.
        eager: Those of eager in the same rounds; None where there are none.
    """

    region: Measurement
    eager: Measurement | None = None

    @property
    def over_eager(self) -> Estimate | None:
        """The region's time over eager's, round by round."""
        if self.eager is None or len(self.eager.samples) != len(self.region.samples):
            return None
        return estimate(
            self.eager.samples,
            self.region.samples,
            planned_rounds=len(self.region.samples),
            confidence=_CONFIDENCE,
        )


@final
@dataclass(frozen=True, kw_only=True, slots=True)
class SpeedChange:
    """A region's time in a new run over that in an old one.

    Attributes:
        old: The run from before.
        new: The run of now.
    """

    old: SpeedRun
    new: SpeedRun

    @property
    def seconds(self) -> Estimate:
        """The ratio of the region's times, the machine's change included."""
        return compare_separate_runs(self.old.region, self.new.region, confidence=_CONFIDENCE)

    @property
    def beyond_eager(self) -> Estimate | None:
        """The ratio that is left when eager's is divided out; None where eager was not timed."""
        before, after = self.old.over_eager, self.new.over_eager
        return None if before is None or after is None else divide(after, before)

    def is_slower(self, threshold: float) -> bool:
        """Whether it takes longer by more than the threshold, for certain and beyond eager.

        Args:
            threshold: 0.1 stands for 10 %: the whole interval has to lie above 1.1.
        """
        beyond = self.beyond_eager or self.seconds
        # Eager alone that became faster makes no region slower.
        return beyond.low > 1 + threshold and self.seconds.ratio > 1 + threshold

    def is_faster(self, threshold: float) -> bool:
        """Whether it takes less time by more than the threshold, for certain and beyond eager.

        Args:
            threshold: 0.1 stands for 10 %: the whole interval has to lie below 1 / 1.1.
        """
        beyond = self.beyond_eager or self.seconds
        most = 1 / (1 + threshold)
        return beyond.high < most and self.seconds.ratio < most

    def may_be_the_machine(self, threshold: float) -> bool:
        """Whether it takes longer for certain, but possibly only as much longer as eager.

        Args:
            threshold: 0.1 stands for 10 %.
        """
        beyond = self.beyond_eager
        return beyond is not None and beyond.low <= 1 and self.seconds.low > 1 + threshold

    def __str__(self) -> str:
        """Returns times and ratios with their intervals."""
        old, new, beyond = self.old, self.new, self.beyond_eager
        times = f"{format_seconds(old.region.median)} -> {format_seconds(new.region.median)}"
        text = f"{times}, {_words(self.seconds)}"
        if beyond is None or old.eager is None or new.eager is None:
            return text
        eager = compare_separate_runs(old.eager, new.eager, confidence=_CONFIDENCE)
        return f"{text}; eager {eager.ratio:.2f} x; beyond eager {_words(beyond)}"


def divide(numerator: Estimate, denominator: Estimate) -> Estimate:
    """Divides two ratios that were estimated independently of each other.

    The variances of independent log ratios add, so their deviations, which the intervals hold,
    add like the sides of a right angle. For intervals that are not symmetric, each end takes the
    deviation on its own side: G. Y. Zou and A. Donner, Construction of confidence limits about
    effect measures: a general approach, Statistics in Medicine 27 (2008), 1693-1702.

    Args:
        numerator: One ratio.
        denominator: The other, with an interval of the same confidence.

    Returns:
        The quotient, with an interval of that confidence; an open interval where one of the two
        is open or a ratio is zero, infinite or missing.

    Example:
        >>> two = Estimate(ratio=2.0, low=1.0, high=4.0)
        >>> divide(two, Estimate(ratio=1.0, low=1.0, high=1.0))
        Estimate(ratio=2.0, low=1.0, high=4.0)
    """
    values = (*_ends(numerator), *_ends(denominator))
    if not all(0 < value < math.inf for value in values):
        return Estimate(ratio=math.nan, low=0.0, high=math.inf)
    above_low, above, above_high, below_low, below, below_high = map(math.log, values)
    middle = above - below
    low = middle - math.hypot(above - above_low, below_high - below)
    high = middle + math.hypot(above_high - above, below - below_low)
    return Estimate(ratio=math.exp(middle), low=math.exp(low), high=math.exp(high))


def _ends(one: Estimate) -> tuple[float, float, float]:
    return one.low, one.ratio, one.high


def _words(one: Estimate) -> str:
    return f"{one.ratio:.2f} x ({one.low:.2f} to {one.high:.2f})"
