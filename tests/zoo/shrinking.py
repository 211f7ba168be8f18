"""Makes configurations of tiny models out of any configuration class of transformers.

A field's new value follows from its name and its old value: hidden sizes become 64, layers two, and
so on, the same in every sub-configuration, so that parts still fit together. What a class works out
by itself from other fields is left to it. Exceptions are in `overrides.py`.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from transformers import PreTrainedConfig

HIDDEN = 64
HEADS = 4
HEAD = HIDDEN // HEADS
VOCABULARY = 128
POSITIONS = 128
IMAGE = 32
DEEP_IMAGE = 64
"""For models that halve an image several times."""

SPECIAL_TOKENS = {"pad": 0, "bos": 1, "eos": 2, "decoder_start": 1, "sep": 2, "cls": 1, "mask": 3}
FIRST_SPECIAL = 100
"""Tokens from here on stand for images and the like; texts are drawn from those below."""

Rule = Callable[[Any, Mapping[str, Any]], Any]


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Plan:
    """How to shrink; there are models that do not run when it is done in one way.

    Attributes:
        layers: Number of layers where the class lists no kinds of them.
        fills: Whether fields that are None by default, and that the model needs, are set.
        keeps_stages: Whether sequences of numbers, such as the channels of stages, stay as they
            are.
    """

    layers: int = 1
    fills: bool = False
    keeps_stages: bool = False


PLANS = (
    Plan(),
    Plan(fills=True),
    Plan(layers=2),
    Plan(layers=2, fills=True),
    Plan(keeps_stages=True),
)
"""What to try, in this order."""

FILLED: dict[str, Any] = {
    "head_dim": HEAD,
    "num_key_value_heads": HEADS // 2,
    "vocab_size": VOCABULARY,
    "num_experts_per_tok": 2,
    "moe_topk": 2,
    "n_routed_experts": 4,
    "num_experts": 4,
    "num_local_experts": 4,
    "n_shared_experts": 1,
    "pad_token_id": 0,
    "sliding_window": 8,
    "prediction_length": 4,
    "default_language": "en_XX",
}
"""Values for fields that are None by default."""


def _to(value: Any) -> Rule:
    return lambda old, fields: value


def _at_most(limit: int) -> Rule:
    """Shortens numbers, and each number of a sequence."""

    def limited(old: Any, fields: Mapping[str, Any]) -> Any:
        if isinstance(old, int):
            return min(old, limit)
        return type(old)(min(each, limit) for each in old)

    return limited


def _scaled(smallest: int) -> Rule:
    """Keeps the ratios of a sequence; a single number is made so large at most."""

    def scaled(old: Any, fields: Mapping[str, Any]) -> Any:
        if isinstance(old, int):
            return min(old, HIDDEN)
        factor = smallest / min(old)
        if factor >= 1:
            return old
        return type(old)(max(smallest, round(each * factor / smallest) * smallest) for each in old)

    return scaled


def _grouped(old: Any, fields: Mapping[str, Any]) -> Any:
    """Heads of keys: as many as of queries if that is so by default, or half of them, or one."""
    if not isinstance(old, int):
        return old
    heads = next((fields[x] for x in ("num_attention_heads", "n_head") if fields.get(x)), None)
    return HEADS if old == heads else 1 if old == 1 else HEADS // 2


def _image(old: Any, fields: Mapping[str, Any]) -> Any:
    stages = fields.get("depths") or fields.get("hidden_sizes") or fields.get("embed_dims")
    size = DEEP_IMAGE if isinstance(stages, list | tuple) else IMAGE
    return type(old)(size for _ in old) if isinstance(old, list | tuple) else size


def _patch(old: Any, fields: Mapping[str, Any]) -> Any:
    if isinstance(old, int):
        return 8 if old > 8 else old
    return type(old)(8 if each > 8 else each for each in old)


def _embedding(old: Any, fields: Mapping[str, Any]) -> Any:
    """Of stages, the first one's: it doubles from stage to stage."""
    has_stages = isinstance(old, int) and isinstance(fields.get("depths"), list | tuple)
    return 16 if has_stages else _scaled(16)(old, fields)


def _heads(old: Any, fields: Mapping[str, Any]) -> Any:
    return _scaled(1)(old, fields) if isinstance(old, list | tuple) else min(old, HEADS)


