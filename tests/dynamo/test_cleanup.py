from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import fx

from thunder.dynamo.cleanup import cleanup


def left_over(function, *inputs) -> list[str]:
    """Returns the names of the calls that cleaning leaves."""
    names: list[str] = []

    def backend(graph_module: fx.GraphModule, example_inputs):
        before = len(graph_module.graph.nodes)
        changed = cleanup(graph_module)
        assert changed == (len(graph_module.graph.nodes) < before)
        graph_module.graph.lint()
        names.extend(n.name for n in graph_module.graph.nodes if n.op.startswith("call"))
        return graph_module.forward

    torch.compile(function, backend=backend)(*inputs)
    return names


def unused_values(x, log):
    torch.sinc(x.detach()).cos()
    x.topk(1)
    return x + 1


def unused_change_of_its_own_memory(x, log):
    y = x.cos()
    y[0] = 1
    y.mul_(x)
    y.view(-1).add_(1)
    return x + 1


@pytest.mark.parametrize("function", [unused_values, unused_change_of_its_own_memory])
def test_what_nobody_sees_goes(function):
    assert left_over(function, torch.ones(4, requires_grad=True), torch.zeros(4)) == ["add"]


def change_of_an_input(x, log):
    log.copy_(x.cos())
    return x + 1


def change_of_a_view_of_an_input(x, log):
    log[1:].add_(1)
    return x + 1


def change_of_a_view_that_is_returned(x, log):
    y = x.cos()
    y[1:].add_(1)
    return y


def random_numbers(x, log):
    torch.rand(3)
    F.dropout(x)
    torch.empty(3).uniform_()
    return x + 1


def running_statistics(x, log):
    F.batch_norm(x[:, None], log[:1], log[1:2], training=True)
    return x + 1


def a_check(x, log):
    torch.ops.aten._assert_async(x[0] > 0)
    return x + 1


@pytest.mark.parametrize(
    ("function", "expected"),
    [
        (change_of_an_input, ["cos", "copy_", "add"]),
        (change_of_a_view_of_an_input, ["getitem", "add_", "add"]),
        (change_of_a_view_that_is_returned, ["y", "getitem", "add_"]),
        (random_numbers, ["rand", "dropout", "empty", "uniform_", "add"]),
        (running_statistics, ["getitem", "getitem_1", "getitem_2", "batch_norm", "add"]),
        (a_check, ["getitem", "gt", "_assert_async", "add"]),
    ],
)
def test_what_can_be_noticed_stays(function, expected):
    assert left_over(function, torch.ones(4), torch.zeros(4)) == expected


def test_attributes_last():
    graph = fx.Graph()
    x = graph.placeholder("x")
    view = graph.call_function(torch.t, (graph.get_attr("weight"),))
    graph.call_method("add_", (view, 1))
    graph.output((x,))
    graph_module = fx.GraphModule({"weight": torch.ones(2, 2)}, graph)
    with torch._subclasses.FakeTensorMode():
        x.meta["example_value"] = torch.empty(2)
        view.meta["example_value"] = torch.empty(2, 2)
    assert not cleanup(graph_module)


def test_without_values_nothing_goes():
    assert not cleanup(fx.symbolic_trace(lambda x: (torch.sin(x), x)[1]))


def test_modes_and_placeholders_stay():
    def function(x, log):
        with torch.no_grad():
            x.cos()
        return x + 1

    names = left_over(function, torch.ones(4, requires_grad=True), torch.zeros(4))
    assert names[-1] == "add"
    assert "cos" not in names
