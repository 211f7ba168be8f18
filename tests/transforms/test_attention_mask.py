"""Attention that is handed a mask tensor, after the transform: same results, native masks."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.nn.functional import scaled_dot_product_attention as attention
from torch.utils.checkpoint import checkpoint

from thunder.transforms.attention_mask import AttentionMaskTransform, mask_findings
from thunder.transforms.base import Stage
from thunder.transforms.masks.forms import MaskForm

inf = float("inf")
SMALLEST = torch.finfo(torch.float32).min
LENGTH = 6


class Compiled:
    """A function compiled by a backend that applies the transform, and what was compiled."""

    def __init__(self, function, **options):
        self.graphs: list[torch.fx.GraphModule] = []
        self.changed: list[bool] = []
        self.function = torch.compile(function, backend=self._backend, fullgraph=True, **options)

    def _backend(self, graph_module, inputs):
        after, changed = AttentionMaskTransform().apply(graph_module)
        assert after is graph_module
        after.graph.lint()
        self.graphs.append(after)
        self.changed.append(changed)
        after.recompile()
        return torch._dynamo.lookup_backend("aot_eager")(after, inputs)

    def __call__(self, *args, **kwargs):
        return self.function(*args, **kwargs)

    @property
    def findings(self):
        return [finding for graph in self.graphs for finding in mask_findings(graph)]

    @property
    def forms(self):
        return [finding.form for finding in self.findings]

    @property
    def rewritten(self):
        return [finding.rewritten for finding in self.findings]


def heads(length=LENGTH, *, heads=2, batch=2, dtype=torch.float32, grad=True):
    """Query, key or value."""
    return torch.randn(batch, heads, length, 8, dtype=dtype, requires_grad=grad)


def agrees(function, *args, **options):
    """Compiles, and compares results and gradients with eager's."""
    compiled = Compiled(function, **options)
    results = []
    for call in (function, compiled):
        copies = [arg.detach().clone().requires_grad_(arg.requires_grad) for arg in args]
        result = call(*copies)
        if result.requires_grad:
            result.square().sum().backward()
        results.append([result, *[copy.grad for copy in copies]])
    torch.testing.assert_close(results[1], results[0])
    return compiled


def positions(*, batch=1):
    q = torch.arange(LENGTH)[None, None, :, None]
    k = torch.arange(LENGTH)[None, None, None, :]
    return q, k, batch


def llama_of_old():
    """transformers 4.40: a triangle of the smallest number, times a comparison."""
    mask = torch.full((LENGTH, LENGTH), SMALLEST)
    mask = torch.triu(mask, diagonal=1)
    mask *= torch.arange(LENGTH) > torch.arange(LENGTH).reshape(-1, 1) - 100
    return mask[None, None, :, :].expand(2, 1, -1, -1)


def llama_of_older():
    """transformers 4.30: a full tensor, written to where a position may attend."""
    mask = torch.full((LENGTH, LENGTH), SMALLEST)
    condition = torch.arange(mask.size(-1))
    mask.masked_fill_(condition < (condition + 1).view(mask.size(-1), 1), 0)
    return mask[None, None, :, :].expand(2, 1, LENGTH, LENGTH)


