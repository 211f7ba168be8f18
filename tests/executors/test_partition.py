"""Nodes shared out between executors: regions without cycles, in an order that keeps effects."""

from __future__ import annotations

import pytest
import torch
from torch import fx
from torch.fx.experimental.proxy_tensor import make_fx

from thunder.executors import AbstractFusionExecutor, OperatorExecutor, Refusal, get_executor
from thunder.executors.partition import Region, claim_nodes, partition_graph
from thunder.trace.targets import CLAIM

aten = torch.ops.aten


class Fuser(AbstractFusionExecutor):
    """Claims the operators it is told to; compiles nothing."""

    def __init__(self, name: str, *operators) -> None:
        self._name = name
        self.operators = operators

    @property
    def name(self) -> str:
        return self._name

    def check(self, node: fx.Node) -> Refusal | None:
        if any(node.target in packet for packet in self._overloads()):
            return None
        return Refusal("not mine")

    def _overloads(self):
        return [[getattr(op, name) for name in op.overloads()] for op in self.operators]

    def compile(self, graph_module, example_inputs, context):
        raise NotImplementedError


def partition(function, *inputs, executors):
    graph = make_fx(function)(*inputs).graph
    executors = (*executors, get_executor("aten"))
    claims = claim_nodes(graph, executors)
    return graph, partition_graph(graph, claims, executors[-1])


def names(steps):
    return [[n.name for n in s.nodes] if isinstance(s, Region) else s.name for s in steps]


def test_one_executor_for_everything_is_one_region():
    _, result = partition(
        lambda x: x.sin().cos(), torch.ones(2), executors=[Fuser("f", aten.sin, aten.cos)]
    )
    assert result.whole_graph is not None
    assert names(result.steps) == [["sin", "cos"]]


def test_a_region_never_depends_on_itself_through_another():
    # sin -> relu -> cos and sin -> cos: with relu apart, sin and cos cannot be one region.
    _, result = partition(
        lambda x: x.sin() + x.sin().relu().cos(),
        torch.ones(2),
        executors=[Fuser("f", aten.sin, aten.cos, aten.add)],
    )
    assert names(result.steps) == [["sin_1"], "relu", ["sin", "cos", "add"]]


def test_what_needs_the_inputs_alone_is_computed_where_it_is_used():
    def function(x, saved):
        wide = saved.to(torch.float64)
        return x.sin().relu().sin() * wide

    _, result = partition(
        function,
        torch.ones(2, dtype=torch.float64),
        torch.ones(2),
        executors=[Fuser("f", aten.sin, aten.mul, aten._to_copy)],
    )
    assert names(result.steps) == [["sin"], "relu", ["_to_copy", "sin_1", "mul"]]


def test_reductions_of_the_inputs_stay_early():
    # Moved to where it is used, the reduction would keep its large input alive.
    _, result = partition(
        lambda x, saved: x.sin().relu().sin() * saved.sum(),
        torch.ones(2),
        torch.ones(2),
        executors=[Fuser("f", aten.sin, aten.mul, aten.sum)],
    )
    assert names(result.steps) == [["sin"], "relu", ["sum_1"], ["sin_1", "mul"]]


def test_nothing_moves_past_a_write():
    def function(x, y):
        before = x.sin()
        x.copy_(y)
        return before * y.relu().sin()

    _, result = partition(
        function,
        torch.ones(2),
        torch.zeros(2),
        executors=[Fuser("f", aten.sin, aten.mul)],
    )
    assert names(result.steps)[:2] == [["sin"], "copy_"]


def test_nodes_that_share_an_input_share_a_region():
    _, result = partition(
        lambda x: (x.sin().relu(), x.cos().relu()),
        torch.ones(2),
        executors=[Fuser("f", aten.sin, aten.cos)],
    )
    assert names(result.steps) == [["sin", "cos"], "relu", "relu_1"]


