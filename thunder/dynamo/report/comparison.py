"""What changed between two reports: of two versions of torch, two commits, or two replays.

The two were not timed together, and the machine may have been slower in one of them. A region that
is slower just as its eager run is says something about the machine, not about a compiler, and is
told apart; see `speed_change`.
"""

from __future__ import annotations

import enum
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, final

from rich.markup import escape
from rich.table import Column, Table

from thunder.benchmark import Measurement, Status
from thunder.benchmark.records import format_bytes
from thunder.dynamo.report.benchmark_report import BenchmarkReport
from thunder.dynamo.report.region_record import RegionRecord
from thunder.dynamo.report.speed_change import SpeedChange, SpeedRun

_EAGER = "eager"

THRESHOLD = 0.1
"""The smallest difference between two runs that counts: processes differ by some percent."""


class Change(enum.Enum):
    """How a region or a program differs from before."""

    FAILS = "fails now"
    WRONG = "is wrong now"
    MISSING = "is gone"
    SLOWER = "is slower"
    LARGER = "needs more memory"
    SPLIT = "is split now"
    BREAK = "breaks now"
    MOVED = "has another executor"
    MACHINE_SLOWER = "is slower, perhaps just as eager is"
    FASTER = "is faster"
    SMALLER = "needs less memory"
    WORKS = "works now"
    RIGHT = "is right now"
    NOT_SPLIT = "is not split any more"
    NO_BREAK = "does not break any more"
    NEW = "is new"

    @property
    def is_regression(self) -> bool:
        """Whether it is for the worse."""
        return self in _REGRESSIONS


_REGRESSIONS = (
    Change.FAILS,
    Change.WRONG,
    Change.SLOWER,
    Change.LARGER,
    Change.SPLIT,
    Change.BREAK,
)


@dataclass(frozen=True, kw_only=True, slots=True)
class RegionChange:
    """One difference.

    Attributes:
        region: The region's name, or the program's.
        change: What kind.
        details: Numbers or reasons.
    """

    region: str
    change: Change
    details: str

    @property
    def words(self) -> str:
        """What changed, without the region's name."""
        return f"{self.change.value}: {self.details}".removesuffix(": ")

    def __str__(self) -> str:
        """Returns one line."""
        return f"{self.region} {self.words}"

    def to_json(self) -> dict[str, Any]:
        """Returns the fields, ready for JSON."""
        return {
            "region": self.region,
            "change": self.change.value,
            "regression": self.change.is_regression,
            "details": self.details,
        }


@final
@dataclass(frozen=True, kw_only=True)
class ReportComparison:
    """What changed between two reports.

    Attributes:
        environment: What differs in versions and devices: name to the old and the new one.
        changes: The differences, the worst first.
        compared: How many regions are in both reports.
    """

    environment: dict[str, tuple[Any, Any]]
    changes: tuple[RegionChange, ...]
    compared: int

    @property
    def regressions(self) -> tuple[RegionChange, ...]:
        """The changes for the worse."""
        return tuple(change for change in self.changes if change.change.is_regression)

    def __str__(self) -> str:
        """Returns a line for each difference."""
        head = f"{self.compared} regions compared, {len(self.regressions)} changed for the worse"
        versions = [f"{name}: {old} -> {new}" for name, (old, new) in self.environment.items()]
        return "\n".join([head, *versions, *map(str, self.changes)])

    def table(self) -> Table:
        """Returns the differences as a rich table."""
        table = Table(Column("region", no_wrap=True), Column("change", overflow="fold"))
        for change in self.changes:
            style = "red" if change.change.is_regression else ""
            table.add_row(escape(change.region), escape(change.words), style=style)
        return table

    def to_json(self) -> dict[str, Any]:
        """Returns the fields, ready for JSON."""
        return {
            "environment": {name: list(pair) for name, pair in self.environment.items()},
            "compared": self.compared,
            "changes": [change.to_json() for change in self.changes],
        }


def compare_reports(
    old: BenchmarkReport, new: BenchmarkReport, *, threshold: float = THRESHOLD
) -> ReportComparison:
    """Compares two reports, region by region.

    Args:
        old: The report from before.
        new: The report of now.
        threshold: The smallest difference in time or memory that counts: 0.1 stands for 10 %. Of a
            time, the whole confidence interval has to lie beyond it.

    Returns:
        What failed, became wrong, slower or larger, was newly split, and the reverse.

    Example:
        >>> empty = BenchmarkReport(program="f", environment={}, breaks=[], regions=())
        >>> print(compare_reports(empty, empty))
        0 regions compared, 0 changed for the worse
    """
    before = {region.name: region for region in old.regions}
    after = {region.name: region for region in new.regions}
    both = [name for name in before if name in after]
    changes = [*_of_program(old, new)]
    changes += [
        change for name in both for change in _of_region(before[name], after[name], threshold)
    ]
    changes += [_plain(name, Change.MISSING) for name in before if name not in after]
    changes += [_plain(name, Change.NEW) for name in after if name not in before]
    order = list(Change)
    return ReportComparison(
        environment=_environment(old, new),
        changes=tuple(sorted(changes, key=lambda change: order.index(change.change))),
        compared=len(both),
    )


