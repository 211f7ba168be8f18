"""What `fx_report` costs, beside the first call of `torch.compile` on the same model.

Tiny Hugging Face models in training mode. Each round starts both from nothing, in turns; the first
round warms up imports and is not counted. `torch.compile` is measured up to the end of its first
forward call, without the backward graph, which it compiles later: with empty caches, with filled
caches, and with `backend="eager"`, which is Dynamo alone and what no report can do without.

    python benchmarks/report_time.py
    python benchmarks/report_time.py --models bert --rounds 5 --fail-above 1.2
"""

from __future__ import annotations

import argparse
import functools
import os
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("HF_HUB_OFFLINE", "1")
sys.path.insert(0, str(Path(__file__).resolve().parent.parent))  # for tests.zoo

import torch
from rich.console import Console
from rich.table import Table
from torch._inductor.utils import fresh_cache

from tests.zoo.cases import make_case
from thunder.dynamo.report import fx_report
from thunder.environment import environment_report

REPORT, COLD, WARM, DYNAMO = "fx_report", "torch.compile", "with filled caches", "Dynamo alone"


def main() -> int:
    """Times every model and returns 1 when a report costs too much."""
    options = _options()
    console = Console(width=None if sys.stdout.isatty() else 110, highlight=False)
    console.print(environment_report().headline())
    shown = Table("model", REPORT, COLD, "ratio", WARM, "ratio", DYNAMO, "ratio")
    shown.title = f"Seconds, medians of {options.rounds} rounds; ratios of one round, their median"
    too_much = []
    for name in options.models.split(","):
        rounds = time_model(name, options.rounds)
        row = [name, _median([each[REPORT] for each in rounds])]
        for other in (COLD, WARM, DYNAMO):
            ratios = [each[REPORT] / each[other] for each in rounds]
            row += [_median([each[other] for each in rounds]), _median(ratios)]
            if other == COLD and statistics.median(ratios) > options.fail_above:
                too_much.append(name)
        shown.add_row(*row)
    console.print(shown)
    if too_much:
        console.print(f"more than {options.fail_above:g} x torch.compile: {', '.join(too_much)}")
    return 1 if too_much else 0


def time_model(name: str, rounds: int) -> list[dict[str, float]]:
    """Returns the seconds of each contestant in each round but the first.

    Args:
        name: The model, by its type in transformers.
        rounds: How many rounds to keep.
    """
    torch.manual_seed(0)
    case = make_case(name)
    step = functools.partial(case.model.train(), **case.inputs)

    def compiled(**options: Any) -> None:
        torch.compile(case.model, **options)(**case.inputs)

    found = []
    for _ in range(rounds + 1):
        times = {REPORT: _seconds(lambda: fx_report(step))}
        with fresh_cache():
            times[COLD] = _seconds(compiled)
            times[WARM] = _seconds(compiled)
        times[DYNAMO] = _seconds(functools.partial(compiled, backend="eager"))
        found.append(times)
    return found[1:]


def _seconds(function: Callable[[], Any]) -> float:
    torch._dynamo.reset()
    start = time.perf_counter()
    function()
    return time.perf_counter() - start


def _median(values: list[float]) -> str:
    return f"{statistics.median(values):.2f}"


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--models", default="llama,bert,t5", help="types of models in transformers")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument(
        "--fail-above",
        type=float,
        default=1.2,
        metavar="RATIO",
        help="exit with 1 when a report costs more than this times a cold torch.compile",
    )
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
