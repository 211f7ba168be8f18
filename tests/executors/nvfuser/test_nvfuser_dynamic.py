"""Symbolic sizes: one fusion serves them all, whatever the sizes are when it runs."""

from __future__ import annotations

import pytest
import sympy
import torch
from torch._subclasses.fake_tensor import FakeTensor

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
    placeholders = regions[0].graph_module.graph.find_nodes(op="placeholder")
    fakes = [node.meta["val"] for node in placeholders]
    fake = next(fake for fake in fakes if isinstance(fake, FakeTensor) and fake.ndim == 3)
    assert specialised(fake) == ["16"]  # by F.layer_norm's own check
    int(fake.shape[0])
    assert specialised(fake) == ["16", "4"]


def specialised(fake: FakeTensor) -> list[str]:
    shape_env = fake.fake_mode.shape_env
    assert shape_env is not None
    expressions = [guard.expr for guard in shape_env.guards]
    return [str(e.rhs) for e in expressions if isinstance(e, sympy.Eq) and e.rhs.is_Integer]


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
