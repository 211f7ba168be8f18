"""Benchmarks one region for a report, and writes the scripts that show what was found."""

from __future__ import annotations

from collections.abc import Sequence
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
    TorchEagerSpecification,
    TorchInductorSpecification,
)
from thunder.benchmark.specifications import unique_contestants
from thunder.dynamo.report.fusion import ThunderFusionReport
from thunder.dynamo.report.graph_report import AbstractGraphReport
from thunder.dynamo.report.region_record import Finding, Level, RegionRecord
from thunder.dynamo.report.segment import ThunderSplitGraphReport
from thunder.dynamo.report.torch_graph_report import AbstractTorchGraphReport
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

    def graph(self, report: AbstractTorchGraphReport, progress: ProgressHook) -> RegionRecord:
        """Compares thunder with others on a Dynamo graph or a segment of one."""
        subject = report.default_specification
        is_segment = isinstance(report, ThunderSplitGraphReport)
        record = RegionRecord(
            name=report.name,
            level=Level.SEGMENT if is_segment else Level.GRAPH,
            executor="thunder",
            operators=report.operators,
            subject=subject.name,
            split_reasons=report.reported.split_reasons,
        )
        return self._run(report, record, [*self.against, subject], progress)

    def fusion(self, report: ThunderFusionReport, progress: ProgressHook) -> RegionRecord:
        """Compares a fusion's executor with Inductor, or Inductor with eager where it has it."""
        subject = report.default_specification
        inductor = isinstance(subject, TorchInductorSpecification)
        baseline = TorchEagerSpecification() if inductor else TorchInductorSpecification()
        record = RegionRecord(
            name=report.name,
            level=Level.FUSION,
            executor=report.executor,
            operators=report.operators,
            subject=subject.name,
        )
        return self._run(report, record, [baseline, subject], progress)

    def _run(
        self,
        report: AbstractGraphReport,
        record: RegionRecord,
        specifications: Sequence[AbstractCompileSpecification],
        progress: ProgressHook,
    ) -> RegionRecord:
        try:
            result = report.run_benchmark(
                specifications[-1],
                self.timer,
                against=specifications[:-1],
                settings=self.settings,
                progress=progress,
            )
        except Exception as error:  # noqa: BLE001 - a region that cannot run alone is a result
            return replace(record, failure=failure_of(error))
        record = replace(record, result=result)
        scripts = self._scripts(report, record, unique_contestants(specifications))
        return replace(record, scripts=scripts)

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
