"""`thunderfx` on everything that can be called, and what it refuses."""

from __future__ import annotations

import dataclasses
import functools
import inspect
import pydoc
import subprocess
import sys
from typing import Any, NamedTuple

import pytest
import torch
from torch import nn
from torch._dynamo.exc import Unsupported

from thunder.dynamo.compiler import ThunderCompiler
from thunder.dynamo.lookup import get_compiler
from thunder.dynamo.options import known_options
from thunder.dynamo.thunderfx import thunderfx
from thunder.errors import NotCallableError, OptionError


def compile(fn, **options):
    return thunderfx(fn, executors=["aten"], **options)


def double_sine(x):
    return x.sin() * 2


class Scale:
    def __init__(self, factor):
        self.factor = factor

    def __call__(self, x):
        return x * self.factor

    def method(self, x):
        return x + self.factor

    @classmethod
    def of_class(cls, x):
        return x - 1

    @staticmethod
    def of_nothing(x):
        return x / 2


X = torch.linspace(-1, 1, 6)


def type_name(thing):
    return type(thing).__name__


@pytest.mark.parametrize(
    "fn",
    [
        double_sine,
        lambda x: x + 1,
        Scale(3).method,
        Scale(3).of_class,
        Scale.of_nothing,
        Scale(3),
        torch.sin,
        torch.nn.functional.gelu,
        abs,
        torch.Tensor.exp,
        functools.partial(torch.add, other=2),
        functools.partial(double_sine),
        nn.Linear(6, 2),
        nn.Linear(6, 2).forward,
    ],
    ids=lambda fn: getattr(fn, "__qualname__", type(fn).__qualname__),
)
def test_compiles_whatever_can_be_called(fn):
    compiled = compile(fn)
    assert isinstance(compiled._backend, ThunderCompiler)
    assert compiled._backend.subgraph_infos == []
    torch.testing.assert_close(compiled(X), fn(X))
    assert len(compiled._backend.subgraph_infos) == 1


def test_the_original_is_left_alone():
    before = dict(vars(double_sine)), double_sine.__code__
    compiled = compile(double_sine)
    compiled(X)
    assert (dict(vars(double_sine)), double_sine.__code__) == before
    assert compiled is not double_sine
    double_sine(X)
    assert len(compiled._backend.subgraph_infos) == 1


def test_a_compiled_function_looks_like_the_original():
    compiled = compile(double_sine)
    assert compiled.__name__ == "double_sine"
    assert inspect.signature(compiled) == inspect.signature(double_sine)


def test_arguments_by_keyword_only():
    def fn(*, x, scale=2, **more):
        return x * scale + more["shift"]

    compiled = compile(fn, fullgraph=True)
    torch.testing.assert_close(compiled(x=X, shift=X), fn(x=X, shift=X))
    torch.testing.assert_close(compiled(shift=1, x=X, scale=3), fn(shift=1, x=X, scale=3))


class Pair(NamedTuple):
    first: torch.Tensor
    second: torch.Tensor | None


@dataclasses.dataclass
class Record:
    value: torch.Tensor
    note: str = "ok"


def test_structured_arguments_and_results():
    def fn(tree):
        a, b = tree["a"], tree["b"][0]
        return {"pair": Pair(a + b, None), "record": Record(a * b), "list": [a, (b, 3)]}

    tree = {"a": X, "b": [X + 1]}
    result, expected = compile(fn, fullgraph=True)(tree), fn(tree)
    assert isinstance(result["pair"], Pair)
    assert isinstance(result["record"], Record)
    assert result["record"].note == "ok"
    torch.testing.assert_close(result["record"].value, expected["record"].value)
    del result["record"], expected["record"]
    torch.testing.assert_close(result, expected)


def test_decorator_without_options():
    @thunderfx
    def fn(x):
        return x + 1

    assert isinstance(fn._backend, ThunderCompiler)
    assert fn.__name__ == "fn"


def test_decorator_with_options():
    @thunderfx(dynamic=True, executors=["aten"])
    def fn(x):
        return x + 1

    for size in (2, 3, 4):
        torch.testing.assert_close(fn(torch.ones(size)), torch.full((size,), 2.0))
    assert len(fn._backend.subgraph_infos) == 1


def test_decorator_gives_each_function_its_own_compiler():
    decorate = thunderfx(executors=["aten"])
    first, second = decorate(double_sine), decorate(double_sine)
    assert first._backend is not second._backend


def test_decorator_on_a_method():
    class Model:
        weight = 3

        @thunderfx(executors=["aten"])
        def run(self, x):
            return x * self.weight

    model = Model()
    torch.testing.assert_close(model.run(X), X * 3)
    assert len(get_compiler(model.run).subgraph_infos) == 1


def test_wrong_values_are_an_error_before_the_decorator_is_applied():
    with pytest.raises(OptionError, match="on_failure"):
        thunderfx(on_failure="explode")
    with pytest.raises(OptionError, match="mode"):
        thunderfx(double_sine, mode="fastest")
    with pytest.raises(OptionError, match="max_autotunes"):
        thunderfx(double_sine, options={"max_autotunes": True})


def test_fullgraph_reaches_torch_compile():
    def breaks(x):
        torch._dynamo.graph_break()
        return x + 1

    torch.testing.assert_close(compile(breaks)(X), X + 1)
    with pytest.raises(Unsupported):
        compile(breaks, fullgraph=True)(X)


