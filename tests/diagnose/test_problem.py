"""Pieces of a graph run alone, with the values that they have in the whole."""

import torch
from torch import fx
from torch.testing import assert_close

from thunder.diagnose.problem import Problem


def _trace(function):
    return fx.symbolic_trace(function)


def _names(graph_module):
    return [node.name for node in graph_module.graph.nodes]


def test_a_piece_gets_real_values():
    x = torch.linspace(-1, 1, 5)
    problem = Problem(_trace(lambda x: x.exp().sin().tanh()), [x])
    graph_module, inputs = problem.build(problem.piece([1]))
    assert _names(graph_module) == ["exp", "sin", "output"]
    assert_close(inputs, [x.exp()])
    assert_close(graph_module(*inputs), (x.exp().sin(),))


def test_a_value_that_was_changed_in_place_is_as_it_was_when_used():
    def function(x):
        y = x + 1
        early = y.sin()
        y.mul_(10)
        return early, y.cos()

    x = torch.ones(3)
    problem = Problem(_trace(function), [x])
    for position, name, value in ((1, "sin", x + 1), (3, "cos", (x + 1) * 10)):
        graph_module, inputs = problem.build(problem.piece([position]))
        assert name in _names(graph_module)
        assert_close(inputs, [value])
    assert_close(x, torch.ones(3))


def test_inputs_of_a_piece_share_memory_as_in_the_whole():
    def function(x):
        y = x.sin()
        return y[1:].add_(y[:-1])

    problem = Problem(_trace(function), [torch.ones(4)])
    _, inputs = problem.build(problem.piece([3]))
    assert len(inputs) == 2
    assert inputs[0].untyped_storage()._cdata == inputs[1].untyped_storage()._cdata


def test_a_tuple_is_not_made_an_input():
    def function(x):
        return torch.ops.aten.native_layer_norm.default(x, [4], None, None, 1e-5)[0].sin()

    problem = Problem(_trace(function), [torch.randn(2, 4)])
    assert problem.piece([1]).operators == ()  # the getitem alone would need the tuple
    assert problem.piece([1, 2]).operators == (2,)
    assert problem.piece([0, 1]).operators == (0, 1)


def test_a_number_becomes_a_constant():
    problem = Problem(_trace(lambda x: x.reshape(x.size(0) * 2)), [torch.zeros(3, 2)])
    graph_module, inputs = problem.build(problem.piece([2]))
    assert len(inputs) == 1
    assert graph_module(*inputs)[0].shape == (6,)


def test_gradients_are_asked_for_where_the_whole_has_them():
    x = torch.ones(2, requires_grad=True)
    problem = Problem(_trace(lambda x, y: x.sin() * y.cos()), [x, torch.ones(2)])
    _, inputs = problem.build(problem.piece([2]))
    assert [value.requires_grad for value in inputs] == [True, False]
    assert all(value.is_leaf for value in inputs)


def test_modes_stay_as_they_were():
    def function(x):
        torch._C._set_grad_enabled(False)
        return x.sin().cos()

    graph = fx.Graph()
    x = graph.placeholder("x")
    graph.call_function(torch._C._set_grad_enabled, (False,))
    sin = graph.call_function(torch.sin, (x,))
    graph.output((graph.call_function(torch.cos, (sin,)),))
    problem = Problem(fx.GraphModule({}, graph), [torch.ones(2)])
    assert problem.frame == (0,)
    assert problem.removable == (1, 2)
    assert torch.is_grad_enabled()


def test_results_can_be_left_out_with_what_only_they_needed():
    problem = Problem(_trace(lambda x: (x.sin(), x.cos().tanh())), [torch.ones(2)])
    whole = problem.piece(problem.removable)
    assert whole.outputs == (0, 2)
    assert problem.with_outputs(whole, [0]).operators == (0,)
    assert problem.exposed(whole).outputs == (0, 1, 2)
