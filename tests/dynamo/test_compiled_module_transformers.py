"""Stand-ins for Hugging Face models: small, random weights, nothing downloaded."""

from __future__ import annotations

import copy
import inspect
from typing import Any

import pytest
import torch
import transformers
from transformers import GPT2Config, GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM

from tests.dynamo.modules import compile, graphs

TOKENS: dict[str, Any] = {"bos_token_id": 0, "eos_token_id": 1, "pad_token_id": 2, "vocab_size": 32}
MODELS = {
    "gpt2": lambda: GPT2LMHeadModel(
        GPT2Config(n_layer=1, n_head=2, n_embd=8, n_positions=32, **TOKENS)
    ),
    "llama": lambda: LlamaForCausalLM(
        LlamaConfig(
            num_hidden_layers=1,
            num_attention_heads=2,
            hidden_size=8,
            intermediate_size=16,
            **TOKENS,
        )
    ),
}


@pytest.fixture(params=MODELS)
def model(request):
    transformers.utils.logging.disable_progress_bar()
    return MODELS[request.param]().eval()


@pytest.fixture
def ids():
    return torch.randint(3, 32, (1, 5))


def test_what_transformers_asks_of_a_model(model, ids):
    compiled = compile(model)
    assert isinstance(compiled, transformers.PreTrainedModel)
    assert compiled.config is model.config
    assert compiled.num_parameters() == model.num_parameters()
    assert compiled.device == model.device
    assert compiled.get_input_embeddings() is model.get_input_embeddings()
    assert inspect.signature(compiled.forward) == inspect.signature(model.forward)
    with torch.no_grad():
        result, expected = compiled(input_ids=ids), model(input_ids=ids)
    assert type(result) is type(expected)
    torch.testing.assert_close(result.logits, expected.logits)


def test_generate_runs_compiled(model, ids):
    compiled = compile(model)
    expected = model.generate(ids, max_new_tokens=3, do_sample=False)
    assert graphs(compiled) == 0
    assert torch.equal(compiled.generate(ids, max_new_tokens=3, do_sample=False), expected)
    assert graphs(compiled) >= 1


def test_a_saved_stand_in_is_a_saved_model(model, ids, tmp_path):
    compile(model).save_pretrained(tmp_path)
    loaded = type(model).from_pretrained(tmp_path)
    assert loaded.config.architectures == [type(model).__name__]
    torch.testing.assert_close(loaded.state_dict(), model.state_dict())


def test_training_and_copying(model, ids):
    compiled = compile(model.train())
    twin = copy.deepcopy(compiled)
    compiled(input_ids=ids, labels=ids).loss.backward()
    assert all(parameter.grad is not None for parameter in model.parameters())
    assert all(parameter.grad is None for parameter in twin.parameters())
    torch.testing.assert_close(twin.eval()(ids).logits, model.eval()(ids).logits)
