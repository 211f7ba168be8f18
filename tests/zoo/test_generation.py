"""Text is generated, and models are trained, compiled as in eager mode."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn
from torch.utils.data import Dataset
from transformers import CompileConfig, Trainer, TrainingArguments

import thunder
from tests.zoo.cases import make_case
from thunder.dynamo import ThunderCompiler

GENERATED = ("llama", "mistral", "qwen3", "gemma2", "gpt_neox", "mixtral", "bart", "t5")
TRAINED = ("llama", "bert", "bart", "vit", "resnet", "mixtral")
WORDS = 6
"""Tokens to generate."""

pytestmark = pytest.mark.slow


def made(model_type: str) -> tuple[nn.Module, dict[str, torch.Tensor]]:
    case = make_case(model_type)
    return case.model, case.inputs


@pytest.mark.parametrize("model_type", GENERATED)
def test_generates_with_a_static_cache(model_type):
    model, inputs = made(model_type)
    model.eval()
    prompt = {
        "input_ids": inputs["input_ids"],
        "attention_mask": torch.ones_like(inputs["input_ids"]),
    }
    how = {"max_new_tokens": WORDS, "min_new_tokens": WORDS, "do_sample": False}
    if model.config.is_encoder_decoder:
        how["decoder_start_token_id"] = 0
    wanted = model.generate(**prompt, **how)
    twin = copy.deepcopy(model)
    compiler = ThunderCompiler(executors=["aten"], on_failure="raise")
    twin.forward = torch.compile(twin.forward, backend=compiler)
    twin.generation_config.compile_config = CompileConfig(backend=compiler)
    got = twin.generate(**prompt, **how, cache_implementation="static", disable_compile=True)
    assert torch.equal(got, wanted)
    infos = thunder.get_subgraph_info(compiler)
    assert infos
    assert not [reason for info in infos for reason in info.split_reasons]


class Examples(Dataset):
    """The examples of a batch, one by one."""

    def __init__(self, inputs: dict[str, torch.Tensor]):
        self.inputs = inputs

    def __len__(self) -> int:
        return len(next(iter(self.inputs.values())))

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        return {name: value[index] for name, value in self.inputs.items()}


def trained(model: nn.Module, inputs, folder, **arguments) -> dict[str, torch.Tensor]:
    settings = TrainingArguments(
        output_dir=str(folder),
        max_steps=2,
        per_device_train_batch_size=2,
        learning_rate=0.05,
        optim="sgd",
        report_to=[],
        save_strategy="no",
        logging_strategy="no",
        disable_tqdm=True,
        use_cpu=True,
        seed=3,
        **arguments,
    )
    Trainer(model=model, args=settings, train_dataset=Examples(inputs)).train()
    return {name: p.detach().clone() for name, p in model.named_parameters()}


def compiled_in_place(model: nn.Module) -> nn.Module:
    model.compile(backend="thunder", options={"executors": ["aten"], "on_failure": "raise"})
    return model


def as_a_module(model: nn.Module) -> nn.Module:
    return thunder.thunderfx(model, executors=["aten"], on_failure="raise")


@pytest.mark.filterwarnings("ignore")  # of the trainer's, about pinned memory and the like
@pytest.mark.parametrize("compile", [compiled_in_place, as_a_module], ids=lambda f: f.__name__)
@pytest.mark.parametrize("model_type", TRAINED)
def test_trainer(model_type, compile, tmp_path):
    model, inputs = made(model_type)
    before = {name: p.detach().clone() for name, p in model.named_parameters()}
    twin = compile(copy.deepcopy(model))
    wanted = trained(model, inputs, tmp_path / "eager")
    got = trained(twin, inputs, tmp_path / "compiled")
    infos = thunder.get_subgraph_info(twin)
    assert infos
    assert not [reason for info in infos for reason in info.split_reasons]
    assert any(not torch.equal(wanted[name], before[name]) for name in before)
    torch.testing.assert_close(got, wanted)


def test_accelerate_has_a_closed_list_of_backends(tmp_path):
    """`torch_compile_backend="thunder"` works when this fails: then test it like the others."""
    model, inputs = made("llama")
    how = {"torch_compile": True, "torch_compile_backend": "thunder"}
    with pytest.raises(ValueError, match="'THUNDER' is not a valid DynamoBackend"):
        trained(model, inputs, tmp_path, **how)
