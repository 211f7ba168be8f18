"""The reports about a graph that thunder compiled: the whole, and its thunder segments."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, final

from thunder.dynamo.options import divide_options
from thunder.dynamo.report.example_inputs import make_example_inputs, surroundings_of
from thunder.dynamo.report.fusion import ThunderFusionReport
from thunder.dynamo.report.fx_graph import FXGraphReport
from thunder.dynamo.report.graph_report import AbstractGraphReport
from thunder.dynamo.report.partition_inputs import in_recorded_layout, record_fusion_inputs
from thunder.dynamo.report.reported_graph import ReportedGraph
from thunder.dynamo.report.segment_compile import (
    compile_captured,
    fake_inputs,
    tracing_like_dynamo,
)
from thunder.dynamo.report.torch_graph_report import AbstractTorchGraphReport
from thunder.dynamo.split_reason import SplitReason
from thunder.dynamo.subgraph_info import SubgraphInfo
from thunder.errors import OptionError
from thunder.pipeline import CompiledRegion
from thunder.pipeline.artifacts import fused_regions
from thunder.repro import RecordedInputs
from thunder.trace import TraceCtx
from thunder.trace.trace import Direction


@final
@dataclass(frozen=True, kw_only=True)
class ThunderSplitGraphReport(AbstractTorchGraphReport):
    """One thunder segment of a Dynamo graph.

    Attributes:
        graph_index: The Dynamo graph's place in the program.
        region: The segment, compiled.
        inputs: What it is called with.
        options: Keywords of `thunderfx` that it was compiled with.
        split_reasons: Why its graph was cut.
        fusion_reports: One report a fusion, forward before backward; empty until
            `create_fusion_reports` has run.
    """

    graph_index: int
    region: CompiledRegion
    inputs: RecordedInputs
    options: Mapping[str, Any]
    split_reasons: tuple[SplitReason, ...]
    fusion_reports: list[ThunderFusionReport] = field(default_factory=list)

    @property
    def reported(self) -> ReportedGraph:
        """The segment and what is known about it."""
        return ReportedGraph(
            name=f"graph{self.graph_index}_{self.region.name}",
            title=f"Segment {self.region.name} of Dynamo graph {self.graph_index}",
            graph_module=self.region.graph_module,
            inputs=self.inputs,
            split_reasons=tuple(map(str, self.split_reasons)),
        )

    @property
    def thunder_options(self) -> Mapping[str, Any]:
        """Keywords of `thunderfx` that it was compiled with."""
        return self.options

    @property
    def split_reason(self) -> str:
        """Why its graph was cut, one reason a line; empty when it was not."""
        return "\n".join(map(str, self.split_reasons))

    @property
    def fwd_trc(self) -> TraceCtx:
        """The executed trace of the forward (or inference) graph."""
        return self.region.forward_traces()[-1]

    @property
    def bwd_trc(self) -> TraceCtx | None:
        """The executed trace of the backward graph; None where there is none."""
        traces = self.region.traces(Direction.BACKWARD)
        return traces[-1] if traces else None

    def create_fusion_reports(self) -> list[ThunderFusionReport]:
        """Runs the segment once, forward and backward, and reports its fusions.

        Returns:
            The reports, which are also in `fusion_reports`.
        """
        if self.fusion_reports:
            return self.fusion_reports
        recorded = self._fusion_inputs()
        for trace in filter(None, (self.fwd_trc, self.bwd_trc)):
            for fused in fused_regions(trace):
                inputs = recorded.get((trace.direction, fused.name))
                if inputs is None:  # a backward that no output of this run leads to
                    continue
                report = ThunderFusionReport(
                    graph_index=self.graph_index,
                    segment_name=self.name,
                    fused=in_recorded_layout(fused, inputs),
                    trace=trace,
                    inputs=inputs,
                )
                self.fusion_reports.append(report)
        return self.fusion_reports

    def _fusion_inputs(self) -> Mapping[tuple[Direction, str], RecordedInputs]:
        if not any(fused_regions(trace) for trace in (self.fwd_trc, self.bwd_trc) if trace):
            return {}
        fakes = fake_inputs(self.region.graph_module)
        inputs = make_example_inputs(self.inputs)
        with surroundings_of(self.inputs), tracing_like_dynamo(fakes or ()):
            return record_fusion_inputs(self.region, inputs, inputs if fakes is None else fakes)

    def __str__(self) -> str:
        """Returns its size, its fusions, and its split reasons."""
        return "\n".join([*self.summary(), *(f"  split: {r}" for r in self.split_reasons)])

    def summary(self) -> list[str]:
        """Returns the lines about its size and its fusions."""
        operators = sum(self.operators.values())
        lines = [f"{self.name}: {operators} operator{'s' if operators != 1 else ''}"]
        for trace in filter(None, (self.fwd_trc, self.bwd_trc)):
            names = [fused.name for fused in fused_regions(trace)]
            lines.append(f"  {trace.direction.value}: {', '.join(names) or 'op by op'}")
        return lines

    def to_json(self) -> dict[str, Any]:
        """Returns name, operators and fusions, ready for JSON."""
        fusions = {
            trace.direction.value: [fused.name for fused in fused_regions(trace)]
            for trace in (self.fwd_trc, self.bwd_trc)
            if trace
        }
        return {"name": self.name, "operators": self.operators, "fusions": fusions}


@final
@dataclass(frozen=True, kw_only=True)
class ThunderFXGraphReport(AbstractTorchGraphReport):
    """A Dynamo graph as thunder split and compiled it.

    Attributes:
        graph_report: The report about the graph before.
        info: What became of it.
        options: Keywords of `thunderfx` that it was compiled with.
        subgraph_reports: One report for each thunder segment, in order.
    """

    graph_report: FXGraphReport
    info: SubgraphInfo
    options: Mapping[str, Any]
    subgraph_reports: list[ThunderSplitGraphReport]

    @property
    def reported(self) -> ReportedGraph:
        """The graph and what is known about it."""
        before = self.graph_report.reported
        return ReportedGraph(
            name=before.name,
            title=before.title,
            graph_module=before.graph_module,
            inputs=before.inputs,
            split_reasons=tuple(map(str, self.info.split_reasons)),
        )

    @property
    def thunder_options(self) -> Mapping[str, Any]:
        """Keywords of `thunderfx` that it was compiled with."""
        return self.options

    @property
    def split_reason(self) -> str:
        """Why it was cut, one reason a line; empty when it was not."""
        return "\n".join(map(str, self.info.split_reasons))

    def regions(self, *, fusions: bool = True) -> Iterator[AbstractGraphReport]:
        """Yields this report and those on its parts, each once.

        Args:
            fusions: Whether to go down to fusions. A segment that is the whole graph is left out.
        """
        yield self
        is_cut = len(self.info.submodule_to_compiled_functions) > 1
        for segment in self.subgraph_reports:
            if is_cut:
                yield segment
            yield from segment.create_fusion_reports() if fusions else ()

    def __str__(self) -> str:
        """Returns the graph, its segments, and why it was cut."""
        segments = [f"  {line}" for report in self.subgraph_reports for line in report.summary()]
        reasons = [f"  split: {reason}" for reason in self.info.split_reasons]
        count = len(self.info.submodule_to_compiled_functions)
        head = f"{self.name}: {count} segment{'s' if count != 1 else ''}"
        return "\n".join([head, *segments, *reasons])

    def to_json(self) -> dict[str, Any]:
        """Returns segments and split reasons, ready for JSON."""
        return {
            **self.graph_report.to_json(),
            "split_reasons": [str(reason) for reason in self.info.split_reasons],
            "segments": [report.to_json() for report in self.subgraph_reports],
        }


def analyze_thunder_splits(report: FXGraphReport, **options: Any) -> ThunderFXGraphReport:
    """Splits and compiles a graph as `thunderfx` would, and reports the segments.

    Args:
        report: The graph, from `fx_report(...).fx_graph_reports`.
        options: Keywords of `ThunderCompiler`. A failure is raised (`on_failure="raise"`) unless
            you say otherwise.

    Returns:
        The report.

    Raises:
        OptionError: An option is unknown or has a value that is not accepted.
        Exception: What compiling raises.

    Example:
        >>> import torch
        >>> from thunder.dynamo.report import fx_report
        >>> report = fx_report(lambda x: x.exp().sum(), torch.zeros(2))
        >>> print(analyze_thunder_splits(report.fx_graph_reports[0], executors=["aten"]))
        graph0: 1 segment
          graph0_thunder_0: 2 operators
            inference: op by op
    """
    divided = divide_options(options)
    strangers = sorted(set(divided.torch_compile) - set(divided.compiler) - _DEFAULTS)
    if strangers:
        raise OptionError(
            f"{', '.join(strangers)} belong to torch.compile, which has captured this graph "
            "already: give them to fx_report(fn, ..., compile_options={...})"
        )
    compiled = compile_captured(report.captured, options)
    segments = [
        ThunderSplitGraphReport(
            graph_index=report.graph_index,
            region=region,
            inputs=compiled.inputs[region.name],
            options=dict(options),
            split_reasons=tuple(compiled.info.split_reasons),
        )
        for region in compiled.info.thunder_compiled_fns
    ]
    return ThunderFXGraphReport(
        graph_report=report,
        info=compiled.info,
        options=dict(options),
        subgraph_reports=segments,
    )


_DEFAULTS = {"isolate_recompiles"}
