"""`torch.compile(f, backend="thunder")`: each call has a compiler of its own."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from thunder.dynamo.backend import shared_compiler, thunder_backend
from thunder.dynamo.lookup import get_compiler

ATEN: dict[str, Any] = {"executors": ["aten"]}
X = torch.linspace(-1, 1, 4)


def double_sine(x):
    return x.sin() * 2


def test_torch_lists_the_backend():
    assert "thunder" in torch._dynamo.list_backends()


@pytest.mark.parametrize("backend", ["thunder", thunder_backend], ids=["name", "function"])
def test_each_call_of_torch_compile_has_its_own_compiler(backend):
    first = torch.compile(double_sine, backend=backend, options=ATEN)
    second = torch.compile(double_sine, backend=backend, options=ATEN)
    torch.testing.assert_close(first(X), double_sine(X))
    assert len(get_compiler(first).subgraph_infos) == 1
    torch.testing.assert_close(second(X), double_sine(X))
    assert get_compiler(second) is not get_compiler(first)
    assert len(get_compiler(first).subgraph_infos) == 1
    assert len(get_compiler(second).subgraph_infos) == 1


def test_all_graphs_of_one_call_go_to_one_compiler():
    @torch.compile(backend="thunder", options=ATEN)
    def breaks(x):
        y = x + 1
        torch._dynamo.graph_break()
        return y * 2

    before = get_compiler(breaks)
    torch.testing.assert_close(breaks(X), (X + 1) * 2)
    torch.testing.assert_close(breaks(X.double()), (X.double() + 1) * 2)
    assert get_compiler(breaks) is before
    assert len(before.subgraph_infos) == 4


def test_a_module_compiled_in_place_by_name():
    module = nn.Sequential(nn.Linear(4, 2), nn.ReLU())
    module.compile(backend="thunder", options=ATEN)
    assert get_compiler(module).options.requested_executors == ("aten",)


def test_options_are_those_of_the_compiler_and_inductors():
    compiled = torch.compile(
        double_sine, backend="thunder", options={**ATEN, "epilogue_fusion": False}
    )
    torch.testing.assert_close(compiled(X), double_sine(X))
    options = get_compiler(compiled).options
    assert options.requested_executors == ("aten",)
    assert dict(options.inductor_config) == {"epilogue_fusion": False}


def test_mode_reaches_the_compiler():
    compiled = torch.compile(double_sine, backend="thunder", mode="max-autotune-no-cudagraphs")
    assert get_compiler(compiled).options.inductor_config["max_autotune"] is True


def test_an_unknown_option_is_named():
    compiled = torch.compile(double_sine, backend="thunder", options={"executor": "aten"})
    with pytest.raises(Exception, match="executor"):
        compiled(X)


def test_graphs_from_outside_torch_compile_share_a_compiler():
    shared_compiler.cache_clear()
    compiled = torch._dynamo.optimize("thunder")(double_sine)
    assert get_compiler(compiled) is shared_compiler()
    graph = torch.fx.symbolic_trace(lambda x: (x + 1,))
    torch.testing.assert_close(thunder_backend(graph, [X])(X), (X + 1,))
    assert len(shared_compiler().subgraph_infos) == 1
