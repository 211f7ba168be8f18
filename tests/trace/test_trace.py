"""`TraceCtx`: what the names of its program stand for."""

from __future__ import annotations

import operator
import types

import torch
from torch import fx

from thunder.trace import FusedRegion, TraceCtx
from thunder.trace.trace import Direction, Provenance


def doubled() -> fx.GraphModule:
    graph = fx.Graph()
    x = graph.placeholder("x")
    graph.output((graph.call_function(torch.ops.aten.mul.Tensor, (x, 2)),))
    return fx.GraphModule(torch.nn.Module(), graph)


def trace_with_fusion(compiled) -> TraceCtx:
    """A trace that calls a fusion, which doubles op by op, and adds one."""
    region = FusedRegion(name="fusion0", executor="mine", graph_module=doubled(), compiled=compiled)
    graph = fx.Graph()
    x = graph.placeholder("x")
    called = graph.create_node("call_function", region, (x,), name="called")
    found = graph.call_function(operator.getitem, (called, 0))
    graph.output((graph.call_function(torch.ops.aten.add.Tensor, (found, 1)),))
    return TraceCtx(
        graph_module=fx.GraphModule(torch.nn.Module(), graph),
        direction=Direction.FORWARD,
        provenance=Provenance("fusion", 0.0),
    )


def test_python_ctx_has_the_compiled_fusions_behind_the_names_of_the_main_function():
    def compiled(x):
        return (x * 30,)  # other numbers than op by op, so that one sees who ran

    trace, x = trace_with_fusion(compiled), torch.tensor([1.0, 2.0])
    context = trace.python_ctx()
    assert context == {"torch": torch, "fusion0": compiled}
    alone: dict = {}
    exec(trace.python(), alone)
    assert alone["forward"](x)[0].tolist() == [3.0, 5.0]
    main = types.FunctionType(alone["forward"].__code__, context)
    assert main(x)[0].tolist() == [31.0, 61.0]
    assert trace.python_callable()(x)[0].tolist() == [31.0, 61.0]


def test_python_ctx_is_new_each_time():
    trace = trace_with_fusion(lambda x: (x,))
    trace.python_ctx().clear()
    assert "fusion0" in trace.python_ctx()