@pytest.mark.parametrize(
    ("limits", "expected"),
    [
        ({"max_nodes": 2}, [["sin", "cos"], ["add", "mul"], ["add_1"]]),
        ({"max_inputs": 2}, [["sin", "cos", "add", "mul"], ["add_1"]]),
    ],
)
def test_regions_keep_to_the_limits_of_their_executor(limits, expected):
    def function(x, y, z):
        return (x.sin() + y.cos()) * x + z

    fuser = Fuser("f", aten.sin, aten.cos, aten.add, aten.mul)
    for name, value in limits.items():
        setattr(fuser, name, value)
    relu = torch.ones(2), torch.ones(2), torch.ones(2)
    _, result = partition(lambda *xs: function(*xs).relu(), *relu, executors=[fuser])
    assert names(result.steps) == [*expected, "relu"]


def test_independent_nodes_of_one_stage_are_regions_of_their_own():
    _, result = partition(
        lambda x, y: (x.sin().relu(), y.cos().relu()),
        torch.ones(2),
        torch.ones(3),
        executors=[Fuser("f", aten.sin, aten.cos)],
    )
    assert names(result.steps) == [["sin"], "relu", ["cos"], "relu_1"]


def test_two_fusion_executors_alternate():
    _, result = partition(
        lambda x: x.sin().exp().sin(),
        torch.ones(2),
        executors=[Fuser("f", aten.sin), Fuser("g", aten.exp)],
    )
    assert names(result.steps) == [["sin"], ["exp"], ["sin_1"]]


def test_a_write_stays_after_what_read_before_it_and_before_what_reads_after():
    def function(x, y):
        before = x.sin()
        kept = before.relu().sin()
        x.copy_(y)
        return kept, x.sin()

    graph, result = partition(
        function,
        torch.ones(2),
        torch.zeros(2),
        executors=[Fuser("f", aten.sin, aten.copy_)],
    )
    order = [
        node
        for step in result.steps
        for node in (step.nodes if isinstance(step, Region) else (step,))
    ]
    position = {node.name: index for index, node in enumerate(order)}
    assert position["sin"] < position["copy_"]
    assert position["sin_1"] < position["copy_"]
    assert position["copy_"] < position["sin_2"]
    (copy,) = [node for node in graph.nodes if node.name == "copy_"]
    assert copy.meta[CLAIM].executor == "aten"
    assert copy.meta[CLAIM].refusals == (("f", "writes to memory that other regions may read"),)


def test_random_nodes_keep_their_order():
    def function(x):
        a = torch.rand_like(x.sin())
        b = torch.rand_like(x)
        return a, b

    _, result = partition(function, torch.ones(2), executors=[Fuser("f", aten.sin)])
    assert names(result.steps) == [["sin"], "rand_like", "rand_like_1"]


def test_views_alone_are_not_a_region():
    graph, result = partition(
        lambda x: x.relu().t().unsqueeze(0),
        torch.ones(2, 2),
        executors=[Fuser("f", aten.t, aten.unsqueeze)],
    )
    assert names(result.steps) == ["relu", "t", "unsqueeze"]
    (view,) = [node for node in graph.nodes if node.name == "t"]
    assert view.meta[CLAIM].refusals == (("f", "nothing but views"),)


def test_the_first_in_the_list_takes_a_node():
    graph, _ = partition(
        lambda x: x.relu(),
        torch.ones(2),
        executors=[
            OperatorExecutor("a", {"aten.relu": torch.relu}, checkers={"aten.relu": _small}),
            OperatorExecutor("b", {"aten.relu": torch.relu}),
        ],
    )
    (relu,) = graph.find_nodes(op="call_function", target=aten.relu.default)
    assert relu.meta[CLAIM].executor == "b"
    assert relu.meta[CLAIM].refusals == (("a", "its checker said no"),)


def _small(x) -> bool:
    return x.numel() < 2


@pytest.mark.parametrize("stages", [3000])
def test_long_graphs_take_linear_time(stages):
    graph = fx.Graph()
    value = graph.placeholder("x")
    for index in range(stages):
        op = aten.sin.default if index % 2 else aten.relu.default
        value = graph.call_function(op, (value,))
    graph.output((value,))
    executors = (Fuser("f", aten.sin), get_executor("aten"))
    result = partition_graph(graph, claim_nodes(graph, executors), executors[-1])
    assert len(result.steps) == stages
