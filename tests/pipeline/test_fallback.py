"""What happens when compiling or the first run of a graph fails."""

from __future__ import annotations

import warnings

import pytest
import torch
from torch import fx
from torch._inductor import config as inductor_config

from thunder.dynamo.compiler import ThunderCompiler
from thunder.errors import FallbackWarning
from thunder.executors import AbstractFusionExecutor, OperatorExecutor, Refusal, inductor


class Broken(AbstractFusionExecutor):
    """Fails when compiling, when run, or returns something else than promised."""

    def __init__(self, fault: str, direction: str = "") -> None:
        self.fault = fault
        self.direction = direction

    @property
    def name(self) -> str:
        return "broken"

    def check(self, node: fx.Node) -> Refusal | None:
        return None

    def compile(self, graph_module, example_inputs, context):
        if self.direction not in ("", context.direction):
            return graph_module
        if self.fault == "compile":
            raise RuntimeError("injected: compile")
        if self.fault == "run":
            return _raise
        return _Wrong(graph_module, self.fault)


class _Wrong:
    def __init__(self, graph_module, fault):
        self.graph_module, self.fault = graph_module, fault

    def __call__(self, *inputs):
        outputs = list(self.graph_module(*inputs))
        for index, value in enumerate(outputs):
            if isinstance(value, torch.Tensor):
                wrong = value.double() if self.fault == "dtype" else value[..., None]
                outputs[index] = wrong
                break
        return outputs


def _raise(*inputs):
    raise RuntimeError("injected: run")


def function(x, buffer):
    y = torch.sin(x) * 3
    buffer.add_(y.detach())
    return y + torch.rand_like(x)


def run(f):
    torch.manual_seed(3)
    x = torch.linspace(0, 1, 4).requires_grad_()
    buffer = torch.ones(4)
    out = f(x, buffer)
    out.sum().backward()
    return out.detach(), x.grad, buffer, torch.rand(1)


@pytest.mark.parametrize("direction", ["forward", "backward"])
@pytest.mark.parametrize("fault", ["compile", "run", "dtype", "shape"])
def test_a_failing_executor_leaves_results_as_in_eager(fault, direction):
    expected = run(function)
    backend = ThunderCompiler(
        executors=[Broken(fault, direction)], options={"fallback_random": True}
    )
    with pytest.warns(FallbackWarning) as caught:
        got = run(torch.compile(function, backend=backend))
    assert len(caught) == 1
    assert f"the {direction} graph" in str(caught[0].message)
    torch.testing.assert_close(got, expected)
    (failure,) = backend.regions[0].failures
    assert failure.stage == ("compile" if fault == "compile" else "first run")


@pytest.mark.parametrize("fault", ["run", "dtype", "shape"])
def test_raise_names_graph_executor_and_line(fault):
    backend = ThunderCompiler(executors=[Broken(fault)], on_failure="raise")
    with pytest.raises(
        Exception, match=r"(?s)brokenFusion0 of executor 'broken'.*test_fallback"
    ) as e:
        run(torch.compile(function, backend=backend))
    assert "in the forward graph" in str(e.value)


def test_a_failing_operator_is_named():
    def bad(x):
        raise ValueError("no")

    executor = OperatorExecutor("mine", {"aten.sin": bad})
    backend = ThunderCompiler(executors=[executor], on_failure="raise")
    with pytest.raises(
        Exception, match=r"(?s)mine_sin \(for aten.sin.default\).*torch.sin\(x\) \* 3"
    ):
        run(torch.compile(function, backend=backend))


def test_a_failing_transform_is_named_and_left_out():
    def bad(graph_module):
        raise ValueError("no")

    backend = ThunderCompiler(executors=["aten"], transforms=[bad])
    with pytest.warns(FallbackWarning, match="transform 'bad' failed") as caught:
        got = run(torch.compile(function, backend=backend))
    assert len(caught) == 1  # the backward graph failed for the same reason
    torch.testing.assert_close(got, run(function))


