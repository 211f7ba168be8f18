"""Makes reports into a page: prints traces and generated code, and numbers what belongs together.

Graphs are added one at a time and only text is kept of them, so that their memory can go.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, final

from thunder.dynamo.report.break_reason import BreakReason
from thunder.dynamo.report.fx_graph import FXGraphReport
from thunder.dynamo.report.kernel_code import KernelCode, kernel_code
from thunder.dynamo.report.page import (
    NOTHING,
    Page,
    PageKernel,
    PageLine,
    PageListing,
    PageNote,
    PageRegion,
    PageSource,
)
from thunder.dynamo.report.segment import ThunderFXGraphReport, ThunderSplitGraphReport
from thunder.dynamo.split_reason import SplitReason
from thunder.pipeline.artifacts import fused_regions
from thunder.trace.printer import PrintedLine, print_lines
from thunder.trace.source_lines import SourceLine, source_line
from thunder.trace.targets import FusedRegion
from thunder.trace.trace import Direction, TraceCtx


@final
class PageBuilder:
    """Collects a page."""

    def __init__(self, program: str, breaks: Iterable[BreakReason]) -> None:
        """Starts with what is known about the whole program.

        Args:
            program: The program's name.
            breaks: Why it has more than one graph.
        """
        self._program = program
        self._sources: dict[SourceLine, int] = {}
        self._kernels = 0
        self._fusions = 0
        self._regions: list[PageRegion] = []
        self._notes = tuple(map(self._break, breaks))

    def add_graph(self, graph: FXGraphReport, failure: Exception | None = None) -> None:
        """Adds a graph that was not compiled.

        Args:
            graph: The graph.
            failure: Why not, when it was tried.
        """
        words = f"{type(failure).__name__}: {failure}".splitlines() if failure else []
        notes = [PageNote(label="failed", text=words[0], details=tuple(words[1:]))] if words else []
        self._regions.append(self._graph(graph, notes, ()))

    def add(self, report: ThunderFXGraphReport) -> None:
        """Adds a compiled graph with its segments and fusions.

        Args:
            report: The graph.
        """
        notes = list(map(self._split, report.info.split_reasons))
        count = len(report.info.submodule_to_compiled_functions)
        segments = tuple(map(self._segment, report.subgraph_reports))
        summary = f"{_count(count, 'segment')}"
        self._regions.append(self._graph(report.graph_report, notes, segments, summary))

    def page(self, environment: Mapping[str, Any]) -> Page:
        """Returns the page.

        Args:
            environment: Versions and devices.
        """
        return Page(
            program=self._program,
            notes=self._notes,
            regions=tuple(self._regions),
            sources=tuple(
                PageSource(file=line.file, line=line.line, function=line.function, code=line.code)
                for line in self._sources
            ),
            environment=page_environment(environment),
        )

    def _graph(
        self,
        graph: FXGraphReport,
        notes: list[PageNote],
        parts: tuple[PageRegion, ...],
        summary: str = "",
    ) -> PageRegion:
        reason = graph.captured.recompile_reason
        again = [PageNote(label="recompiled", text=" ".join(reason.split()))] if reason else []
        printed = print_lines(graph.captured.graph_module, name=graph.name)
        lines = tuple(PageLine(text=line.text, source=self._source(line)) for line in printed)
        operators = _count(sum(graph.operators.values()), "operator")
        return PageRegion(
            name=graph.name,
            title=graph.name,
            kind="graph",
            summary=", ".join(filter(None, (operators, summary))),
            notes=(*again, *notes),
            listings=(PageListing(title=f"{graph.name} · as Dynamo captured it", lines=lines),),
            parts=parts,
        )

    def _segment(self, segment: ThunderSplitGraphReport) -> PageRegion:
        listings, fusions = [], []
        for trace in filter(None, (segment.fwd_trc, segment.bwd_trc)):
            first = self._fusions
            codes = {fused: self._code(fused) for fused in fused_regions(trace)}
            numbers = {fused: first + index for index, fused in enumerate(codes)}
            bases = self._number_kernels(codes)
            self._fusions += len(codes)
            fusions += [
                self._fusion(segment, trace, fused, numbers[fused], code, bases[fused])
                for fused, code in codes.items()
            ]
            lines = _Linker(numbers, codes, bases, self).lines(trace)
            listings.append(
                PageListing(title=f"{segment.name} · {trace.direction.value}", lines=tuple(lines))
            )
        return PageRegion(
            name=segment.name,
            title=segment.region.name,
            kind="segment",
            summary=f"{_count(sum(segment.operators.values()), 'operator')}, "
            f"{_count(len(fusions), 'fusion')}",
            listings=tuple(listings),
            parts=tuple(fusions),
        )

    def _number_kernels(
        self, codes: Mapping[FusedRegion, KernelCode | None]
    ) -> dict[FusedRegion, int]:
        bases = {}
        for fused, code in codes.items():
            bases[fused] = self._kernels
            self._kernels += len(code.kernels) if code else 0
        return bases

    @staticmethod
    def _code(fused: FusedRegion) -> KernelCode | None:
        text = fused.kernels()
        return kernel_code(text) if text else None

    @staticmethod
    def _fusion(
        segment: ThunderSplitGraphReport,
        trace: TraceCtx,
        fused: FusedRegion,
        number: int,
        code: KernelCode | None,
        base: int,
    ) -> PageRegion:
        direction = "backward" if trace.direction is Direction.BACKWARD else "forward"
        title = f"{fused.name} · {direction}"
        operators = sum(node.op == "call_function" for node in fused.graph_module.graph.nodes)
        listing, kernels = (), ()
        if code is not None:
            listing = (_code_listing(f"{segment.name} · {title}", code, number, base),)
            kernels = tuple(
                PageKernel(number=base + index, name=kernel.name, nodes=len(kernel.nodes))
                for index, kernel in enumerate(code.kernels)
            )
        return PageRegion(
            name=f"{segment.name}_{fused.name}_{direction}",
            title=title,
            kind="fusion",
            summary=f"{_count(operators, 'operator')}, {_count(len(kernels), 'kernel call')}, "
            f"by {fused.executor}",
            notes=tuple(PageNote(label="note", text=note) for note in fused.notes),
            listings=listing,
            kernels=kernels,
            fusion=number,
        )

    def _break(self, reason: BreakReason) -> PageNote:
        times = f" ({reason.count} times)" if reason.count > 1 else ""
        details = [f"at {line}" for line in reversed(reason.stack)]
        details += [f"why: {reason.explanation}"] if reason.explanation else []
        details += ["effect: the whole function runs uncompiled"] if reason.skipped else []
        details += [f"hint: {hint}" for hint in reason.hints]
        return PageNote(
            label="break",
            text=f"{reason.reason}{times}",
            details=tuple(details),
            source=self.source_number(reason.source_line),
        )

    def _split(self, reason: SplitReason) -> PageNote:
        details = [f"at {reason.source_line}"] if reason.source_line else []
        details += [reason.exception] if reason.exception else []
        return PageNote(
            label="split",
            text=f"{reason.kind.value}: {reason.info}",
            details=tuple(details),
            source=self.source_number(reason.source_line),
        )

    def _source(self, line: PrintedLine) -> int:
        return self.source_number(source_line(line.node) if line.node is not None else None)

    def source_number(self, line: SourceLine | None) -> int:
        """Returns the number of a source line, a new one if need be.

        Args:
            line: The line; None has the number of nothing.
        """
        return NOTHING if line is None else self._sources.setdefault(line, len(self._sources))


@final
class _Linker:
    """Says for each line of one trace what it belongs to."""

    def __init__(
        self,
        numbers: Mapping[FusedRegion, int],
        codes: Mapping[FusedRegion, KernelCode | None],
        bases: Mapping[FusedRegion, int],
        builder: PageBuilder,
    ) -> None:
        self.numbers = numbers
        self.builder = builder
        self.kernels = {
            fused: _kernels_of_nodes(code, bases[fused]) for fused, code in codes.items()
        }

    def lines(self, trace: TraceCtx) -> Iterable[PageLine]:
        """Yields the lines of a trace."""
        name = trace.direction.value
        for line in print_lines(trace.graph_module, name=name, frees=trace.frees):
            yield self.line(line)

    def line(self, line: PrintedLine) -> PageLine:
        """Returns one line with what it belongs to."""
        node, region = line.node, line.region
        if node is None:
            return PageLine(text=line.text)
        if region is None:
            return PageLine(text=line.text, source=self.builder.source_number(source_line(node)))
        is_head = node.target is region
        return PageLine(
            text=line.text,
            source=NOTHING if is_head else self.builder.source_number(source_line(node)),
            fusion=self.numbers[region],
            kernels=() if is_head else self.kernels[region].get(node.name, ()),
            is_head=is_head,
        )


def page_environment(environment: Mapping[str, Any]) -> tuple[tuple[str, str], ...]:
    """Returns versions and devices as text.

    Args:
        environment: What `EnvironmentReport.as_dict` returned.
    """
    return tuple(
        (name, ", ".join(value) or "none" if isinstance(value, list) else str(value))
        for name, value in environment.items()
    )


def _kernels_of_nodes(code: KernelCode | None, base: int) -> dict[str, tuple[int, ...]]:
    found: dict[str, tuple[int, ...]] = {}
    for index, kernel in enumerate(code.kernels if code else ()):
        for node in dict.fromkeys(kernel.nodes):
            found[node] = (*found.get(node, ()), base + index)
    return found


def _code_listing(title: str, code: KernelCode, fusion: int, base: int) -> PageListing:
    parts = zip(code.lines, code.languages, code.owners, strict=True)
    lines = tuple(
        PageLine(
            text=text,
            fusion=fusion,
            kernels=tuple(base + index for index in owners),
            language=language,
        )
        for text, language, owners in parts
    )
    return PageListing(title=title, lines=lines, fusion=fusion)


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"
