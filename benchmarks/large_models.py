"""Transformers' models at real sizes, which benchmarks on a GPU measure. Weights are random."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import transformers
from torch import nn

KINDS = ("inference", "training step")


@dataclass(frozen=True, kw_only=True, slots=True)
class Case:
    """A model, and the shape of its token ids: rows and tokens a row."""

    architecture: str
    config: type[transformers.PretrainedConfig]
    sizes: dict[str, Any]
    rows: int
    tokens: int

    @property
    def vocabulary(self) -> int:
        """How many tokens there are."""
        return self.sizes["vocab_size"]

    def make(self, device: torch.device) -> nn.Module:
        """Returns the model in bfloat16, the same each time."""
        torch.manual_seed(0)
        with device:
            model = getattr(transformers, self.architecture)(self.config(**self.sizes))
        return model.to(torch.bfloat16)


LLAMA = {
    "vocab_size": 32000,
    "hidden_size": 2048,
    "intermediate_size": 5632,
    "num_hidden_layers": 4,
    "num_attention_heads": 16,
    "num_key_value_heads": 8,
    "head_dim": 128,
    "max_position_embeddings": 16384,
    "use_cache": False,
}
GPT2 = {
    "vocab_size": 50257,
    "n_embd": 1024,
    "n_layer": 4,
    "n_head": 16,
    "n_positions": 1024,
    "use_cache": False,
}
BERT = {
    "vocab_size": 30522,
    "hidden_size": 1024,
    "num_hidden_layers": 4,
    "num_attention_heads": 16,
    "intermediate_size": 4096,
}
CASES = {
    "llama": Case(
        architecture="LlamaForCausalLM",
        config=transformers.LlamaConfig,
        sizes=LLAMA,
        rows=2,
        tokens=2048,
    ),
    "llama-long": Case(
        architecture="LlamaForCausalLM",
        config=transformers.LlamaConfig,
        sizes=LLAMA,
        rows=1,
        tokens=16384,
    ),
    "gpt2": Case(
        architecture="GPT2LMHeadModel",
        config=transformers.GPT2Config,
        sizes=GPT2,
        rows=8,
        tokens=1024,
    ),
    "bert": Case(
        architecture="BertForMaskedLM",
        config=transformers.BertConfig,
        sizes=BERT,
        rows=16,
        tokens=512,
    ),
}


def step_of(
    model: nn.Module, compiled: Callable[..., Any], ids: torch.Tensor, kind: str
) -> Callable[[], torch.Tensor]:
    """Returns what is measured.

    Args:
        model: The model, whose gradients a training step computes.
        compiled: The model, compiled.
        ids: Token ids, of shape (rows, tokens).
        kind: In `KINDS`.

    Returns:
        A function that gives the logits, of shape (rows, tokens, vocabulary), or the loss.
    """

    def infer() -> torch.Tensor:
        with torch.no_grad():
            return compiled(input_ids=ids).logits

    def train() -> torch.Tensor:
        model.zero_grad()
        loss = compiled(input_ids=ids, labels=ids).loss
        loss.backward()
        return loss.detach()

    return infer if kind == "inference" else train
