"""First calls of transformers' models with cold caches: thunderfx against torch.compile.

Each way has a process of its own with empty caches, one at a time, round after round. The first
call is that of the compiled model: tracing, compiling and running it, with the contest or without.
An eager step comes before it, so that CUDA and cuBLAS are up.

    python benchmarks/first_call.py
    python benchmarks/first_call.py --models llama --kinds inference --rounds 3
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

os.environ.setdefault("HF_HUB_OFFLINE", "1")

import torch
from large_models import CASES, KINDS, step_of  # the folder of this script is on the path
from rich.console import Console
from rich.table import Table

from thunder import thunderfx
from thunder.environment import environment_report

WAYS = ("torch.compile", "off", "cached", "full")
"""torch.compile, and what `contest=` is set to."""


def main() -> int:
    """Measures what is asked for and returns the exit status."""
    options = _options()
    if options.child:
        print(json.dumps(first_call(options.models[0], options.kinds[0], options.ways[0], options)))
        return 0
    console = Console(width=None if sys.stdout.isatty() else 120, highlight=False)
    console.print(environment_report().headline())
    for model in options.models:
        for kind in options.kinds:
            found: dict[str, list[float]] = {way: [] for way in options.ways}
            for _ in range(options.rounds):
                for way in options.ways:
                    found[way].append(_in_a_process(model, kind, way, options))
                    print(f"{model}, {kind}, {way}: {found[way][-1]:.1f} s", flush=True)
            console.print(_table(f"{model}, {kind}", found))
    return 0


def first_call(model: str, kind: str, way: str, options: argparse.Namespace) -> float:
    """Returns the seconds of one first call.

    Args:
        model: In `CASES`.
        kind: In `KINDS`.
        way: In `WAYS`.
        options: The command line's.
    """
    case, device = CASES[model], torch.device(options.device)
    module = case.make(device).train(kind == "training step")
    ids = torch.randint(0, case.vocabulary, (case.rows, case.tokens), device=device)
    step_of(module, module, ids, kind)()
    compiled = torch.compile(module) if way == "torch.compile" else thunderfx(module, contest=way)
    step = step_of(module, compiled, ids, kind)
    _synchronize(device)
    started = time.perf_counter()
    step()
    _synchronize(device)
    return time.perf_counter() - started


def _in_a_process(model: str, kind: str, way: str, options: argparse.Namespace) -> float:
    command = [sys.executable, __file__, "--child", "--models", model, "--kinds", kind]
    command += ["--ways", way, "--device", options.device]
    with tempfile.TemporaryDirectory() as folder:
        caches = {
            name: str(Path(folder) / name)
            for name in ("TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR", "THUNDER_CACHE_DIR")
        }
        environment = os.environ | caches
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True, env=environment)
    if done.returncode:
        raise SystemExit(f"{model}, {kind}, {way}: the process failed; see above")
    return float(json.loads(done.stdout.splitlines()[-1]))


def _synchronize(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def _table(title: str, found: dict[str, list[float]]) -> Table:
    table = Table(title=title)
    for column in ("way", "seconds", "over the first"):
        table.add_column(column, justify="right" if column != "way" else "left", min_width=16)
    base = statistics.median(next(iter(found.values())))
    for way, seconds in found.items():
        name = way if way == "torch.compile" else f'contest="{way}"'
        middle = statistics.median(seconds)
        spread = f"{middle:.1f} ({min(seconds):.1f} to {max(seconds):.1f})"
        table.add_row(name, spread, f"{middle / base:.2f}")
    return table


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--models", nargs="+", choices=list(CASES), default=["llama", "gpt2"])
    parser.add_argument("--kinds", nargs="+", choices=KINDS, default=["training step"])
    parser.add_argument("--ways", nargs="+", choices=WAYS, default=list(WAYS))
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
