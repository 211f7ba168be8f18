"""Compiled callables do not use up each other's recompile limit, with old and new torch."""

from __future__ import annotations

import functools
import inspect
import types

import pytest
import torch
from torch import nn

from thunder.dynamo.isolation import with_own_code
from thunder.dynamo.thunderfx import thunderfx

MORE_THAN_THE_LIMIT = torch._dynamo.config.recompile_limit + 2
X = torch.linspace(-1, 1, 6)
OFFSET = 5


def shifted(x, scale=2, *, shift=1):
    """Uses a default, a keyword default and a global."""
    return x * scale + shift + OFFSET


def with_closure():
    factor = 3

    def inner(x):
        return x * factor

    return inner


class Scale:
    factor = 4

    def __call__(self, x):
        return x * self.factor

    def method(self, x):
        return x + self.factor


class Net(nn.Module):
    def forward(self, x):
        return x.exp()


@pytest.fixture
def older_torch(monkeypatch):
    """torch.compile as it was before it could keep calls apart."""
    newest = torch.compile

    def older(
        model=None,
        *,
        fullgraph=False,
        dynamic=None,
        backend="inductor",
        options=None,
        disable=False,
    ):
        return newest(
            model,
            fullgraph=fullgraph,
            dynamic=dynamic,
            backend=backend,
            options=options,
            disable=disable,
        )

    monkeypatch.setattr(torch, "compile", older)


CALLABLES = {
    "function": shifted,
    "closure": with_closure(),
    "method": Scale().method,
    "object": Scale(),
    "torch function": torch.sin,
    "torch module": nn.Linear(6, 2),
    "own module": Net(),
}


@pytest.mark.usefixtures("older_torch")
@pytest.mark.parametrize("name", CALLABLES)
def test_more_than_the_limit_of_one_callable_are_all_compiled(name):
    fn = CALLABLES[name]
    compiled = [thunderfx(fn, executors=["aten"]) for _ in range(MORE_THAN_THE_LIMIT)]
    for each in compiled:
        torch.testing.assert_close(each(X), fn(X))
    assert {len(each._backend.subgraph_infos) for each in compiled} == {1}


@pytest.mark.skipif(
    "isolate_recompiles" not in inspect.signature(torch.compile).parameters,
    reason="this torch cannot isolate",
)
def test_the_limit_is_shared_when_the_user_wants_it_so():
    """Shows that the other tests test something."""
    compiled = [
        thunderfx(shifted, executors=["aten"], isolate_recompiles=False)
        for _ in range(MORE_THAN_THE_LIMIT)
    ]
    for each in compiled:
        torch.testing.assert_close(each(X), shifted(X))
    counts = [len(each._backend.subgraph_infos) for each in compiled]
    assert sum(counts) == torch._dynamo.config.recompile_limit


@pytest.mark.usefixtures("older_torch")
def test_switched_off_is_recognised_without_isolation():
    assert thunderfx(shifted, disable=True) is shifted


@pytest.mark.usefixtures("older_torch")
def test_compiling_anew_without_isolation():
    again = thunderfx(thunderfx(shifted, executors=["aten"]), executors=["aten"])
    torch.testing.assert_close(again(X), shifted(X))
    assert len(again._backend.subgraph_infos) == 1


def test_a_copy_has_everything_but_the_code_object():
    copy = with_own_code(shifted)
    assert isinstance(copy, types.FunctionType)
    assert copy.__code__ is not shifted.__code__
    assert copy(X, shift=2).equal(shifted(X, shift=2))
    assert inspect.signature(copy) == inspect.signature(shifted)
    assert (copy.__name__, copy.__doc__) == (shifted.__name__, shifted.__doc__)


def test_a_copy_of_a_decorated_function_has_the_signature_of_what_was_decorated():
    @functools.wraps(shifted)
    def decorated(*args, **kwargs):
        return shifted(*args, **kwargs)

    copy = with_own_code(decorated)
    assert inspect.signature(copy) == inspect.signature(shifted)
    assert copy(X).equal(shifted(X))


def test_a_bound_copy_keeps_its_object():
    scale = Scale()
    copy = with_own_code(scale.method)
    assert isinstance(copy, types.MethodType)
    assert copy.__self__ is scale
