"""What the pipeline sees: worth, names, regions that run, inspection, kernels, models."""

from __future__ import annotations

import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM

from tests.executors.nvfuser import fake_nvfuser
from tests.executors.nvfuser.edges import LAYOUTS, compute, normal
from tests.executors.nvfuser.harness import compile_region, executor_for, trace
from thunder.dynamo import thunderfx
from thunder.dynamo.inspection import last_traces
from thunder.errors import ExecutorError
from thunder.executors.nvfuser import NvFuserExecutor
from thunder.executors.nvfuser.region import InputRecord


def nodes_of(function, *inputs):
    graph_module = trace(function, inputs or [normal(4, 6, device="cpu")])
    return [node for node in graph_module.graph.nodes if node.op == "call_function"]


@pytest.mark.parametrize(
    ("function", "reason"),
    [
        (lambda x: x.t()[1:].clone(), "views, copies and constants"),
        (lambda x: x.exp(), "a single operator"),
        (lambda x: x.t().exp().unsqueeze(0), "a single operator"),
        (lambda x: torch.ops.aten._softmax(x, 1, False), None),
        (lambda x: x.exp() + 1, None),
    ],
)
def test_worthwhile(function, reason):
    refusal = executor_for("cpu").worthwhile(nodes_of(function))
    assert refusal is None if reason is None else refusal is not None and reason in refusal.reason


def test_regions_on_several_devices_are_not_worthwhile():
    nodes = nodes_of(lambda x: x.exp() + 1)
    with torch._subclasses.FakeTensorMode() as mode:
        nodes[0].meta["val"] = mode.from_tensor(torch.empty(4, 6, device="meta"))
    refusal = executor_for("cpu").worthwhile(nodes)
    assert refusal is not None and "several devices" in refusal.reason


def test_names_and_limits():
    executor = executor_for("cpu")
    assert (executor.name, executor.fusion_stem) == ("nvfuser", "nv")
    assert executor.max_inputs == 96 and executor.max_nodes == 200


def test_layouts_other_than_traced_get_fusions_of_their_own():
    region = compile_region(compute, LAYOUTS["contiguous"][1]("cpu"))
    for name in ("contiguous", "row_slice", "contiguous", "transposed"):
        inputs = LAYOUTS[name][1]("cpu")
        (result,) = region(*inputs)
        torch.testing.assert_close(result, compute(*inputs))
        assert result.stride() == (6, 1)
    assert len(region.variants) == 3


def test_inspection_keeps_what_the_last_call_was_given():
    inputs = [normal(4, 6, device="cpu"), normal(4, 12, device="cpu")[:, ::2]]
    region = compile_region(compute, inputs)
    region(*inputs)
    assert region.last_inputs is None
    region.inspect = True
    region(*inputs)
    assert region.last_inputs is not None
    record = region.last_inputs[1]
    assert record == InputRecord(
        shape=(4, 6),
        stride=(12, 2),
        dtype=torch.float32,
        device=torch.device("cpu"),
        storage_offset=0,
    )
    assert compile_region(compute, inputs, inspect=True).inspect


def test_generated_code_shows_definition_and_kernels(monkeypatch):
    executor = executor_for("cpu")
    region = compile_region(compute, LAYOUTS["contiguous"][1]("cpu"))
    # The stand-ins for the inputs are made on the GPU.
    monkeypatch.setattr(type(region.variant), "_device", lambda self, entry: "cpu")
    text = executor.generated_code(region)
    assert text is not None
    assert text.index("fd.ops.tanh") < text.index("scheduled IR") < text.index("__global__")
    assert executor.generated_code(lambda: []) is None
    assert executor.fusion_source(region) is not None
    assert executor.fusion_source(lambda: []) is None


def test_nothing_to_compute_is_an_error():
    with pytest.raises(ExecutorError, match="nvFusion0 has nothing for nvFuser to compute"):
        compile_region(lambda x: x.t(), [normal(4, 6, device="cpu")])


def test_a_kernel_that_does_not_compile_is_an_error(monkeypatch):
    region = compile_region(compute, LAYOUTS["contiguous"][1]("cpu"))

    def fail(self, inputs, *, device=None):
        raise RuntimeError(
            " INTERNAL ASSERT FAILED at domain_map.cpp\nExpected any_bcast\nframe #0"
        )

    monkeypatch.setattr(fake_nvfuser.FusionDefinition, "execute", fail)
    with pytest.raises(ExecutorError, match="could not compile a fusion: INTERNAL ASSERT FAILED"):
        region(*LAYOUTS["contiguous"][1]("cpu"))


LLAMA = LlamaConfig(
    vocab_size=64,
    hidden_size=32,
    intermediate_size=48,
    num_hidden_layers=1,
    num_attention_heads=4,
    num_key_value_heads=2,
    use_cache=False,
)


def test_a_model_trains_as_in_eager():
    model = LlamaForCausalLM(LLAMA).train()
    ids = torch.randint(3, 64, (2, 16))
    expected = model(input_ids=ids, labels=ids).loss
    wanted = torch.autograd.grad(expected, list(model.parameters()))
    executor = NvFuserExecutor(device_type="cpu", library_module=fake_nvfuser)
    compiled = thunderfx(
        lambda ids: model(input_ids=ids, labels=ids).loss,
        executors=[executor],
        on_failure="raise",
    )
    loss = compiled(ids)
    torch.testing.assert_close(loss, expected)
    torch.testing.assert_close(torch.autograd.grad(loss, list(model.parameters())), wanted)
    assert any("= nvFusion0(" in trace.python() for trace in last_traces(compiled))