CAUSAL = {
    "tril": lambda: torch.ones(LENGTH, LENGTH, dtype=torch.bool).tril(),
    "positions": lambda: torch.arange(LENGTH)[:, None] >= torch.arange(LENGTH)[None],
    "transformers": lambda: (
        torch.arange(LENGTH)[None, None, None, :] <= torch.arange(LENGTH)[None, None, :, None]
    ).expand(2, -1, LENGTH, LENGTH),
    "inverted triu": lambda: ~torch.ones(LENGTH, LENGTH).triu(diagonal=1).bool(),
    "additive": lambda: torch.full((LENGTH, LENGTH), -inf).triu(1),
    "additive, smallest number": lambda: torch.zeros(LENGTH, LENGTH).masked_fill(
        torch.ones(LENGTH, LENGTH, dtype=torch.bool).triu(1), SMALLEST
    ),
    "where": lambda: torch.where(torch.ones(LENGTH, LENGTH).tril() == 1, 0.0, -inf),
    "one minus": lambda: (1.0 - torch.ones(LENGTH, LENGTH).tril()) * SMALLEST,
    "cumsum of ones": lambda: (
        torch.ones(LENGTH, dtype=torch.long).cumsum(0)[:, None] > torch.arange(LENGTH)
    ),
    "window as long as the sequence": lambda: (
        torch.ones(LENGTH, LENGTH, dtype=torch.bool).tril().triu(1 - LENGTH)
    ),
    "per head": lambda: torch.ones(2, LENGTH, LENGTH, dtype=torch.bool).tril()[None],
    "vmap": lambda: torch.vmap(lambda q: torch.arange(LENGTH) <= q)(torch.arange(LENGTH)),
    "old transformers": llama_of_old,
    "older transformers": llama_of_older,
}
ALL_TRUE = {
    "ones": lambda: torch.ones(LENGTH, LENGTH, dtype=torch.bool),
    "of one row": lambda: torch.ones(2, 1, 1, LENGTH, dtype=torch.bool),
    "of one element": lambda: torch.ones(1, 1, dtype=torch.bool),
    "zeros added": lambda: torch.zeros(1, 1, LENGTH, LENGTH),
    "always positive": lambda: (torch.arange(LENGTH)[:, None] >= 0).expand(2, 1, -1, LENGTH),
    "a wide band": lambda: (torch.arange(LENGTH)[:, None] - torch.arange(LENGTH)).abs() < LENGTH,
    "inverted zeros": lambda: (1.0 - torch.ones(2, 1, 1, LENGTH)) * SMALLEST,
}


@pytest.mark.parametrize("name", CAUSAL)
def test_causal_masks_become_is_causal(name):
    compiled = agrees(lambda q, k, v: attention(q, k, v, attn_mask=CAUSAL[name]()), *qkv())
    assert compiled.forms == [MaskForm.CAUSAL]
    assert compiled.rewritten == compiled.changed == [True]
    (call,) = attentions(compiled)
    assert call.kwargs == {"attn_mask": None, "is_causal": True}


@pytest.mark.parametrize("name", ALL_TRUE)
def test_masks_that_are_true_everywhere_go(name):
    compiled = agrees(lambda q, k, v: attention(q, k, v, attn_mask=ALL_TRUE[name]()), *qkv())
    assert compiled.forms == [MaskForm.ALL_TRUE]
    (call,) = attentions(compiled)
    assert call.kwargs == {"attn_mask": None}
    assert not call.graph.find_nodes(op="call_function", target=torch.ones), "it is not computed"


def qkv(**options):
    return [heads(**options) for _ in range(3)]


def attentions(compiled):
    return [
        node
        for graph in compiled.graphs
        for module in graph.modules()
        if isinstance(module, torch.fx.GraphModule)
        for node in module.graph.find_nodes(op="call_function", target=attention)
    ]


def flipped(row, column):
    mask = torch.ones(LENGTH, LENGTH, dtype=torch.bool).tril()
    at = (torch.arange(LENGTH)[:, None] == row) & (torch.arange(LENGTH) == column)
    return mask ^ at


def q(length=LENGTH):
    return torch.arange(length)[:, None]


def k(length=LENGTH):
    return torch.arange(length)[None, :]


