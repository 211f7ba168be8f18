"""Inductor regions that are a part of a graph take nothing over from the whole graph."""

from __future__ import annotations

import torch

import thunder
from thunder import thunderfx
from thunder.executors import OperatorExecutor

CUTTING = OperatorExecutor(
    "cutting",
    {"aten.tanh": torch.tanh, "aten.tanh_backward": torch.ops.aten.tanh_backward},
)
"""Cuts graphs into several regions for the executor after it."""


def program(x, w):
    a = torch.sin(x) * torch.cos(x)
    b = torch.tanh(a @ w)
    return (b.exp() * a.cos()).sin()


def test_regions_of_a_backward_graph_overwrite_nothing_that_is_read_later():
    """Which saved values may be overwritten is known by their places in the whole graph."""
    x, w = (torch.randn(64, 64, requires_grad=True) for _ in range(2))
    slope = torch.rand(64, 64)
    before = [value.detach().clone() for value in (x, w, slope)]
    f = thunderfx(program, executors=[CUTTING, "inductor"], on_failure="raise")
    gradients = torch.autograd.grad(f(x, w), (x, w), slope)
    torch.testing.assert_close(gradients, torch.autograd.grad(program(x, w), (x, w), slope))
    for value, copy in zip((x, w, slope), before, strict=True):
        assert torch.equal(value, copy)
    fusions = thunder.examine.get_fusion_symbols(thunder.last_backward_traces(f)[-1])
    assert len(fusions) > 1