def _environment(old: BenchmarkReport, new: BenchmarkReport) -> dict[str, tuple[Any, Any]]:
    names = dict.fromkeys([*old.environment, *new.environment])
    pairs = {name: (old.environment.get(name), new.environment.get(name)) for name in names}
    return {name: pair for name, pair in pairs.items() if pair[0] != pair[1]}


def _plain(region: str, change: Change, details: str = "") -> RegionChange:
    return RegionChange(region=region, change=change, details=details)


def _of_program(old: BenchmarkReport, new: BenchmarkReport) -> Iterator[RegionChange]:
    before, after = ({_break(each): each for each in report.breaks} for report in (old, new))
    for key, reason in after.items():
        if key not in before:
            yield _plain(new.program, Change.BREAK, _words(reason))
    for key, reason in before.items():
        if key not in after:
            yield _plain(new.program, Change.NO_BREAK, _words(reason))


def _break(reason: Any) -> tuple[str, str]:
    """What makes two breaks the same: reason and code, but not line numbers."""
    stack = reason["stack"]
    return reason["reason"], stack[-1].rpartition(": ")[2] if stack else ""


def _words(reason: Any) -> str:
    stack = reason["stack"]
    return f"{reason['reason']} at {stack[-1]}" if stack else reason["reason"]


def _of_region(old: RegionRecord, new: RegionRecord, threshold: float) -> Iterator[RegionChange]:
    yield from _splits(old, new)
    if old.executor != new.executor:
        yield _plain(new.name, Change.MOVED, f"{old.executor} -> {new.executor}")
    before, after = _state(old), _state(new)
    if after is not before:
        broken = {_State.FAILED: Change.FAILS, _State.WRONG: Change.WRONG}
        mended = {_State.FAILED: Change.WORKS, _State.WRONG: Change.RIGHT}
        if after in broken:
            yield _plain(new.name, broken[after], _trouble(new))
        elif before in mended and after is _State.FINE:
            yield _plain(new.name, mended[before], _trouble(old))
    yield from _speed(old, new, threshold)
    yield from _memory(old, new, threshold)


def _splits(old: RegionRecord, new: RegionRecord) -> Iterator[RegionChange]:
    was, now = bool(old.split_reasons), bool(new.split_reasons)
    if now and not was:
        yield _plain(new.name, Change.SPLIT, "; ".join(new.split_reasons))
    elif was and not now:
        yield _plain(new.name, Change.NOT_SPLIT, "; ".join(old.split_reasons))


class _State(enum.Enum):
    FINE = enum.auto()
    WRONG = enum.auto()
    FAILED = enum.auto()
    UNKNOWN = enum.auto()


def _state(region: RegionRecord) -> _State:
    if region.failure is not None:
        return _State.FAILED
    if region.result is None:
        return _State.UNKNOWN
    status = region.result.outcome(region.subject).status
    states = {
        Status.MEASURED: _State.FINE,
        Status.INACCURATE: _State.WRONG,
        Status.NOT_RUN: _State.UNKNOWN,
    }
    return states.get(status, _State.FAILED)


def _trouble(region: RegionRecord) -> str:
    if region.failure is not None or region.result is None:
        return str(region.failure)
    return str(region.result.outcome(region.subject))


def _speed(old: RegionRecord, new: RegionRecord, threshold: float) -> Iterator[RegionChange]:
    before, after = _timed(old), _timed(new)
    if before is None or after is None or before.region.timer != after.region.timer:
        return
    found = SpeedChange(old=before, new=after)
    if found.is_slower(threshold):
        yield _plain(new.name, Change.SLOWER, str(found))
    elif found.is_faster(threshold):
        yield _plain(new.name, Change.FASTER, str(found))
    elif found.may_be_the_machine(threshold):
        yield _plain(new.name, Change.MACHINE_SLOWER, str(found))


def _timed(region: RegionRecord) -> SpeedRun | None:
    subject = _measured(region, region.subject)
    if subject is None:
        return None
    eager = None if region.subject == _EAGER else _measured(region, _EAGER)
    return SpeedRun(region=subject, eager=eager)


def _memory(old: RegionRecord, new: RegionRecord, threshold: float) -> Iterator[RegionChange]:
    before, after = _measured(old, old.subject), _measured(new, new.subject)
    if before is None or after is None:
        return
    was, now = before.peak_bytes, after.peak_bytes
    if was is None or now is None:
        return
    details = f"{format_bytes(was)} -> {format_bytes(now)}"
    if now > was * (1 + threshold):
        yield _plain(new.name, Change.LARGER, details)
    elif now * (1 + threshold) < was:
        yield _plain(new.name, Change.SMALLER, details)


def _measured(region: RegionRecord, name: str) -> Measurement | None:
    if region.result is None:
        return None
    found = [one.measurement for one in region.result.outcomes if one.name == name]
    return found[0] if found else None
