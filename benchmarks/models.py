"""Transformers' models at real sizes on a GPU: thunderfx against torch.compile.

Each model and kind has a process of its own, all at once: they compile side by side, each with
empty caches, and measure one after the other. Losses and gradients are compared with eager's
before anything is timed (with dropout, which kernels draw differently, both are far from it).
Weights are random; nothing is downloaded.

    python benchmarks/models.py
    python benchmarks/models.py --models llama bert --kinds "training step" --seconds 20
    python benchmarks/models.py --contest full
"""

from __future__ import annotations

import argparse
import fcntl
import json
import math
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

os.environ.setdefault("HF_HUB_OFFLINE", "1")

import torch
from large_models import CASES, KINDS, Case, step_of  # the folder of this script is on the path
from rich.console import Console
from rich.table import Table
from torch import nn

from thunder import compile_stats
from thunder.benchmark import (
    AbstractCompileSpecification,
    Settings,
    ThunderCompileSpecification,
    TorchCompileSpecification,
    WallTimeWithMemoryUsage,
    Workload,
    compare_speed,
)
from thunder.environment import environment_report

NAMES = ("torch.compile", "thunderfx")


def main() -> int:
    """Runs what is asked for and returns the exit status."""
    options = _options()
    if options.child:
        try:
            measure(CASES[options.models[0]], options.kinds[0], options)
        finally:
            (Path(options.child) / f"ready-{os.getpid()}").touch()  # nobody waits for a failure
        return 0
    console = Console(width=None if sys.stdout.isatty() else 120, highlight=False)
    console.print(environment_report().headline())
    rows: list[dict[str, Any]] = []
    try:
        for row in run_children(options):
            print(json.dumps(row), flush=True)
            rows.append(row)
    except KeyboardInterrupt:
        console.print("interrupted: what follows is what was measured before")
    console.print(_table(rows))
    return 1 if len(rows) < _wanted(options) or any("error" in row for row in rows) else 0


