"""The first wrong operator is named, and rounding is no alarm."""

from pathlib import Path

import pytest
import torch
from torch import nn
from torch._inductor import config as inductor_config

import thunder
import thunder.debug
from tests.diagnose import faults
from tests.diagnose.models import TANH_LINE, Model
from thunder.diagnose import find_divergence, recording
from thunder.dynamo.splitter import split_graph
from thunder.executors import OperatorExecutor
from thunder.repro import Status
from thunder.trace import Direction

TOKENS = torch.arange(6)


def _find(f, *args, **options):
    return find_divergence(f, *args, compile_options={"executors": ["aten"], **options})


def _found(f, *args, **options):
    found = _find(f, *args, **options)
    assert found is not None
    return found


def _assert_names_the_line(found):
    assert found.line.file.endswith("models.py")
    assert found.line.line == TANH_LINE
    assert found.compiled_distance.rms > 10 * found.eager_distance.rms


def test_a_wrong_operator_of_an_executor_forward():
    found = _found(Model(), TOKENS, executors=[faults.WRONG_TANH, "aten"])
    assert (found.operator, found.executor) == ("aten.tanh.default", "wrong_tanh")
    assert found.direction is Direction.FORWARD
    _assert_names_the_line(found)


def test_a_wrong_operator_of_an_executor_backward():
    found = _found(Model(), TOKENS, executors=[faults.WRONG_TANH_BACKWARD, "aten"])
    assert found.operator == "aten.tanh_backward.default"
    assert found.direction is Direction.BACKWARD
    _assert_names_the_line(found)


def test_a_wrong_transform_is_named_with_the_operator_and_the_line():
    found = _found(Model(), TOKENS, transforms=[faults.tanh_becomes_sin])
    assert (found.pass_name, found.node, found.executor) == ("tanh_becomes_sin", "tanh", None)
    _assert_names_the_line(found)
    assert "models.py" in str(found)
    assert "pass 'tanh_becomes_sin'" in str(found)


def test_a_wrong_operator_after_a_graph_break():
    class Broken(nn.Module):
        def __init__(self):
            super().__init__()
            self.model = Model()

        def forward(self, tokens):
            x = self.model.embedding(tokens).relu()
            torch._dynamo.graph_break()
            return self.model.blocks[1](x)

    found = _found(Broken(), TOKENS, executors=[faults.WRONG_TANH, "aten"])
    assert (found.graph_index, found.operator) == (1, "aten.tanh.default")


def test_a_healthy_model_with_dropout_raises_no_alarm():
    model = Model()
    before = torch.get_rng_state()
    assert _find(model, TOKENS) is None
    assert torch.equal(torch.get_rng_state(), before)
    assert all(parameter.grad is None for parameter in model.parameters())


@pytest.mark.parametrize(
    "function",
    [
        lambda x: x.softmax(-1),
        lambda x: nn.functional.layer_norm(x, x.shape[-1:]),
        lambda x: x.sum() / x.flatten().cumsum(0),
        lambda x: nn.functional.dropout(x, 0.5),
    ],
    ids=["softmax", "layer norm", "long sum", "dropout"],
)
def test_bfloat16_raises_no_alarm(function):
    x = torch.randn(32, 512).bfloat16().requires_grad_()
    assert _find(function, x) is None


def test_inputs_and_buffers_are_as_before():
    norm = nn.BatchNorm1d(4)
    model = nn.Sequential(norm, nn.ReLU())
    x = torch.randn(8, 4)
    mean = norm.get_buffer("running_mean")
    kept = x.clone(), mean.clone()
    assert find_divergence(model, x, compile_options={"executors": ["aten"]}) is None
    assert torch.equal(x, kept[0])
    assert torch.equal(mean, kept[1])
    assert find_divergence(lambda x: x.add_(1), x, compile_options={"executors": ["aten"]}) is None
    assert torch.equal(x, kept[0])


def test_a_compiled_function_is_checked_with_its_own_options():
    f = thunder.jit(lambda x: x.exp().tanh(), executors=[faults.WRONG_TANH, "aten"])
    x = torch.ones(3)
    f(x)
    found = thunder.debug.find_divergence(f, x)
    assert found is not None
    assert (found.operator, found.direction) == ("aten.tanh.default", Direction.INFERENCE)


def test_the_script_shows_it(tmp_path, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[2]))
    found = find_divergence(
        Model(),
        TOKENS,
        compile_options={"executors": [faults.WRONG_TANH, "aten"]},
        script_folder=tmp_path,
    )
    assert found is not None
    assert found.script is not None
    assert found.script_verdict is not None
    assert found.script == tmp_path / "graph0_forward_divergence.py"
    assert "torch.ops.aten.tanh.default" in found.script.read_text()
    assert found.script_verdict.status is Status.CONFIRMED


def test_a_wrong_kernel_of_inductor_is_found_inside_its_region():
    def function(x):
        return (x.sin() * 2).relu().cos() + x

    options = {
        "executors": ["inductor"],
        "options": {"cpp.inject_relu_bug_TESTING_ONLY": "accuracy"},
    }
    with inductor_config.patch({"cpp.inject_relu_bug_TESTING_ONLY": "accuracy"}):
        found = find_divergence(function, torch.randn(64), compile_options=options)
    assert found is not None
    assert found.operator == "aten.relu.default"
    assert (found.region, found.executor) == ("inductorFusion0", "inductor")
    assert "(x.sin() * 2).relu()" in str(found.line)


