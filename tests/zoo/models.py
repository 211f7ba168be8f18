"""Tiny transformers models of many families, with random weights and inputs to go with them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
import transformers as hf
from torch import nn

VOCABULARY = 96
SIZES = {
    "vocab_size": VOCABULARY,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "max_position_embeddings": 64,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
}


@dataclass(frozen=True)
class Case:
    """A model and the keyword arguments of its calls.

    Attributes:
        model: The model, with random weights.
        inputs: What it is called with; the output has a loss or a first tensor.
    """

    model: nn.Module
    inputs: dict[str, torch.Tensor | bool]


MODELS: dict[str, Callable[[], Case]] = {}


def model(make: Callable[[], Case]) -> Callable[[], Case]:
    MODELS[make.__name__] = make
    return make


def tokens(batch: int = 2, length: int = 9) -> torch.Tensor:
    return torch.randint(3, VOCABULARY, (batch, length))


def causal(config_class, model_class, **extra) -> Case:
    config = config_class(**{**SIZES, "use_cache": False, **extra})
    ids = tokens()
    return Case(model_class(config), {"input_ids": ids, "labels": ids.clone()})


def masked(config_class, model_class, **extra) -> Case:
    config = config_class(**{**SIZES, **extra})
    ids = tokens()
    mask = torch.ones_like(ids)
    mask[1, 6:] = 0
    return Case(
        model_class(config), {"input_ids": ids, "attention_mask": mask, "labels": ids.clone()}
    )


def sequence(config_class, model_class, **extra) -> Case:
    sizes = {
        "vocab_size": VOCABULARY,
        "d_model": 32,
        "encoder_layers": 1,
        "decoder_layers": 1,
        "encoder_attention_heads": 4,
        "decoder_attention_heads": 4,
        "encoder_ffn_dim": 48,
        "decoder_ffn_dim": 48,
        "max_position_embeddings": 64,
        "pad_token_id": 0,
        "bos_token_id": 1,
        "eos_token_id": 2,
        "decoder_start_token_id": 1,
        "use_cache": False,
    }
    config = config_class(**{**sizes, **extra})
    return Case(model_class(config), {"input_ids": tokens(), "labels": tokens(length=5)})


def pixels(size: int = 16) -> torch.Tensor:
    return torch.randn(2, 3, size, size)


def vision(config_class, model_class, **extra) -> Case:
    sizes = {
        **SIZES,
        "image_size": 16,
        "patch_size": 4,
        "num_channels": 3,
        "num_labels": 5,
    }
    for name in ("vocab_size", "max_position_embeddings"):
        sizes.pop(name)
    config = config_class(**{**sizes, **extra})
    return Case(model_class(config), {"pixel_values": pixels(), "labels": torch.tensor([1, 4])})


# Decoders.


@model
def llama() -> Case:
    return causal(hf.LlamaConfig, hf.LlamaForCausalLM, num_key_value_heads=2)


@model
def mistral() -> Case:
    return causal(hf.MistralConfig, hf.MistralForCausalLM, num_key_value_heads=2, sliding_window=4)


@model
def qwen2() -> Case:
    return causal(hf.Qwen2Config, hf.Qwen2ForCausalLM, num_key_value_heads=2)


@model
def qwen3() -> Case:
    return causal(hf.Qwen3Config, hf.Qwen3ForCausalLM, num_key_value_heads=2, head_dim=8)


@model
def gemma2() -> Case:
    return causal(
        hf.Gemma2Config, hf.Gemma2ForCausalLM, num_key_value_heads=2, head_dim=8, sliding_window=4
    )


@model
def phi() -> Case:
    return causal(hf.PhiConfig, hf.PhiForCausalLM)


@model
def gpt2() -> Case:
    config = hf.GPT2Config(
        vocab_size=VOCABULARY, n_embd=32, n_layer=2, n_head=4, n_positions=64, use_cache=False
    )
    ids = tokens()
    return Case(hf.GPT2LMHeadModel(config), {"input_ids": ids, "labels": ids.clone()})


@model
def gpt_neox() -> Case:
    return causal(hf.GPTNeoXConfig, hf.GPTNeoXForCausalLM)


@model
def opt() -> Case:
    return causal(hf.OPTConfig, hf.OPTForCausalLM, ffn_dim=48, word_embed_proj_dim=32)


@model
def bloom() -> Case:
    return causal(hf.BloomConfig, hf.BloomForCausalLM, n_layer=2, n_head=4)


@model
def falcon() -> Case:
    return causal(hf.FalconConfig, hf.FalconForCausalLM)


@model
def stablelm() -> Case:
    return causal(hf.StableLmConfig, hf.StableLmForCausalLM, num_key_value_heads=2)


@model
def olmo2() -> Case:
    return causal(hf.Olmo2Config, hf.Olmo2ForCausalLM, num_key_value_heads=2)


# Mixture of experts.


@model
def mixtral() -> Case:
    return causal(
        hf.MixtralConfig,
        hf.MixtralForCausalLM,
        num_key_value_heads=2,
        num_local_experts=4,
        num_experts_per_tok=2,
    )


@model
def qwen2_moe() -> Case:
    return causal(
        hf.Qwen2MoeConfig,
        hf.Qwen2MoeForCausalLM,
        num_key_value_heads=2,
        num_experts=4,
        num_experts_per_tok=2,
        moe_intermediate_size=16,
        shared_expert_intermediate_size=16,
    )


# State spaces.


@model
def mamba() -> Case:
    config = hf.MambaConfig(
        vocab_size=VOCABULARY,
        hidden_size=16,
        state_size=4,
        num_hidden_layers=1,
        use_cache=False,
        time_step_rank=2,
    )
    ids = tokens(length=5)
    return Case(hf.MambaForCausalLM(config), {"input_ids": ids, "labels": ids.clone()})


@model
def mamba2() -> Case:
    config = hf.Mamba2Config(
        vocab_size=VOCABULARY,
        hidden_size=16,
        state_size=4,
        num_hidden_layers=1,
        num_heads=4,
        head_dim=8,
        n_groups=1,
        chunk_size=4,
        use_cache=False,
    )
    ids = tokens(length=8)
    return Case(hf.Mamba2ForCausalLM(config), {"input_ids": ids, "labels": ids.clone()})


@model
def rwkv() -> Case:
    config = hf.RwkvConfig(
        vocab_size=VOCABULARY,
        hidden_size=16,
        attention_hidden_size=16,
        num_hidden_layers=2,
        context_length=16,
        use_cache=False,
    )
    ids = tokens(length=4)
    return Case(hf.RwkvForCausalLM(config), {"input_ids": ids, "labels": ids.clone()})


# Encoders.


@model
def bert() -> Case:
    return masked(hf.BertConfig, hf.BertForMaskedLM)


@model
def roberta() -> Case:
    return masked(hf.RobertaConfig, hf.RobertaForMaskedLM)


@model
def albert() -> Case:
    return masked(hf.AlbertConfig, hf.AlbertForMaskedLM, embedding_size=16)


@model
def distilbert() -> Case:
    return masked(
        hf.DistilBertConfig, hf.DistilBertForMaskedLM, dim=32, hidden_dim=48, n_layers=2, n_heads=4
    )


@model
def electra() -> Case:
    return masked(hf.ElectraConfig, hf.ElectraForMaskedLM, embedding_size=16)


@model
def deberta_v2() -> Case:
    return masked(
        hf.DebertaV2Config,
        hf.DebertaV2ForMaskedLM,
        relative_attention=True,
        pos_att_type=["c2p", "p2c"],
        position_buckets=8,
    )


@model
def modernbert() -> Case:
    return masked(
        hf.ModernBertConfig,
        hf.ModernBertForMaskedLM,
        global_attn_every_n_layers=2,
        local_attention=4,
    )


# Encoder-decoders.


@model
def t5() -> Case:
    config = hf.T5Config(
        vocab_size=VOCABULARY,
        d_model=32,
        d_kv=8,
        d_ff=48,
        num_layers=1,
        num_heads=4,
        use_cache=False,
        decoder_start_token_id=0,
    )
    return Case(
        hf.T5ForConditionalGeneration(config),
        {"input_ids": tokens(), "labels": tokens(length=5)},
    )


@model
def bart() -> Case:
    return sequence(hf.BartConfig, hf.BartForConditionalGeneration)


@model
def pegasus() -> Case:
    return sequence(hf.PegasusConfig, hf.PegasusForConditionalGeneration)


@model
def marian() -> Case:
    return sequence(hf.MarianConfig, hf.MarianMTModel)


# Vision.


@model
def vit() -> Case:
    return vision(hf.ViTConfig, hf.ViTForImageClassification)


@model
def deit() -> Case:
    return vision(hf.DeiTConfig, hf.DeiTForImageClassification)


@model
def dinov2() -> Case:
    return vision(hf.Dinov2Config, hf.Dinov2ForImageClassification)


@model
def convnext() -> Case:
    config = hf.ConvNextConfig(
        hidden_sizes=[8, 16], depths=[1, 1], num_stages=2, num_labels=5, image_size=16
    )
    return Case(
        hf.ConvNextForImageClassification(config),
        {"pixel_values": pixels(), "labels": torch.tensor([1, 4])},
    )


@model
def resnet() -> Case:
    config = hf.ResNetConfig(
        embedding_size=8, hidden_sizes=[8, 16], depths=[1, 1], layer_type="basic", num_labels=5
    )
    return Case(
        hf.ResNetForImageClassification(config),
        {"pixel_values": pixels(), "labels": torch.tensor([1, 4])},
    )


@model
def swin() -> Case:
    config = hf.SwinConfig(
        image_size=16,
        patch_size=2,
        embed_dim=8,
        depths=[1, 1],
        num_heads=[2, 2],
        window_size=4,
        num_labels=5,
    )
    return Case(
        hf.SwinForImageClassification(config),
        {"pixel_values": pixels(), "labels": torch.tensor([1, 4])},
    )


# Audio, and text with images.


@model
def wav2vec2() -> Case:
    config = hf.Wav2Vec2Config(
        **{**SIZES, "vocab_size": 12},
        conv_dim=(8, 8),
        conv_stride=(4, 2),
        conv_kernel=(8, 3),
        num_feat_extract_layers=2,
        num_conv_pos_embeddings=4,
        num_conv_pos_embedding_groups=2,
        feat_extract_norm="layer",
        mask_time_prob=0.0,
        layerdrop=0.0,
        num_labels=3,
        classifier_proj_size=8,
    )
    return Case(
        hf.Wav2Vec2ForSequenceClassification(config),
        {"input_values": torch.randn(2, 160), "labels": torch.tensor([0, 2])},
    )


@model
def whisper() -> Case:
    config = hf.WhisperConfig(
        vocab_size=VOCABULARY,
        num_mel_bins=8,
        d_model=32,
        encoder_layers=1,
        decoder_layers=1,
        encoder_attention_heads=4,
        decoder_attention_heads=4,
        encoder_ffn_dim=48,
        decoder_ffn_dim=48,
        max_source_positions=10,
        max_target_positions=16,
        pad_token_id=0,
        bos_token_id=1,
        eos_token_id=2,
        decoder_start_token_id=1,
        use_cache=False,
    )
    return Case(
        hf.WhisperForConditionalGeneration(config),
        {"input_features": torch.randn(2, 8, 20), "labels": tokens(length=5)},
    )


@model
def clip() -> Case:
    text = dict(SIZES)
    image = {**SIZES, "image_size": 16, "patch_size": 4}
    image.pop("vocab_size")
    config = hf.CLIPConfig(text_config=text, vision_config=image, projection_dim=16)
    ids = tokens()
    ids[:, -1] = 2
    return Case(
        hf.CLIPModel(config),
        {"input_ids": ids, "pixel_values": pixels(), "return_loss": True},
    )
