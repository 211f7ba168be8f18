from __future__ import annotations

import operator

import pytest
import torch
import torch._dynamo.variables.streams  # defines torch.ops.streams
import torch.nn.functional as F
from torch import fx, nn

from thunder.dynamo.cleanup import cleanup
from thunder.dynamo.split_reason import SplitReasonKind
from thunder.dynamo.splitter import PartitionKind, SplitGraph, split_graph
from thunder.dynamo.splitting.ambient_state import is_marker
from thunder.dynamo.support import find_unsupported
from thunder.trace.copying import output_values


def split(function, *inputs, exclude=("sinc",), dynamic=None) -> SplitGraph:
    """Splits the one graph that Dynamo makes of a function."""
    splits: list[SplitGraph] = []

    def backend(graph_module, example_inputs):
        cleanup(graph_module)
        before = graph_module.print_readable(print_output=False)
        splits.append(split_graph(graph_module, find_unsupported(graph_module, exclude)))
        assert graph_module.print_readable(print_output=False) == before, "the input was changed"
        return graph_module.forward

    torch.compile(function, backend=backend, fullgraph=True, dynamic=dynamic)(*inputs)
    (result,) = splits
    for graph_module in (result.split_graph_module, *(p.graph_module for p in result.partitions)):
        graph_module.graph.lint()
    return result


def calls(graph_module: fx.GraphModule) -> list[str]:
    return [node.name for node in graph_module.graph.nodes if node.op.startswith("call")]


def placeholders(graph_module: fx.GraphModule) -> list[str]:
    return [node.name for node in graph_module.graph.find_nodes(op="placeholder")]


def names(result: SplitGraph) -> list[str]:
    return [partition.name for partition in result.partitions]


def test_one_excluded_operator_gives_three_partitions():
    result = split(lambda x: torch.sinc(x.cos()).exp(), torch.ones(2))
    assert names(result) == ["thunder_0", "inductor_1", "thunder_2"]
    assert [partition.index for partition in result.partitions] == [0, 1, 2]
    kinds = [partition.kind for partition in result.partitions]
    assert kinds == [PartitionKind.THUNDER, PartitionKind.INDUCTOR, PartitionKind.THUNDER]
    assert [calls(p.graph_module) for p in result.partitions] == [["cos"], ["sinc"], ["exp"]]
    assert [len(p.reasons) for p in result.partitions] == [0, 1, 0]
    assert result.reasons == result.partitions[1].reasons
    for partition in result.partitions:
        assert getattr(result.split_graph_module, partition.name) is partition.graph_module


def test_partitions_take_and_return_tuples_of_what_is_needed():
    def function(x, y, z):
        a, b = x + 1, y + 1
        return torch.sinc(a) * b, a

    result = split(function, *torch.ones(3, 2))
    first, middle, last = (partition.graph_module for partition in result.partitions)
    assert placeholders(first) == ["l_x_", "l_y_"]
    assert placeholders(middle) == ["a"]
    assert placeholders(last) == ["b", "sinc"]
    assert [len(output_values(gm.graph)) for gm in (first, middle, last)] == [2, 1, 1]


def test_the_caller_is_called_as_the_graph_was():
    def function(x, y):
        return y.sum(), torch.sinc(x), x.shape[0]

    result = split(function, torch.ones(3), torch.ones(2), dynamic=True)
    taken = result.split_graph_module.graph.find_nodes(op="placeholder")
    assert [node.target for node in taken if node.name.startswith("l_")] == ["L_y_", "L_x_"]
    assert len(taken) == 4  # and two sizes
    assert len(output_values(result.split_graph_module.graph)) == 3


