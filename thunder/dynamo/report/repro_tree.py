"""Scripts of a whole program, in folders: all of them, or those that fail."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from thunder.benchmark import AbstractCompileSpecification
from thunder.dynamo.report.graph_report import AbstractGraphReport, Folder
from thunder.dynamo.report.program_arguments import refuse_shared_names
from thunder.dynamo.report.report_run import place_of
from thunder.dynamo.report.segment import ThunderFXGraphReport
from thunder.dynamo.report.torch_graph_report import AbstractTorchGraphReport
from thunder.dynamo.report.whole_program import get_thunder_fxgraph_reports
from thunder.repro import Differs, Expectation, Fails, make_folder


def save_thunderfx_repros(
    fn: Callable[..., Any],
    folder: Folder,
    *args: Any,
    compile_options: Mapping[str, Any] | None = None,
    thunder_options: Mapping[str, Any] | None = None,
    save_fusion: bool = True,
    use_benchmark: bool = False,
    serialize_inputs: bool = False,
    **kwargs: Any,
) -> list[Path]:
    """Writes scripts for all graphs, segments and fusions of a program.

    Args:
        fn: A function, method, callable or module.
        folder: Where to; made when missing. A graph's script is in it, those of its segments are
            in a folder of the graph's number, those of fusions one folder further down.
        args: `fn`'s positional arguments.
        compile_options: Keywords of torch.compile for the capture.
        thunder_options: Keywords of `ThunderCompiler`.
        save_fusion: Whether to go down to fusions.
        use_benchmark: Write benchmark scripts as well.
        serialize_inputs: Save the real inputs beside each script.
        kwargs: `fn`'s keyword arguments.

    Returns:
        The scripts.

    Raises:
        OptionError: An option is unknown or belongs elsewhere, or `fn` has a parameter of an
            option's name: give that to `fn` with `functools.partial`.
        ReproducerError: A file cannot be written.
    """
    refuse_shared_names(save_thunderfx_repros, fn, args)
    reports = get_thunder_fxgraph_reports(
        fn, *args, compile_options=compile_options, thunder_options=thunder_options, **kwargs
    )
    root = make_folder(folder)
    written: list[Path] = []
    for report in reports:
        written += save_graph_repros(
            report, root, save_fusion=save_fusion, serialize_inputs=serialize_inputs
        )
        if use_benchmark:
            written += [
                each.write_benchmark(root / place_of(each), serialize_inputs=serialize_inputs)
                for each in (report, *report.subgraph_reports)
            ]
    return written


def save_graph_repros(
    report: ThunderFXGraphReport,
    folder: Folder,
    *,
    save_fusion: bool = True,
    serialize_inputs: bool = False,
) -> list[Path]:
    """Writes the scripts of one graph, its segments and their fusions.

    Args:
        report: The graph.
        folder: The folder of the whole program.
        save_fusion: Whether to go down to fusions.
        serialize_inputs: Save the real inputs beside each script.
    """
    root = Path(folder)
    written = [report.write_thunder_repro(root, serialize_inputs=serialize_inputs)]
    for segment in report.subgraph_reports:
        place = root / place_of(segment)
        written += [
            segment.write_eager_repro(place, serialize_inputs=serialize_inputs),
            segment.write_thunder_repro(place, serialize_inputs=serialize_inputs),
            segment.write_inductor_repro(place, serialize_inputs=serialize_inputs),
        ]
        for fusion in segment.create_fusion_reports() if save_fusion else ():
            place = root / place_of(fusion)
            written.append(fusion.write_inductor_repro(place, serialize_inputs=serialize_inputs))
            if fusion.executor == "nvfuser":
                written.append(fusion.write_nvfuser_repro(place, serialize_inputs=serialize_inputs))
    return written


def save_failing_repros(
    reports: Iterable[AbstractTorchGraphReport],
    compile_fn: AbstractCompileSpecification,
    folder: Folder,
    *,
    check_consistency: bool = False,
    verify: bool = True,
) -> list[Path]:
    """Runs graphs compiled in one way, and writes scripts for those that fail.

    Args:
        reports: The graphs.
        compile_fn: How to compile.
        folder: Where the scripts go.
        check_consistency: Whether a wrong result is a failure too.
        verify: Whether each script is run once in a fresh process.

    Returns:
        The scripts; empty when nothing failed.
    """
    written = []
    for report in reports:
        expected = _failure(report, compile_fn, check_consistency)
        if expected is not None:
            written.append(report.write_repro(folder, compile_fn, expected=expected, verify=verify))
    return written


def _failure(
    report: AbstractGraphReport, compile_fn: AbstractCompileSpecification, check: bool
) -> Expectation | None:
    try:
        if check:
            return None if report.check(compile_fn).accurate else Differs()
        report.run_repro(compile_fn)
    except Exception as error:  # noqa: BLE001 - failures are what is looked for
        return Fails.like(error)
    return None
