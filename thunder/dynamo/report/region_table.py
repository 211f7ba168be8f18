"""The table of a report's regions: a tree of short names, with times and what was found."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import isfinite

from rich import box
from rich.markup import escape
from rich.table import Table

from thunder.benchmark import Outcome
from thunder.benchmark.records import format_seconds
from thunder.dynamo.report.region_record import Finding, Level, RegionRecord

_COLUMNS = ("region", "ops", "time", "against", "its time", "ratio", "found")
_WIDE_ONLY = "its time"
_USUAL_NAME = len("torch.compile")
_DEPTHS = {Level.GRAPH: 0, Level.SEGMENT: 1, Level.FUSION: 2}
_STYLES = {
    Finding.FAILED: "bold red",
    Finding.INACCURATE: "bold red",
    Finding.SLOWER: "yellow",
    Finding.FASTER: "green",
    Finding.NONE: "",
}


def region_table(title: str, regions: Sequence[RegionRecord], *, narrow: bool = False) -> Table:
    """Returns regions as a rich table.

    Args:
        title: What stands above it.
        regions: Each graph before its segments, each segment before its fusions.
        narrow: Leave out what 80 columns have no room for: baselines' times and intervals.
    """
    padding = (0, 1, 0, 0) if narrow else (0, 1)
    table = Table(title=escape(title), box=box.SIMPLE_HEAD, padding=padding, pad_edge=not narrow)
    shown = [title for title in _COLUMNS if not (narrow and title == _WIDE_ONLY)]
    rows = [
        _cells(region, name, interval=not narrow)
        for region, name in zip(regions, _tree_names(regions), strict=True)
    ]
    for column in shown:
        longest = max((len(row[column]) for row in rows), default=0)
        if column == "against":  # may be long, with all options of a compiler
            table.add_column(column, overflow="fold", min_width=min(longest, _USUAL_NAME))
        else:
            justify = "left" if column == "region" else "right"
            table.add_column(column, justify=justify, no_wrap=True, min_width=longest)
    for region, row in zip(regions, rows, strict=True):
        table.add_row(*(escape(row[column]) for column in shown), style=_STYLES[region.finding])
    return table


def _tree_names(regions: Sequence[RegionRecord]) -> Iterator[str]:
    """Yields what each name adds to that of the region which it is a piece of, indented."""
    above: list[RegionRecord] = []
    for region in regions:
        above = [one for one in above if _DEPTHS[one.level] < _DEPTHS[region.level]]
        name = region.name
        if above:
            name = name.removeprefix(f"{above[-1].name}_")
        yield "  " * len(above) + name
        above.append(region)


def _cells(region: RegionRecord, name: str, *, interval: bool) -> dict[str, str]:
    compared = region.comparison
    ratio = ""
    if compared is not None:
        ratio = f"{compared.ratio:.2f}"
        ends = f"{compared.low:.2f} to {compared.high:.2f}"
        ratio += f" ({ends if isfinite(compared.high) else 'unsure'})" if interval else ""
    return {
        "region": name,
        "ops": str(sum(region.operators.values())),
        "time": _time(_outcome(region, region.subject)),
        "against": compared.baseline if compared else "",
        "its time": _time(_outcome(region, compared.baseline) if compared else None),
        "ratio": ratio,
        "found": "" if region.finding is Finding.NONE else region.finding.value,
    }


def _outcome(region: RegionRecord, name: str) -> Outcome | None:
    if region.result is None:
        return None
    return next((one for one in region.result.outcomes if one.name == name), None)


def _time(outcome: Outcome | None) -> str:
    if outcome is None or outcome.measurement is None:
        return ""
    return format_seconds(outcome.measurement.median)