@pytest.mark.parametrize(
    ("function", "expected"),
    [
        (lambda x: torch.sinc(x).view(-1)[1:], ["inductor_0"]),
        (lambda x: torch.sinc(torch.sinc(x).t()[0]), ["inductor_0"]),
        (lambda x: torch.sinc(x[0].view(2, 1)).cos(), ["inductor_0", "thunder_1"]),
        (lambda x: torch.sinc(x.new_zeros(x.size(0))) + x, None),
    ],
)
def test_views_and_sizes_make_no_partition_of_their_own(function, expected):
    result = split(function, torch.ones(2, 2), dynamic=True)
    if expected is not None:
        assert names(result) == expected
    for partition in result.partitions:
        heavy = [n for n in partition.graph_module.graph.nodes if n.op.startswith("call")]
        assert not all(is_marker(n) or n.target is operator.getitem for n in heavy)


def test_modes_are_established_and_restored():
    def function(x):
        with torch.no_grad(), torch.autocast("cpu", dtype=torch.bfloat16):
            y = x @ x
            z = torch.sinc(y)
            w = z @ x
        return w, x + 1

    result = split(function, torch.ones(2, 2))
    enter = ["_set_grad_enabled", "_enter_autocast"]
    leave = ["_exit_autocast", "_set_grad_enabled_1"]
    for partition, operator_name in zip(result.partitions[:2], ["y", "z"], strict=True):
        assert calls(partition.graph_module) == [*enter, operator_name, *leave]
    modes = [
        node.args[0]
        for node in result.partitions[2].graph_module.graph.nodes
        if node.target is torch._C._set_grad_enabled
    ]
    assert modes == [False, True]
    assert not any(is_marker(node) for node in result.split_graph_module.graph.nodes)


def test_elements_of_tuples_cross_and_not_tuples():
    def function(x):
        values, indices = torch.topk(x, 2)
        return values.cos(), indices + 1

    result = split(function, torch.ones(4), exclude=["topk"])
    first, last = (partition.graph_module for partition in result.partitions)
    assert calls(first) == ["topk", "values", "indices"]
    assert placeholders(last) == ["values", "indices"]


def test_arithmetic_on_sizes_is_repeated_and_symbols_come_along():
    def function(x):
        rows = x.shape[0] * 2
        y = torch.sinc(x.new_ones(rows))
        return y.cos() + rows

    result = split(function, torch.ones(3), dynamic=True)
    last = result.partitions[-1].graph_module
    assert placeholders(last)[0] == "s77"
    assert [name.partition("_")[0] for name in calls(last)] == ["cos", "mul", "add"]


def test_indivisible_regions_move_as_a_whole():
    def function(x):
        return torch.vmap(lambda t: torch.sinc(t).sum())(x.cos()).exp()

    result = split(function, torch.ones(2, 2))
    assert names(result) == ["thunder_0", "inductor_1", "thunder_2"]
    kinds = [reason.kind for reason in result.reasons]
    assert kinds == [SplitReasonKind.EXCLUDED_OP, SplitReasonKind.INDIVISIBLE_REGION]
    inside = calls(result.partitions[1].graph_module)
    assert "_vmap_increment_nesting" in inside
    assert "_vmap_decrement_nesting" in inside


def test_indivisible_regions_without_a_reason_stay():
    def function(x):
        y = torch.vmap(lambda t: t.sin().sum())(x)
        return torch.sinc(y)

    result = split(function, torch.ones(2, 2))
    assert names(result) == ["thunder_0", "inductor_1"]
    assert "_vmap_increment_nesting" in calls(result.partitions[0].graph_module)


@pytest.mark.filterwarnings("ignore:.*torch.autograd.grad:UserWarning")
def test_a_derivative_stays_with_what_it_differentiates():
    def function(x):
        y = torch.sinc(x * 2).sum()
        (g,) = torch.autograd.grad(y, x)
        return g * 2

    with torch._dynamo.config.patch(trace_autograd_ops=True):
        result = split(function, torch.ones(2, requires_grad=True))
    assert names(result) == ["inductor_0", "thunder_1"]
    assert calls(result.partitions[0].graph_module)[:4] == ["mul", "sinc", "y", "grad"]


