"""What a call costs on the host: thunderfx against torch.compile, both with Inductor behind.

The programs are so small that their kernels take next to no time: what is left is Dynamo's guards,
the wrappers, and the generated Python. All contestants are timed in one process, interleaved.

- `torch.compile` twice: how different two equal contestants look here is the floor of the method.
- Inductor's code called without Dynamo: the floor of the time.
- Host calls: how many Python and C functions one call enters, which no noise can change.

    python benchmarks/host_overhead.py
    python benchmarks/host_overhead.py --seconds 20 --fail-above 1.05
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

import torch
from rich.console import Console
from rich.progress import Progress
from rich.table import Table
from torch import nn

from thunder.benchmark import (
    AbstractCompileSpecification,
    Compute,
    Inputs,
    RichProgress,
    Settings,
    SpeedResult,
    ThunderCompileSpecification,
    TorchCompileSpecification,
    TorchInductorSpecification,
    Verdict,
    compare_speed,
)
from thunder.benchmark.program import Program
from thunder.benchmark.records import Comparison, format_seconds
from thunder.environment import environment_report

BASELINE, CANDIDATE = "torch.compile", "thunderfx"
AGAIN, FLOOR = "torch.compile again", "inductor without dynamo"


@dataclass(frozen=True, kw_only=True, slots=True)
class Case:
    """A program and what of it is timed."""

    name: str
    function: Callable[..., Any]
    args: tuple[Any, ...]
    compute: Compute

    @property
    def title(self) -> str:
        """Name and kind."""
        return f"{self.name}, {self.compute.value}"


def main() -> int:
    """Times every case and returns the exit status."""
    options = _options()
    torch.set_num_threads(1)
    console = Console(width=None if sys.stdout.isatty() else 110, highlight=False)
    console.print(environment_report().headline())
    settings = Settings(seconds=options.seconds, threshold=options.threshold)
    too_slow = []
    for case in cases(options.device):
        result, host_calls = time_case(case, settings, console)
        console.print(table(case, result, host_calls))
        comparison = next(one for one in result.comparisons if one.candidate == CANDIDATE)
        console.print(str(comparison) + "\n", soft_wrap=True)
        if comparison.verdict is Verdict.SLOWER and comparison.low > options.fail_above:
            too_slow.append(case.title)
    if too_slow:
        console.print(f"slower than {options.fail_above:g} x: {'; '.join(too_slow)}")
    return 1 if too_slow else 0


def two_operators(x: torch.Tensor) -> torch.Tensor:
    """A function of two operators."""
    return (x + 1).sin()


def cases(device: str) -> list[Case]:
    """Returns the programs, each forward, and forward and backward."""
    torch.manual_seed(0)
    x = torch.randn(8, device=device)
    layers = [layer for _ in range(8) for layer in (nn.Linear(8, 8), nn.ReLU())]
    model = nn.Sequential(*layers).to(device)
    batch = torch.randn(4, 8, device=device)
    found = []
    for compute in (Compute.FORWARD, Compute.FORWARD_BACKWARD):
        argument = x.clone().requires_grad_(compute is not Compute.FORWARD)
        found.append(
            Case(name="two operators", function=two_operators, args=(argument,), compute=compute)
        )
    for compute in (Compute.FORWARD, Compute.FORWARD_BACKWARD):
        found.append(Case(name="8-layer MLP", function=model, args=(batch,), compute=compute))
    return found


def time_case(
    case: Case, settings: Settings, console: Console
) -> tuple[SpeedResult, dict[str, int]]:
    """Compiles a case in every way; returns timings and host calls."""
    specifications: dict[str, AbstractCompileSpecification] = {
        BASELINE: TorchCompileSpecification(),
        CANDIDATE: ThunderCompileSpecification(),
        AGAIN: TorchCompileSpecification(),
        FLOOR: TorchInductorSpecification(),
    }
    with torch.set_grad_enabled(case.compute is not Compute.FORWARD):
        workloads, host_calls = {}, {}
        for name, specification in specifications.items():
            inputs = Inputs.of(case.function, case.args)
            program = Program.bind(case.function, inputs, compute=case.compute)
            compiled = specification.compile(program.function, inputs=inputs.args)
            workload = program.replaced(compiled).workload()
            for _ in range(3):
                workload.run()
            workloads[name] = workload
            host_calls[name] = count_host_calls(workload.run)
        with Progress(console=console, transient=True) as display:
            hook = RichProgress(display, display.add_task("", total=1.0), case.title)
            return compare_speed(workloads, settings=settings, progress=hook), host_calls


def count_host_calls(function: Callable[[], Any]) -> int:
    """Returns how many Python and C functions a call enters."""
    count = 0

    def note(frame: Any, event: str, argument: Any) -> None:
        nonlocal count
        del frame, argument
        count += event in ("call", "c_call")

    before = sys.getprofile()
    sys.setprofile(note)
    try:
        function()
    finally:
        sys.setprofile(before)
    return count


def table(case: Case, result: SpeedResult, host_calls: dict[str, int]) -> Table:
    """Returns one row a contestant."""
    by_name: dict[str, Comparison] = {one.candidate: one for one in result.comparisons}
    shown = Table("", "time a call", "ratio", "interval", "host calls", "", title=case.title)
    for measurement in result.measurements:
        comparison = by_name.get(measurement.name)
        shown.add_row(
            measurement.name,
            format_seconds(measurement.median),
            "1" if comparison is None else f"{comparison.ratio:.3f}",
            "" if comparison is None else f"{comparison.low:.3f} to {comparison.high:.3f}",
            str(host_calls[measurement.name]),
            "" if comparison is None else comparison.verdict.value,
        )
    return shown


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--seconds", type=float, default=8.0, help="time for each case")
    parser.add_argument("--threshold", type=float, default=0.02, help="difference that matters")
    parser.add_argument("--device", default="cpu")
    parser.add_argument(
        "--fail-above",
        type=float,
        default=1.05,
        metavar="RATIO",
        help="exit with 1 when an interval lies above this",
    )
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
