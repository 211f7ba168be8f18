"""`thunder.jit`: whole functions, fx graphs, and what it says about graph breaks."""

from __future__ import annotations

import inspect

import pytest
import torch
from torch import nn

import thunder
from thunder.errors import GraphBreakError, OptionError


def test_a_function_and_its_gradient():
    def function(x):
        return x.sin() * 2

    f = thunder.jit(function, executors=["aten"])
    x = torch.ones(3, requires_grad=True)
    f(x).sum().backward()
    torch.testing.assert_close(x.grad, 2 * torch.ones(3).cos())


@pytest.mark.parametrize("make", [lambda: breaks, lambda: Breaks()])
def test_a_graph_break_is_an_error_that_names_the_line(make):
    f = thunder.jit(make(), executors=["aten"])
    with pytest.raises(GraphBreakError, match=r"(?s)\nfrom .*test_jit.py:\d+ .*\nUse thunderfx"):
        f(torch.ones(2))


def breaks(x):
    torch._dynamo.graph_break()
    return x + 1


class Breaks(nn.Module):
    def forward(self, x):
        return breaks(x)


def test_fullgraph_cannot_be_switched_off():
    with pytest.raises(OptionError, match="use thunderfx"):
        thunder.jit(breaks, fullgraph=False)


def test_it_raises_where_thunderfx_falls_back():
    def bad(graph_module):
        raise ValueError("no")

    f = thunder.jit(lambda x: x.sin(), executors=["aten"], transforms=[bad])
    with pytest.raises(Exception, match="transform 'bad' failed"):
        f(torch.ones(2))
    g = thunder.jit(lambda x: x.sin(), executors=["aten"], transforms=[bad], on_failure="fallback")
    with pytest.warns(UserWarning, match="transform 'bad' failed"):
        g(torch.ones(2))


def test_decorators():
    @thunder.jit
    def plain(x):
        return x + 1

    @thunder.jit(executors=["aten"], dynamic=True)
    def with_options(x):
        return x * 2

    assert plain.__name__ == "plain"
    torch.testing.assert_close(with_options(torch.ones(2)), torch.full((2,), 2.0))


def test_a_module_stays_a_module():
    net = nn.Linear(2, 2)
    f = thunder.jit(net, executors=["aten"])
    assert isinstance(f, nn.Linear)
    torch.testing.assert_close(f(torch.ones(2)), net(torch.ones(2)))
    assert len(thunder.last_traces(f)) == 3


class TestGraphModules:
    def test_weights_are_read_anew_and_outputs_keep_their_structure(self):
        class Net(nn.Module):
            def __init__(self):
                super().__init__()
                self.linear = nn.Linear(2, 2)

            def forward(self, x):
                y = self.linear(x)
                return {"y": y, "pair": (y.sin(), x)}

        graph_module = torch.fx.symbolic_trace(Net())
        f = thunder.jit(graph_module, executors=["aten"])
        x = torch.ones(3, 2)
        first = f(x)
        torch.testing.assert_close(first, graph_module(x))
        with torch.no_grad():
            graph_module.linear.weight.zero_()
        torch.testing.assert_close(f(x)["y"], graph_module.linear.bias.expand(3, 2))
        graph_module.linear.weight = nn.Parameter(torch.eye(2))
        torch.testing.assert_close(f(x)["y"], x + graph_module.linear.bias)

    def test_gradients_and_new_kinds_of_inputs(self):
        graph_module = torch.fx.symbolic_trace(lambda x, n: x.sin() * n)
        f = thunder.jit(graph_module, executors=["aten"])
        for shape, n in (((2,), 3), ((2,), 4), ((3, 2), 3)):
            x = torch.ones(shape, requires_grad=True)
            f(x, n).sum().backward()
            torch.testing.assert_close(x.grad, n * torch.ones(shape).cos())
        with torch.no_grad():
            assert not f(torch.ones(2, requires_grad=True), 3).requires_grad
        assert thunder.compile_stats(f).cache_misses == 4

    def test_the_graph_given_is_left_alone(self):
        graph_module = torch.fx.symbolic_trace(lambda x: x.sin())
        before = graph_module.code
        thunder.jit(graph_module)(torch.ones(2))
        assert graph_module.code == before

    def test_a_wrong_number_of_inputs_is_said(self):
        f = thunder.jit(torch.fx.symbolic_trace(lambda x: x.sin()), executors=["aten"])
        with pytest.raises(OptionError, match="takes 1 positional inputs, 2 were given"):
            f(torch.ones(2), 3)


def test_the_signature_is_explicit_with_the_defaults_of_jit():
    parameters = inspect.signature(thunder.jit).parameters
    assert list(parameters) == list(inspect.signature(thunder.thunderfx).parameters)
    assert parameters["on_failure"].default == "raise"
    assert parameters["fullgraph"].default is True
    assert parameters["dynamic"].default is None
