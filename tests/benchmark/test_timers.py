"""Timers measure what they say, never hang, and print themselves."""

from __future__ import annotations

import gc
import importlib
import time
from dataclasses import dataclass

import pytest
import torch

from thunder.benchmark import (
    AbstractTimer,
    KernelTime,
    WallTime,
    WallTimeWithMemoryUsage,
    Workload,
)
from thunder.repro import value_source

TIMERS = [WallTime(), KernelTime(), WallTimeWithMemoryUsage()]


@dataclass(frozen=True, kw_only=True)
class ProcessorTime(AbstractTimer):
    """A timer of a user's."""

    scale: float = 1.0
    label: str = "it's"

    @property
    def name(self):
        return "processor time"

    def measure(self, workload, *, calls=1):
        start = time.process_time()
        for _ in range(calls):
            workload.run()
        return self.scale * (time.process_time() - start) / calls


@pytest.mark.parametrize("timer", TIMERS)
@pytest.mark.parametrize("calls", [1, 7])
def test_calls_are_made(timer, calls):
    made = []
    x = torch.ones(8)
    seconds = timer.measure(Workload(function=lambda: made.append(x.sin())), calls=calls)
    assert len(made) == calls
    assert 0 < seconds < 5


@pytest.mark.parametrize("timer", TIMERS)
def test_preparation_comes_before_each_call_and_is_not_timed(timer):
    order = []

    def prepare():
        order.append("prepare")
        time.sleep(0.05)
        return torch.ones(8)

    def function(prepared):
        order.append("call")
        return prepared.sin()

    workload = Workload(function=function, prepare=prepare)
    seconds = min(timer.measure(workload, calls=2) for _ in range(3))
    assert order == ["prepare", "call"] * 6
    assert seconds < 0.05


def test_wall_time_is_per_call():
    workload = Workload(function=lambda: time.sleep(0.01))
    assert 0.01 <= min(WallTime().measure(workload, calls=3) for _ in range(3)) < 0.03


def test_garbage_is_collected_between_samples_only():
    states = []
    WallTime().measure(Workload(function=lambda: states.append(gc.isenabled())))
    assert states == [False]
    assert gc.isenabled()


def test_kernel_time_without_a_kernel_is_zero():
    assert KernelTime().measure(Workload(function=lambda: None), calls=3) == 0


def test_kernel_time_leaves_python_out():
    x = torch.ones(8)

    def function():
        time.sleep(0.05)
        return x.sin()

    seconds = min(KernelTime().measure(Workload(function=function)) for _ in range(3))
    assert 0 < seconds < 0.05


def test_kernel_time_counts_nested_operators_once():
    x = torch.randn(300, 300)
    workload = Workload(function=lambda: torch.nn.functional.linear(x, x).softmax(-1))
    workload.run()
    pairs = [
        (KernelTime().measure(workload, calls=5), WallTime().measure(workload, calls=5))
        for _ in range(3)
    ]
    assert any(kernel < 1.5 * wall for kernel, wall in pairs)


def test_the_profiler_is_quiet(capfd):
    KernelTime().measure(Workload(function=lambda: torch.ones(1)))
    held = [torch.ones(1000)]
    WallTimeWithMemoryUsage().peak_bytes(Workload(function=held.clear))
    assert capfd.readouterr().err == ""


def test_a_failure_ends_the_profile():
    def function():
        raise KeyError

    with pytest.raises(KeyError):
        KernelTime().measure(Workload(function=function))
    assert KernelTime().measure(Workload(function=lambda: torch.ones(1))) > 0


@pytest.mark.parametrize(
    "function, expected",
    [
        (lambda: None, 0),
        (lambda: torch.ones(1000), 4000),
        (lambda: [torch.ones(1000), torch.ones(1000)], 8000),
        (lambda: (torch.ones(1000).sum(), torch.ones(1000).sum()), 4008),
        (lambda: torch.ones(1000)[:2].clone(), 4008),
    ],
)
def test_peak_memory_on_the_cpu(function, expected):
    assert WallTimeWithMemoryUsage().peak_bytes(Workload(function=function)) == expected


def test_peak_memory_leaves_out_what_was_prepared():
    workload = Workload(function=lambda x: x.neg(), prepare=lambda: torch.ones(1 << 10))
    assert WallTimeWithMemoryUsage().peak_bytes(workload) == 4 << 10


def test_only_the_memory_timer_looks_at_memory():
    workload = Workload(function=lambda: torch.ones(8))
    assert WallTime().peak_bytes(workload) is None
    assert KernelTime().peak_bytes(workload) is None


@pytest.mark.parametrize("timer", [*TIMERS, ProcessorTime(scale=2.0)])
def test_source_gives_an_equal_timer(timer):
    source = timer.source()
    assert source.faithful
    names = {}
    for statement in source.imports:
        exec(statement, names)
    assert eval(source.expression, names) == timer


def test_a_timer_of_the_main_module_says_what_to_fill_in(monkeypatch):
    monkeypatch.setattr(ProcessorTime, "__module__", "__main__")
    source = ProcessorTime().source()
    assert not source.faithful
    assert source.missing


def test_facade_and_definition_are_one():
    module = importlib.import_module("thunder.benchmark.timers")
    assert module.WallTime is WallTime
    assert value_source(WallTime()).expression == WallTime().source().expression
