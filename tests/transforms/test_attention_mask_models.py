"""The mask transform on transformers' models: which masks go, and that nothing else changes.

The models are tiny and randomly initialised. What transformers hands to attention depends on its
version and on torch's: since 5.20 with torch 2.13 many models leave a causal mask out by
themselves, and build one only for training without a cache, for windows and for packing.
"""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
import transformers
from transformers import DynamicCache, PreTrainedModel, StaticCache

from thunder.transforms.attention_mask import AttentionMaskTransform, MaskFinding, mask_findings
from thunder.transforms.masks.forms import MaskForm

VOCABULARY, LENGTH, BATCH = 64, 12, 2
SIZES = {
    "vocab_size": VOCABULARY,
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 32,
    "max_position_embeddings": 64,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "pad_token_id": 0,
}
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


CAUSAL, WINDOW = (MaskForm.CAUSAL, True), (MaskForm.SLIDING_WINDOW, False)
DATA, LEARNED = (MaskForm.DATA, False), (MaskForm.LEARNED, False)


def training(name: str, **options: Any) -> tuple[PreTrainedModel, dict[str, Any]]:
    """A model without dropout, whose numbers would differ, and what it is called with."""
    model = CAUSAL_MODELS[name]().train()
    for module in model.modules():
        if isinstance(module, torch.nn.Dropout):
            module.p = 0.0
    for attribute in ("attn_pdrop", "attention_dropout"):
        if hasattr(model.config, attribute):
            setattr(model.config, attribute, 0.0)
    ids = tokens()
    return model, {"input_ids": ids, "labels": ids, "use_cache": False} | options


@pytest.mark.parametrize("name", CAUSAL_MODELS)
def test_training_without_a_cache(name):
    """Packed sequences are looked for in the positions, which are known to be consecutive."""
    assert agrees(*training(name)).forms == {CAUSAL}


def test_training_with_dynamic_shapes():
    model, inputs = training("llama")
    compiled = agrees(model, inputs, dynamic=True)
    assert compiled.forms == {CAUSAL}
    graphs = compiled.graphs
    ids = tokens(LENGTH + 5)
    shorter = {"input_ids": ids, "labels": ids, "use_cache": False}
    expected = results(model, model, shorter)
    computed = results(compiled.model, model, shorter)
    torch.testing.assert_close(computed, expected, rtol=1e-4, atol=1e-5)
    assert compiled.graphs == graphs


def test_a_window_is_not_assumed_to_be_long_enough():
    model, inputs = training("mistral")
    assert agrees(model, inputs, dynamic=True).forms == {WINDOW}


def test_a_window_that_is_shorter():
    model, inputs = training("mistral")
    model.config.sliding_window = 5
    compiled = agrees(model, inputs)
    assert compiled.forms == {WINDOW}
    assert "a sliding window of 5 keys" in compiled.findings[0].reason


def test_layers_with_and_without_a_window():
    model = make(
        "Gemma3ForCausalLM",
        "Gemma3TextConfig",
        **GROUPED,
        head_dim=8,
        sliding_window=5,
        layer_types=["sliding_attention", "full_attention"],
    )()
    ids = tokens()
    compiled = agrees(model.train(), {"input_ids": ids, "labels": ids, "use_cache": False})
    assert [(found.form, found.rewritten) for found in compiled.findings] == [WINDOW, CAUSAL]


def test_checkpointed_layers():
    model, inputs = training("llama")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # transformers renames it in version 6
        model.gradient_checkpointing_enable({"use_reentrant": False})
    compiled = agrees(model, inputs)
    assert compiled.forms == {CAUSAL}
    assert len(compiled.findings) == 2


@pytest.mark.parametrize("name", ["llama", "gpt2"])
def test_padding_is_data(name):
    padding = torch.ones(BATCH, LENGTH, dtype=torch.long)
    padding[1, -4:] = 0
    model, inputs = training(name, attention_mask=padding)
    compiled = agrees(model, inputs)
    assert compiled.forms == {DATA}
    assert all("attention_mask" in finding.reason for finding in compiled.findings)


