"""Benchmarks one region for a report, and writes the scripts that show what was found."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import final

from thunder.benchmark import (
    AbstractCompileSpecification,
    AbstractTimer,
    Failure,
    Outcome,
    ProgressHook,
    Settings,
    Status,
)
from thunder.dynamo.report.contestants import contest
from thunder.dynamo.report.fusion import ThunderFusionReport
from thunder.dynamo.report.graph_report import AbstractGraphReport
from thunder.dynamo.report.region_record import Finding, RegionRecord
from thunder.dynamo.report.segment import ThunderSplitGraphReport
from thunder.repro import Differs, Expectation, Fails, Passes


@final
@dataclass(frozen=True, kw_only=True, slots=True)
class ReportRun:
    """How the regions of one report are benchmarked.

    Attributes:
        folder: Where scripts go.
        timer: How to time.
        settings: Confidence, threshold and time.
        verify: Whether scripts of failures are run once in a fresh process.
        against: What thunder is compared with, the baseline first.
    """

    folder: Path
    timer: AbstractTimer
    settings: Settings
    verify: bool
    against: tuple[AbstractCompileSpecification, ...]

    def benchmark(self, report: AbstractGraphReport, progress: ProgressHook) -> RegionRecord:
        """Benchmarks one region.

        Args:
            report: The region.
            progress: Called between rounds.
        """
        compared = contest(report, self.against)
        *against, subject = compared.contestants.values()
        try:
            result = report.run_benchmark(
                subject,
                self.timer,
                against=against,
                settings=self.settings,
                progress=progress,
            )
        except Exception as error:  # noqa: BLE001 - a region that cannot run alone is a result
            return replace(compared.record, failure=failure_of(error))
        record = replace(compared.record, result=result)
        return replace(record, scripts=self._scripts(report, record, compared.contestants))

    def _scripts(
        self,
        report: AbstractGraphReport,
        record: RegionRecord,
        contestants: dict[str, AbstractCompileSpecification],
    ) -> tuple[str, ...]:
        assert record.result is not None
        folder = self.folder / place_of(report)
        written = []
        for outcome in record.result.outcomes:
            expected = _expectation(outcome)
            if not isinstance(expected, Passes):
                path = report.write_repro(
                    folder,
                    contestants[outcome.name],
                    expected=expected,
                    verify=self.verify,
                    notes=_notes(outcome),
                )
                written.append(path)
        if _is_remarkable(record):
            compared = record.comparison
            assert compared is not None
            path = report.write_benchmark(
                folder,
                contestants[record.subject],
                self.timer,
                against=[contestants[compared.baseline]],
                settings=self.settings,
                notes=[f"when this was written: {compared}"],
            )
            written.append(path)
        return tuple(path.relative_to(self.folder).as_posix() for path in written)


def place_of(report: AbstractGraphReport) -> Path:
    """Returns the folder of a region's scripts, relative to that of the whole program.

    Args:
        report: A report of any level.
    """
    match report:
        case ThunderSplitGraphReport():
            return Path(str(report.graph_index))
        case ThunderFusionReport():
            return Path(str(report.graph_index)) / report.folder_name
    return Path()


def failure_of(error: BaseException) -> Failure:
    """Makes an exception into a result.

    Args:
        error: The exception.
    """
    kind = type(error)
    module = "" if kind.__module__ == "builtins" else f"{kind.__module__}."
    first_line = (str(error).splitlines() or [""])[0]
    return Failure(kind=f"{module}{kind.__qualname__}", message=first_line, error=error)


def _expectation(outcome: Outcome) -> Expectation:
    if outcome.status is Status.INACCURATE:
        return Differs()
    if outcome.status is Status.FAILED and outcome.failure and outcome.failure.error:
        return Fails.like(outcome.failure.error)
    return Passes()


def _notes(outcome: Outcome) -> list[str]:
    return str(outcome).splitlines()


def _is_remarkable(record: RegionRecord) -> bool:
    """Whether a difference in speed is one that the reader did not expect."""
    if record.finding is Finding.SLOWER:
        return True
    against_eager = record.comparison is not None and record.comparison.baseline == "eager"
    return record.finding is Finding.FASTER and not against_eager
