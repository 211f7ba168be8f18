"""What the user lets go of is freed: models, inputs, graphs, compiled code."""

from __future__ import annotations

import gc
import weakref

import pytest
import torch
from torch import fx, nn

import thunder
from thunder import jit, thunderfx
from thunder.dynamo import ThunderCompiler, get_subgraph_info
from thunder.dynamo.report import analyze_thunder_splits, fx_report
from thunder.errors import FallbackWarning
from thunder.pipeline import CompiledRegion

ATEN = {"executors": ["aten"]}


def is_freed(reference):
    gc.collect()
    return reference() is None


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(3, 3)

    def forward(self, x):
        return self.linear(x).relu()


def test_a_function_and_its_inputs():
    x = torch.ones(3, requires_grad=True)
    f = thunderfx(lambda x: x.sin(), **ATEN)
    f(x).sum().backward()
    held = [
        weakref.ref(x),
        weakref.ref(f),
        weakref.ref(get_subgraph_info(f)[0].thunder_compiled_fns[0]),
    ]
    del x
    assert is_freed(held[0])
    del f
    torch._dynamo.reset()
    assert all(map(is_freed, held))


@pytest.mark.parametrize("way", ["thunderfx", "compile", "jit"])
def test_a_module_and_its_weights(way):
    model = Model()
    match way:
        case "thunderfx":
            compiled = thunderfx(model, **ATEN)
        case "compile":
            model.compile(backend=ThunderCompiler(**ATEN))
            compiled = model
        case _:
            compiled = jit(model, **ATEN)
    compiled(torch.ones(2, 3)).sum().backward()
    held = [weakref.ref(model), weakref.ref(model.linear.weight), weakref.ref(compiled)]
    del model, compiled
    torch._dynamo.reset()
    assert all(map(is_freed, held))


def test_a_model_whose_compiler_lives_on():
    """As when the user keeps the compiler, or a report of it, for looking at."""
    model, compiler = Model(), ThunderCompiler(**ATEN)
    model.compile(backend=compiler)
    x = torch.ones(2, 3)
    model(x).sum().backward()
    held = weakref.ref(x)
    del x
    assert is_freed(held)
    assert len(compiler.subgraph_infos) == 1


def test_reports():
    model, x = Model(), torch.ones(2, 3)
    report = analyze_thunder_splits(fx_report(model, x).fx_graph_reports[0], **ATEN)
    held = [weakref.ref(model), weakref.ref(x), weakref.ref(report)]
    del model, x, report
    torch._dynamo.reset()
    assert all(map(is_freed, held))


def test_a_failure_keeps_no_inputs(monkeypatch):
    """An exception that is kept for reports would keep the frames it went through, and theirs."""
    monkeypatch.setenv("THUNDER_REPRODUCERS", "off")

    def bad(graph_module):
        raise ValueError("no")

    f = thunderfx(lambda x: x.sin(), transforms=[bad], **ATEN)
    x = torch.ones(3)
    with pytest.warns(FallbackWarning):
        f(x)
    held = weakref.ref(x)
    del x
    assert is_freed(held)


def counted(*classes):
    gc.collect()
    # Not isinstance, which asks lazy objects for a class that they may warn about.
    types = list(map(type, gc.get_objects()))
    return [sum(issubclass(each, wanted) for each in types) for wanted in classes]


def test_compiling_again_and_again_leaves_nothing():
    def once():
        f = thunderfx(Model(), **ATEN)
        f(torch.ones(2, 3)).sum().backward()
        del f
        torch._dynamo.reset()

    once()
    once()
    before = counted(fx.GraphModule, CompiledRegion, nn.Linear)
    for _ in range(5):
        once()
    assert counted(fx.GraphModule, CompiledRegion, nn.Linear) == before


def test_recompiles_are_bounded_as_in_torch_compile(caplog):
    """Beyond the limit calls run in eager mode, and torch says which guard failed."""
    f = thunderfx(lambda x: x * 2, dynamic=False, **ATEN)
    with torch._dynamo.config.patch(recompile_limit=3):
        for size in range(1, 60):
            assert f(torch.ones(size)).sum() == 2 * size
    assert thunder.compile_stats(f).cache_misses == 3
    assert "hit config.recompile_limit (3)" in caplog.text
    assert [bool(record.recompile_reason) for record in thunder.compile_stats(f).compiles] == [
        False,
        True,
        True,
    ]
