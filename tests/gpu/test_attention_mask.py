"""Attention on a CUDA device after the mask transform: same results, and a fused kernel."""

from __future__ import annotations

import pytest
import torch
import transformers
from torch._dynamo.backends.common import aot_autograd
from torch._functorch._aot_autograd.utils import make_boxed_func
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import scaled_dot_product_attention as attention

from thunder.transforms.attention_mask import AttentionMaskTransform, mask_findings
from thunder.transforms.grouped_query import GroupedQueryTransform

TOLERANCE = {torch.float32: (1e-4, 1e-4), torch.bfloat16: (2e-2, 2e-2)}


def boxed(graph_module, inputs):
    """Compiles nothing."""
    del inputs
    return make_boxed_func(graph_module)


class Compiled:
    """A function compiled without Inductor, and the ATen operators of its forward graphs."""

    def __init__(self, function, *, transformed: bool):
        self.operators: list[str] = []
        self.rewritten: list[bool] = []
        self.grouped: list[bool] = []
        self.transformed = transformed
        self.function = torch.compile(function, backend=self._backend)

    def _backend(self, graph_module, inputs):
        if self.transformed:
            graph_module, _ = AttentionMaskTransform().apply(graph_module)
            graph_module, grouped = GroupedQueryTransform().apply(graph_module)
            graph_module.recompile()
            self.grouped.append(grouped)
            self.rewritten += [finding.rewritten for finding in mask_findings(graph_module)]
        compiler = aot_autograd(fw_compiler=self._forward, bw_compiler=boxed)
        return compiler(graph_module, inputs)

    def _forward(self, graph_module, inputs):
        self.operators += [
            str(node.target) for node in graph_module.graph.nodes if node.op == "call_function"
        ]
        return boxed(graph_module, inputs)

    @property
    def fused(self) -> list[str]:
        return [name for name in self.operators if name.startswith("aten._scaled_dot_product_")]


def causal(length):
    return torch.ones(length, length, dtype=torch.bool, device="cuda").tril()


def smallest(length, dtype):
    mask = torch.full((length, length), torch.finfo(dtype).min, dtype=dtype, device="cuda")
    return mask.triu(1)


@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize("mask", ["bool", "additive", "true"])
@pytest.mark.parametrize("dim", [64, 128])
def test_results_and_gradients(dtype, mask, dim):
    def attend(q, k, v):
        length = q.shape[-2]
        masks = {
            "bool": lambda: causal(length).expand(2, 1, length, length),
            "additive": lambda: smallest(length, dtype),
            "true": lambda: torch.ones(2, 1, 1, length, dtype=torch.bool, device="cuda"),
        }
        return attention(q, k, v, attn_mask=masks[mask]())

    q, k, v = (
        torch.randn(2, 4, 256, dim, dtype=dtype, device="cuda", requires_grad=True)
        for _ in range(3)
    )
    exact = [x.detach().double().requires_grad_() for x in (q, k, v)]
    is_causal = mask != "true"
    reference = attention(exact[0], exact[1], exact[2], is_causal=is_causal)
    gradient = torch.randn_like(q)
    expected = torch.autograd.grad(reference, exact, gradient.double())
    compiled = Compiled(attend, transformed=True)
    result = compiled.function(q, k, v)
    computed = torch.autograd.grad(result, (q, k, v), gradient)
    rtol, atol = TOLERANCE[dtype]
    torch.testing.assert_close(result, reference.to(dtype), rtol=rtol, atol=atol)
    for one, other in zip(computed, expected, strict=True):
        torch.testing.assert_close(one, other.to(dtype), rtol=rtol, atol=atol)
    assert compiled.rewritten == [True]
    assert len(compiled.fused) == 1


MODELS = {
    "llama": lambda: transformers.LlamaForCausalLM(
        transformers.LlamaConfig(
            vocab_size=128,
            hidden_size=256,
            num_hidden_layers=2,
            num_attention_heads=4,
            num_key_value_heads=2,
            intermediate_size=256,
        )
    ),
    "gpt2": lambda: transformers.GPT2LMHeadModel(
        transformers.GPT2Config(
            vocab_size=128,
            n_embd=256,
            n_layer=2,
            n_head=4,
            attn_pdrop=0.0,
            resid_pdrop=0.0,
            embd_pdrop=0.0,
            bos_token_id=1,
            eos_token_id=2,
        )
    ),
}


@pytest.mark.parametrize("name", MODELS)
def test_models_train_with_fused_attention(name):
    torch.manual_seed(0)
    model = MODELS[name]().to("cuda", torch.bfloat16).train()
    ids = torch.randint(3, 128, (2, 256), device="cuda")
    losses, gradients = [], []
    compiled = Compiled(model, transformed=True)
    for call in (model, Compiled(model, transformed=False).function, compiled.function):
        model.zero_grad()
        loss = call(input_ids=ids, labels=ids, use_cache=False).loss
        loss.backward()
        losses.append(loss.detach().float())
        gradients.append(torch.cat([p.grad.float().flatten() for p in model.parameters()]))
    torch.testing.assert_close(losses[2], losses[0], rtol=1e-2, atol=1e-2)
    without, with_transform = ((other - gradients[0]).norm() for other in gradients[1:])
    assert with_transform <= max(2 * without, 2e-2 * gradients[0].norm())
    assert len(compiled.fused) == 2
    assert all(compiled.rewritten)
    assert any(compiled.grouped) is (name == "llama")


@pytest.mark.parametrize("dtype", TOLERANCE)
def test_shared_keys(dtype):
    """In 32 bits no kernel shares them, so they stay repeated."""

    def attend(q, k, v):
        k, v = (x[:, :, None].expand(-1, -1, 4, -1, -1).flatten(1, 2) for x in (k, v))
        return attention(q, k, v, is_causal=True)

    q, k, v = (
        torch.randn(2, heads, 256, 128, dtype=dtype, device="cuda", requires_grad=True)
        for heads in (8, 2, 2)
    )
    exact = [x.detach().double().requires_grad_() for x in (q, k, v)]
    gradient = torch.randn_like(q)
    expected = torch.autograd.grad(attend(*exact), exact, gradient.double())
    compiled = Compiled(attend, transformed=True)
    computed = torch.autograd.grad(compiled.function(q, k, v), (q, k, v), gradient)
    rtol, atol = TOLERANCE[dtype]
    for one, other in zip(computed, expected, strict=True):
        torch.testing.assert_close(one, other.to(dtype), rtol=rtol, atol=2 * atol)
    assert compiled.grouped == [dtype is torch.bfloat16]
    assert len(compiled.fused) == 1


def test_the_user_can_forbid_the_kernels_that_share():
    def attend(q, k, v):
        k, v = (x[:, :, None].expand(-1, -1, 4, -1, -1).flatten(1, 2) for x in (k, v))
        return attention(q, k, v, is_causal=True)

    q, k, v = (
        torch.randn(2, heads, 256, 128, dtype=torch.bfloat16, device="cuda") for heads in (8, 2, 2)
    )
    compiled = Compiled(attend, transformed=True)
    with sdpa_kernel(SDPBackend.EFFICIENT_ATTENTION):
        compiled.function(q, k, v)
    assert compiled.grouped == [False]
