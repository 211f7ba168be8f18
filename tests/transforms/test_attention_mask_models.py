"""The mask transform on transformers' models: which masks go, and that nothing else changes.

The models are tiny and randomly initialised. What transformers hands to attention depends on its
version and on torch's: since 5.20 with torch 2.13 many models leave a causal mask out by
themselves, and build one only for training without a cache, for windows and for packing.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import transformers
from transformers import PreTrainedModel

from thunder.transforms.attention_mask import AttentionMaskTransform, MaskFinding, mask_findings
from thunder.transforms.masks.forms import MaskForm

VOCABULARY, LENGTH, BATCH = 64, 12, 2
SIZES = dict(
    vocab_size=VOCABULARY,
    hidden_size=32,
    num_hidden_layers=2,
    num_attention_heads=4,
    intermediate_size=32,
    max_position_embeddings=64,
    bos_token_id=1,
    eos_token_id=2,
    pad_token_id=0,
)
GROUPED = SIZES | {"num_key_value_heads": 2}


def make(model: str, config: str, **options: Any) -> Callable[[], PreTrainedModel]:
    """Returns what makes a model, so that no model is made before its test runs."""
    return lambda: getattr(transformers, model)(getattr(transformers, config)(**options))


CAUSAL_MODELS = {
    "llama": make("LlamaForCausalLM", "LlamaConfig", **GROUPED),
    "qwen2": make("Qwen2ForCausalLM", "Qwen2Config", **GROUPED),
    "qwen3": make("Qwen3ForCausalLM", "Qwen3Config", **GROUPED, head_dim=8),
    "phi": make("PhiForCausalLM", "PhiConfig", **SIZES),
    "stablelm": make("StableLmForCausalLM", "StableLmConfig", **GROUPED),
    "gpt_neox": make("GPTNeoXForCausalLM", "GPTNeoXConfig", **SIZES),
    "gpt2": make(
        "GPT2LMHeadModel",
        "GPT2Config",
        vocab_size=VOCABULARY,
        n_embd=32,
        n_layer=2,
        n_head=4,
        n_positions=64,
        bos_token_id=1,
        eos_token_id=2,
    ),
    "mistral": make("MistralForCausalLM", "MistralConfig", **GROUPED, sliding_window=LENGTH),
    "gemma3": make(
        "Gemma3ForCausalLM",
        "Gemma3TextConfig",
        **GROUPED,
        head_dim=8,
        sliding_window=LENGTH,
    ),
}
"""Decoders whose masks are causal for a sequence of this length."""


class Compiled:
    """A model whose captured graphs run as they are after the transform."""

    def __init__(self, model: PreTrainedModel, **options: Any) -> None:
        self.findings: list[MaskFinding] = []
        self.graphs = 0
        self.model = torch.compile(model, backend=self._backend, **options)

    def _backend(self, graph_module, inputs):
        after, _ = AttentionMaskTransform().apply(graph_module)
        self.findings += mask_findings(after)
        self.graphs += 1
        after.recompile()
        return after

    @property
    def forms(self) -> set[tuple[MaskForm, bool]]:
        return {(finding.form, finding.rewritten) for finding in self.findings}


def tokens(length: int = LENGTH) -> torch.Tensor:
    return torch.randint(3, VOCABULARY, (BATCH, length))


def results(call, model, inputs) -> list[torch.Tensor]:
    """Logits, and the gradients of all parameters if there is a loss."""
    model.zero_grad()
    out = call(**inputs)
    if "labels" not in inputs:
        return [out.logits]
    out.loss.backward()
    return [out.logits, *[p.grad.clone() for p in model.parameters() if p.grad is not None]]


def agrees(model: PreTrainedModel, inputs: dict[str, Any], **options: Any) -> Compiled:
    """Compiles a model and compares everything that it computes with eager's."""
    compiled = Compiled(model, **options)
    expected = results(model, model, inputs)
    computed = results(compiled.model, model, inputs)
    assert compiled.graphs
    torch.testing.assert_close(computed, expected, rtol=1e-4, atol=1e-5)
    return compiled


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("name", CAUSAL_MODELS)
def test_training_without_a_cache(name, dynamic):
    """Packed sequences are looked for in the positions, which are known to be consecutive."""
    model = CAUSAL_MODELS[name]().train()
    for module in model.modules():
        if isinstance(module, torch.nn.Dropout):
            module.p = 0.0
    for attribute in ("attn_pdrop", "attention_dropout"):
        if hasattr(model.config, attribute):
            setattr(model.config, attribute, 0.0)
    ids = tokens()
    compiled = agrees(
        model, {"input_ids": ids, "labels": ids, "use_cache": False}, dynamic=dynamic or None
    )
    windows = dynamic and name in ("mistral", "gemma3")
    causal, window = (MaskForm.CAUSAL, True), (MaskForm.SLIDING_WINDOW, False)
    assert causal in compiled.forms or windows
    assert compiled.forms <= ({causal, window} if windows else {causal})