@pytest.mark.parametrize(
    ("fault", "operator", "direction"),
    [
        (faults.WRONG_TANH, "aten.tanh.default", Direction.FORWARD),
        (faults.WRONG_TANH_BACKWARD, "aten.tanh_backward.default", Direction.BACKWARD),
    ],
    ids=["forward", "backward"],
)
def test_a_wrong_operator_in_block_two_between_kernels_of_inductor(fault, operator, direction):
    found = _found(Model().eval(), TOKENS, executors=[fault, "inductor", "aten"])
    assert (found.operator, found.direction) == (operator, direction)
    assert found.executor == fault.name
    _assert_names_the_line(found)


def test_a_wrong_transform_with_the_default_executors():
    found = _found(Model().eval(), TOKENS, executors="auto", transforms=[faults.tanh_becomes_sin])
    assert (found.pass_name, found.node) == ("tanh_becomes_sin", "tanh")
    _assert_names_the_line(found)


@pytest.mark.parametrize(
    ("fault", "operator", "direction"),
    [
        (faults.WRONG_TANH, "aten.tanh.default", Direction.FORWARD),
        (faults.WRONG_TANH_BACKWARD, "aten.tanh_backward.default", Direction.BACKWARD),
    ],
    ids=["forward", "backward"],
)
def test_a_wrong_operator_in_a_partition_of_a_split_graph(fault, operator, direction):
    found = _found(Model().eval(), TOKENS, executors=[fault, "aten"], exclude_ops=[torch.relu])
    assert (found.operator, found.direction, found.graph_index) == (operator, direction, 0)
    assert found.part == "thunder_2"
    assert "of thunder_2 of Dynamo graph 0" in str(found)
    _assert_names_the_line(found)


def test_a_wrong_kernel_in_an_inductor_partition(tmp_path):
    def function(x):
        return (x.sin() * 2).relu().cos() + x

    with inductor_config.patch({"cpp.inject_relu_bug_TESTING_ONLY": "accuracy"}):
        found = _found(function, torch.randn(64), exclude_ops=["relu"])
    assert (found.part, found.operator) == ("inductor_1", "aten.relu.default")
    assert (found.region, found.executor) == ("inductorFusion0", "inductor")
    assert "(x.sin() * 2).relu()" in str(found.line)


def test_a_healthy_split_model_raises_no_alarm():
    assert _find(Model().eval(), TOKENS, exclude_ops=[torch.relu]) is None


def test_a_wrong_split_is_told_apart(monkeypatch):
    def wrong_split(graph_module, unsupported):
        for node in graph_module.graph.find_nodes(op="call_method", target="cos"):
            node.target = "sin"
        graph_module.recompile()
        split = split_graph(graph_module, unsupported)
        for node in graph_module.graph.find_nodes(op="call_method", target="sin")[1:]:
            node.target = "cos"
        return split

    monkeypatch.setattr(recording, "split_graph", wrong_split)
    found = _found(lambda x: x.sin().sinc().cos(), torch.randn(8), exclude_ops=["sinc"])
    assert (found.pass_name, found.operator, found.direction) == ("split", "", Direction.FORWARD)
    assert "the graph as a whole gives a wrong result" in str(found)


def _negate_tanh(graph):
    """A wrong pass of a user's, which Inductor runs before AOTAutograd."""
    for node in list(graph.nodes):
        if node.target in (torch.tanh, "tanh"):
            with graph.inserting_after(node):
                negative = graph.call_function(torch.neg, (node,))
            node.replace_all_uses_with(negative, lambda user, new=negative: user is not new)


def test_a_pass_before_autograd_is_named_with_operator_and_line():
    with inductor_config.patch(pre_grad_custom_pass=_negate_tanh):
        found = _found(Model().eval(), TOKENS, executors="auto")
    assert found.pass_name == "AOTAutograd and the passes before it"
    assert (found.operator, found.direction) == ("tanh", Direction.FORWARD)
    _assert_names_the_line(found)


def test_a_later_call_of_the_same_graph():
    wrong = OperatorExecutor("wrong", {torch.ops.aten.relu: lambda x: x.clamp(min=-0.5)})

    class Loop(nn.Module):
        def forward(self, x):
            for factor in (1.0, -1.0):
                x = self.step(x, torch.tensor(factor))
            return x

        def step(self, x, factor):
            torch._dynamo.graph_break()
            return (x.abs() * factor).relu()

    found = _found(Loop(), torch.ones(4), executors=[wrong, "aten"])
    assert (found.operator, found.executor) == ("aten.relu.default", "wrong")
    assert found.call > 0
    assert f"in call {found.call + 1} of it" in str(found)


def test_bfloat16_and_dropout_raise_no_alarm_with_the_default_executors():
    def function(x):
        y = nn.functional.layer_norm(x.softmax(-1), x.shape[-1:])
        return nn.functional.dropout(y, 0.5), x.sum(), (x * y).mean(0)

    x = torch.randn(32, 512).bfloat16().requires_grad_()
    assert find_divergence(function, x) is None


def _tanh_under_another_name(graph_module):
    """A wrong transform whose nodes have new names up to the end."""
    (node,) = graph_module.graph.find_nodes(op="call_function", target=torch.ops.aten.tanh.default)
    with graph_module.graph.inserting_after(node):
        new = graph_module.graph.call_function(torch.ops.aten.sin.default, node.args)
        new.name = "other"
        new.meta["val"] = node.meta["val"]
    node.replace_all_uses_with(new)
    graph_module.graph.erase_node(node)
    return graph_module


def test_a_wrong_transform_of_the_last_operator():
    found = _found(lambda x: x.exp().tanh(), torch.ones(3), transforms=[_tanh_under_another_name])
    assert (found.pass_name, found.operator) == ("_tanh_under_another_name", "aten.sin.default")
    assert "x.exp().tanh()" in str(found.line)


def test_a_healthy_model_with_the_default_executors_raises_no_alarm():
    assert find_divergence(Model(), TOKENS) is None