KEPT = {
    "strictly causal": (lambda: k() < q() + (q() == 0) * 1, MaskForm.OTHER),
    "one off above": (lambda: k() <= q() + 1, MaskForm.SHIFTED_CAUSAL),
    "one off below": (lambda: (k() <= q() - 1) | (k() == 0), MaskForm.OTHER),
    "anti-causal": (lambda: k() >= q(), MaskForm.OTHER),
    "one more element": (lambda: flipped(2, 3), MaskForm.OTHER),
    "one element less": (lambda: flipped(LENGTH - 1, 0), MaskForm.OTHER),
    "sliding window": (lambda: (k() <= q()) & (k() > q() - 3), MaskForm.SLIDING_WINDOW),
    "window one too short": (
        lambda: (k() <= q()) & (k() > q() - LENGTH + 1),
        MaskForm.SLIDING_WINDOW,
    ),
    "band": (lambda: (k() - q()).abs() <= 2, MaskForm.OTHER),
    "prefix": (lambda: (k() <= q()) | (k() < 3), MaskForm.OTHER),
    "first key hidden": (lambda: (k() <= q()) & (k() > 0) | (q() == k()), MaskForm.OTHER),
    "blocks": (lambda: k() // 2 <= q() // 2, MaskForm.UNKNOWN),
    "random": (lambda: (torch.rand(LENGTH, LENGTH) > 0.5).tril() | (k() == 0), MaskForm.UNKNOWN),
    "nearly all true": (lambda: (q() > 0) | (k() < LENGTH - 1), MaskForm.OTHER),
    "penalties": (lambda: torch.where(k() <= q(), 0.0, -1e4), MaskForm.OTHER),
    "rewards": (lambda: torch.where(k() <= q(), 1.0, -inf), MaskForm.OTHER),
    "smallest of another dtype": (
        lambda: torch.where(k() <= q(), 0.0, torch.finfo(torch.float16).min),
        MaskForm.OTHER,
    ),
    "differs by batch": (
        lambda: (k() <= q()) | (torch.arange(2)[:, None, None, None] > 0),
        MaskForm.OTHER,
    ),
    "causal for one query": (lambda: k() <= q(1), MaskForm.CAUSAL),
}


@pytest.mark.parametrize("name", KEPT)
def test_other_masks_stay(name):
    mask, form = KEPT[name]
    torch.manual_seed(0)
    compiled = Compiled(lambda q, k, v: attention(q, k, v, attn_mask=mask()))
    args = qkv(grad=False)
    result = compiled(*args)
    if name != "random":
        torch.testing.assert_close(result, attention(*args, attn_mask=mask()))
    assert compiled.forms == [form]
    assert compiled.rewritten == compiled.changed == [False]
    (call,) = attentions(compiled)
    assert isinstance(call.kwargs["attn_mask"], torch.fx.Node)


def test_data_and_what_is_learned_stay():
    def attend(q, k, v, padding, bias):
        q_at, k_at = torch.arange(LENGTH)[:, None], torch.arange(LENGTH)
        padded = (k_at <= q_at) & padding[:, None, None, :]
        first = attention(q, k, v, attn_mask=padded)
        return attention(first, k, v, attn_mask=torch.where(k_at <= q_at, bias, SMALLEST))

    padding = torch.ones(2, LENGTH, dtype=torch.bool)
    bias = torch.randn(2, LENGTH, LENGTH, requires_grad=True)
    compiled = agrees(attend, *qkv(), padding, bias)
    assert compiled.forms == [MaskForm.DATA, MaskForm.LEARNED]
    assert compiled.changed == [False]
    reasons = [finding.reason for finding in compiled.findings]
    assert reasons == [
        "the mask depends on the values of L_padding_",
        "gradients flow into the mask, from L_bias_",
    ]


@pytest.mark.parametrize("queries,keys", [(4, 6), (6, 4), (1, 6)])
def test_causal_with_other_lengths_stays(queries, keys):
    """`is_causal` counts from the first of each; kernels are fast for as many of each only."""

    def attend(q, k, v):
        mask = torch.ones(q.shape[-2], k.shape[-2], dtype=torch.bool).tril()
        return attention(q, k, v, attn_mask=mask)

    compiled = agrees(attend, heads(queries), heads(keys), heads(keys))
    assert compiled.changed == [False]
    assert compiled.findings[0].reason == (
        f"the mask is causal, but there are {queries} queries for {keys} keys"
    )


def decode(q, k, v):
    """What a growing cache gives rise to: the last queries attend to all keys before them."""
    past = k.shape[-2] - q.shape[-2]
    q_at = torch.arange(q.shape[-2])[:, None] + past
    return attention(q, k, v, attn_mask=torch.arange(k.shape[-2]) <= q_at)


def test_one_query_attends_to_the_whole_cache():
    compiled = agrees(decode, heads(1), heads(9), heads(9))
    assert compiled.forms == [MaskForm.ALL_TRUE]
    assert compiled.rewritten == [True]


def test_several_queries_against_a_cache_stay():
    compiled = agrees(decode, heads(3), heads(9), heads(9))
    assert compiled.forms == [MaskForm.SHIFTED_CAUSAL]
    assert compiled.findings[0].reason.startswith(
        "the mask is causal with the diagonal shifted by 6"
    )
    assert compiled.changed == [False]


def test_dynamic_lengths():
    """One graph for all lengths, right for each of them."""

    def attend(q, k, v):
        at = torch.arange(q.shape[-2])
        return attention(q, k, v, attn_mask=at[:, None] >= at)

    compiled = Compiled(attend, dynamic=True)
    for length in (5, 2, 17):
        args = [heads(length, grad=False) for _ in range(3)]
        torch.testing.assert_close(compiled(*args), attend(*args))
    assert len(compiled.graphs) == 1
    assert compiled.forms == [MaskForm.CAUSAL]
    assert compiled.rewritten == [True]


def test_dynamic_lengths_of_queries_and_keys():
    """They may differ, so causal stays; decoding one token attends to all."""
    compiled = Compiled(decode, dynamic=True)
    for queries, keys in [(3, 9), (4, 7), (5, 6)]:
        args = [heads(queries, grad=False), heads(keys, grad=False), heads(keys, grad=False)]
        torch.testing.assert_close(compiled(*args), decode(*args))
    assert len(compiled.graphs) == 1
    assert compiled.forms == [MaskForm.SHIFTED_CAUSAL]
    for keys in (9, 12, 15):
        args = [heads(1, grad=False), heads(keys, grad=False), heads(keys, grad=False)]
        torch.testing.assert_close(compiled(*args), decode(*args))
    assert compiled.forms == [MaskForm.SHIFTED_CAUSAL, MaskForm.ALL_TRUE]
    assert compiled.rewritten == [False, True]


def test_a_window_under_dynamic_lengths():
    """It is as long as the sequence only where a guard says so."""

    def attend(q, k, v, guarded):
        at = torch.arange(q.shape[-2])
        mask = (at[:, None] >= at) & (at > at[:, None] - 16)
        if guarded and q.shape[-2] > 16:
            return q
        return attention(q, k, v, attn_mask=mask)

    for guarded in (True, False):
        torch._dynamo.reset()
        compiled = Compiled(attend, dynamic=True)
        for length in (9, 16, 20):
            args = [heads(length, grad=False) for _ in range(3)]
            expected = attend(*args, guarded=guarded)
            torch.testing.assert_close(compiled(*args, guarded=guarded), expected)
        form = MaskForm.CAUSAL if guarded else MaskForm.SLIDING_WINDOW
        assert compiled.forms == [form]


CALLS = {
    "keywords": lambda q, k, v, m: attention(query=q, key=k, value=v, attn_mask=m),
    "positions": lambda q, k, v, m: attention(q, k, v, m, 0.0, False),
    "mixed": lambda q, k, v, m: attention(q, k, v, m, is_causal=False, scale=0.5),
    "aten": lambda q, k, v, m: torch.ops.aten.scaled_dot_product_attention(q, k, v, m),
    "aten.default": lambda q, k, v, m: torch.ops.aten.scaled_dot_product_attention.default(
        q, k, v, m, 0.0, False
    ),
}


@pytest.mark.parametrize("spelling", CALLS)
def test_every_spelling_of_the_call(spelling):
    def attend(q, k, v):
        return CALLS[spelling](q, k, v, torch.ones(LENGTH, LENGTH, dtype=torch.bool).tril())

    compiled = agrees(attend, *qkv())
    assert compiled.rewritten == [True]


@pytest.mark.parametrize("expanded", [False, True])
def test_grouped_queries(expanded):
    def attend(q, k, v):
        mask = torch.ones(2, 1, LENGTH, LENGTH, dtype=torch.bool).tril()
        if expanded:
            k, v = (x[:, :, None].expand(-1, -1, 2, -1, -1).flatten(1, 2) for x in (k, v))
        return attention(q, k, v, attn_mask=mask, enable_gqa=not expanded)

    compiled = agrees(attend, heads(heads=4), heads(heads=2), heads(heads=2))
    assert compiled.rewritten == [True]


def test_dropout_draws_the_same_numbers():
    def attend(q, k, v):
        mask = torch.ones(LENGTH, LENGTH, dtype=torch.bool).tril()
        return attention(q, k, v, attn_mask=mask, dropout_p=0.5)

    args = qkv(grad=False)
    compiled = Compiled(attend)
    results = []
    for call in (attend, compiled):
        torch.manual_seed(3)
        results.append(call(*args))
    torch.testing.assert_close(results[1], results[0])
    assert compiled.rewritten == [True]


def test_a_query_that_is_broadcast_keeps_its_mask():
    def attend(q, k, v):
        return attention(q, k, v, attn_mask=torch.ones(3, 1, LENGTH, LENGTH, dtype=torch.bool))

    compiled = agrees(attend, heads(batch=1), heads(batch=3), heads(batch=3))
    assert compiled.forms == [MaskForm.ALL_TRUE]
    assert compiled.findings[0].reason == "the mask may change the result's shape"


def test_other_users_of_the_mask_keep_it():
    def attend(q, k, v):
        mask = torch.ones(LENGTH, LENGTH, dtype=torch.bool).tril()
        return attention(q, k, v, attn_mask=mask) + mask.sum()

    compiled = agrees(attend, *qkv())
    assert compiled.rewritten == [True]


def test_layers_share_one_mask():
    def attend(q, k, v):
        mask = torch.ones(LENGTH, LENGTH, dtype=torch.bool).tril()
        for _ in range(3):
            q = attention(q, k, v, attn_mask=mask)
        return q

    compiled = agrees(attend, *qkv())
    assert compiled.rewritten == [True] * 3
    (graph,) = compiled.graphs
    assert not graph.graph.find_nodes(op="call_method", target="tril")


def test_a_mask_that_is_written_between_layers():
    def attend(q, k, v):
        mask = torch.ones(LENGTH, LENGTH, dtype=torch.bool).tril()
        first = attention(q, k, v, attn_mask=mask)
        mask[0, 1] = True
        second = attention(first, k, v, attn_mask=mask)
        mask.fill_(True)
        return attention(second, k, v, attn_mask=mask)

    compiled = agrees(attend, *qkv())
    assert compiled.rewritten == [True, False, True]
    assert compiled.forms == [MaskForm.CAUSAL, MaskForm.UNKNOWN, MaskForm.ALL_TRUE]


def layer(q, k, v, mask):
    return attention(q, k, v, attn_mask=mask)


def region(function) -> Any:
    """Marks a function whose calls share one graph."""
    return torch.compiler.nested_compile_region(function)


def test_inside_checkpoints():
    def attend(q, k, v):
        mask = torch.ones(LENGTH, LENGTH, dtype=torch.bool).tril()
        for _ in range(2):
            q = checkpoint(layer, q, k, v, mask, use_reentrant=False)
        return q

    compiled = agrees(attend, *qkv())
    assert compiled.rewritten == [True, True]
    (graph,) = compiled.graphs
    assert not graph.graph.find_nodes(op="call_function", target=torch.ones)
    calls = graph.graph.find_nodes(
        op="call_function", target=torch.ops.higher_order.tag_activation_checkpoint
    )
    assert [len(call.args) for call in calls] == [4, 4], "the body and three tensors"


def test_inside_a_region_that_is_compiled_once():
    attend_once = region(layer)

    def attend(q, k, v):
        mask = torch.ones(LENGTH, LENGTH, dtype=torch.bool).tril()
        return attend_once(attend_once(q, k, v, mask), k, v, mask)

    compiled = agrees(attend, *qkv(grad=False))
    assert compiled.rewritten == [True]


def test_a_region_that_is_called_with_different_masks():
    attend_once = region(layer)

    def attend(q, k, v):
        mask = torch.ones(LENGTH, LENGTH, dtype=torch.bool).tril()
        return attend_once(attend_once(q, k, v, mask), k, v, mask.logical_not() | mask)

    compiled = agrees(attend, *qkv(grad=False))
    assert compiled.rewritten == [False]


def test_autocast():
    def attend(q, k, v):
        mask = torch.ones(LENGTH, LENGTH, dtype=torch.bool).tril()
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return attention(q @ torch.eye(8), k, v, attn_mask=mask).float()

    compiled = Compiled(attend)
    args = qkv(grad=False)
    torch.testing.assert_close(compiled(*args), attend(*args), rtol=2e-2, atol=2e-2)
    assert compiled.rewritten == [True]


@pytest.mark.filterwarnings("ignore:There is a performance drop:UserWarning")  # of torch 2.14
def test_under_vmap_it_stays():
    def attend(q, k, v):
        mask = torch.ones(LENGTH, LENGTH, dtype=torch.bool).tril()
        return torch.vmap(lambda q, k, v: attention(q, k, v, attn_mask=mask))(q, k, v)

    compiled = agrees(attend, *qkv())
    assert compiled.forms == [MaskForm.CAUSAL]
    assert compiled.findings[0].reason == (
        "the attention runs under a functorch transform such as torch.vmap"
    )


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float64])
def test_additive_masks_of_other_dtypes(dtype):
    def attend(q, k, v):
        smallest = torch.finfo(dtype).min
        return attention(q, k, v, torch.full((LENGTH, LENGTH), smallest, dtype=dtype).triu(1))

    args = qkv(dtype=dtype, grad=False)
    compiled = Compiled(attend)
    torch.testing.assert_close(compiled(*args), attend(*args), rtol=2e-2, atol=2e-2)
    assert compiled.rewritten == [True]


