"""Single regions against the memory's speed: which executor comes how near to it.

Each region reads and writes rows of a language model's activations, so the floor is bytes moved:
forward the inputs and the result, backward the inputs, the gradient of the result and those of the
inputs, each once. Every executor's results are compared with eager's before anything is timed.

    python benchmarks/regions.py
    python benchmarks/regions.py --device cpu --rows 64 --columns 128 --seconds 0.2
"""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from rich.console import Console
from rich.table import Table
from torch.nn.functional import cross_entropy, gelu, layer_norm, rms_norm, silu, softmax

from thunder.benchmark import (
    Compute,
    KernelTime,
    Settings,
    ThunderCompileSpecification,
    TorchCompileSpecification,
    WallTime,
    benchmark,
)
from thunder.environment import environment_report
from thunder.executors import known_executors

Shapes = tuple[tuple[int, ...], ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class Region:
    """A function, and the shapes of its inputs by rows and columns."""

    function: Callable[..., torch.Tensor]
    shapes: Callable[[int, int], Shapes]


def _add_rms_norm(x: torch.Tensor, residual: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    return rms_norm(x + residual, weight.shape, weight)


def _cross_entropy(logits: torch.Tensor) -> torch.Tensor:
    targets = torch.arange(logits.shape[0], device=logits.device) % logits.shape[1]
    return cross_entropy(logits.float(), targets)


REGIONS = {
    "rms_norm": Region(
        function=lambda x, weight: rms_norm(x, weight.shape, weight),
        shapes=lambda rows, columns: ((rows, columns), (columns,)),
    ),
    "layer_norm": Region(
        function=lambda x, weight, bias: layer_norm(x, weight.shape, weight, bias),
        shapes=lambda rows, columns: ((rows, columns), (columns,), (columns,)),
    ),
    "add + rms_norm": Region(
        function=_add_rms_norm,
        shapes=lambda rows, columns: ((rows, columns), (rows, columns), (columns,)),
    ),
    "softmax": Region(
        function=lambda x: softmax(x, -1),
        shapes=lambda rows, columns: ((rows, columns),),
    ),
    "gelu + bias": Region(
        function=lambda x, bias: gelu(x + bias),
        shapes=lambda rows, columns: ((rows, columns), (columns,)),
    ),
    "swiglu": Region(
        function=lambda gate, up: silu(gate) * up,
        shapes=lambda rows, columns: ((rows, columns), (rows, columns)),
    ),
    "cross_entropy": Region(
        function=_cross_entropy,
        shapes=lambda rows, columns: ((rows, columns),),
    ),
}


def main() -> int:
    """Measures the regions and returns 1 when a result was wrong."""
    options = _options()
    console = Console(width=None if sys.stdout.isatty() else 120, highlight=False)
    console.print(environment_report().headline())
    is_right = True
    for name in options.regions:
        table = _table(name)
        for compute in (Compute.FORWARD, Compute.BACKWARD):
            is_right &= measure(name, compute, options, table)
        console.print(table)
    return 0 if is_right else 1


def _table(name: str) -> Table:
    table = Table(title=name)
    for column in ("pass", "executor"):
        table.add_column(column, min_width=14)
    for column in ("floor, us", "time, us", "over the floor"):
        table.add_column(column, justify="right", min_width=14)
    return table


def measure(name: str, compute: Compute, options: argparse.Namespace, table: Table) -> bool:
    """Adds the rows of one region and pass; returns whether all results were right.

    Args:
        name: In `REGIONS`.
        compute: Forward or backward.
        options: What the command line asks for.
        table: Gets one row for each executor, the fastest first.
    """
    region = REGIONS[name]
    torch.manual_seed(0)
    inputs = [
        torch.randn(shape, device=options.device, dtype=torch.bfloat16).requires_grad_()
        for shape in region.shapes(options.rows, options.columns)
    ]
    floor = _moved_bytes(region, inputs, compute) / (options.bandwidth * 1e9)
    result = benchmark(
        region.function,
        inputs,
        specifications=_specifications(options.executors),
        compute=compute,
        timer=KernelTime() if options.device.startswith("cuda") else WallTime(),
        settings=Settings(seconds=options.seconds),
    )
    if result.interrupted:
        raise KeyboardInterrupt  # the tables of what was measured before are printed
    labels = ["torch.compile", *options.executors]
    rows = [
        (math.inf if outcome.measurement is None else outcome.measurement.median, label, outcome)
        for label, outcome in zip(labels, result.outcomes, strict=True)
    ]
    for seconds, label, outcome in sorted(rows, key=lambda row: row[0]):
        if outcome.measurement is None:
            print(f"{name}, {compute.value}: {outcome}", file=sys.stderr, flush=True)
        found = (f"{seconds * 1e6:.1f}", f"{seconds / floor:.2f}")
        if math.isinf(seconds):
            found = (outcome.status.value, "")
        table.add_row(compute.value, label, f"{floor * 1e6:.1f}", *found)
    return all(outcome.measurement is not None for outcome in result.outcomes)


def _moved_bytes(region: Region, inputs: list[torch.Tensor], compute: Compute) -> int:
    read = sum(x.nbytes for x in inputs)
    result = region.function(*inputs).nbytes
    return read + result + (read if compute is Compute.BACKWARD else 0)


def _specifications(executors: list[str]) -> list[Any]:
    thunder = [
        ThunderCompileSpecification(executors=[name], on_failure="raise") for name in executors
    ]
    return [TorchCompileSpecification(), *thunder]


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--regions", nargs="+", default=list(REGIONS), choices=list(REGIONS))
    parser.add_argument(
        "--executors", nargs="+", default=["inductor", "aten"], choices=known_executors()
    )
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--rows", type=int, default=16384)
    parser.add_argument("--columns", type=int, default=4096)
    parser.add_argument(
        "--bandwidth", type=float, default=4300, help="of the memory, GB/s; an H200's by default"
    )
    parser.add_argument("--seconds", type=float, default=2, help="for one region and pass")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
