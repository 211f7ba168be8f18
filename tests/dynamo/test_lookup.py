"""The compiler is found behind everything that was compiled, and missed where it is not."""

from __future__ import annotations

import functools

import pytest
import torch
from torch import nn

from thunder.dynamo.compiler import ThunderCompiler
from thunder.dynamo.lookup import find_compiler, get_compiler
from thunder.dynamo.thunderfx import thunderfx
from thunder.errors import NotCompiledError

X = torch.ones(1, 2)


def plain(x):
    return x + 1


class Owner:
    def method(self, x):
        return x + 1


@pytest.fixture
def compiler():
    return ThunderCompiler(executors=["aten"])


def test_a_compiler_is_its_own(compiler):
    assert get_compiler(compiler) is compiler


@pytest.mark.parametrize("fn", [plain, Owner().method, torch.sin, nn.Linear(2, 2)])
def test_results_of_thunderfx(fn):
    compiled = thunderfx(fn)
    assert isinstance(compiled._backend, ThunderCompiler)
    assert get_compiler(compiled) is compiled._backend


@pytest.mark.parametrize("fn", [plain, Owner().method, torch.sin, nn.Linear(2, 2)])
@pytest.mark.parametrize("options", [{}, {"fullgraph": True}, {"dynamic": True}], ids=repr)
def test_results_of_torch_compile(fn, options, compiler):
    compiled = torch.compile(fn, backend=compiler, **options)
    assert get_compiler(compiled) is compiler
    compiled(X)
    assert get_compiler(compiled) is compiler


def test_results_of_dynamo_itself(compiler):
    assert get_compiler(torch._dynamo.optimize(compiler)(plain)) is compiler


def test_a_module_compiled_in_place(compiler):
    module = nn.Sequential(nn.Linear(2, 2))
    module.compile(backend=compiler)
    assert get_compiler(module) is compiler


def test_a_stand_in_compiled_in_place_for_something_else(compiler):
    stand_in = thunderfx(nn.Linear(2, 2))
    stand_in.compile(backend=compiler)
    assert get_compiler(stand_in) is compiler
    stand_in.compile(backend="eager")
    assert find_compiler(stand_in) is None


def test_methods_partials_and_wrappers(compiler):
    compiled = torch.compile(plain, backend=compiler)

    @functools.wraps(compiled)
    def wrapper(x):
        return compiled(x)

    class Model:
        run = compiled

    for outer in (functools.partial(compiled, X), wrapper, Model().run, Model.run):
        assert get_compiler(outer) is compiler
    assert get_compiler(thunderfx(nn.Linear(2, 2)).forward) is not None


def test_a_compiler_inherited_as_an_attribute_is_not_that_of_the_call(compiler):
    def fn(x):
        return x + 1

    fn._backend = compiler
    compiled = torch.compile(fn, backend="eager")
    assert compiled._backend is compiler
    assert find_compiler(compiled) is None


@pytest.mark.parametrize(
    "thing",
    [plain, nn.Linear(2, 2), nn.Sequential(), Owner(), 3, None, "f", torch.sin],
    ids=lambda thing: type(thing).__name__,
)
def test_what_is_not_compiled(thing):
    assert find_compiler(thing) is None
    with pytest.raises(NotCompiledError, match=r"is not compiled; pass what thunderfx\(f\)"):
        get_compiler(thing)


@pytest.mark.parametrize("backend", ["inductor", "eager", "aot_eager"])
@pytest.mark.parametrize("fn", [plain, nn.Linear(2, 2)], ids=["function", "module"])
def test_other_backends_are_named(fn, backend):
    compiled = torch.compile(fn, backend=backend)
    assert find_compiler(compiled) is None
    with pytest.raises(NotCompiledError, match=rf"compiled by another backend \({backend}\)"):
        get_compiler(compiled)


def test_disabled_callables_are_not_compiled():
    assert find_compiler(torch.compiler.disable(plain)) is None
    assert find_compiler(thunderfx(plain, disable=True)) is None


def test_a_compiled_submodule_is_pointed_out():
    model = nn.Sequential(nn.Linear(2, 2), nn.Sequential(thunderfx(nn.Linear(2, 2))))
    with pytest.raises(NotCompiledError, match=r"its submodule '1\.0' is compiled by thunder"):
        get_compiler(model)


def test_a_module_attribute_named_backend_is_no_compiler():
    module = nn.Linear(2, 2)
    vars(module)["_backend"] = "cuda"
    assert find_compiler(module) is None
