"""Promises of graphs: what breaks them, and what torch's own kernels may do."""

from __future__ import annotations

import operator

import pytest
import torch
from torch import fx
from torch._subclasses.fake_tensor import FakeTensorMode

from thunder.dynamo.compiler import ThunderCompiler
from thunder.pipeline.promises import (
    broken_by_graph,
    broken_by_node,
    broken_by_results,
    promised_outputs,
)
from thunder.trace.copying import output_values
from thunder.trace.targets import FusedRegion

ATEN = torch.ops.aten
ON_GPU = torch.device("cuda")


def region_graph(target, inputs, picks):
    """Returns a graph with one operator, some results of it picked; fakes say it is on a GPU."""
    graph = fx.Graph()
    with FakeTensorMode():
        fakes = [torch.empty(x.shape, dtype=x.dtype, device=ON_GPU) for x in inputs]
        nodes = [graph.placeholder(f"x{i}") for i in range(len(inputs))]
        for node, fake in zip(nodes, fakes, strict=True):
            node.meta["val"] = fake
        call = graph.call_function(target, tuple(nodes))
        call.meta["val"] = target(*fakes)
    outputs = []
    for index in picks:
        outputs.append(graph.call_function(operator.getitem, (call, index)))
        outputs[-1].meta["val"] = call.meta["val"][index]
    graph.output(tuple(outputs))
    return graph


def around(graph):
    """Returns a graph that is one region."""
    region = FusedRegion(
        name="someFusion0",
        executor="some",
        graph_module=fx.GraphModule({}, graph),
        compiled=lambda *inputs: [],
    )
    outer = fx.Graph()
    inputs = [outer.placeholder(node.name) for node in graph.find_nodes(op="placeholder")]
    call = outer.call_function(region, tuple(inputs))
    call.meta["val"] = [node.meta["val"] for node in output_values(graph)]
    picked = []
    for index, inner in enumerate(output_values(graph)):
        picked.append(outer.call_function(operator.getitem, (call, index)))
        picked[-1].meta["val"] = inner.meta["val"]
    outer.output(tuple(picked))
    return outer, call


def attention():
    x = torch.empty(1, 2, 8, 16, dtype=torch.bfloat16)
    return region_graph(ATEN._scaled_dot_product_flash_attention.default, [x, x, x], [0, 6])


def like(fake, device):
    return torch.empty(tuple(fake.shape), dtype=fake.dtype, device=device)


def test_the_random_state_of_attention_may_be_elsewhere_and_the_result_may_not():
    """Fakes say that the state is on the GPU; without dropout the kernel leaves it on the CPU."""
    graph = attention()
    outer, call = around(graph)
    promised = promised_outputs(graph)
    result, state = (node.meta["val"] for node in output_values(graph))
    right = [like(result, "meta"), torch.empty((), dtype=torch.int64)]
    result_elsewhere = (str(right[0].device), "cuda")
    assert result_elsewhere == ("meta", "cuda") and state.device.type == "cuda"

    for broken in (
        broken_by_node(call, right),
        broken_by_results(output_values(outer), right),
    ):
        assert broken is not None and "cuda" in broken[0] and "meta" in broken[1]
    found = broken_by_graph(outer, promised, right)
    assert found is not None and found[0] == 0
    assert promised[1] is None  # nothing is promised of the state


@pytest.mark.parametrize("results", [[], [None], [torch.ones(2, 3), torch.ones(2, 3)]])
def test_too_few_too_many_or_none(results):
    graph = fx.Graph()
    x = graph.placeholder("x")
    with FakeTensorMode():
        x.meta["val"] = torch.ones(2, 3)
    graph.output((x,))
    assert broken_by_results(output_values(graph), results) is not None
    assert broken_by_results(output_values(graph), [torch.ones(2, 3)]) is None


def test_a_kernel_of_atens_may_depart_from_its_fake_and_a_transform_may_not():
    """Layer normalization of bfloat16 by float32 weights returns float32 statistics on a CPU."""
    x, weight, bias = torch.randn(2, 8, dtype=torch.bfloat16), torch.ones(8), torch.zeros(8)
    graph = fx.Graph()
    nodes = [graph.placeholder(name) for name in ("x", "weight", "bias")]
    mode = FakeTensorMode()
    for node, value in zip(nodes, (x, weight, bias), strict=True):
        node.meta["val"] = mode.from_tensor(value)
    arguments = (nodes[0], [8], nodes[1], nodes[2], 1e-5)
    call = graph.call_function(ATEN.native_layer_norm.default, arguments)
    with mode:
        call.meta["val"] = call.target(*fx.map_arg(arguments, lambda node: node.meta["val"]))
    mean = graph.call_function(operator.getitem, (call, 1))
    mean.meta["val"] = call.meta["val"][1]
    graph.output((mean,))
    promised = promised_outputs(graph)
    outputs = fx.Interpreter(fx.GraphModule({}, graph)).run(x, weight, bias)
    assert (promised[0].dtype, outputs[0].dtype) == (torch.bfloat16, torch.float32)
    assert broken_by_graph(graph, promised, outputs) is None

    with graph.inserting_after(mean):
        double = graph.call_function(ATEN.to.dtype, (mean, torch.float64))
    with mode:
        double.meta["val"] = mean.meta["val"].to(torch.float64)
    graph.output_node().args = ((double,),)
    outputs = fx.Interpreter(fx.GraphModule({}, graph)).run(x, weight, bias)
    assert broken_by_graph(graph, promised, outputs) == (0, ("cpu bf16[2, 1]", "cpu f64[2, 1]"))


def test_a_transform_beside_such_a_kernel_is_no_fault():
    norm = torch.nn.LayerNorm(8)
    x = torch.randn(2, 8, dtype=torch.bfloat16, requires_grad=True)

    def nothing(graph_module):
        return None

    backend = ThunderCompiler(executors=["aten"], transforms=[nothing], on_failure="raise")
    got = torch.compile(norm, backend=backend)(x)
    torch.testing.assert_close(got, norm(x))
    (gradient,) = torch.autograd.grad(got.sum(), x)
    torch.testing.assert_close(gradient, torch.autograd.grad(norm(x).sum(), x)[0])