def test_no_mask_is_no_finding():
    compiled = agrees(lambda q, k, v: attention(q, k, v, is_causal=True), *qkv())
    assert compiled.findings == []
    assert compiled.changed == [False]


def test_length_does_not_matter():
    """The proof looks at no element: 2**16 positions take no longer than six."""

    def attend(q):
        at = torch.arange(q.shape[-2])
        return attention(q, q, q, attn_mask=(at[:, None] >= at) & (at > at[:, None] - 2**16))

    with torch._subclasses.FakeTensorMode():
        compiled = Compiled(attend)
        compiled(torch.empty(1, 1, 2**16, 8))
    assert compiled.rewritten == [True]


def test_a_finding_names_the_users_line():
    compiled = agrees(lambda q, k, v: attention(q, k, v, attn_mask=CAUSAL["tril"]()), *qkv())
    (finding,) = compiled.findings
    assert finding.source is not None
    assert finding.source.file == "tests/transforms/test_attention_mask.py"
    assert "attention(q, k, v" in finding.source.code
    assert str(finding).startswith(
        f"{finding.node}: the mask tensor is causal: is_causal=True says the same"
        " (tests/transforms/test_attention_mask.py:"
    )


def test_it_works_on_the_captured_graph():
    assert AttentionMaskTransform().stage is Stage.CAPTURED
    assert AttentionMaskTransform().name == "attention mask"
