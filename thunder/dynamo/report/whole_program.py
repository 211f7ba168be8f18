"""From a program to everything that can be reported about it, in one call."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from thunder.benchmark import (
    AbstractCompileSpecification,
    AbstractTimer,
    Settings,
    WallTime,
)
from thunder.dynamo.report.benchmark_report import FILE_NAME, BenchmarkReport
from thunder.dynamo.report.contestants import DEFAULT_AGAINST
from thunder.dynamo.report.display import Display, shown_report, task
from thunder.dynamo.report.fusion import ThunderFusionReport
from thunder.dynamo.report.fx_graph import FXGraphReport
from thunder.dynamo.report.graph_report import Folder
from thunder.dynamo.report.page_builder import PageBuilder
from thunder.dynamo.report.program import FXReport, fx_report
from thunder.dynamo.report.program_arguments import refuse_shared_names
from thunder.dynamo.report.region_record import Level, RegionRecord
from thunder.dynamo.report.report_run import ReportRun, failure_of, place_of
from thunder.dynamo.report.segment import (
    ThunderFXGraphReport,
    ThunderSplitGraphReport,
    analyze_thunder_splits,
)
from thunder.environment import environment_report
from thunder.errors import OptionError
from thunder.repro import Fails, make_folder

CONFIDENCE = 0.99
"""Of the comparisons of a report, of which there are many: few may raise a false alarm."""


def thunderfx_benchmark_report(
    fn: Callable[..., Any],
    folder: Folder,
    *args: Any,
    compile_options: Mapping[str, Any] | None = None,
    thunder_options: Mapping[str, Any] | None = None,
    against: Sequence[AbstractCompileSpecification] = (),
    compare_fusion: bool = True,
    time_fn: AbstractTimer | None = None,
    settings: Settings | None = None,
    verify: bool = True,
    show: bool = True,
    **kwargs: Any,
) -> BenchmarkReport:
    """Checks and times a program's graphs, segments and fusions, and writes down what stands out.

    Thunder is compared with torch.compile and eager; a fusion with Inductor, or with eager where
    Inductor has it. Correctness comes first: what is wrong is not timed. Scripts are written only
    for failures, wrong results and significant differences. Inputs are made for one graph at a
    time and freed after it.

    Args:
        fn: A function, method, callable or module.
        folder: Where the scripts and `report.json` go; made when missing.
        args: `fn`'s positional arguments.
        compile_options: Keywords of torch.compile for the capture.
        thunder_options: Keywords of `ThunderCompiler`.
        against: What thunder is compared with, the baseline first; by default torch.compile and
            eager. Fusions are compared as said above.
        compare_fusion: Whether to go down to fusions.
        time_fn: How to time; wall time by default.
        settings: Confidence, threshold and time of each comparison.
        verify: Whether scripts of failures are run once in a fresh process.
        show: Whether to show progress and, at the end, the table.
        kwargs: `fn`'s keyword arguments.

    Returns:
        The report. A key press ends it early, with what there is.

    Raises:
        OptionError: An option is unknown or belongs elsewhere, or `fn` has a parameter of an
            option's name: give that to `fn` with `functools.partial`.
        ReproducerError: The folder cannot be written.
        Exception: What `fn` raises without being compiled.

    Example:
        >>> import tempfile, torch
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     report = thunderfx_benchmark_report(
        ...         torch.sin, folder, torch.ones(2), thunder_options={"executors": ["aten"]},
        ...         settings=Settings(seconds=0.2), show=False,
        ...     )
        >>> [region.name for region in report.regions]
        ['graph0']
    """
    refuse_shared_names(thunderfx_benchmark_report, fn, args)
    captured = fx_report(fn, *args, compile_options=compile_options, **kwargs)
    return benchmark_program(
        captured,
        folder,
        thunder_options=thunder_options or {},
        against=against,
        compare_fusion=compare_fusion,
        time_fn=time_fn,
        settings=settings,
        verify=verify,
        show=show,
    )


def benchmark_program(
    captured: FXReport,
    folder: Folder,
    *,
    thunder_options: Mapping[str, Any],
    against: Sequence[AbstractCompileSpecification] = (),
    compare_fusion: bool = True,
    time_fn: AbstractTimer | None = None,
    settings: Settings | None = None,
    verify: bool = True,
    show: bool = True,
) -> BenchmarkReport:
    """Does what `thunderfx_benchmark_report` does for a program that was captured before.

    Args:
        captured: The program.
        folder: Where the scripts and `report.json` go; made when missing.
        thunder_options: Keywords of `ThunderCompiler`.
        against: What thunder is compared with, the baseline first; by default torch.compile and
            eager.
        compare_fusion: Whether to go down to fusions.
        time_fn: How to time; wall time by default.
        settings: Confidence, threshold and time of each comparison.
        verify: Whether scripts of failures are run once in a fresh process.
        show: Whether to show progress and, at the end, the table.
    """
    run = ReportRun(
        folder=make_folder(folder),
        timer=time_fn or WallTime(),
        settings=settings or Settings(confidence=CONFIDENCE),
        verify=verify,
        against=tuple(against) or DEFAULT_AGAINST,
    )
    regions: list[RegionRecord] = []
    environment = environment_report().as_dict()
    page = PageBuilder(captured.program, captured.dynamo_break_reasons)
    interrupted = False
    with shown_report(show) as display:
        try:
            for graph in captured.fx_graph_reports:
                for record in _benchmark_graph(
                    graph, run, thunder_options, compare_fusion, display, page
                ):
                    regions.append(record)
                    interrupted |= bool(record.result and record.result.interrupted)
                if interrupted:
                    break
        except KeyboardInterrupt:
            interrupted = True
        report = BenchmarkReport(
            program=captured.program,
            environment=environment,
            breaks=[reason.to_json() for reason in captured.dynamo_break_reasons],
            regions=tuple(regions),
            interrupted=interrupted,
            page=page.page(environment),
        )
        report.save_json(run.folder / FILE_NAME)
        display.report = report
    return report


def get_thunder_fxgraph_reports(
    fn: Callable[..., Any],
    *args: Any,
    compile_options: Mapping[str, Any] | None = None,
    thunder_options: Mapping[str, Any] | None = None,
    **kwargs: Any,
) -> list[ThunderFXGraphReport]:
    """Captures a program and compiles each of its graphs with thunder.

    Args:
        fn: A function, method, callable or module.
        args: `fn`'s positional arguments.
        compile_options: Keywords of torch.compile for the capture.
        thunder_options: Keywords of `ThunderCompiler`.
        kwargs: `fn`'s keyword arguments.

    Returns:
        One report a graph, in order.

    Raises:
        OptionError: An option is unknown or belongs elsewhere, or `fn` has a parameter of an
            option's name.
    """
    refuse_shared_names(get_thunder_fxgraph_reports, fn, args)
    captured = fx_report(fn, *args, compile_options=compile_options, **kwargs)
    options = thunder_options or {}
    return [analyze_thunder_splits(graph, **options) for graph in captured.fx_graph_reports]


def make_nvfusion_reports(
    reports: Iterable[ThunderFXGraphReport | ThunderSplitGraphReport],
    *,
    executor: str | None = None,
) -> list[ThunderFusionReport]:
    """Reports the fusions of compiled graphs.

    Args:
        reports: What `analyze_thunder_splits` or `get_thunder_fxgraph_reports` returned.
        executor: Only fusions of this executor, such as `"nvfuser"`; None for all. Where nvFuser
            is not there, fusions are Inductor's.

    Returns:
        One report a fusion, in order.
    """
    segments: list[ThunderSplitGraphReport] = []
    for report in reports:
        is_segment = isinstance(report, ThunderSplitGraphReport)
        segments += [report] if is_segment else report.subgraph_reports
    fusions = [fusion for segment in segments for fusion in segment.create_fusion_reports()]
    return [fusion for fusion in fusions if executor in (None, fusion.executor)]


def _benchmark_graph(
    graph: FXGraphReport,
    run: ReportRun,
    options: Mapping[str, Any],
    compare_fusion: bool,
    display: Display,
    page: PageBuilder,
) -> Iterator[RegionRecord]:
    """Yields the records of a graph and its parts; frees what it made before it returns."""
    try:
        report = analyze_thunder_splits(graph, **options)
    except OptionError:
        raise
    except Exception as error:  # noqa: BLE001 - a graph that thunder cannot compile is a result
        page.add_graph(graph, error)
        yield _failed_graph(graph, run, options, error)
        return
    page.add(report)
    for region in report.regions(fusions=compare_fusion):
        with task(display, region.name) as hook:
            yield run.benchmark(region, hook)


def _failed_graph(
    graph: FXGraphReport, run: ReportRun, options: Mapping[str, Any], error: Exception
) -> RegionRecord:
    report = graph.with_options(options)
    script = report.write_repro(
        run.folder / place_of(graph),
        report.default_specification,
        file_name=f"{graph.name}_repro_thunder.py",
        expected=Fails.like(error),
        verify=run.verify,
    )
    return RegionRecord(
        name=graph.name,
        level=Level.GRAPH,
        executor="thunder",
        operators=graph.operators,
        subject=report.default_specification.name,
        failure=failure_of(error),
        scripts=(script.relative_to(run.folder).as_posix(),),
    )
