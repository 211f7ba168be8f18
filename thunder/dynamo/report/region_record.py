"""What a benchmark report says about one graph, segment or fusion: a record that goes to JSON."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from thunder.benchmark import BenchmarkResult, Comparison, Failure, Status, Verdict


class Level(enum.Enum):
    """What a region is a piece of."""

    GRAPH = "graph"
    SEGMENT = "segment"
    FUSION = "fusion"


class Finding(enum.Enum):
    """What a region has to be looked at for; the worst comes first."""

    FAILED = "failed"
    INACCURATE = "inaccurate"
    SLOWER = "slower"
    FASTER = "faster"
    NONE = "nothing"

    @property
    def is_bad(self) -> bool:
        """Whether it is a problem."""
        return self in (Finding.FAILED, Finding.INACCURATE, Finding.SLOWER)


@dataclass(frozen=True, kw_only=True, slots=True)
class RegionRecord:
    """One region of a benchmark report.

    Attributes:
        name: The region's name, such as `graph0_thunder_0`.
        level: What it is a piece of.
        executor: Who runs it: `"thunder"`, or the executor of a fusion.
        operators: Its operators with the number of calls.
        subject: The contestant that the report is about.
        result: What became of the contestants; None when it never came to that.
        failure: Why not.
        split_reasons: Why its graph was cut.
        scripts: The scripts that show what was found, relative to the report's folder.
    """

    name: str
    level: Level
    executor: str
    operators: Mapping[str, int]
    subject: str
    result: BenchmarkResult | None = None
    failure: Failure | None = None
    split_reasons: tuple[str, ...] = ()
    scripts: tuple[str, ...] = ()

    @property
    def comparison(self) -> Comparison | None:
        """How the subject's time compares with the baseline's, if both were timed."""
        if self.result is None:
            return None
        found = [one for one in self.result.comparisons if one.candidate == self.subject]
        return found[0] if found else None

    @property
    def finding(self) -> Finding:
        """What it has to be looked at for: wrong before slow."""
        if self.failure is not None or self.result is None:
            return Finding.FAILED if self.failure is not None else Finding.NONE
        status = self.result.outcome(self.subject).status
        if status in (Status.FAILED, Status.OUT_OF_MEMORY):
            return Finding.FAILED
        if status is Status.INACCURATE:
            return Finding.INACCURATE
        compared = self.comparison
        if compared is not None and compared.verdict is Verdict.SLOWER:
            return Finding.SLOWER
        if compared is not None and compared.verdict is Verdict.FASTER:
            return Finding.FASTER
        return Finding.NONE

    def __str__(self) -> str:
        """Returns what was found, with numbers."""
        head = f"{self.name}: {self.finding.value}"
        lines = [str(self.failure)] if self.failure else []
        lines += str(self.result).splitlines() if self.result else []
        return "\n".join([head, *(f"  {line}" for line in (*lines, *self.scripts))])

    def to_json(self) -> dict[str, Any]:
        """Returns the fields and the finding, ready for JSON."""
        return {
            "name": self.name,
            "level": self.level.value,
            "executor": self.executor,
            "operators": dict(self.operators),
            "subject": self.subject,
            "finding": self.finding.value,
            "result": self.result.to_json() if self.result else None,
            "failure": self.failure.to_json() if self.failure else None,
            "split_reasons": list(self.split_reasons),
            "scripts": list(self.scripts),
        }

    @staticmethod
    def from_json(data: Mapping[str, Any]) -> RegionRecord:
        """Makes a record out of what `to_json` returned."""
        result, failure = data["result"], data["failure"]
        return RegionRecord(
            name=data["name"],
            level=Level(data["level"]),
            executor=data["executor"],
            operators=data["operators"],
            subject=data["subject"],
            result=BenchmarkResult.from_json(result) if result else None,
            failure=Failure.from_json(failure) if failure else None,
            split_reasons=tuple(data["split_reasons"]),
            scripts=tuple(data["scripts"]),
        )