def test_mode_and_options_reach_the_compiler_with_every_graph(monkeypatch):
    seen = []

    def record(self, graph_module, example_inputs, **keywords):
        seen.append((dict(self.options.inductor_config), keywords))
        return graph_module.forward

    monkeypatch.setattr(ThunderCompiler, "__call__", record)
    thunderfx(double_sine, mode="max-autotune-no-cudagraphs")(X)
    thunderfx(double_sine, options={"epilogue_fusion": False, "guard_filter_fn": keep_all})(X)
    (by_mode, mode), (by_options, options) = seen
    assert by_mode["max_autotune"] is True
    assert mode == {"mode": "max-autotune-no-cudagraphs"}
    assert by_options == {"epilogue_fusion": False}
    assert options == {"options": {"epilogue_fusion": False}}


def keep_all(guards):
    return [True] * len(guards)


@pytest.mark.parametrize("fn", [double_sine, Scale(3), nn.Linear(6, 2)], ids=["def", "obj", "mod"])
def test_disable_returns_what_was_given_as_torch_compile_does(fn):
    assert torch.compile(fn, disable=True) is fn
    assert thunderfx(fn, disable=True) is fn
    assert thunderfx(disable=True)(fn) is fn


def test_dynamo_switched_off_from_outside():
    script = (
        "import torch\n"
        "from thunder.dynamo.thunderfx import thunderfx\n"
        "f, m = lambda x: x + 1, torch.nn.Linear(2, 2)\n"
        "assert thunderfx(f) is f and thunderfx(m) is m\n"
        "assert not hasattr(f, '_backend')\n"
    )
    environment = {"TORCHDYNAMO_DISABLE": "1", "PATH": ""}
    subprocess.run([sys.executable, "-c", script], check=True, env=environment, timeout=120)


@pytest.mark.parametrize(
    "fn",
    [double_sine, torch.sin, Scale(2), nn.Linear(6, 2)],
    ids=["def", "torch", "object", "module"],
)
def test_ten_of_one_callable_are_all_compiled(fn):
    compiled = [compile(fn) for _ in range(10)]
    for each in compiled:
        torch.testing.assert_close(each(X), fn(X))
        torch.testing.assert_close(each(X), fn(X))
    assert [len(each._backend.subgraph_infos) for each in compiled] == [1] * 10


def test_compiling_anew_replaces_the_backend():
    for compiled in (torch.compile(double_sine, backend="eager"), compile(double_sine)):
        again = compile(compiled)
        torch.testing.assert_close(again(X), double_sine(X))
        assert len(again._backend.subgraph_infos) == 1


def test_a_function_compiled_for_another_backend_first():
    def fn(x):
        return x.cos()

    torch.compile(fn, backend="eager")(X)
    compiled = compile(fn)
    compiled(X)
    assert len(compiled._backend.subgraph_infos) == 1


def test_compiled_inside_compiled():
    inner = compile(double_sine)
    outer = compile(lambda x: inner(x) + 1, fullgraph=True)
    torch.testing.assert_close(outer(X), double_sine(X) + 1)
    assert len(outer._backend.subgraph_infos) == 1
    assert inner._backend.subgraph_infos == []


def test_gradients():
    x = X.clone().requires_grad_()
    compile(double_sine)(x).sum().backward()
    torch.testing.assert_close(x.grad, 2 * X.cos())


def test_the_default_executors_compile_too():
    compiled = thunderfx(double_sine)
    torch.testing.assert_close(compiled(X), double_sine(X))
    assert len(compiled._backend.subgraph_infos) == 1


@pytest.mark.parametrize("thing", [None, 3, "sin", X, [double_sine]], ids=type_name)
def test_what_cannot_be_called_is_refused(thing):
    with pytest.raises(NotCallableError) as caught:
        thunderfx(thing)
    assert isinstance(caught.value, TypeError)
    assert type(thing).__qualname__ in str(caught.value)
    with pytest.raises(NotCallableError):
        thunderfx(dynamic=True)(thing)


def test_a_class_is_refused():
    with pytest.raises(NotCallableError, match=r"Scale is a class; compile .*an instance"):
        thunderfx(Scale)


@pytest.mark.parametrize("make", [lambda: nn.Linear(2, 2), lambda: double_sine])
def test_torchscript_is_refused(make):
    scripted: Any = torch.jit.trace(make(), torch.ones(1, 2))
    with pytest.raises(NotCallableError, match="TorchScript"):
        thunderfx(scripted)


def test_options_are_checked_before_the_callable():
    with pytest.raises(OptionError, match=r"'fulgraph'.*did you mean 'fullgraph'"):
        thunderfx(double_sine, fulgraph=True)


def test_the_signature_is_explicit():
    signature = inspect.signature(thunderfx)
    fn, *options = signature.parameters.values()
    assert fn.kind is inspect.Parameter.POSITIONAL_ONLY
    assert [option.name for option in options] == list(known_options())
    text = pydoc.plain(pydoc.render_doc(thunderfx))
    assert "fullgraph: bool = False" in text
    assert "on_failure: Literal['fallback', 'raise'] = 'fallback'" in text
    assert " at 0x" not in text
