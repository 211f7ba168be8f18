"""Symbolic sizes: one fusion serves them all, whatever the sizes are when it runs."""

from __future__ import annotations

import pytest
import torch

from tests.executors.nvfuser import fake_nvfuser
from tests.executors.nvfuser.edges import normal
from tests.executors.nvfuser.harness import compiled_by_aot, executor_for
from tests.executors.nvfuser.symbolic_programs import FUNCTIONS, check, norm_and_views
from thunder.errors import ExecutorError
from thunder.executors.nvfuser import NvFuserRegion


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
    region(*inputs)
    assert len(region.variants) == 2


def test_source_before_the_first_call_is_an_error():
    graph_module = first_call().graph_module
    fakes = [node.meta["val"] for node in graph_module.graph.find_nodes(op="placeholder")]
    region = NvFuserRegion("nvFusion1", graph_module, fakes, fake_nvfuser)
    with pytest.raises(ExecutorError, match="symbolic sizes"):
        region.source()