def test_positions_are_data():
    """They say where packed sequences start."""
    positions = torch.cat([torch.arange(5), torch.arange(LENGTH - 5)]).expand(BATCH, -1)
    model, inputs = training("llama", position_ids=positions)
    compiled = agrees(model, inputs)
    assert compiled.forms == {DATA}
    assert all("position_ids" in finding.reason for finding in compiled.findings)


def test_bfloat16():
    model, inputs = training("llama")
    model.bfloat16()
    compiled = Compiled(model)
    expected = results(model, model, inputs)
    computed = results(compiled.model, model, inputs)
    torch.testing.assert_close(computed, expected, rtol=3e-2, atol=3e-2)
    assert compiled.forms == {CAUSAL}


OTHERS: dict[str, tuple[Callable[[], PreTrainedModel], set[Any]]] = {
    "bert": (make("BertForMaskedLM", "BertConfig", **SIZES), {(MaskForm.ALL_TRUE, True)}),
    "opt": (
        make("OPTForCausalLM", "OPTConfig", **SIZES, ffn_dim=32, word_embed_proj_dim=32),
        {CAUSAL},
    ),
    # Gemma 2 caps its scores, which no fused kernel does: since 5.20 or so it does not call one.
    "gemma2": (make("Gemma2ForCausalLM", "Gemma2Config", **GROUPED, head_dim=8), {CAUSAL}),
    "llama": (CAUSAL_MODELS["llama"], {CAUSAL}),
}


@pytest.mark.parametrize("name", OTHERS)
def test_inference(name):
    """What newer transformers leave out by themselves is not found; nothing else is left."""
    model, possible = OTHERS[name]
    with torch.no_grad():
        compiled = agrees(model().eval(), {"input_ids": tokens()})
    assert compiled.forms <= possible


def test_t5_learns_its_masks():
    model = make(
        "T5ForConditionalGeneration",
        "T5Config",
        vocab_size=VOCABULARY,
        d_model=32,
        d_kv=8,
        d_ff=32,
        num_layers=2,
        num_heads=4,
        dropout_rate=0.0,
        decoder_start_token_id=0,
    )()
    ids = tokens()
    compiled = agrees(model.train(), {"input_ids": ids, "labels": ids})
    assert LEARNED in compiled.forms
    assert not any(rewritten for form, rewritten in compiled.forms if form is MaskForm.LEARNED)


@pytest.mark.parametrize("cache", [StaticCache, DynamicCache])
def test_decoding(cache):
    """Prefill and steps with a cache; how much of a static one is used is data.

    The prompt's mask is causal beside the unused rest of a static cache, too. torch before 2.13 and
    older transformers show it; there are more keys than queries, so it stays.
    """
    model = CAUSAL_MODELS["llama"]().eval()
    compiled = Compiled(model)
    prompt = tokens()
    options: dict[str, Any] = {"max_cache_len": 32} if cache is StaticCache else {}
    named = inspect.signature(transformers.LlamaForCausalLM.forward).parameters
    argument = "cache" if "cache" in named else "past_key_values"
    logits = []
    with torch.no_grad():
        for call in (model, compiled.model):
            past = cache(config=model.config, **options)
            steps = [prompt, prompt[:, :1], prompt[:, 1:2], prompt[:, 2:5]]
            logits.append([call(input_ids=ids, **{argument: past}).logits for ids in steps])
    torch.testing.assert_close(logits[1], logits[0], rtol=1e-4, atol=1e-5)
    kept = {DATA} if cache is StaticCache else {(MaskForm.SHIFTED_CAUSAL, False)}
    prompts = {(MaskForm.CAUSAL, False)} if cache is StaticCache else {CAUSAL}
    assert compiled.forms <= kept | prompts | {(MaskForm.ALL_TRUE, True)}
    assert kept <= compiled.forms
