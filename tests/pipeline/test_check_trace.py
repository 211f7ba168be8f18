"""Each stage is run against the one before; the first that changes the result is named."""

import pytest
import torch

import thunder
from thunder.errors import ExecutorError, FallbackWarning, TransformError
from thunder.executors import OperatorExecutor
from thunder.pipeline.check_trace import check_stages, require_faithful_stages
from thunder.trace import Direction

aten = torch.ops.aten


def _tanh_becomes_sin(graph_module):
    for node in graph_module.graph.nodes:
        if node.target is aten.tanh.default:
            node.target = aten.sin.default
    return graph_module


def _harmless(graph_module):
    graph_module.graph.lint()
    return graph_module


def _stages(function, x, **options):
    f = thunder.jit(function, **{"executors": ["aten"], **options})
    f(x)
    return thunder.last_traces(f)


def _function(x):
    return torch.nn.functional.dropout(x.exp().tanh(), 0.5)


def test_faithful_stages_with_dropout():
    x = torch.ones(64)
    check = check_stages(_stages(_function, x), [x])
    assert check.faithful
    assert check.direction is Direction.INFERENCE
    assert check.passes[-1] == "delete after last use"


def test_a_wrong_transform_is_named():
    x = torch.ones(64)
    traces = _stages(_function, x, transforms=[_harmless, _tanh_becomes_sin])
    check = check_stages(traces, [x])
    assert check.culprit is not None
    assert check.culprit.provenance.pass_name == "_tanh_becomes_sin"
    with pytest.raises(TransformError, match="pass '_tanh_becomes_sin' changes the result of the"):
        require_faithful_stages(traces, [x])


def test_a_wrong_executor_is_told_from_a_wrong_transform():
    wrong = OperatorExecutor("wrong", {aten.tanh: lambda x: x.tanh() * 1.01})
    x = torch.ones(64)
    with pytest.raises(ExecutorError, match="pass 'fusion' changes the result"):
        require_faithful_stages(_stages(_function, x, executors=[wrong, "aten"]), [x])


def test_inputs_and_random_state_are_as_before():
    x = torch.ones(8)
    traces = _stages(lambda x: x.add_(torch.rand_like(x)), x.clone())
    state = torch.get_rng_state()
    assert check_stages(traces, [x]).faithful
    assert torch.equal(x, torch.ones(8))
    assert torch.equal(torch.get_rng_state(), state)


def test_the_flag_checks_the_first_run_and_raises(monkeypatch):
    monkeypatch.setenv("THUNDER_REPRODUCERS", "off")
    f = thunder.jit(
        _function, executors=["aten"], transforms=[_tanh_becomes_sin], debug="check_trace"
    )
    with pytest.raises(TransformError, match="pass '_tanh_becomes_sin' changes the result"):
        f(torch.ones(64))


def test_the_flag_checks_the_backward_too(monkeypatch):
    monkeypatch.setenv("THUNDER_REPRODUCERS", "off")
    wrong = OperatorExecutor("wrong", {aten.tanh_backward: lambda g, y: g * (1 - y)})
    f = thunder.jit(torch.tanh, executors=[wrong, "aten"], debug="check_trace")
    y = f(torch.ones(64, requires_grad=True))
    with pytest.raises(ExecutorError, match="changes the result of the backward graph"):
        y.sum().backward()


def test_with_a_fallback_the_run_goes_on_by_a_plainer_way(monkeypatch):
    monkeypatch.setenv("THUNDER_REPRODUCERS", "off")
    f = thunder.thunderfx(
        torch.tanh, executors=["aten"], transforms=[_tanh_becomes_sin], debug="check_trace"
    )
    x = torch.ones(64)
    with pytest.warns(FallbackWarning, match="pass '_tanh_becomes_sin' changes the result"):
        result = f(x)
    assert torch.equal(result, x.tanh())


def test_without_the_flag_nothing_is_checked():
    f = thunder.jit(_function, executors=["aten"], transforms=[_tanh_becomes_sin])
    f(torch.ones(64))


def test_a_backward_kernel_that_reuses_saved_memory_raises_no_alarm():
    """Inductor's kernels write gradients over saved activations, which nobody needs any more."""
    first, last = torch.nn.Linear(8, 16), torch.nn.Linear(16, 4)
    model = torch.nn.Sequential(first, torch.nn.ReLU(), last)
    f = thunder.jit(
        lambda x, target: torch.nn.functional.cross_entropy(model(x), target), debug="check_trace"
    )
    f(torch.randn(4, 8), torch.arange(4)).backward()
    assert first.weight.grad is not None
