"""Symbolic sizes: one fusion serves them all, whatever the sizes are when it runs."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

from tests.executors.nvfuser import fake_nvfuser
from tests.executors.nvfuser.edges import normal
from tests.executors.nvfuser.harness import (
    compare,
    compiled_by_aot,
    differentiated,
    executor_for,
    with_reference,
)
from thunder.errors import ExecutorError
from thunder.executors.nvfuser import NvFuserRegion


def norm_and_views(x, w):
    y = F.gelu(F.layer_norm(x * 2, (16,), w))
    return y.reshape(-1, 16) + x.reshape(-1, 16).sum(0)


def attention_scores(x, w):
    scores = (x * w).unsqueeze(1).expand(-1, 3, -1, -1)
    return F.softmax(scores, -1).transpose(1, 2)


def sizes_as_numbers(x, w):
    return x * x.shape[0] + w / (x.shape[0] * 2 + 1)


def filled(x, w):
    return x + torch.ones(x.shape[0], 1, 1, device=x.device) * w


FUNCTIONS = [norm_and_views, attention_scores, sizes_as_numbers, filled]
BATCHES = (4, 7, 4, 33)


def check(function, device, training):
    compiled, regions = compiled_by_aot(function, executor_for(device), dynamic=True)
    run = differentiated if training else lambda function, given: [function(*given)]
    for batch in BATCHES:
        inputs = [normal(batch, 5, 16, device=device), normal(16, device=device)]
        with torch.set_grad_enabled(training):
            expected, reference = with_reference(lambda *given: run(function, given), inputs)
            compare(run(compiled, inputs), expected, reference, exact_strides=False)
    assert regions
    assert all(len(region.variants) == 1 for region in regions)
    return regions


@pytest.mark.parametrize("function", FUNCTIONS)
@pytest.mark.parametrize("training", [True, False])
def test_agrees_with_eager(function, training):
    check(function, "cpu", training)


def test_nothing_is_guarded():
    """Asking for a size would specialise the user's function to it."""
    regions = check(norm_and_views, "cpu", training=True)
    fakes = [
        node.meta["val"] for node in regions[0].graph_module.graph.find_nodes(op="placeholder")
    ]
    env = next(f.fake_mode.shape_env for f in fakes if isinstance(f, torch.Tensor))
    assert any(
        isinstance(size, torch.SymInt) for f in fakes if hasattr(f, "shape") for size in f.shape
    )
    assert not [guard for guard in env.guards if "== 4" in str(guard.expr)]


def first_call():
    compiled, regions = compiled_by_aot(norm_and_views, executor_for("cpu"), dynamic=True)
    with torch.no_grad():
        compiled(normal(4, 5, 16, device="cpu"), normal(16, device="cpu"))
    return regions[0]


def test_size_one_is_another_fusion():
    region = first_call()
    inputs = [normal(1, 5, 16, device="cpu"), normal(16, device="cpu")]
    batch = (
        [1]
        if isinstance(
            region.graph_module.graph.find_nodes(op="placeholder")[0].meta["val"], torch.SymInt
        )
        else []
    )
    region(*batch, *inputs)
    assert len(region.variants) == 2


def test_source_before_the_first_call_is_an_error():
    graph_module = first_call().graph_module
    fakes = [node.meta["val"] for node in graph_module.graph.find_nodes(op="placeholder")]
    region = NvFuserRegion("nvFusion1", graph_module, fakes, fake_nvfuser)
    with pytest.raises(ExecutorError, match="symbolic sizes"):
        region.source()