def test_unknown_global_state_is_not_cut():
    graph = fx.Graph()
    x = graph.placeholder("x")
    a = graph.call_function(torch.sin, (x,))
    graph.call_function(torch.set_num_threads, ())
    b = graph.call_function(torch.sinc, (a,))
    graph.output((graph.call_function(torch.cos, (b,)),))
    graph_module = fx.GraphModule({}, graph)
    for node in (x, a, b):
        node.meta["example_value"] = torch.ones(2)
    result = split_graph(graph_module, find_unsupported(graph_module, ["sinc"]))
    assert names(result) == ["thunder_0", "inductor_1"]
    assert calls(result.partitions[1].graph_module) == ["set_num_threads", "sinc", "cos"]


def test_work_on_several_streams_is_not_cut():
    graph = fx.Graph()
    x = graph.placeholder("x")
    a = graph.call_function(torch.sin, (x,))
    graph.call_function(torch.ops.streams.record_event, (0, 1))
    b = graph.call_function(torch.cos, (a,))
    c = graph.call_function(torch.sinc, (b,))
    graph.call_function(torch.ops.streams.wait_event.default, (0, 1))
    graph.output((graph.call_function(torch.exp, (c,)),))
    graph_module = fx.GraphModule({}, graph)
    for node in graph.nodes:
        if node.op != "output" and node.users:
            node.meta["example_value"] = torch.ones(2)
    result = split_graph(graph_module, find_unsupported(graph_module, ["sinc"]))
    assert names(result) == ["thunder_0", "inductor_1", "thunder_2"]
    inside = ["record_event", "cos", "sinc", "wait_event_default"]
    assert calls(result.partitions[1].graph_module) == inside


def test_effects_without_results_are_kept_in_order():
    def function(x, log):
        log.add_(1)
        log.copy_(torch.sinc(x))
        log.mul_(2)

    result = split(function, torch.ones(2), torch.zeros(2))
    assert names(result) == ["thunder_0", "inductor_1", "thunder_2"]
    assert result.partitions[0].graph_module.graph.output_node().args == ((),)
    assert calls(result.split_graph_module)[0] == "thunder_0"


def test_bodies_and_attributes_go_with_their_users():
    class Scaled(nn.Module):
        scale: torch.Tensor

        def __init__(self) -> None:
            super().__init__()
            self.linear = nn.Linear(2, 2)
            self.register_buffer("scale", torch.ones(2))

        def forward(self, x):
            return torch.sinc(self.linear(x) * self.scale) * self.scale

    graph_module = fx.symbolic_trace(Scaled())
    found = find_unsupported(graph_module, ["sinc"], example_inputs=[torch.ones(2)])
    result = split_graph(graph_module, found)
    assert names(result) == ["thunder_0", "inductor_1", "thunder_2"]
    first, _, last = (partition.graph_module for partition in result.partitions)
    assert first.linear is graph_module.linear
    assert last.scale is graph_module.scale
    assert not list(last.named_parameters())
    x = torch.ones(2)
    assert torch.equal(result.split_graph_module(x), graph_module(x))


def test_what_dynamo_says_of_inputs_reaches_the_partitions():
    def function(x, y):
        return torch.sinc(x * 2) + y

    result = split(function, torch.ones(2), torch.ones(2))
    last = result.partitions[-1].graph_module
    sources = [node._dynamo_source for node in last.graph.find_nodes(op="placeholder")]
    assert [source and source.name for source in sources] == ["L['y']", None]
    assert "dynamo_compile_id" in last.meta


def test_splitting_is_deterministic():
    def function(x):
        a, b = torch.sinc(x).chunk(2)
        with torch.no_grad():
            c = torch.sinc(a).relu()
        return F.dropout(b * c), torch.vmap(torch.sinc)(x)

    def text() -> str:
        torch._dynamo.reset()
        result = split(function, torch.ones(4, 2, requires_grad=True))
        parts = [result.split_graph_module.code]
        parts += [
            str(p.graph_module.code) + "".join(map(str, p.reasons)) for p in result.partitions
        ]
        return "\n".join(parts)

    assert text() == text()
