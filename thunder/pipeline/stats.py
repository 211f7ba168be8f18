"""What compiling cost, and what the compiled code is used for."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from time import perf_counter

from thunder.pipeline.verdicts import ContestVerdict


@dataclass(frozen=True, kw_only=True, slots=True)
class CompileRecord:
    """One compile: a graph from Dynamo that became runnable.

    Attributes:
        graph_index: Its place among the graphs of the callable, from 0.
        recompile_reason: The guard that failed, in Dynamo's words; None for a first compile.
        clocks: The clock of each region.
        region_verdicts: The verdicts of contests, by region and what they are about; later ones are
            added.
    """

    graph_index: int
    recompile_reason: str | None
    clocks: tuple[StageClock, ...] = ()
    region_verdicts: Mapping[str, Mapping[str, ContestVerdict]] = field(default_factory=dict)

    @property
    def verdicts(self) -> dict[str, ContestVerdict]:
        """The verdicts by region and what they are about, such as `thunder_0 forward`."""
        return {
            f"{region} {what}": verdict
            for region, verdicts in self.region_verdicts.items()
            for what, verdict in verdicts.items()
        }

    @property
    def stages(self) -> dict[str, float]:
        """Milliseconds by stage, summed over regions, in order of their start.

        A stage's time includes that of the stages that ran inside it. Backward graphs that are
        compiled later are added then.
        """
        total: dict[str, float] = {}
        for clock in self.clocks:
            for name, milliseconds in clock.milliseconds.items():
                total[name] = total.get(name, 0.0) + milliseconds
        return total


@dataclass(frozen=True, kw_only=True, slots=True)
class CompileStats:
    """The figures of one compiled callable.

    Attributes:
        cache_misses: Graphs compiled.
        cache_hits: Calls of compiled graphs that needed no compile.
        compiles: One record for each compiled graph, in order.
    """

    cache_misses: int
    cache_hits: int
    compiles: tuple[CompileRecord, ...]

    @property
    def recompiles(self) -> tuple[CompileRecord, ...]:
        """The compiles that a failed guard caused."""
        return tuple(record for record in self.compiles if record.recompile_reason)

    def __str__(self) -> str:
        """A readable summary."""
        lines = [f"{self.cache_misses} graphs compiled, {self.cache_hits} calls without a compile"]
        for record in self.compiles:
            reason = record.recompile_reason or "first compile"
            lines.append(f"graph {record.graph_index}: {reason}")
            lines += [f"  {name}: {ms:.1f} ms" for name, ms in record.stages.items()]
            lines += [f"  {graph}, {verdict}" for graph, verdict in record.verdicts.items()]
        return "\n".join(lines)


class StageClock:
    """Adds up the time of named stages.

    Attributes:
        milliseconds: By stage, in order of their start.
    """

    def __init__(self) -> None:
        """Starts empty."""
        self.milliseconds: dict[str, float] = {}

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        """Adds the time of a `with` block to stage `name`."""
        self.milliseconds.setdefault(name, 0.0)
        started = perf_counter()
        try:
            yield
        finally:
            self.milliseconds[name] += (perf_counter() - started) * 1e3
