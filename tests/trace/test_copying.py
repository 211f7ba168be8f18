from __future__ import annotations

import operator

import torch
from torch import fx, nn

from thunder.trace.copying import (
    copy_graph,
    copy_graph_module,
    inherit_from_dynamo,
    make_graph_module,
    output_values,
)


class Inner(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(2))

    def forward(self, x):
        return x * self.weight


def nested() -> fx.GraphModule:
    """Returns a graph module with another one, a plain module and a buffer in it."""
    root = nn.Module()
    root.body = fx.symbolic_trace(Inner())
    root.plain = nn.Linear(2, 2)
    root.register_buffer("shift", torch.ones(2))
    graph = fx.Graph()
    x = graph.placeholder("x")
    x.meta["example_value"] = torch.empty(2)
    body = graph.call_module("body", (x,))
    plain = graph.call_module("plain", (body,))
    graph.output((graph.call_function(torch.add, (plain, graph.get_attr("shift"))),))
    return fx.GraphModule(root, graph, "Nested")


def test_graphs_are_copied_and_tensors_shared():
    original = nested()
    copied = copy_graph_module(original)
    assert type(copied).__name__ == "Nested"
    assert copied.graph is not original.graph
    assert copied.code == original.code
    assert copied.plain is original.plain
    assert copied.shift is original.shift
    x = torch.ones(2)
    assert torch.equal(copied(x)[0], original(x)[0])


def test_nested_graph_modules_are_copied_too():
    original = nested()
    copied = copy_graph_module(original)
    body, other = original.get_submodule("body"), copied.get_submodule("body")
    assert isinstance(other, fx.GraphModule)
    assert other is not body
    assert other.weight is body.weight
    for node in other.graph.find_nodes(op="call_function", target=operator.mul):
        node.target = operator.sub
    other.recompile()
    assert torch.equal(body(torch.ones(2)), torch.ones(2))
    assert torch.equal(other(torch.ones(2)), torch.zeros(2))


def test_metadata_is_shared_and_its_dictionaries_are_not():
    original = nested()
    original.meta["dynamo_compile_id"] = 3
    copied = copy_graph_module(original)
    node, other = next(iter(original.graph.nodes)), next(iter(copied.graph.nodes))
    assert other.name == node.name
    assert other.meta["example_value"] is node.meta["example_value"]
    other.meta["mine"] = 1
    copied.meta["mine"] = 1
    assert "mine" not in node.meta
    assert "mine" not in original.meta


def test_what_dynamo_keeps_comes_along():
    original = nested().eval()
    original._param_name_to_source = {"shift": "there"}  # type: ignore[assignment]
    placeholder = next(iter(original.graph.nodes))
    placeholder._dynamo_source = "here"  # type: ignore[attr-defined]
    copied = copy_graph_module(original)
    assert copied._param_name_to_source == {"shift": "there"}
    assert not copied.training
    assert next(iter(copied.graph.nodes))._dynamo_source == "here"  # type: ignore[attr-defined]
    piece = make_graph_module({}, fx.Graph())
    inherit_from_dynamo(piece, original)
    assert piece._param_name_to_source == {"shift": "there"}
    assert not piece.training


def test_outputs_keep_their_metadata():
    graph = nested().graph
    graph.output_node().meta["mine"] = 1
    copied = copy_graph(graph)
    assert copied.output_node().meta == {"mine": 1}
    assert [value.name for value in output_values(copied)] == ["add"]
