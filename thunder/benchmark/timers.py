"""Ways to time a call, as values that also print themselves as source.

A timer gives one number for a few calls in a row. How often it is asked, in which order, and what
follows from the numbers is not its business: see `interleaving.py` and `statistics.py`.

`torch.utils.benchmark.Timer` and Inductor's `do_bench` time one contestant to the end before the
next one starts, so drift of the machine counts for or against one of them; neither can be asked
for single samples. Their loops are the model for those here.
"""

from __future__ import annotations

import abc
import contextlib
import gc
import itertools
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import final

import torch

from thunder.benchmark.profiling import device_seconds, operator_seconds, peak_cpu_bytes
from thunder.benchmark.workload import Workload
from thunder.repro.values import ValueSource, value_source

_NANOSECOND = 1e-9


class AbstractTimer(abc.ABC):
    """A way to time a call.

    Timers are frozen dataclasses: fields are the arguments that `source()` prints. A class of
    your own works in scripts when the script can import its module.

    Example:
        >>> WallTime().source().expression
        'thunder.benchmark.timers.WallTime()'
    """

    @property
    @abc.abstractmethod
    def name(self) -> str:
        """What is measured, for readers: `"wall time"`."""

    @abc.abstractmethod
    def measure(self, workload: Workload, *, calls: int = 1) -> float:
        """Times a few calls in a row.

        Args:
            workload: What to call.
            calls: How often, at least once.

        Returns:
            Seconds per call.
        """

    def peak_bytes(self, workload: Workload) -> int | None:
        """Measures the memory of one call, outside of any timing.

        Args:
            workload: What to call.

        Returns:
            The most bytes that the call held at once beyond what was there before it, or None
            when this timer does not look at memory.
        """
        del workload
        return None

    def source(self) -> ValueSource:
        """Returns this timer as source."""
        return value_source(self)


@final
@dataclass(frozen=True, kw_only=True)
class WallTime(AbstractTimer):
    """Time on the clock until the work is done, what the host does included.

    Calls follow each other without waiting for the device, as in a training loop; the wait comes
    after the last one. With something to prepare, each call is timed by itself.

    Example:
        >>> 0 < WallTime().measure(Workload(function=lambda: sum(range(100))), calls=10) < 1
        True
    """

    @property
    def name(self) -> str:
        """`"wall time"`."""
        return "wall time"

    def measure(self, workload: Workload, *, calls: int = 1) -> float:
        """Times `calls` calls on the clock."""
        with _without_garbage_collection():
            if workload.prepare is None:
                return _wall_seconds(workload, calls)
            return sum(_wall_seconds_of_one(workload) for _ in range(calls)) / calls


@final
@dataclass(frozen=True, kw_only=True)
class KernelTime(AbstractTimer):
    """Time that the devices work, without what the host does and without gaps.

    On CUDA it is the summed duration of kernels, copies and fills, as CUPTI reports it to torch's
    profiler. On the CPU it is the time in operators and compiled graphs; there it includes
    the dispatcher, and the profiler's own cost for each operator.

    Example:
        >>> KernelTime().measure(Workload(function=lambda: None))
        0.0
    """

    @property
    def name(self) -> str:
        """`"kernel time"`."""
        return "kernel time"

    def measure(self, workload: Workload, *, calls: int = 1) -> float:
        """Runs `calls` calls under the profiler."""
        on_cuda = any(device.type == "cuda" for device in workload.devices)
        seconds = device_seconds if on_cuda else operator_seconds
        if workload.prepare is None:
            return seconds(lambda: _repeat(workload, calls)) / calls
        total = 0.0
        for _ in range(calls):
            prepared = workload.prepare()
            workload.synchronize()
            total += seconds(lambda: _one(workload, prepared))  # noqa: B023 - called at once
        return total / calls


@final
@dataclass(frozen=True, kw_only=True)
class WallTimeWithMemoryUsage(AbstractTimer):
    """Wall time, and the peak of memory in a call of its own.

    On CUDA the peak is the caching allocator's (`torch.cuda.max_memory_allocated`), summed over
    the devices; on the CPU it is that of the allocations which torch's profiler sees.
    """

    @property
    def name(self) -> str:
        """`"wall time"`, since that is what `measure` gives."""
        return "wall time"

    def measure(self, workload: Workload, *, calls: int = 1) -> float:
        """Times `calls` calls on the clock."""
        return WallTime().measure(workload, calls=calls)

    def peak_bytes(self, workload: Workload) -> int:
        """Runs one call and looks at the allocators."""
        prepared = () if workload.prepare is None else (workload.prepare(),)
        devices = [device for device in workload.devices if device.type == "cuda"]
        if not devices:
            return peak_cpu_bytes(lambda: workload.function(*prepared))
        workload.synchronize()
        before = sum(map(torch.cuda.memory_allocated, devices))
        for device in devices:
            torch.cuda.reset_peak_memory_stats(device)
        workload.function(*prepared)
        workload.synchronize()
        return sum(map(torch.cuda.max_memory_allocated, devices)) - before


def _wall_seconds(workload: Workload, calls: int) -> float:
    function = workload.function
    workload.synchronize()
    start = time.perf_counter_ns()
    for _ in itertools.repeat(None, calls):
        function()
    workload.synchronize()
    return (time.perf_counter_ns() - start) * _NANOSECOND / calls


def _wall_seconds_of_one(workload: Workload) -> float:
    prepared = () if workload.prepare is None else (workload.prepare(),)
    workload.synchronize()
    start = time.perf_counter_ns()
    workload.function(*prepared)
    workload.synchronize()
    return (time.perf_counter_ns() - start) * _NANOSECOND


def _repeat(workload: Workload, calls: int) -> None:
    for _ in itertools.repeat(None, calls):
        workload.function()
    workload.synchronize()


def _one(workload: Workload, prepared: object) -> None:
    workload.function(prepared)
    workload.synchronize()


@contextlib.contextmanager
def _without_garbage_collection() -> Iterator[None]:
    """Keeps collections out of the timed calls; between samples they happen as usual."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()
