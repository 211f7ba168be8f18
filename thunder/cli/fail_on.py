"""`--fail-on`: which findings make the exit status 1."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from thunder.cli.exit_status import ExitStatus
from thunder.dynamo.report import BenchmarkReport, Finding, RegionRecord
from thunder.errors import nearest

_PLAIN = ("failure", "accuracy", "breaks", "splits")
_SLOWDOWN = "slowdown"
HELP = (
    "comma-separated: failure (a region fails), accuracy (its results are wrong), slowdown=1.1 "
    "(it takes, for certain, more than 1.1 times its baseline's time), breaks (Dynamo breaks the "
    "program), splits (operators leave thunder's regions), none; default: %(default)s"
)


@dataclass(frozen=True, kw_only=True, slots=True)
class FailOn:
    """What counts as a failure.

    Attributes:
        kinds: Among `failure`, `accuracy`, `breaks` and `splits`.
        slowdown: The ratio of times above which a region is too slow; None for no limit.
    """

    kinds: frozenset[str] = field(default_factory=frozenset)
    slowdown: float | None = None

    def reasons(self, report: BenchmarkReport) -> Iterator[str]:
        """Yields a sentence for everything in a report that counts.

        Args:
            report: The report.
        """
        if "breaks" in self.kinds and report.breaks:
            yield f"breaks: Dynamo breaks the program ({len(report.breaks)} reasons)"
        for region in report.regions:
            yield from self.of_region(region)

    def of_region(self, region: RegionRecord) -> Iterator[str]:
        """Yields a sentence for everything about one region that counts.

        Args:
            region: The region.
        """
        if "failure" in self.kinds and region.finding is Finding.FAILED:
            yield f"failure: {region.name}"
        if "accuracy" in self.kinds and region.finding is Finding.INACCURATE:
            yield f"accuracy: {region.name}"
        if "splits" in self.kinds and region.split_reasons:
            yield f"splits: {region.name}"
        compared = region.comparison
        if self.slowdown is not None and compared is not None and compared.low > self.slowdown:
            yield (
                f"slowdown: {region.name} takes {compared.ratio:.2f} times as long as "
                f"{compared.baseline} (at least {compared.low:.2f})"
            )


def parse_fail_on(text: str) -> FailOn:
    """Reads the argument.

    Args:
        text: As in `accuracy,slowdown=1.1`.

    Raises:
        argparse.ArgumentTypeError: A part of it is unknown.

    Example:
        >>> parse_fail_on("slowdown=1.1").slowdown
        1.1
    """
    kinds, slowdown = set(), None
    for part in filter(None, (piece.strip() for piece in text.split(","))):
        name, equals, value = part.partition("=")
        if name == _SLOWDOWN and equals:
            slowdown = _ratio(value)
        elif name in _PLAIN and not equals:
            kinds.add(name)
        elif part != "none":
            known = [*_PLAIN, f"{_SLOWDOWN}=RATIO", "none"]
            close = nearest(name, [*_PLAIN, _SLOWDOWN])
            hint = f"; did you mean {close!r}?" if close and close != part else ""
            raise argparse.ArgumentTypeError(f"{part!r} is none of {', '.join(known)}{hint}")
    return FailOn(kinds=frozenset(kinds), slowdown=slowdown)


def _ratio(text: str) -> float:
    try:
        ratio = float(text)
    except ValueError:
        ratio = 0.0
    if not ratio >= 1:
        raise argparse.ArgumentTypeError(
            f"slowdown={text!r} must be a ratio of 1 or more: 1.1 is 10 % slower"
        )
    return ratio


def say_reasons(reasons: Iterable[str]) -> ExitStatus:
    """Writes reasons to the standard error, and returns the exit status that they mean.

    Args:
        reasons: Sentences.
    """
    found = list(reasons)
    for reason in found:
        print(f"found: {reason}", file=sys.stderr)
    return ExitStatus.FOUND if found else ExitStatus.OK
