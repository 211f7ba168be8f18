from __future__ import annotations

import pytest
import torch
from torch import fx
from torch._ops import HigherOrderOperator
from torch.utils.checkpoint import checkpoint

from thunder.dynamo.split_reason import SplitReason, SplitReasonKind, describe_exception
from thunder.dynamo.support import find_unsupported, propagate_example_values
from thunder.errors import OptionError
from thunder.trace.source_lines import SourceLine


def reasons_for(function, exclude, *inputs) -> dict[str, SplitReason]:
    found = {}

    def backend(graph_module, example_inputs):
        unsupported = find_unsupported(graph_module, exclude)
        found.update({node.name: reason for node, reason in unsupported.items()})
        return graph_module.forward

    torch.compile(function, backend=backend, fullgraph=True)(*inputs)
    return found


class Unfolding(HigherOrderOperator):
    """A higher-order operator that is traced through."""

    def __init__(self) -> None:
        super().__init__("thunder_tests_unfolding")

    def __call__(self, x):
        return x.cos()


class Running(HigherOrderOperator):
    """A higher-order operator that can be run and not traced."""

    def __init__(self) -> None:
        super().__init__("thunder_tests_running")

    def __call__(self, x):
        return super().__call__(x)


running = Running()


@running.py_impl(torch._C.DispatchKey.CompositeExplicitAutograd)
def _(x):
    return x.cos()


@torch.library.custom_op("thunder_tests::no_rule", mutates_args=())
def no_rule(x: torch.Tensor) -> torch.Tensor:
    return x.clone()


def test_nothing_is_unsupported_without_a_reason():
    def function(x):
        with torch.no_grad(), torch.autocast("cpu"):
            y = torch.vmap(torch.special.i0e)(x)
        return checkpoint(torch.sinc, x, use_reentrant=False) + torch.fft.fft(y).real

    assert reasons_for(function, [], torch.ones(2, 4, requires_grad=True)) == {}


def test_excluded_operators_say_where():
    def function(x):
        y = x.cos()
        return torch.sinc(y)

    (reason,) = reasons_for(function, ["sinc"], torch.ones(2)).values()
    assert (reason.kind, reason.op) == (SplitReasonKind.EXCLUDED_OP, "sinc")
    assert reason.source_line is not None
    line = function.__code__.co_firstlineno + 2
    file = "tests/dynamo/test_support.py"
    assert str(reason) == (
        f"excluded op: sinc is in exclude_ops at {file}:{line} in function: return torch.sinc(y)"
    )
    assert reason.exception is None


def test_bodies_of_higher_order_operators_are_looked_into():
    def block(x):
        inner = checkpoint(lambda t: torch.sinc(t) * 2, x, use_reentrant=False)
        return inner.cos()

    def function(x):
        return checkpoint(block, x, use_reentrant=False) + 1

    found = reasons_for(function, ["sinc"], torch.ones(2, requires_grad=True))
    (reason,) = found.values()
    assert list(found) == ["tag_activation_checkpoint"]
    assert reason.kind is SplitReasonKind.CONTAINS_UNSUPPORTED
    assert "body of higher_order.tag_activation_checkpoint cannot be cut" in reason.info
    assert "sinc is in exclude_ops" in reason.info
    assert reason.source_line is not None
    assert "torch.sinc(t) * 2" in reason.source_line.code


def test_all_branches_of_cond_are_looked_into():
    def function(x):
        return torch.cond(x.sum() > 0, torch.cos, torch.sinc, (x,))

    (reason,) = reasons_for(function, ["sinc"], torch.ones(2)).values()
    assert reason.op == "higher_order.cond"


def test_unknown_names_are_refused():
    graph_module = traced(torch.exp)
    with pytest.raises(OptionError, match="did you mean 'sinc'"):
        find_unsupported(graph_module, ["sincc"])


def traced(operator) -> fx.GraphModule:
    graph = fx.Graph()
    x = graph.placeholder("x")
    y = graph.call_function(torch.sin, (x,))
    z = graph.call_function(operator, (y,))
    graph.output((graph.call_function(torch.cos, (z,)), y))
    return fx.GraphModule({}, graph)


def test_a_higher_order_operator_without_a_tracing_rule():
    found = find_unsupported(traced(running))
    (reason,) = found.values()
    assert reason.kind is SplitReasonKind.UNSUPPORTED_HIGHER_ORDER_OP
    assert "AOTAutograd has no rule" in reason.info
    assert "thunder_tests_running" in reason.info


def test_a_higher_order_operator_that_unfolds_itself_is_fine():
    assert find_unsupported(traced(Unfolding())) == {}


def test_an_operator_without_a_meta_kernel():
    found = find_unsupported(
        traced(torch.ops.thunder_tests.no_rule), example_inputs=[torch.ones(2)]
    )
    (node,), (reason,) = found, found.values()
    assert node.name == "no_rule"
    assert reason.kind is SplitReasonKind.NO_META_KERNEL
    assert reason.op == "thunder_tests.no_rule"
    assert reason.exception is not None
    assert "no_rule" in reason.exception


def needs_data(x):
    return x.sum().item() * x if bool(x.sum() > 0) else x


def test_a_function_that_cannot_run_on_fake_tensors():
    found = find_unsupported(traced(needs_data), example_inputs=[torch.ones(2)])
    (reason,) = found.values()
    assert reason.kind is SplitReasonKind.FAKE_TENSOR_FAILURE
    assert reason.op == "needs_data"
    assert reason.info == "needs_data cannot be run on fake tensors"
    assert reason.exception is not None
    assert "0x" not in str(reason)


def test_graphs_from_elsewhere_get_example_values():
    weight = torch.nn.Parameter(torch.ones(2))
    graph = fx.Graph()
    x = graph.placeholder("x")
    w = graph.get_attr("weight")
    y = graph.call_function(torch.mul, (x, w))
    graph.call_method("add_", (w, 1))
    graph.output((graph.call_function(torch.topk, (y, 1)),))
    graph_module = fx.GraphModule({"weight": weight}, graph)
    with torch.no_grad():
        assert propagate_example_values(graph_module, [torch.ones(3, 2)]) == {}
    values = {node.name: node.meta.get("example_value") for node in graph.nodes}
    assert values["mul"].shape == (3, 2)
    assert values["topk"][1].dtype is torch.int64
    assert torch.equal(weight, torch.ones(2)), "the real weight must not be changed"


def test_what_depends_on_a_failure_is_not_blamed():
    graph_module = traced(needs_data)
    (failed,) = propagate_example_values(graph_module, [torch.ones(2)])
    assert failed.name == "needs_data"
    with_values = [n.name for n in graph_module.graph.nodes if "example_value" in n.meta]
    assert with_values == ["x", "sin"]


def test_without_any_values_nothing_is_run():
    assert find_unsupported(traced(torch.exp), ["exp"]).keys()
    assert propagate_example_values(traced(torch.exp)) == {}


def test_reasons_are_the_same_in_every_run():
    error = RuntimeError("at <object object at 0x7f00aa11bb22>\nsecond line")
    reason = SplitReason(
        kind=SplitReasonKind.FAKE_TENSOR_FAILURE,
        info="f cannot be run on fake tensors",
        op="f",
        source_line=SourceLine("model.py", 3, "forward", "return f(x)"),
        exception=describe_exception(error),
    )
    assert str(reason) == (
        "fake tensor failure: f cannot be run on fake tensors at model.py:3 in forward: "
        "return f(x) [RuntimeError: at <object object at 0x...>]"
    )
    assert describe_exception(KeyError()) == "KeyError"
