"""The result of benchmarking a whole program: records of all regions, as table and as JSON."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, final

from rich.table import Table

from thunder.dynamo.report.html import save_page
from thunder.dynamo.report.page import Page
from thunder.dynamo.report.page_timings import page_of_records, with_timings
from thunder.dynamo.report.region_record import Finding, RegionRecord
from thunder.dynamo.report.region_table import region_table
from thunder.errors import BenchmarkError
from thunder.repro import write_text

FORMAT = "thunder report 1"
FILE_NAME = "report.json"


@final
@dataclass(frozen=True, kw_only=True)
class BenchmarkReport:
    """What benchmarking a program showed.

    Attributes:
        program: The program's name.
        environment: Versions and devices.
        breaks: Why Dynamo broke the program into graphs, as `BreakReason.to_json` gives it.
        regions: One record for each graph, segment and fusion, each graph before its parts.
        interrupted: Whether a key press ended it early.
        page: Its traces and generated code, for `save_html`; not part of the JSON form.
    """

    program: str
    environment: Mapping[str, Any]
    breaks: Sequence[Mapping[str, Any]]
    regions: tuple[RegionRecord, ...]
    interrupted: bool = False
    page: Page | None = field(default=None, compare=False, repr=False)

    @property
    def findings(self) -> tuple[RegionRecord, ...]:
        """The regions that have to be looked at, the worst first."""
        order = list(Finding)
        found = [region for region in self.regions if region.finding is not Finding.NONE]
        return tuple(sorted(found, key=lambda region: order.index(region.finding)))

    @property
    def problems(self) -> tuple[RegionRecord, ...]:
        """The regions that failed, are inaccurate or slower."""
        return tuple(region for region in self.findings if region.finding.is_bad)

    def table(self, *, narrow: bool = False) -> Table:
        """Returns the regions as a rich table.

        Args:
            narrow: Leave out what 80 columns have no room for: baselines' times and intervals.
        """
        return region_table(f"{self.program}: {_summary(self)}", self.regions, narrow=narrow)

    def __str__(self) -> str:
        """Returns a summary, and everything that has to be looked at."""
        lines = [f"{self.program}: {_summary(self)}"]
        lines += [str(region) for region in self.findings]
        reasons = dict.fromkeys(r for region in self.regions for r in region.split_reasons)
        lines += [f"split: {reason}" for reason in reasons]
        return "\n".join(lines)

    def to_json(self) -> dict[str, Any]:
        """Returns the fields, ready for JSON."""
        return {
            "format": FORMAT,
            "program": self.program,
            "environment": dict(self.environment),
            "breaks": [dict(each) for each in self.breaks],
            "regions": [region.to_json() for region in self.regions],
            "interrupted": self.interrupted,
        }

    def save_json(self, path: str | os.PathLike[str]) -> Path:
        """Writes the report for programs.

        Args:
            path: The file.

        Raises:
            ReproducerError: It cannot be written.
        """
        return write_text(path, json.dumps(self.to_json(), indent=1, allow_nan=False) + "\n")

    def save_html(self, path: str | os.PathLike[str]) -> Path:
        """Writes a page for browsers: as `FXReport.save_html` does, with timings.

        The page of a report that was read from a file has no traces and no code. Needs the extra
        `report`.

        Args:
            path: The file; it is replaced at once or not at all.

        Returns:
            The path.

        Raises:
            UnsupportedEnvironmentError: Jinja2 or Pygments is not installed.
            ReproducerError: It cannot be written.
        """
        if self.page is None:
            page = page_of_records(self.program, self.environment, self.breaks, self.regions)
        else:
            page = with_timings(self.page, self.regions)
        return save_page(page, path)

    @staticmethod
    def from_json(data: Mapping[str, Any]) -> BenchmarkReport:
        """Makes a report out of what `to_json` returned.

        Raises:
            BenchmarkError: It is no such report.
        """
        if not isinstance(data, Mapping) or data.get("format") != FORMAT:
            raise BenchmarkError(f"this is no report: its format is not {FORMAT!r}")
        try:
            return BenchmarkReport(
                program=data["program"],
                environment=data["environment"],
                breaks=data["breaks"],
                regions=tuple(map(RegionRecord.from_json, data["regions"])),
                interrupted=data["interrupted"],
            )
        except (KeyError, TypeError, ValueError) as error:
            raise BenchmarkError(
                f"the report is damaged, or of another version of thunder: "
                f"{type(error).__name__}: {error}"
            ) from error


def read_report(path: str | os.PathLike[str]) -> BenchmarkReport:
    """Reads a report that `save_json` wrote.

    Args:
        path: The file, or a folder that holds a `report.json`.

    Raises:
        BenchmarkError: It cannot be read, or is no report.
    """
    file = Path(path)
    file = file / FILE_NAME if file.is_dir() else file
    try:
        data = json.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        hint = (
            f": run `thunder replay {path}` first if it holds a replay"
            if file != Path(path)
            else ""
        )
        raise BenchmarkError(f"cannot read {file}: {error.strerror}{hint}") from error
    except ValueError as error:
        raise BenchmarkError(f"{file} is no JSON file: {error}") from error
    return BenchmarkReport.from_json(data)


def _summary(report: BenchmarkReport) -> str:
    counts = {
        finding: sum(region.finding is finding for region in report.regions) for finding in Finding
    }
    found = [f"{n} {finding.value}" for finding, n in counts.items() if n and finding.is_bad]
    early = ", interrupted" if report.interrupted else ""
    return f"{len(report.regions)} regions, {', '.join(found) or 'no problem found'}{early}"
