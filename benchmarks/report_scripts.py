"""Whether every script that a report writes runs green, alone, in a fresh process.

Tiny Hugging Face models of different families are reported in training mode, with the loss and its
gradients: `save_thunderfx_repros` writes the scripts of each graph, segment and fusion. Each script
is then run as a user would who got it by mail: `python FILE`, in another folder, in a process that
knows nothing of this one; with `--check_consistency` it is also compared with eager. Scripts that
are said to need torch alone are searched for imports of thunder.

    python benchmarks/report_scripts.py
    python benchmarks/report_scripts.py --models bert,t5 --check-consistency --benchmarks
"""

from __future__ import annotations

import argparse
import functools
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("HF_HUB_OFFLINE", "1")
sys.path.insert(0, str(Path(__file__).resolve().parent.parent))  # for tests.zoo

import torch
from rich.console import Console
from rich.table import Table

from tests.zoo.cases import make_case
from thunder.dynamo.report import save_thunderfx_repros
from thunder.environment import environment_report

FAMILIES = ("llama", "gpt2", "mixtral", "mamba", "bert", "t5", "bart", "vit", "resnet", "whisper")
CHECKED = "--check_consistency"
NEEDS_THUNDER = ("_repro_thunder.py", "_benchmark_thunder.py", "_benchmark_inductor.py")


@dataclass(frozen=True, kw_only=True, slots=True)
class Ended:
    """How one run of a script ended.

    Attributes:
        script: Its path in the folder of its model.
        arguments: What it was called with.
        problem: The last line of its error, or what else is wrong; empty when it is green.
    """

    script: str
    arguments: tuple[str, ...]
    problem: str


def main() -> int:
    """Runs all scripts and returns 1 when one is not green."""
    options = _options()
    console = Console(width=None if sys.stdout.isatty() else 110, highlight=False)
    console.print(environment_report().headline())
    shown = Table("model", "scripts", "runs", "green", "seconds", title="Scripts of reports")
    runs: list[Ended] = []
    with tempfile.TemporaryDirectory() as folder:
        for name in options.models.split(","):
            start = time.monotonic()
            paths = write_scripts(name, Path(folder) / name, benchmarks=options.benchmarks)
            ended = run_scripts(
                paths, Path(folder) / name, check=options.check_consistency, jobs=options.jobs
            )
            green = sum(not each.problem for each in ended)
            seconds = f"{time.monotonic() - start:.0f}"
            shown.add_row(name, str(len(paths)), str(len(ended)), str(green), seconds)
            console.print(f"{name}: {green} of {len(ended)} green", soft_wrap=True)
            for each in ended:
                if each.problem:
                    console.print(
                        f"  {each.script} {' '.join(each.arguments)}: {each.problem}",
                        soft_wrap=True,
                        markup=False,
                    )
            runs += ended
    console.print(shown)
    green = sum(not each.problem for each in runs)
    console.print(f"{green} of {len(runs)} runs green ({green / max(len(runs), 1):.1%})")
    return 0 if green == len(runs) else 1


def write_scripts(name: str, folder: Path, *, benchmarks: bool) -> list[Path]:
    """Writes the scripts of a model's training step.

    Args:
        name: The model, by its type in transformers.
        folder: Where to.
        benchmarks: Whether to write benchmark scripts, too.
    """
    torch._dynamo.reset()
    torch.manual_seed(0)
    case = make_case(name)
    step = functools.partial(case.model.train(), **case.inputs)
    return save_thunderfx_repros(step, folder, use_benchmark=benchmarks)


def run_scripts(paths: Sequence[Path], folder: Path, *, check: bool, jobs: int) -> list[Ended]:
    """Runs scripts, each in a process of its own, and returns how they end.

    Args:
        paths: The scripts.
        folder: What their names are relative to.
        check: Whether to run those that can a second time and compare with eager.
        jobs: How many to run at the same time.
    """

    def run(call: tuple[Path, tuple[str, ...]]) -> Ended:
        path, arguments = call
        name = path.relative_to(folder).as_posix()
        return Ended(script=name, arguments=arguments, problem=_problem(path, arguments))

    calls: list[tuple[Path, tuple[str, ...]]] = [(path, ()) for path in paths]
    if check:
        calls += [(path, (CHECKED,)) for path in paths if "_benchmark_" not in path.name]
    with ThreadPoolExecutor(jobs) as pool:
        return list(pool.map(run, calls))


def _problem(path: Path, arguments: Sequence[str]) -> str:
    if not path.name.endswith(NEEDS_THUNDER) and "import thunder" in path.read_text("utf-8"):
        return "imports thunder although it needs torch alone"
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("PYTHON", "THUNDER_"))}
    with tempfile.TemporaryDirectory() as elsewhere:
        ended = subprocess.run(
            [sys.executable, str(path), *arguments],
            cwd=elsewhere,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )
    if ended.returncode == 0:
        return ""
    return f"exit {ended.returncode}: {(ended.stderr.strip().splitlines() or ['nothing'])[-1]}"


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--models", default=",".join(FAMILIES), help="types of transformers models")
    parser.add_argument("--check-consistency", action="store_true", help="compare with eager, too")
    parser.add_argument("--benchmarks", action="store_true", help="write benchmark scripts, too")
    parser.add_argument("--jobs", type=int, default=2, help="scripts that run at the same time")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
