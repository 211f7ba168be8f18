"""The helpers answer for every way to compile."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import thunder
from thunder import ThunderCompiler, thunderfx
from thunder.dynamo import get_subgraph_info
from thunder.errors import NotCompiledError


def breaking(x):
    y = x.sin()
    torch._dynamo.graph_break()
    return y.cos()


def test_thunderfx_gives_the_executed_trace_of_every_region():
    f = thunderfx(breaking, executors=["aten"])
    x = torch.ones(3, requires_grad=True)
    f(x).sum().backward()
    forward, backward = thunder.last_traces(f), thunder.last_backward_traces(f)
    assert [t.provenance.pass_name for t in forward] == ["delete after last use"] * 2
    assert ["aten.sin" in t.python() for t in forward] == [True, False]
    assert ["aten.cos" in t.python() for t in forward] == [False, True]
    assert len(backward) == len(thunder.last_prologue_traces(f)) == 2


def test_jit_and_regions_give_all_stages():
    f = thunder.jit(lambda x: x.sin(), executors=["aten"])
    f(torch.ones(2))
    stages = [trace.provenance.pass_name for trace in thunder.last_traces(f)]
    assert stages == ["AOTAutograd", "fusion", "delete after last use"]
    assert thunder.last_backward_traces(f) == []
    (info,) = get_subgraph_info(f)
    (region,) = info.thunder_compiled_fns
    assert thunder.last_traces(region)[-1].python() == thunder.last_traces(f)[-1].python()


def test_the_record_of_a_graph():
    net = nn.Sequential(nn.Linear(2, 3), nn.ReLU())
    f = thunderfx(net, executors=["aten"])
    out = f(torch.ones(4, 2))
    (info,) = get_subgraph_info(f)
    (region,) = info.thunder_compiled_fns
    ((weight, bias, x),) = info.thunder_compiled_fns_example_inputs
    assert (weight.shape, bias.shape, x.shape) == ((3, 2), (3,), (4, 2))
    assert list(info.submodule_to_compiled_functions) == ["thunder_0"]
    assert info.split_reasons == ()
    with torch.no_grad():
        (again,) = info.original_graph_module(*net.parameters(), torch.ones(4, 2))
        (compiled,) = region(*net.parameters(), torch.ones(4, 2))
    torch.testing.assert_close(again, out.detach())
    torch.testing.assert_close(compiled, out.detach())
    assert "2 operators" in str(info)


class Net(nn.Module):
    """A module of a user's: Dynamo does not look into a call of torch's own Linear alone."""

    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(2, 2)

    def forward(self, x):
        return self.linear(x)


@pytest.mark.parametrize("way", ["module.compile", "torch.compile", "named", "compiler"])
def test_every_way_to_compile(way):
    net, x = Net(), torch.ones(2)
    backend = ThunderCompiler(executors=["aten"])
    match way:
        case "module.compile":
            net.compile(backend=backend)
            f = net
        case "torch.compile":
            f = torch.compile(net, backend=backend)
        case "named":
            f = torch.compile(net, backend="thunder", options={"executors": ["aten"]})
        case _:
            torch.compile(net, backend=backend)(x)
            f = backend
    if callable(f) and f is not backend:
        f(x)
    assert len(get_subgraph_info(f)) == 1
    assert len(thunder.last_traces(f)) == 1
    assert thunder.compile_stats(f).cache_misses == 1


def test_before_the_first_call():
    f = thunderfx(lambda x: x.sin())
    with pytest.warns(UserWarning, match="call the compiled function first"):
        assert get_subgraph_info(f) == []
    assert thunder.last_traces(f) == []
    assert thunder.compile_stats(f).cache_misses == 0


def test_what_was_never_compiled():
    for helper in (get_subgraph_info, thunder.last_traces, thunder.compile_stats):
        with pytest.raises(NotCompiledError, match="is not compiled"):
            helper(len)
