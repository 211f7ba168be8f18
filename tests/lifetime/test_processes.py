"""Compiled objects in other processes, and at the end of this one."""

from __future__ import annotations

import multiprocessing
import subprocess
import sys
import warnings
from pathlib import Path

import pytest
import torch
from torch import nn

from thunder import thunderfx

ROOT = Path(__file__).parents[2]
ATEN = {"executors": ["aten"]}


def double_sine(x):
    return x.sin() * 2


def call(compiled, connection):
    """Runs in the child: forward, backward, and another shape, which compiles anew."""
    results = []
    for size in (3, 5):
        x = torch.linspace(0, 1, size).requires_grad_()
        y = compiled(x)
        (gradient,) = torch.autograd.grad(y.sum(), x)
        results.append((y.tolist(), gradient.tolist()))
    connection.send(results)


def in_child(method, compiled):
    here, there = multiprocessing.Pipe()
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", ".*fork", DeprecationWarning)
        child = multiprocessing.get_context(method).Process(target=call, args=(compiled, there))
        child.start()
    there.close()
    try:
        assert here.poll(120), "the child gives no answer"
        return here.recv()
    finally:
        if child.is_alive():
            child.join(10)
        child.kill()


def expected(function):
    here, there = multiprocessing.Pipe()
    call(function, there)
    return here.recv()


def check_fork(*, called):
    f = thunderfx(double_sine, **ATEN)
    if called:
        f(torch.linspace(0, 1, 3).requires_grad_()).sum().backward()
    assert in_child("fork", f) == expected(double_sine)


REFUSES = pytest.mark.skipif(
    torch.version.cuda is not None,
    reason="builds of torch for CUDA start device threads with a compiled backward, and autograd "
    "refuses to run in a child then, with or without thunder; this runs on builds for the CPU, as "
    "with each change",
)


@pytest.mark.parametrize(
    "called",
    [
        pytest.param(False, id="before the first call"),
        pytest.param(True, id="after it", marks=REFUSES),
    ],
)
def test_fork(called):
    """In a process of its own: what tests before this one ran may have started such threads."""
    program = f"from tests.lifetime.test_processes import check_fork; check_fork(called={called})"
    run = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert run.returncode == 0, run.stderr


@pytest.mark.slow
def test_spawn():
    """A module is pickled without its compiled code, which the child makes anew."""
    model = nn.Tanh()
    f = thunderfx(model, **ATEN)
    f(torch.ones(3))
    assert in_child("spawn", f) == expected(model)


ENDING = """
import torch, thunder
model = thunder.thunderfx(torch.nn.Linear(2, 2), executors=["aten"])
model(torch.ones(1, 2)).sum().backward()
step = thunder.jit(lambda x: x.sin(), executors=["aten"])
step(torch.ones(2))
pending = model(torch.ones(1, 2))
"""


def test_the_end_of_the_process_is_silent():
    done = subprocess.run(
        [sys.executable, "-c", ENDING], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
