"""Rank programs in real processes: one for each rank, with a limit on their time.

A rank program is a module-level function of one `Rank`. This module starts it on every rank,
ends what does not end by itself, and shows what each rank wrote. What the programs check is in
the modules `*_ranks`.
"""

from __future__ import annotations

import faulthandler
import importlib
import os
import signal
import subprocess
import sys
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh

from thunder.errors import FallbackWarning

ROOT = Path(__file__).resolve().parents[2]

COLLECTIVE_SECONDS = 40.0
"""How long a rank waits for the others before it raises."""

GRACE_SECONDS = 5.0


@dataclass(frozen=True, kw_only=True, slots=True)
class Rank:
    """What a rank program knows about its place.

    Attributes:
        number: Which rank it is.
        world_size: How many there are.
        device: Its device.
        folder: A folder that all ranks share.
        executors: What `thunderfx` is given.
    """

    number: int
    world_size: int
    device: torch.device
    folder: Path
    executors: Any

    def mesh(self, *shape: int, names: tuple[str, ...] | None = None) -> DeviceMesh:
        """Returns a mesh of all ranks; one dimension unless said otherwise."""
        return init_device_mesh(self.device.type, shape or (self.world_size,), mesh_dim_names=names)


@dataclass(frozen=True, kw_only=True, slots=True)
class Outcome:
    """How a rank ended.

    Attributes:
        status: Its exit status; negative when a signal ended it.
        output: What it wrote to standard output and standard error.
        seconds: How long it ran.
        ended_itself: Whether it ended within the limit.
    """

    status: int
    output: str
    seconds: float
    ended_itself: bool


def run_ranks(program: Callable[[Rank], None], folder: Path, **options: Any) -> list[Outcome]:
    """Runs a program on all ranks and fails, with what each rank wrote, unless all succeed.

    Args:
        program: The program.
        folder: A folder that all ranks share.
        options: As for `start_ranks`.
    """
    outcomes = start_ranks(program, folder, stop_with_the_first=True, **options)
    if any(outcome.status != 0 for outcome in outcomes):
        raise AssertionError(describe(outcomes))
    return outcomes


def start_ranks(
    program: Callable[[Rank], None],
    folder: Path,
    *,
    world_size: int = 2,
    device: str = "cpu",
    executors: str = "",
    seconds: float = 150.0,
    collective_seconds: float = COLLECTIVE_SECONDS,
    stop_with_the_first: bool = False,
    environment: Mapping[str, str] | None = None,
) -> list[Outcome]:
    """Runs a program on all ranks and says how each ended.

    Args:
        program: A function on the top level of a module in `tests`.
        folder: A folder that all ranks share.
        world_size: How many ranks.
        device: `"cpu"` (gloo) or `"cuda"` (NCCL, a GPU for each rank).
        executors: Names for `thunderfx`, separated by commas; ATen on CPU, which compiles fast,
            and the default on CUDA.
        seconds: After so long each rank shows where it is, and is ended.
        collective_seconds: How long a rank waits for the others before it raises.
        stop_with_the_first: Whether one rank that fails ends the others after a moment.
        environment: Variables for the ranks.
    """
    started = time.monotonic()
    executors = executors or ("aten" if device == "cpu" else "auto")
    name = f"{program.__module__}:{program.__name__}"
    logs = [folder / f"rank{number}.log" for number in range(world_size)]
    processes = []
    for number, log in enumerate(logs):
        arguments = [name, number, world_size, device, folder, executors, collective_seconds]
        with log.open("wb") as output:
            processes.append(
                subprocess.Popen(
                    [sys.executable, "-m", __name__, *map(str, arguments)],
                    cwd=folder,
                    env=os.environ | {"PYTHONPATH": str(ROOT)} | dict(environment or {}),
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=subprocess.STDOUT,
                )
            )
    try:
        ends = _wait(processes, started + seconds, stop_with_the_first)
    finally:
        _end(processes)
    return [
        Outcome(
            status=process.returncode,
            output=log.read_text(errors="replace"),
            seconds=(end or time.monotonic()) - started,
            ended_itself=end is not None,
        )
        for process, log, end in zip(processes, logs, ends, strict=True)
    ]


def describe(outcomes: Sequence[Outcome]) -> str:
    """Returns what all ranks wrote, and how they ended."""
    lines = []
    for number, outcome in enumerate(outcomes):
        how = f"status {outcome.status}" if outcome.ended_itself else "ended from outside"
        lines += [f"--- rank {number}: {how} after {outcome.seconds:.1f} s", outcome.output]
    return "\n".join(lines)


def _wait(
    processes: Sequence[subprocess.Popen[bytes]], deadline: float, stop_with_the_first: bool
) -> list[float | None]:
    """Returns when each process ended; None for those that still run."""
    ends: list[float | None] = [None] * len(processes)
    while time.monotonic() < deadline and None in ends:
        for number, process in enumerate(processes):
            if ends[number] is None and process.poll() is not None:
                ends[number] = time.monotonic()
                if process.returncode != 0 and stop_with_the_first:
                    deadline = min(deadline, time.monotonic() + GRACE_SECONDS)
        time.sleep(0.02)
    return ends


def _end(processes: Sequence[subprocess.Popen[bytes]]) -> None:
    running = [process for process in processes if process.poll() is None]
    for process in running:
        process.send_signal(signal.SIGUSR1)  # shows where each thread is
    if running:
        time.sleep(1)
    for process in running:
        process.kill()
        process.wait()


def main(arguments: Sequence[str]) -> None:
    """Runs a program on one rank: the process group, the device and the seeds are set up."""
    name, number, world_size, device, folder, executors, collective_seconds = arguments
    faulthandler.register(signal.SIGUSR1, all_threads=True)
    torch.manual_seed(0)
    if device == "cuda":
        torch.cuda.set_device(int(number))
    here = Rank(
        number=int(number),
        world_size=int(world_size),
        device=torch.device(device, int(number)) if device == "cuda" else torch.device(device),
        folder=Path(folder),
        executors="auto" if executors == "auto" else executors.split(","),
    )
    module, _, function = name.partition(":")
    program = getattr(importlib.import_module(module), function)
    # Distributed checkpoints talk over CPU.
    dist.init_process_group(
        "cpu:gloo,cuda:nccl" if device == "cuda" else "gloo",
        init_method=f"file://{folder}/store",
        rank=here.number,
        world_size=here.world_size,
        timeout=timedelta(seconds=float(collective_seconds)),
    )
    warnings.simplefilter("error", FallbackWarning)
    program(here)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main(sys.argv[1:])
