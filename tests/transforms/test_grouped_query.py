"""Keys and values that are repeated for attention, after the transform."""

from __future__ import annotations

import pytest
import torch
from torch.nn.functional import scaled_dot_product_attention as attention
from torch.utils.checkpoint import checkpoint

from thunder.transforms.attention_call import attention_call
from thunder.transforms.attention_mask import AttentionMaskTransform
from thunder.transforms.grouped_query import GroupedQueryTransform

HEADS, SHARED, LENGTH = 6, 2, 5
TIMES = HEADS // SHARED


class Compiled:
    """A function compiled by a backend that applies the transform, and its captured graph."""

    def __init__(self, function, *, masks=False, shares=True, **options):
        self.graphs: list[torch.fx.GraphModule] = []
        self.changed: list[bool] = []
        self.calls: list = []
        self.masks = masks
        self.shares = shares
        self.function = torch.compile(function, backend=self._backend, fullgraph=True, **options)

    def _may_share(self, call):
        self.calls.append(call)
        return self.shares

    def _backend(self, graph_module, inputs):
        if self.masks:
            AttentionMaskTransform().apply(graph_module)
        after, changed = GroupedQueryTransform(self._may_share).apply(graph_module)
        after.graph.lint()
        after.recompile()
        self.graphs.append(after)
        self.changed.append(changed)
        return after

    @property
    def targets(self):
        return [
            node.target
            for graph in self.graphs
            for module in graph.modules()
            if isinstance(module, torch.fx.GraphModule)
            for node in module.graph.nodes
        ]


def qkv(length=LENGTH):
    return [
        torch.randn(2, heads, length, 8, requires_grad=True) for heads in (HEADS, SHARED, SHARED)
    ]


def agrees(function, *args, **options):
    compiled = Compiled(function, **options)
    results = []
    for call in (function, compiled.function):
        copies = [arg.detach().clone().requires_grad_() for arg in args]
        result = call(*copies)
        gradients = torch.autograd.grad(result.square().sum(), copies)
        results.append([result, *gradients])
    torch.testing.assert_close(results[1], results[0])
    return compiled


def transformers_way(x):
    batch, heads, length, features = x.shape
    x = x[:, :, None, :, :].expand(batch, heads, TIMES, length, features)
    return x.reshape(batch, heads * TIMES, length, features)


REPEATED = {
    "transformers": transformers_way,
    "unsqueeze": lambda x: x.unsqueeze(2).expand(-1, -1, TIMES, -1, -1).flatten(1, 2),
    "method": lambda x: x.repeat_interleave(TIMES, dim=1),
    "function": lambda x: torch.repeat_interleave(x, TIMES, -3),
}


@pytest.mark.parametrize("name", REPEATED)
def test_repeated_keys_are_shared(name):
    repeat = REPEATED[name]
    compiled = agrees(lambda q, k, v: attention(q, repeat(k), repeat(v), is_causal=True), *qkv())
    assert compiled.changed == [True]
    (graph,) = compiled.graphs
    (node,) = graph.graph.find_nodes(op="call_function", target=attention)
    assert node.kwargs == {"is_causal": True, "enable_gqa": True}
    call = attention_call(node)
    assert call is not None
    assert [call.key.op, call.value.op] == ["placeholder", "placeholder"]
    assert compiled.calls == [call]


def test_what_repeated_them_is_removed():
    compiled = agrees(
        lambda q, k, v: attention(q, transformers_way(k), transformers_way(v)), *qkv()
    )
    assert not {"expand", "reshape"} & set(compiled.targets)


def test_after_the_mask_is_gone():
    def attend(q, k, v):
        mask = torch.ones(LENGTH, LENGTH, dtype=torch.bool).tril()
        return attention(q, transformers_way(k), transformers_way(v), attn_mask=mask)

    assert agrees(attend, *qkv(), masks=True).changed == [True]
    torch._dynamo.reset()
    assert agrees(attend, *qkv(), masks=False).changed == [False], "kernels take no mask then"


def test_kernels_that_would_repeat_them_themselves():
    def attend(q, k, v):
        return attention(q, transformers_way(k), transformers_way(v))

    assert agrees(attend, *qkv(), shares=False).changed == [False]


LEFT = {
    "tiled, not interleaved": lambda x: x.repeat(1, TIMES, 1, 1),
    "tiled by expanding": lambda x: x[:, None].expand(-1, TIMES, -1, -1, -1).flatten(1, 2),
    "another order": lambda x: (
        x.flip(1)[:, :, None].expand(-1, -1, TIMES, -1, -1).mul(1).flatten(1, 2)
    ),
    "picked heads": lambda x: x[:, torch.tensor([0, 0, 0, 1, 1, 0])],
    "permuted while inserting": lambda x: (
        x[:, torch.tensor([1, 0]), None].expand(-1, -1, TIMES, -1, -1).flatten(1, 2)
    ),
    "along another dimension": lambda x: x.repeat_interleave(TIMES, dim=2)[:, :, :LENGTH].repeat(
        1, TIMES, 1, 1
    ),
}


@pytest.mark.parametrize("name", LEFT)
def test_other_keys_are_left(name):
    other = LEFT[name]

    def attend(q, k, v):
        return attention(q, other(k), transformers_way(v))

    assert agrees(attend, *qkv()).changed == [False]


def test_written_after_it_was_copied():
    def attend(q, k, v):
        k = k * 1
        keys, values = transformers_way(k), transformers_way(v)
        k.zero_()
        return attention(q, keys, values) + k.sum()

    assert agrees(attend, *qkv()).changed == [False]


def test_dynamic_sizes():
    def attend(q, k, v):
        return attention(q, transformers_way(k), transformers_way(v), is_causal=True)

    compiled = Compiled(attend)
    for length in (5, 9, 3):
        args = qkv(length)
        for arg in args:
            torch._dynamo.mark_dynamic(arg, 2)
        torch.testing.assert_close(compiled.function(*args), attend(*args))
    assert compiled.changed == [True]


def test_inside_checkpoints():
    def layer(q, k, v):
        return attention(q, transformers_way(k), transformers_way(v), is_causal=True)

    def attend(q, k, v):
        return checkpoint(layer, q, k, v, use_reentrant=False)

    assert agrees(attend, *qkv()).changed == [True]


def test_nothing_shares_on_other_devices():
    """torch's own choice: here there is no CUDA device."""
    changed = []

    def backend(graph_module, inputs):
        changed.append(GroupedQueryTransform().apply(graph_module)[1])
        return graph_module

    q, k, v = qkv()
    torch.compile(
        lambda q, k, v: attention(q, transformers_way(k), transformers_way(v)), backend=backend
    )(q, k, v)
    assert changed == [False]
