"""What a region becomes: precision, exactness, memory, text."""

from __future__ import annotations

import sys

import pytest
import torch

from tests.executors.nvfuser import fake_nvfuser
from tests.executors.nvfuser.edges import normal
from tests.executors.nvfuser.harness import compile_graph, compile_region, executor_for, trace
from thunder.errors import ExecutorError
from thunder.executors.nvfuser.build import build
from thunder.executors.nvfuser.definition import Call, Definition
from thunder.executors.nvfuser.dtypes import rounded
from thunder.executors.nvfuser.source import print_definition

BF16 = torch.bfloat16
aten = torch.ops.aten


def operators(region):
    return [call.operator for call in region.variant.definition.calls]


def low(*shape):
    return normal(*shape, device="cpu", dtype=BF16)


def test_golden_definition():
    region = compile_region(
        lambda x, w: (aten._softmax(x * 0.1, -1, False), x.t() + w), [low(4, 6), low(4)]
    )
    assert (
        region.source().definition
        == """\
def nvfuser_fusion(fd: FusionDefinition) -> None:
    t0 = fd.define_tensor(shape=[4, 6], contiguity=[True, True], dtype=DataType.BFloat16, \
stride_order=[1, 0])
    t1 = fd.define_tensor(shape=[4], contiguity=[True], dtype=DataType.BFloat16, stride_order=[0])
    # mul
    t2 = fd.ops.cast(t0, DataType.Float)
    t3 = fd.ops.mul(t2, fd.define_scalar(0.1, dtype=DataType.Float))
    # _softmax
    t4 = fd.ops.max(t3, [1], True)
    t5 = fd.ops.sub(t3, t4)
    t6 = fd.ops.exp(t5)
    t7 = fd.ops.sum(t6, [1], True)
    t8 = fd.ops.truediv(t6, t7)
    # t
    t9 = fd.ops.permute(t0, [1, 0])
    # add
    t10 = fd.ops.cast(t9, DataType.Float)
    t11 = fd.ops.cast(t1, DataType.Float)
    t12 = fd.ops.add(t10, t11)
    # _softmax
    t13 = fd.ops.cast(t8, DataType.BFloat16)
    t14 = fd.ops.stride_order(t13, [1, 0])
    # add
    t15 = fd.ops.cast(t12, DataType.BFloat16)
    t16 = fd.ops.stride_order(t15, [0, 1])
    fd.add_output(t14)
    fd.add_output(t16)
"""
    )


def test_low_precision_is_rounded_once_at_the_end():
    region = compile_region(lambda x: ((x * 1.01).exp() * 0.99).sin(), [low(4, 6)])
    assert operators(region) == ["cast", "mul", "exp", "mul", "sin", "cast"]


def test_explicit_casts_between_smooth_operators_are_elided():
    region = compile_region(
        lambda x: x.to(BF16).to(torch.float32) * 2, [normal(4, 6, device="cpu")]
    )
    assert operators(region) == ["mul"]


def test_operators_that_jump_see_rounded_values():
    region = compile_region(lambda x: (x * 1.01) > 0.5, [low(4, 6)])
    assert operators(region) == ["cast", "mul", "cast", "cast", "gt"]
    loaded = compile_region(lambda x: x > 0.5, [low(4, 6)])
    assert operators(loaded) == ["cast", "gt"]


def test_constants_are_rounded_to_the_dtype_they_are_compared_in():
    region = compile_region(lambda x: x > 0.1, [low(4, 6)])
    assert f"fd.define_scalar({rounded(0.1, BF16)}, dtype=DataType.Float)" in (
        region.source().definition
    )


def test_data_movement_stays_in_low_precision():
    region = compile_region(lambda x: torch.cat([x[:, 1:3], x[:, :2]], 1) * 2, [low(4, 6)])
    assert operators(region) == ["slice", "slice", "cat", "cast", "mul", "cast"]


def test_constant_tensors_become_numbers_where_they_can():
    def masked(x):
        zero = torch.zeros((), dtype=x.dtype)
        return torch.where(x > 0, x, zero), x + torch.ones(4, 6)

    region = compile_region(masked, [normal(4, 6, device="cpu")])
    assert "full" not in operators(region)
    grown = compile_region(lambda x: x + torch.ones(4, 6), [normal(6, device="cpu")])
    assert "full" in operators(grown)