RULES: tuple[tuple[str, Rule], ...] = (
    (r"type_vocab_size", _at_most(4)),
    (r"(.*_)?vocab(ulary)?_size.*|.*_vocab", _to(VOCABULARY)),
    (r".*(layerdrop|dropout|drop_prob|pdrop|drop_rate|drop_path_rate|droprate).*", _to(0.0)),
    (r"mask_(time|feature)_prob|.*jitter.*|dropout_p|.*drop", _to(0.0)),
    (r"max_window_layers|n_dense_layers|first_k_dense_replace|num_dense_layers", _at_most(1)),
    (r"num_hidden_layers|n_layers?|num_layers", _at_most(1)),
    (r"(.*_)?num_kv_shared_layers", _at_most(0)),
    (r"num_feature_levels|num_feat_extract_layers|num_conv_layers", lambda old, fields: old),
    (r"(.*_)?layers|num_.*_layers|.*_num_layers|(.*_)?depth|.*_depth", _at_most(1)),
    (r"(.*_)?(num_key_value_heads|n_kv_heads|num_kv_heads|kv_heads)", _grouped),
    (r"(.*_)?(num_attention_heads|attention_heads|num_heads|n_heads?|heads|num_.*_heads)", _heads),
    (r"depths|.*_depths|(stage_)?num_blocks|num_block_repeats", _at_most(1)),
    (r"hidden_sizes|embed_dims|.*hidden_sizes", _scaled(16)),
    (r"(.*_)?conv_dim|encoder_channels|channels", _scaled(16)),
    (r"(.*_)?(head_dim|dim_head|d_head|d_kv|head_size)|attention_head_dim", _at_most(HEAD)),
    (r"rotary_dim", _at_most(HEAD // 2)),
    (r"(.*_)?lora_rank", _at_most(16)),
    (r"(.*_)?image_size|img_size|.*image_size|resolution", _image),
    (r"(.*_)?patch_size", _patch),
    (r"(.*_)?spatial_merge_size|temporal_patch_size|num_channels", lambda old, fields: old),
    (r"(.*_)?embed_dim", _embedding),
    (r"moe_.*intermediate_size|shared_expert.*_size|expert_dim|expert_.*size", _at_most(32)),
    (
        r"(.*_)?(intermediate_size|ffn_dim|mlp_dim|d_ff|"
        r"ffn_hidden_size|n_inner|.*feedforward.*)",
        _at_most(96),
    ),
    (r"(n|num|moe_num)_.*experts|num_experts|num_local_experts", _at_most(4)),
    (r"num_experts_per_tok|moe_topk|moe_k|top_?k|num_selected_experts", _at_most(2)),
    (r"n_group|topk_group|n_shared_experts|moe_num_shared_experts", _at_most(1)),
    (
        r"(.*_)?(max_position_embeddings|n_positions|"
        r"n_ctx|max_.*positions|max_seq_len)",
        _at_most(POSITIONS),
    ),
    (
        r"(.*_)?sliding_window(_size)?|local_attention|"
        r"attention_window|attention_chunk_size",
        _at_most(8),
    ),
    (r"(.*_)?chunk_size|.*chunk_length|block_size|index_topk", _at_most(8)),
    (
        r"num_queries|num_query_tokens|.*num_latents|"
        r"n_latents|latent_query_num|num_denoising",
        _at_most(8),
    ),
    (r"codebook_size|num_embeddings|num_codevectors_per_group|num_buckets", _at_most(32)),
    (r"num_mel_bins|n_mels|mel_dim", lambda old, fields: old),
    (r"(.*_)?state_size|.*d_state|ssm_state_size", _at_most(8)),
    (r"num_frames|frames_per_clip", _at_most(4)),
    (r"window_size", lambda old, fields: _at_most(4 if _first(old) <= 16 else 32)(old, fields)),
    (r".*groups", _at_most(4)),
    (
        r"sampling_rate|sample_rate|.*stride.*|.*ratios?|"
        r".*index.*|.*_theta|.*temperature.*|.*_id",
        lambda old, fields: old,
    ),
    (
        r"hidden_size.*|.*(size|dim|dims|channels?|width|"
        r"hidden|features|units|embd|model|rank|filters)",
        _scaled(16),
    ),
)  # fmt: skip
"""The first that matches a field's name says what becomes of a number, or of several."""

_COMPILED = [(re.compile(pattern), rule) for pattern, rule in RULES]
_TOKEN = re.compile(r"(.*?)_?token_(id|index)")
_IS_RATE = re.compile(r".*(drop|_prob|jitter).*")


def shrink(
    config: PreTrainedConfig, overrides: Mapping[str, Any] | None = None, plan: Plan = PLANS[0]
) -> Any:
    """Makes a small configuration of the same class.

    Args:
        config: One with default values.
        overrides: Fields to set otherwise; a mapping for a sub-configuration.
        plan: How to shrink.
    """
    overrides = dict(overrides or {})
    old = _values(config)
    usual = _values(type(config)())
    tokens = iter(range(FIRST_SPECIAL, VOCABULARY))
    values: dict[str, Any] = {}
    for field in dataclasses.fields(type(config)):
        name, value = field.name, old[field.name]
        if isinstance(value, PreTrainedConfig):
            changes = overrides.pop(name, {})
            is_changed = isinstance(changes, Mapping)
            values[name] = shrink(value, changes, plan) if is_changed else changes
        elif name not in overrides:
            small = _small(name, old, plan, tokens)
            is_usual = value == usual[name]
            is_derived = is_usual and value is not None and field.default is None
            if is_derived and not _is_by_layer(name, old):
                small = _sections(value, plan)  # the class works out the rest
            if small != value or not is_usual:
                values[name] = small
    return type(config)(**{**values, **overrides})


def _small(name: str, fields: Mapping[str, Any], plan: Plan, tokens: Iterator[int]) -> Any:
    """Returns the new value of a field that holds no configuration."""
    value = fields[name]
    kept = _kept_layers(fields)
    if name == "num_hidden_layers":
        return len(kept) if kept else plan.layers
    if _is_by_layer(name, fields):
        return [value[at] for at in kept or range(plan.layers)]
    if value is None and plan.fills:
        return FILLED.get(name)
    if plan.keeps_stages and isinstance(value, list | tuple):
        return value
    return _shrunk(name, value, fields, tokens)


def _values(config: PreTrainedConfig) -> dict[str, Any]:
    """Returns the fields' values; of one that varies from layer to layer, the common one."""
    values = vars(config)
    return {field.name: values.get(field.name) for field in dataclasses.fields(type(config))}


def _kept_layers(fields: Mapping[str, Any]) -> list[int]:
    """Returns a layer of each kind; none where no kinds are listed."""
    kinds = [
        value
        for name, value in fields.items()
        if _is_by_layer(name, fields) and isinstance(value[0], str)
    ]
    layers = list(zip(*kinds, strict=True))
    return sorted({layers.index(kind) for kind in layers})


def _is_by_layer(name: str, fields: Mapping[str, Any]) -> bool:
    """Whether a field has a value for each layer."""
    value = fields[name]
    layers = fields.get("num_hidden_layers")
    return isinstance(value, list | tuple) and len(value) == layers and len(value) > 1


def _sections(value: Any, plan: Plan) -> Any:
    """Shortens the parts of a rotary embedding, which add up to half of a head."""
    if not isinstance(value, dict) or "rope_theta" not in value:
        return value
    if "mrope_section" not in value and not plan.fills:
        return value
    half = int(HEAD * value.get("partial_rotary_factor", 1.0)) // 2
    small = [max(1, half // 3)] * 2
    return {**value, "mrope_section": [half - sum(small), *small]}


def _shrunk(name: str, value: Any, fields: Mapping[str, Any], tokens: Iterator[int]) -> Any:
    if match := _TOKEN.fullmatch(name):
        return _token(match[1], value, tokens)
    if isinstance(value, float) and _IS_RATE.fullmatch(name):
        return 0.0
    if not _is_number(value) and not _are_numbers(value):
        return value
    for pattern, rule in _COMPILED:
        if pattern.fullmatch(name):
            return rule(value, fields)
    return value


def _token(kind: str, value: Any, tokens: Iterator[int]) -> Any:
    if value is None:
        return None
    if kind in SPECIAL_TOKENS:
        return SPECIAL_TOKENS[kind]
    return next(tokens) if isinstance(value, int) else value


def _first(value: Any) -> Any:
    return value[0] if isinstance(value, list | tuple) else value


def _is_number(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _are_numbers(value: Any) -> bool:
    return isinstance(value, list | tuple) and bool(value) and all(map(_is_number, value))
