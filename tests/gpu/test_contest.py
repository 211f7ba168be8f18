"""The contest on a real GPU: nvFuser, Inductor and ATen for one graph, forward and backward."""

from __future__ import annotations

import pytest
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import scaled_dot_product_attention

import thunder
from thunder import thunderfx
from thunder.executors.entrants import contest_entrants
from thunder.executors.nvfuser import available


def test_the_contest_decides_between_all_and_gradients_are_right(tmp_path, monkeypatch):
    monkeypatch.setenv("THUNDER_CACHE_DIR", str(tmp_path))
    x = torch.randn(2048, 1024, device="cuda", dtype=torch.bfloat16, requires_grad=True)

    def function(x):
        return torch.nn.functional.gelu(torch.softmax(x.float(), -1) * 3).to(x.dtype)

    f = thunderfx(function, contest="full")
    (gradient,) = torch.autograd.grad(f(x).sum(), x)
    (expected,) = torch.autograd.grad(function(x).sum(), x)
    torch.testing.assert_close(gradient, expected, rtol=2e-2, atol=2e-3)
    (record,) = thunder.compile_stats(f).compiles
    assert list(record.verdicts) == ["thunder_0 forward", "thunder_0 backward"]
    names = {entrant.name for entrant in contest_entrants({"cuda"})}
    assert names >= {"inductor", "aten"} and ("nvfuser" in names) == (available() is None)
    for verdict in record.verdicts.values():
        assert {*verdict.milliseconds, *verdict.rejected} == names
        fastest = min(verdict.milliseconds.values())
        assert verdict.milliseconds[verdict.winner] <= fastest * 1.03
    assert len(list(tmp_path.rglob("*.json"))) == 2


def test_graphs_too_large_to_copy_are_left_to_inductor(tmp_path, monkeypatch):
    monkeypatch.setenv("THUNDER_CACHE_DIR", str(tmp_path))
    free, _ = torch.cuda.mem_get_info()
    x = torch.empty(free // 6, dtype=torch.uint8, device="cuda").zero_()
    f = thunderfx(lambda x: x[:1024] + 1, contest="full")
    assert torch.equal(f(x).cpu(), torch.ones(1024, dtype=torch.uint8))
    assert thunder.compile_stats(f).compiles[0].verdicts == {}


def causal(query, key, value):
    return scaled_dot_product_attention(
        query, key, value, is_causal=True, enable_gqa=query.shape[1] != key.shape[1]
    )


def masked(query, key, value):
    hidden = torch.arange(key.shape[2], device=key.device) % 5 == 0
    return scaled_dot_product_attention(query, key, value, attn_mask=~hidden[None, None, None])


@pytest.mark.parametrize("features", [64, 128])
@pytest.mark.parametrize(("function", "heads"), [(causal, 8), (causal, 2), (masked, 8)])
def test_attention_kernels_compete_and_the_winner_runs(
    tmp_path, monkeypatch, function, heads, features
):
    monkeypatch.setenv("THUNDER_CACHE_DIR", str(tmp_path))

    def tensor(heads):
        x = torch.randn(2, 512, heads, features, device="cuda", dtype=torch.bfloat16)
        return x.transpose(1, 2).detach().requires_grad_()

    inputs = tensor(8), tensor(heads), tensor(heads)
    f = thunderfx(function, contest="full")
    result = f(*inputs)
    gradients = torch.autograd.grad(result.sum(), inputs)
    verdict = (
        thunder.compile_stats(f)
        .compiles[0]
        .verdicts["thunder_0 attention scaled_dot_product_attention"]
    )
    print(verdict)
    assert verdict.winner in verdict.milliseconds and verdict.milliseconds
    with sdpa_kernel(SDPBackend.__members__[verdict.winner]):
        expected = function(*inputs)
        expected_gradients = torch.autograd.grad(expected.sum(), inputs)
    assert torch.equal(result, expected)
    torch.testing.assert_close(gradients, expected_gradients, rtol=2e-2, atol=2e-2)
    torch._dynamo.reset()
    again = thunderfx(function)
    assert torch.equal(again(*inputs), result)
    known = thunder.compile_stats(again).compiles[0].verdicts
    assert known["thunder_0 attention scaled_dot_product_attention"].cached
