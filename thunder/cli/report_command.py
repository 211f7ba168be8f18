"""`thunder report`: a program's graphs, breaks, splits, numbers and scripts."""

from __future__ import annotations

import argparse
import json

from thunder.benchmark import Settings
from thunder.cli.exit_status import ExitStatus
from thunder.cli.fail_on import say_reasons
from thunder.cli.program_target import find_program
from thunder.dynamo.report import BenchmarkReport, FXReport, fx_report
from thunder.dynamo.report.whole_program import CONFIDENCE, benchmark_program
from thunder.environment import environment_report
from thunder.repro import write_text


def report(options: argparse.Namespace) -> ExitStatus:
    """Runs the command.

    Args:
        options: The parsed arguments.

    Returns:
        `FOUND` when something that `--fail-on` names was found.
    """
    program = find_program(options.program, options.inputs)
    captured = fx_report(
        program.function,
        *program.args,
        compile_options={"dynamic": True} if options.dynamic else {},
        **program.kwargs,
    )
    print(captured)
    thunder_options = _thunder_options(options)
    if options.replay:
        manifest = captured.save_replay(options.replay, thunder_options=thunder_options)
        print(f"replay: {manifest.parent}")
    if options.graphs_only:
        return _without_numbers(captured, options)
    measured = benchmark_program(
        captured,
        options.folder,
        thunder_options=thunder_options,
        against=options.against,
        compare_fusion=not options.no_fusions,
        settings=Settings(confidence=CONFIDENCE, seconds=options.seconds),
        verify=not options.no_verify,
    )
    print(measured)
    if options.json:
        measured.save_json(options.json)
    if options.html:
        measured.save_html(options.html)
    return say_reasons(options.fail_on.reasons(measured))


def _without_numbers(captured: FXReport, options: argparse.Namespace) -> ExitStatus:
    if options.json:
        data = {"environment": environment_report().as_dict(), **captured.to_json()}
        write_text(options.json, json.dumps(data, indent=1) + "\n")
    if options.html:
        captured.save_html(options.html, compile_graphs=False)
    empty = BenchmarkReport(
        program=captured.program,
        environment={},
        breaks=[reason.to_json() for reason in captured.dynamo_break_reasons],
        regions=(),
    )
    return say_reasons(options.fail_on.reasons(empty))


def _thunder_options(options: argparse.Namespace) -> dict[str, object]:
    chosen: dict[str, object] = {}
    if options.executors:
        chosen["executors"] = options.executors.split(",")
    if options.exclude_ops:
        chosen["exclude_ops"] = options.exclude_ops.split(",")
    return chosen
