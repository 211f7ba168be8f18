"""Timing of contestants in turns, so that what disturbs the machine disturbs all of them.

torch's benchmarkers cannot give each run fresh inputs, which graphs need that write to theirs: a
second run on spoilt indices would read anywhere.
"""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable, Mapping, Sequence

import torch

Prepare = Callable[[], Callable[[], object]]
"""Makes one run ready, such as by copying its inputs, and returns what is timed."""

_WARM_UP_ROUNDS = 3
_ROUNDS = 15
_SECONDS = 1.0

_HOPELESS = 5.0
"""How many times slower than the fastest a contestant is not timed again after the warm-up."""


def times_in_turns(contestants: Mapping[str, Prepare], devices: Sequence[str]) -> dict[str, float]:
    """Times contestants one after the other, round after round, for about a second each.

    Args:
        contestants: By name.
        devices: The CUDA devices that they use.

    Returns:
        The median milliseconds of a run of each; the hopeless have few runs.

    Example:
        >>> import torch
        >>> x = torch.ones(100_000)
        >>> sorted(times_in_turns({"sin": lambda: x.sin, "cos": lambda: x.cos}, []))
        ['cos', 'sin']
    """
    found: dict[str, list[float]] = {name: [] for name in contestants}
    deadline = time.perf_counter() + _SECONDS * len(contestants)
    for _ in range(_WARM_UP_ROUNDS + _ROUNDS):
        best = min((min(times) for times in found.values() if times), default=math.inf)
        for name, prepare in contestants.items():
            # One run may be slow for reasons of the machine's, three hardly are.
            if len(found[name]) < _WARM_UP_ROUNDS or min(found[name]) <= _HOPELESS * best:
                found[name].append(_time(prepare(), devices))
        if time.perf_counter() > deadline:
            break
    return {
        name: statistics.median(times[min(_WARM_UP_ROUNDS, len(times) - 1) :])
        for name, times in found.items()
    }


def _time(run: Callable[[], object], devices: Sequence[str]) -> float:
    """Returns the milliseconds of one run, on its device where it has one."""
    if len(devices) != 1:
        for device in devices:
            torch.cuda.synchronize(device)
        started = time.perf_counter()
        run()
        for device in devices:
            torch.cuda.synchronize(device)
        return (time.perf_counter() - started) * 1e3
    with torch.cuda.device(devices[0]):
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        torch.cuda.synchronize()
        begin.record()
        run()
        end.record()
        torch.cuda.synchronize()
        return begin.elapsed_time(end)