def insert_after(target, operator, *arguments):
    """Returns a transform that puts an operator between a node and those that use it."""

    def changes(graph_module):
        for node in list(graph_module.graph.nodes):
            if node.target is target:
                with graph_module.graph.inserting_after(node):
                    new = graph_module.graph.call_function(operator, (node, *arguments))
                node.replace_all_uses_with(
                    new, delete_user_cb=lambda user, new=new: user is not new
                )

    return changes


ATEN = torch.ops.aten


@pytest.mark.parametrize("executors", [["aten"], ["inductor"]], ids=["aten", "inductor"])
@pytest.mark.parametrize(
    "transform",
    [
        insert_after(ATEN.sin.default, ATEN.slice.Tensor, 0, 0, 1),
        insert_after(ATEN.sin.default, ATEN.unsqueeze.default, 0),
        insert_after(ATEN.cos.default, ATEN.unsqueeze.default, 0),
        insert_after(ATEN.mul.Tensor, torch.ops.prims.convert_element_type.default, torch.float64),
    ],
    ids=["shape", "rank", "backward", "dtype"],
)
def test_a_transform_that_changes_what_is_returned_is_left_out(transform, executors, monkeypatch):
    def function(x):
        return torch.sin(x) * 3

    monkeypatch.setenv("THUNDER_REPRODUCERS", "off")
    x = torch.linspace(0, 1, 4).requires_grad_()
    backend = ThunderCompiler(executors=executors, transforms=[transform])
    f = torch.compile(function, backend=backend)
    with pytest.warns(FallbackWarning, match="AOTAutograd promised|the graph promises|failed"):
        got = f(x)
        (gradient,) = torch.autograd.grad(got.sum(), x)
    torch.testing.assert_close(got, function(x))
    torch.testing.assert_close(gradient, torch.cos(x) * 3)


def test_raise_says_what_a_transform_changed():
    transform = insert_after(ATEN.sin.default, ATEN.slice.Tensor, 0, 0, 1)
    backend = ThunderCompiler(executors=["aten"], transforms=[transform], on_failure="raise")
    with pytest.raises(
        Exception,
        match=r"returned cpu f32\[1\] as output 0, and AOTAutograd promised cpu f32\[4\]",
    ):
        run(torch.compile(lambda x, buffer: torch.sin(x) * 3, backend=backend))


def test_nothing_is_warned_of_when_nothing_fails():
    backend = ThunderCompiler(executors=["aten"])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        got = run(torch.compile(function, backend=backend))
    torch.testing.assert_close(got, run(function))


def test_a_kernel_that_returns_another_dtype_than_its_fake_is_no_fault():
    """Layer normalization of bfloat16 by float32 weights returns float32 statistics on a CPU."""
    norm = torch.nn.LayerNorm(8)
    x = torch.randn(2, 8, dtype=torch.bfloat16, requires_grad=True)
    backend = ThunderCompiler(executors=["aten"], on_failure="raise")
    got = torch.compile(norm, backend=backend)(x)
    torch.testing.assert_close(got, norm(x))
    gradients = torch.autograd.grad(got.sum(), (x, norm.weight))
    torch.testing.assert_close(gradients, torch.autograd.grad(norm(x).sum(), (x, norm.weight)))


def test_what_is_compiled_at_a_first_run_has_the_users_inductor_settings(monkeypatch):
    seen = []
    compile_fx_inner = inductor.compile_fx_inner

    def note(*args, **kwargs):
        seen.append((inductor_config.fallback_random, inductor_config.epilogue_fusion))
        return compile_fx_inner(*args, **kwargs)

    monkeypatch.setattr(inductor, "compile_fx_inner", note)
    settings = {"fallback_random": True, "epilogue_fusion": False}
    backend = ThunderCompiler(executors=[Broken("run", "forward")], options=settings)
    with pytest.warns(FallbackWarning, match="It goes on by Inductor"):
        run(torch.compile(function, backend=backend))
    assert seen == [(True, False)]
