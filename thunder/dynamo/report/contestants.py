"""Who is compared with whom at each level of a report."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from thunder.benchmark import (
    AbstractCompileSpecification,
    TorchCompileSpecification,
    TorchEagerSpecification,
    TorchInductorSpecification,
)
from thunder.benchmark.specifications import unique_contestants
from thunder.dynamo.report.fusion import ThunderFusionReport
from thunder.dynamo.report.graph_report import AbstractGraphReport
from thunder.dynamo.report.region_record import Level, RegionRecord
from thunder.dynamo.report.segment import ThunderSplitGraphReport

DEFAULT_AGAINST = (TorchCompileSpecification(), TorchEagerSpecification())


@dataclass(frozen=True, kw_only=True, slots=True)
class Contest:
    """A region and its contestants.

    Attributes:
        report: The region.
        contestants: Name to way of compiling: the baseline first, the report's subject last.
        record: What is known before anything has run.
    """

    report: AbstractGraphReport
    contestants: dict[str, AbstractCompileSpecification]
    record: RegionRecord


def contest(
    report: AbstractGraphReport, against: Sequence[AbstractCompileSpecification] = DEFAULT_AGAINST
) -> Contest:
    """Returns who is compared for a region.

    Args:
        report: The region. A fusion is compared with Inductor, or with eager where Inductor has
            it; everything else with `against`.
        against: What thunder is compared with, the baseline first.
    """
    subject = report.default_specification
    if isinstance(report, ThunderFusionReport):
        inductor = isinstance(subject, TorchInductorSpecification)
        baseline = TorchEagerSpecification() if inductor else TorchInductorSpecification()
        contestants = unique_contestants([baseline, subject])
    else:
        contestants = unique_contestants([*against, subject])
    return Contest(
        report=report,
        contestants=contestants,
        record=RegionRecord(
            name=report.name,
            level=_level(report),
            executor=report.executor if isinstance(report, ThunderFusionReport) else "thunder",
            operators=report.operators,
            subject=[*contestants][-1],
            split_reasons=report.reported.split_reasons,
        ),
    )


def _level(report: AbstractGraphReport) -> Level:
    match report:
        case ThunderFusionReport():
            return Level.FUSION
        case ThunderSplitGraphReport():
            return Level.SEGMENT
    return Level.GRAPH
