"""The adapter to torch's profiler: time on devices, time in operators, memory on the CPU.

Everything that the raw events of the profiler are asked for, which is private to torch, is here.
The timers that stand on it are in `timers.py`.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import sys
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from torch._C._autograd import DeviceType
from torch.profiler import ProfilerActivity, profile

_COMPILED_GRAPH = "## Call CompiledFxGraph"
_ENGINE = "autograd::"
_WAITING = ("Context Sync", "Stream Sync", "Event Sync", "Stream Wait Event")


def device_seconds(function: Callable[[], object]) -> float:
    """Runs a function and returns how long CUDA devices worked for it.

    Args:
        function: What to run. It must wait for the devices before it returns.

    Returns:
        The summed durations of kernels, copies and fills, in seconds. Work that overlaps, on two
        streams say, counts twice. 0 when no kernel ran.
    """
    events = _events(function, (ProfilerActivity.CUDA,))
    return 1e-9 * sum(
        event.duration_ns()
        for event in events
        if event.device_type() == DeviceType.CUDA
        and not event.is_user_annotation()
        and event.name() not in _WAITING
    )


def operator_seconds(function: Callable[[], object]) -> float:
    """Runs a function and returns how long the CPU was in operators and compiled graphs.

    Args:
        function: What to run.

    Returns:
        The time, in seconds, during which an operator or a graph of Inductor's was on the stack,
        over all threads that called one. Python between them does not count, nor do autograd's
        engine and Dynamo's checks. 0 when no operator ran.
    """
    spans: defaultdict[int, list[tuple[int, int]]] = defaultdict(list)
    for event in _events(function, (ProfilerActivity.CPU,)):
        if event.device_type() == DeviceType.CPU and _is_operator(event.name()):
            start = event.start_ns()
            spans[event.start_thread_id()].append((start, start + event.duration_ns()))
    return 1e-9 * sum(map(_covered, spans.values()))


def peak_cpu_bytes(function: Callable[[], object]) -> int:
    """Runs a function and returns how much memory it held at most, beyond what was there before.

    Args:
        function: What to run.

    Returns:
        The highest running sum of what the CPU allocator handed out and took back, in bytes.
    """
    # The allocator warns on file descriptor 2 when memory is freed that was there before.
    with _without_profiler_log():
        events = _events(function, (ProfilerActivity.CPU,), profile_memory=True)
    changes = [
        (event.start_ns(), event.nbytes())
        for event in events
        if event.name() == "[memory]" and event.device_type() == DeviceType.CPU
    ]
    held = itertools.accumulate(count for _, count in sorted(changes, key=lambda change: change[0]))
    return max(held, default=0) if changes else 0


def _is_operator(name: str) -> bool:
    """Whether an event is an operator or a compiled graph; only its name says so."""
    return name.startswith(_COMPILED_GRAPH) or ("::" in name and not name.startswith(_ENGINE))


def _covered(spans: Sequence[tuple[int, int]]) -> int:
    """Returns the length of the union of intervals."""
    total, reached = 0, 0
    for start, end in sorted(spans):
        total += max(0, end - max(start, reached))
        reached = max(reached, end)
    return total


def _events(
    function: Callable[[], object],
    activities: Sequence[ProfilerActivity],
    *,
    profile_memory: bool = False,
) -> list[Any]:
    # `acc_events` only keeps a warning away: there is one cycle.
    profiler = profile(activities=activities, profile_memory=profile_memory, acc_events=True)
    with _without_profiler_log():
        profiler.start()
    try:
        function()
    finally:
        with _without_profiler_log():
            profiler.stop()
    # `profiler.events()` would build a tree of Python objects out of every event.
    results = getattr(profiler.profiler, "kineto_results", None)
    return [] if results is None else list(results.events())


@contextlib.contextmanager
def _without_profiler_log() -> Iterator[None]:
    """Keeps two lines for each start and stop off the terminal.

    The profiler writes them to file descriptor 2 itself, whatever level its log is set to.
    """
    sys.stderr.flush()
    try:
        kept = os.dup(2)
    except OSError:  # there is no standard error
        yield
        return
    null = os.open(os.devnull, os.O_WRONLY)
    try:
        os.dup2(null, 2)
        yield
    finally:
        os.dup2(kept, 2)
        os.close(null)
        os.close(kept)
