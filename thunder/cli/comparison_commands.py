"""`thunder replay`, `thunder compare` and `thunder env`: the same program elsewhere, or later."""

from __future__ import annotations

import argparse
import json

from rich.console import Console

from thunder.benchmark import Settings
from thunder.cli.exit_status import ExitStatus
from thunder.cli.fail_on import say_reasons
from thunder.dynamo.report import compare_reports, read_report, run_replay
from thunder.dynamo.report.replay import CONFIDENCE
from thunder.environment import environment_report
from thunder.repro import write_text


def replay(options: argparse.Namespace) -> ExitStatus:
    """Runs, checks and times every region of a replay.

    Args:
        options: The parsed arguments.

    Returns:
        `FOUND` when something that `--fail-on` names was found.
    """
    settings = Settings(confidence=CONFIDENCE, seconds=options.seconds)
    report = run_replay(options.folder, settings=settings)
    print(report)
    if options.json:
        report.save_json(options.json)
    if options.html:
        report.save_html(options.html)
    return say_reasons(options.fail_on.reasons(report))


def compare(options: argparse.Namespace) -> ExitStatus:
    """Lists what changed between two reports or replays.

    Args:
        options: The parsed arguments.

    Returns:
        `FOUND` when something changed for the worse.
    """
    old, new = read_report(options.old), read_report(options.new)
    comparison = compare_reports(old, new, threshold=options.threshold)
    head, *versions = str(comparison).splitlines()[: 1 + len(comparison.environment)]
    print("\n".join([head, *versions]))
    if comparison.changes:
        Console().print(comparison.table())
    if options.json:
        write_text(options.json, json.dumps(comparison.to_json(), indent=1) + "\n")
    return say_reasons(map(str, comparison.regressions))


def env(options: argparse.Namespace) -> ExitStatus:
    """Prints versions and devices.

    Args:
        options: The parsed arguments.
    """
    report = environment_report()
    print(json.dumps(report.as_dict(), indent=1) if options.json else report)
    return ExitStatus.OK
