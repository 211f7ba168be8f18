"""`thunder bench` and `thunder minimize`: what to do with a reproducer script."""

from __future__ import annotations

import argparse
import json
import sys

from thunder.benchmark import Compute, KernelTime, Settings, WallTime, WallTimeWithMemoryUsage
from thunder.cli.exit_status import ExitStatus
from thunder.cli.fail_on import say_reasons
from thunder.diagnose import minimize as minimize_script
from thunder.dynamo.report import Level, RegionRecord, load_script
from thunder.repro import write_text

TIMERS = {
    "wall": WallTime(),
    "kernel": KernelTime(),
    "memory": WallTimeWithMemoryUsage(),
}


def bench(options: argparse.Namespace) -> ExitStatus:
    """Compares a script's ways to compile with others; the first of `--against` is the baseline.

    Args:
        options: The parsed arguments.

    Returns:
        `FOUND` when something that `--fail-on` names was found.
    """
    script = load_script(options.script)
    own = {one.name: one for one in options.against}
    named = dict(zip(script.compilers, script.specifications, strict=True))
    subjects = [one for name, one in named.items() if name not in own]
    result = script.benchmark(
        [*own.values(), *subjects],
        compute=Compute(options.compute) if options.compute else None,
        timer=TIMERS[options.timer],
        settings=Settings(seconds=options.seconds),
    )
    print(result)
    if not sys.stdout.isatty():  # a line for programs, far too long for people
        print(result.result_line())
    if options.json:
        write_text(options.json, json.dumps(result.to_json(), indent=1, allow_nan=False) + "\n")
    records = [
        RegionRecord(
            name=f"{script.name}, {outcome.name}",
            level=Level.GRAPH,
            executor=outcome.name,
            operators={},
            subject=outcome.name,
            result=result,
        )
        for outcome in result.outcomes
    ]
    return say_reasons(reason for one in records for reason in options.fail_on.of_region(one))


def minimize(options: argparse.Namespace) -> ExitStatus:
    """Shrinks a script to the operations that matter.

    Args:
        options: The parsed arguments.
    """
    result = minimize_script(
        options.script, check=options.check, folder=options.folder, timeout=options.timeout
    )
    print(result)
    return ExitStatus.OK
