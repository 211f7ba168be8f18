"""Puts the numbers of a benchmark report on a page, or makes a page of nothing else."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from thunder.benchmark import Comparison, Outcome
from thunder.dynamo.report.page import Page, PageBar, PageNote, PageRegion, PageTiming
from thunder.dynamo.report.page_builder import page_environment
from thunder.dynamo.report.region_record import Finding, Level, RegionRecord

_DEPTH = {Level.GRAPH: 0, Level.SEGMENT: 1, Level.FUSION: 2}


def with_timings(page: Page, records: Sequence[RegionRecord]) -> Page:
    """Returns a page with the numbers of its regions.

    Args:
        page: The page.
        records: What benchmarking its regions showed.
    """
    found = {record.name: record for record in records}
    return dataclasses.replace(page, regions=tuple(_timed(each, found) for each in page.regions))


def page_of_records(
    program: str,
    environment: Mapping[str, Any],
    breaks: Sequence[Mapping[str, Any]],
    records: Sequence[RegionRecord],
) -> Page:
    """Makes a page of a benchmark report that was read from a file: numbers, but no traces.

    Args:
        program: The program's name.
        environment: Versions and devices.
        breaks: Why Dynamo broke it, as `BreakReason.to_json` gives it.
        records: One for each region, each graph before its parts.
    """
    return Page(
        program=program,
        notes=tuple(map(_break, breaks)),
        regions=_nested(records),
        environment=page_environment(environment),
    )


def _timed(region: PageRegion, records: Mapping[str, RegionRecord]) -> PageRegion:
    record = records.get(region.name)
    return dataclasses.replace(
        region,
        timing=_timing(record) if record else None,
        parts=tuple(_timed(part, records) for part in region.parts),
    )


def _nested(records: Sequence[RegionRecord]) -> tuple[PageRegion, ...]:
    """Gives each record those after it that are of a lower level as its parts."""
    regions = []
    start = 0
    while start < len(records):
        depth = _DEPTH[records[start].level]
        end = start + 1
        while end < len(records) and _DEPTH[records[end].level] > depth:
            end += 1
        regions.append(_region(records[start], _nested(records[start + 1 : end])))
        start = end
    return tuple(regions)


def _region(record: RegionRecord, parts: tuple[PageRegion, ...]) -> PageRegion:
    count = sum(record.operators.values())
    splits = tuple(PageNote(label="split", text=text) for text in record.split_reasons)
    return PageRegion(
        name=record.name,
        title=record.name,
        kind=record.level.value,
        summary=f"{count:,} operator{'' if count == 1 else 's'}, by {record.executor}",
        notes=splits if record.level is Level.GRAPH else (),
        parts=parts,
        timing=_timing(record),
    )


def _timing(record: RegionRecord) -> PageTiming:
    outcomes = record.result.outcomes if record.result else ()
    finding = record.finding
    return PageTiming(
        finding="" if finding is Finding.NONE else finding.value,
        is_bad=finding.is_bad,
        ratio=_ratio(record.comparison),
        bars=tuple(_bar(outcome, record.subject) for outcome in outcomes),
        scripts=record.scripts,
        failure=str(record.failure) if record.failure else "",
    )


def _bar(outcome: Outcome, subject: str) -> PageBar:
    measured = outcome.measurement
    return PageBar(
        name=outcome.name,
        seconds=measured.median if measured and measured.samples else None,
        is_subject=outcome.name == subject,
        words=str(outcome).splitlines()[0],
    )


def _ratio(compared: Comparison | None) -> str:
    if compared is None or not compared.rounds:
        return ""
    return (
        f"{compared.ratio:.2f} ({compared.low:.2f} to {compared.high:.2f}) of {compared.baseline}"
    )


def _break(reason: Mapping[str, Any]) -> PageNote:
    stack = [f"at {line}" for line in reversed(reason["stack"])]
    why = [f"why: {reason['explanation']}"] if reason["explanation"] else []
    hints = [f"hint: {hint}" for hint in reason["hints"]]
    return PageNote(label="break", text=reason["reason"], details=(*stack, *why, *hints))