def run_children(options: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """Starts a process for each model and kind, and yields what they found as they end."""
    with tempfile.TemporaryDirectory() as folder:
        children: dict[subprocess.Popen[bytes], tuple[str, str, Path]] = {}
        try:
            for model in options.models:
                for kind in options.kinds:
                    own = Path(folder) / str(len(children))
                    own.mkdir()
                    children[_start(model, kind, own, options)] = (model, kind, own)
            while children:
                time.sleep(0.1)
                for child in [child for child in children if child.poll() is not None]:
                    model, kind, own = children.pop(child)
                    yield {"model": model, "kind": kind, **_found(child, own)}
        finally:
            for child in children:
                child.kill()
                child.wait()


def _start(
    model: str, kind: str, own: Path, options: argparse.Namespace
) -> subprocess.Popen[bytes]:
    """Starts the process of one model and kind, with caches in a folder of its own."""
    command = [sys.executable, __file__, "--models", model, "--kinds", kind]
    command += ["--seconds", str(options.seconds), "--contest", options.contest]
    command += ["--device", options.device, "--processes", str(_wanted(options))]
    caches = {
        "TORCHINDUCTOR_CACHE_DIR": str(own / "inductor"),
        "TRITON_CACHE_DIR": str(own / "triton"),
        "THUNDER_CACHE_DIR": str(own / "thunder"),
    }
    with (own / "out").open("wb") as out, (own / "err").open("wb") as err:
        return subprocess.Popen(
            [*command, "--child", str(own.parent)], stdout=out, stderr=err, env=os.environ | caches
        )


def _found(child: subprocess.Popen[bytes], own: Path) -> dict[str, Any]:
    if child.returncode:
        return {"error": (own / "err").read_text(errors="replace")[-2000:]}
    return json.loads((own / "out").read_text().splitlines()[-1])


def _wanted(options: argparse.Namespace) -> int:
    return len(options.models) * len(options.kinds)


def measure(case: Case, kind: str, options: argparse.Namespace) -> None:
    """Compiles by both, compares with eager, times in turn, and prints one JSON line."""
    device = torch.device(options.device)
    model = case.make(device).train(kind == "training step")
    ids = torch.randint(0, case.vocabulary, (case.rows, case.tokens), device=device)
    expected = _outcome(model, step_of(model, model, ids, kind), kind)
    steps: dict[str, Callable[[], torch.Tensor]] = {}
    distances: dict[str, float] = {}
    compiled: dict[str, Callable[..., Any]] = {}
    alone = ExitStack()
    for name, specification in zip(NAMES, _specifications(options.contest), strict=True):
        if name == "thunderfx" and options.contest == "full":
            alone.enter_context(_alone(Path(options.child), options.processes))  # it measures too
        torch._dynamo.reset()
        compiled[name] = specification.compile(model, inputs=[ids])
        steps[name] = step_of(model, compiled[name], ids, kind)
        steps[name]()
        got = _outcome(model, steps[name], kind)
        distances[name] = float((got - expected).norm() / expected.norm())
    workloads = {name: Workload(function=step, devices=(device,)) for name, step in steps.items()}
    if options.contest != "full":
        alone.enter_context(_alone(Path(options.child), options.processes))
    with alone:
        settings = Settings(seconds=options.seconds, threshold=0.01)
        found = compare_speed(workloads, timer=WallTimeWithMemoryUsage(), settings=settings)
    comparison = found.comparisons[0]
    print(
        json.dumps(
            {
                "milliseconds": {m.name: m.median * 1e3 for m in found.measurements},
                "peak_bytes": {m.name: m.peak_bytes for m in found.measurements},
                "ratio": [comparison.ratio, comparison.low, comparison.high],
                "distance_from_eager": distances,
                "verdicts": {
                    name: str(verdict)
                    for record in compile_stats(compiled["thunderfx"]).compiles
                    for name, verdict in record.verdicts.items()
                },
            }
        )
    )


def _specifications(contest: str) -> tuple[AbstractCompileSpecification, ...]:
    return TorchCompileSpecification(), ThunderCompileSpecification(contest=contest)


def _outcome(model: nn.Module, step: Callable[[], torch.Tensor], kind: str) -> torch.Tensor:
    """Returns what a step gives: a part of the logits, or all gradients."""
    torch.manual_seed(0)
    result = step()
    if kind == "inference":
        return result[..., -64:, :].double().flatten()
    gradients = [p.grad.flatten() for p in model.parameters() if p.grad is not None]
    return torch.cat(gradients).double()


@contextmanager
def _alone(folder: Path, total: int) -> Iterator[None]:
    """Waits until all processes have compiled, or have failed, and measures one at a time."""
    (folder / f"ready-{os.getpid()}").touch()
    while len(list(folder.glob("ready-*"))) < total:
        time.sleep(0.1)
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _table(rows: list[dict[str, Any]]) -> Table:
    table = Table(title="torch.compile's time over thunderfx's: above 1, thunderfx is faster")
    for column in ("model", "kind", "torch.compile", "thunderfx", "speed-up", "memory", "distance"):
        table.add_column(column)
    speedups = []
    for row in rows:
        if "error" in row:
            table.add_row(row["model"], row["kind"], row["error"][-200:])
            continue
        before, after = (row["milliseconds"][name] for name in NAMES)
        peak_before, peak_after = (row["peak_bytes"][name] for name in NAMES)
        ratio, low, high = row["ratio"]
        speedups.append(1 / ratio)
        distance = " / ".join(f"{row['distance_from_eager'][name]:.1e}" for name in NAMES)
        table.add_row(
            row["model"],
            row["kind"],
            f"{before:.2f} ms",
            f"{after:.2f} ms",
            f"{1 / ratio:.3f} ({1 / high:.3f} to {1 / low if low else math.inf:.3f})",
            f"{peak_after / peak_before:.3f} of {peak_before / 2**30:.2f} GiB",
            distance,
        )
    if speedups:
        mean = math.exp(sum(map(math.log, speedups)) / len(speedups))
        table.caption = f"geometric mean of the speed-ups: {mean:.3f}"
    return table


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--models", nargs="+", choices=list(CASES), default=list(CASES))
    parser.add_argument("--kinds", nargs="+", choices=KINDS, default=list(KINDS))
    parser.add_argument("--seconds", type=float, default=6.0, help="measuring a model and kind")
    parser.add_argument("--contest", choices=("full", "cached", "off"), default="cached")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--processes", type=int, default=1, help=argparse.SUPPRESS)
    parser.add_argument("--child", help=argparse.SUPPRESS)
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