def test_one_kind_of_reduction_reads_a_tensor():
    region = compile_region(lambda x: (x.sum(0), x.amax(0), x.sum(1)), [normal(4, 6, device="cpu")])
    calls = region.variant.definition.calls
    readers = {call.operator: call.arguments[0].name for call in calls if call.operator != "set"}
    assert len(set(readers.values())) == 2


def test_expanded_values_are_made_real_before_they_change_shape():
    region = compile_region(
        lambda x: x.unsqueeze(1).expand(4, 3, 6).clone().view(12, 6) * 2,
        [normal(4, 6, device="cpu")],
    )
    assert operators(region) == ["broadcast", "broadcast_in_dim", "full", "mul", "reshape", "mul"]


def test_unused_inputs_are_not_passed():
    inputs = [normal(4, 6, device="cpu") for _ in range(3)]
    region = compile_region(lambda x, y, z: (x * z, y.t()), inputs)
    assert region.source().used_inputs == (0, 2)
    assert region.source().outputs == ("mul",)


def test_text_is_inert():
    graph_module = trace(lambda x: x * 2, [normal(4, 6, device="cpu")])
    node = next(node for node in graph_module.graph.nodes if node.op == "call_function")
    node._rename("x")
    object.__setattr__(node, "name", "x\nimport os; os.abort()#{}'\"")
    text = compile_graph(graph_module, executor_for("cpu")).source().definition
    assert "import os" not in text
    compile(text, "definition", "exec")


@pytest.mark.parametrize("number", [0.1, 1 / 3, float("inf"), float("-inf"), float("nan"), 1e-45])
def test_printed_source_runs_and_is_exact(number, monkeypatch):
    inputs = [normal(4, 6, device="cpu", dtype=torch.float64)]
    region = compile_region(lambda x: x * number + 1, inputs)
    monkeypatch.setitem(sys.modules, "nvfuser_direct", fake_nvfuser)
    source = region.source()
    scope = {"inputs": inputs}
    exec(source.script(), scope)
    (result,) = eval(source.execution, scope)
    assert torch.equal(result.nan_to_num(), (inputs[0] * number + 1).nan_to_num())


def test_a_lowering_that_fails_names_its_node():
    graph_module = trace(lambda x: x * 2, [normal(4, 6, device="cpu")])
    node = next(node for node in graph_module.graph.nodes if node.op == "call_function")
    node.args = (*node.args, "too many")
    with pytest.raises(ExecutorError, match=r"aten\.mul\.Tensor at mul could not be translated"):
        compile_graph(graph_module, executor_for("cpu"))


def test_a_graph_without_lowerings_is_an_error():
    graph_module = trace(aten.sinc, [normal(4, 6, device="cpu")])
    with pytest.raises(ExecutorError, match=r"aten\.sinc\.default at sinc has no translation"):
        compile_graph(graph_module, executor_for("cpu"))


def test_disagreement_with_nvfuser_is_an_error(capsys):
    """Were nvFuser to promote otherwise than recorded, results would have the wrong dtype."""
    region = compile_region(lambda x: x * 2, [normal(4, 6, device="cpu")])
    definition = region.variant.definition
    (call,) = definition.calls
    wrong = Call(operator="gt", arguments=call.arguments, results=call.results, origin=call.origin)
    broken = Definition(inputs=definition.inputs, calls=(wrong,), outputs=definition.outputs)
    with pytest.raises(ExecutorError, match="gt for mul gave"):
        build(broken, fake_nvfuser)
    unknown = Call(operator="nope", arguments=(), results=call.results, origin="mul")
    with pytest.raises(ExecutorError, match="nvFuser refused nope for mul: AttributeError"):
        build(Definition(inputs=(), calls=(unknown,), outputs=()), fake_nvfuser)
    assert capsys.readouterr() == ("", "")


def test_scalar_inputs_are_printed():
    text = print_definition(Definition(inputs=(), calls=(), outputs=()))
    assert text == "def nvfuser_fusion(fd: FusionDefinition) -> None:\n"
