"""Compiling and calling from several threads gives what one thread gives."""

from __future__ import annotations

import itertools
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from torch import nn

import thunder
from thunder import jit, thunderfx

THREADS = 4
ROUNDS = 5
PATIENCE = 1000

# Its threads stay alive. A CUDA build of torch 2.11 on a machine without a GPU crashes, with or
# without thunder, where fake tensors are used after a thread that used them has ended.
POOL = ThreadPoolExecutor(THREADS)


@pytest.fixture(autouse=True)
def _no_frames_overridden():
    """Keeps a race of torch 2.11 from later tests: who asks for `fullgraph` is the process's."""
    yield
    frames = torch._C._dynamo.eval_frame
    if hasattr(frames, "set_eval_frame_override"):
        frames.set_eval_frame_override(frames._EvalFrameOverride.NONE)


def at_once(functions):
    """Calls the functions, each in a thread, all at the same moment; returns their results."""
    barrier = threading.Barrier(len(functions))

    def run(function):
        barrier.wait()
        return function()

    return list(POOL.map(run, functions))


def called(function, *inputs):
    """Calls a function, again when torch refuses because another thread traces a graph just then.

    Its flag for that is the process's, not the thread's (torch 2.11 to 2.13); the same happens to
    any function of `torch.compile`.
    """
    for _ in range(PATIENCE):
        try:
            return function(*inputs)
        except RuntimeError as error:
            if "FX to symbolically trace" not in str(error):
                raise
            time.sleep(0.01)
    return function(*inputs)


def gradient(function, x):
    x = x.detach().requires_grad_()
    return torch.autograd.grad(called(function, x).sum(), x)[0]


def test_the_first_call_in_several_threads_at_once():
    f = thunderfx(lambda x: x.sin() * x, executors=["aten"])
    inputs = [torch.full((4,), float(index)) for index in range(THREADS)]
    results = at_once([lambda x=x: gradient(f, x) for x in inputs])
    for x, result in zip(inputs, results, strict=True):
        torch.testing.assert_close(result, x.cos() * x + x.sin())
    # torch looks for compiled code before it waits for the thread that compiles it.
    assert 1 <= thunder.compile_stats(f).cache_misses <= THREADS


def test_different_functions_are_compiled_at_once():
    def scaled(factor):
        return lambda x: (x * factor).exp()

    for compile_ in (thunderfx, jit):
        functions = [compile_(scaled(factor), executors=["aten"]) for factor in range(THREADS)]
        x = torch.linspace(0, 1, 5)
        results = at_once([lambda f=f, x=x: gradient(f, x) for f in functions])
        for factor, result in enumerate(results):
            torch.testing.assert_close(result, (x * factor).exp() * factor)


def test_recompiles_and_calls_side_by_side():
    f = thunderfx(lambda x: (x * 2).sum(0), executors=["aten"], dynamic=False)

    def calls(index):
        sizes = [(index + step) % 3 + 1 for step in range(ROUNDS)]
        return [(size, called(f, torch.ones(size, 2))) for size in sizes]

    found = at_once([lambda i=i: calls(i) for i in range(THREADS)])
    for size, result in itertools.chain.from_iterable(found):
        assert result.tolist() == [2.0 * size] * 2


def test_a_module_is_trained_in_one_thread_and_read_in_others():
    model = nn.Sequential(nn.Linear(4, 4), nn.Tanh())
    compiled = thunderfx(model, executors=["aten"])
    x = torch.randn(3, 4)
    stop = threading.Event()

    def read():
        shapes = set()
        while not stop.is_set():
            with torch.no_grad():
                shapes.add(tuple(called(compiled, x).shape))
        return shapes

    def train():
        try:
            for _ in range(20):
                called(compiled, x).sum().backward()
        finally:
            stop.set()

    *shapes, _ = at_once([read, read, train])
    assert shapes == [{(3, 4)}, {(3, 4)}]
    expected = 20 * torch.autograd.grad(model(x).sum(), model[0].weight)[0]
    torch.testing.assert_close(model[0].weight.grad, expected)


def test_options_of_one_thread_are_not_those_of_another():
    """Debug flags and fallbacks belong to a compile, not to the process."""
    seen = {}

    def transform(name):
        def note(graph_module):
            seen.setdefault(threading.get_ident(), set()).add(name)

        return note

    functions = [
        thunderfx(lambda x, i=i: x.sin() + i, executors=["aten"], transforms=[transform(i)])
        for i in range(THREADS)
    ]
    at_once([lambda f=f: called(f, torch.ones(2)) for f in functions])
    assert sorted(map(len, seen.values())) == [1] * THREADS
