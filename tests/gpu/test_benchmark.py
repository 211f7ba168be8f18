"""Benchmarks on CUDA: device time, the allocator's peak, checked results, memory kept low."""

from __future__ import annotations

import time

import pytest
import torch
from torch import nn

from tests.benchmark.programs import Fails
from thunder.benchmark import (
    Compute,
    KernelTime,
    Settings,
    Status,
    ThunderCompileSpecification,
    TorchCompileSpecification,
    TorchEagerSpecification,
    TorchInductorSpecification,
    WallTime,
    WallTimeWithMemoryUsage,
    Workload,
    benchmark,
    compare_speed,
)

CUDA = (torch.device("cuda", 0),)
EAGER = TorchEagerSpecification()


@pytest.fixture
def x():
    return torch.randn(2048, 2048, device="cuda")


def test_wall_time_waits_for_the_device(x):
    workload = Workload(function=lambda: x @ x, devices=CUDA)
    workload.run()
    wall = min(WallTime().measure(workload, calls=20) for _ in range(3))
    assert wall > 2 * 2048**3 / 1e15, "no device does more than a petaflop a second"


def test_kernel_time_is_about_the_wall_time_of_large_kernels(x):
    workload = Workload(function=lambda: x @ x, devices=CUDA)
    workload.run()
    kernel = min(KernelTime().measure(workload, calls=20) for _ in range(3))
    wall = min(WallTime().measure(workload, calls=20) for _ in range(3))
    assert 0.5 * wall < kernel < 1.2 * wall


def test_kernel_time_leaves_the_host_out(x):
    def function():
        time.sleep(0.01)
        return x.sin()

    assert 0 < KernelTime().measure(Workload(function=function, devices=CUDA), calls=2) < 1e-3


def test_kernel_time_without_a_kernel_is_zero():
    assert KernelTime().measure(Workload(function=lambda: None, devices=CUDA)) == 0


def test_preparation_is_left_out(x):
    workload = Workload(
        function=lambda prepared: prepared.sin(), prepare=lambda: x @ x, devices=CUDA
    )
    alone = Workload(function=lambda: x.sin(), devices=CUDA)
    for timer in (KernelTime(), WallTime()):
        workload.run()
        with_it = min(timer.measure(workload, calls=3) for _ in range(3))
        without = min(timer.measure(alone, calls=1) for _ in range(3))
        assert with_it < 2 * without + 5e-5


def test_peak_memory_is_the_allocators(x):
    workload = Workload(function=lambda: (x + 1).sin(), devices=CUDA)
    assert WallTimeWithMemoryUsage().peak_bytes(workload) == 2 * x.nbytes


def test_kernel_times_are_compared(x):
    found = compare_speed(
        {
            "one": Workload(function=lambda: x.sin(), devices=CUDA),
            "two": Workload(function=lambda: (x.sin(), x.sin()), devices=CUDA),
        },
        timer=KernelTime(),
        settings=Settings(seconds=3),
    )
    assert found.comparisons[0].ratio == pytest.approx(2, rel=0.3)


@pytest.mark.filterwarnings("ignore:TensorFloat32 tensor cores:UserWarning")
@pytest.mark.parametrize("compute", list(Compute))
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_contestants(compute, dtype):
    model = nn.Sequential(nn.Linear(256, 256), nn.GELU(), nn.LayerNorm(256), nn.Dropout(0.1))
    model = model.to("cuda", dtype)
    result = benchmark(
        model,
        [torch.randn(64, 256, device="cuda", dtype=dtype)],
        specifications=[
            TorchCompileSpecification(),
            ThunderCompileSpecification(),
            TorchInductorSpecification(),
            EAGER,
            Fails(error=torch.OutOfMemoryError),
        ],
        compute=compute,
        timer=WallTimeWithMemoryUsage(),
        settings=Settings(seconds=1),
    )
    *good, failed = result.outcomes
    assert [one.status for one in good] == [Status.MEASURED] * 4, str(result)
    assert failed.status is Status.OUT_OF_MEMORY
    for outcome in good:
        assert outcome.accuracy is not None
        assert "no float64" not in outcome.accuracy.note


def test_running_out_of_memory_is_a_result():
    def greedy(x):
        return x.expand(1 << 44).clone()

    class Greedy(Fails):
        def compile(self, fn, *, inputs):
            del fn, inputs
            return greedy

    result = benchmark(torch.sin, [torch.ones(1, device="cuda")], specifications=[EAGER, Greedy()])
    assert [one.status for one in result.outcomes] == [Status.MEASURED, Status.OUT_OF_MEMORY]


def test_a_large_model_is_not_held_twice():
    """Four GiB of weights; eager, its check, and two contestants need little more."""
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()

    def make():
        return [torch.randn(1 << 26, device="cuda") for _ in range(16)]

    def program(*weights):
        return torch.stack([weight.sum() for weight in weights])

    result = benchmark(program, make, specifications=[EAGER, EAGER], settings=Settings(seconds=1))
    size = 16 * 4 * (1 << 26)
    assert [one.status for one in result.outcomes] == [Status.MEASURED] * 2, str(result)
    assert torch.cuda.max_memory_allocated() - before < 1.3 * size
    assert torch.cuda.memory_allocated() - before < 1 << 20
