"""Makes inputs for a model, from the parameters of its `forward` and from its configuration."""

from __future__ import annotations

import inspect
import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils._pytree import tree_leaves

from tests.zoo.shrinking import DEEP_IMAGE, FIRST_SPECIAL, IMAGE

Inputs = dict[str, Any]
FIRST_WORD = 4


@dataclass(frozen=True, kw_only=True, slots=True)
class Size:
    """How large the inputs are.

    Attributes:
        batch: Number of examples.
        length: Tokens of an example.
        steps: Time steps of an audio, in some unit.
    """

    batch: int
    length: int
    steps: int


SIZES = (
    (Size(batch=2, length=12, steps=2), Size(batch=3, length=17, steps=3)),
    (Size(batch=2, length=16, steps=2), Size(batch=3, length=24, steps=3)),
)
"""Pairs: the second is what a compiled model meets after the first. Some models take multiples
of eight only."""


def input_candidates(model: Any, size: Size) -> Iterator[Inputs]:
    """Yields inputs to try, richer ones first. The same number and kinds for each size.

    Args:
        model: A model of transformers.
        size: How large.
    """
    names = list(inspect.signature(model.forward).parameters)
    makers = [maker(model, names, size) for maker in (_image, _audio, _video, _series)]
    media = [each for maker in makers for each in maker]
    texts = list(_text(model, names, size)) if "input_ids" in names else []
    for medium in media if texts else []:
        for text in texts:
            yield from _labelled(
                model, names, size, {**_with_places(model, text, medium), **medium}
            )
    for only in media:
        for words in _decoded(model, names, size):
            yield from _labelled(model, names, size, {**only, **words})
    for only in texts:
        yield from _labelled(model, names, size, only)


def _labelled(model: Any, names: list[str], size: Size, inputs: Inputs) -> Iterator[Inputs]:
    """Adds what a loss needs, then tries without."""
    if "return_loss" in names:
        yield {**inputs, "return_loss": True}
    if "labels" in names:
        ids = inputs.get("decoder_input_ids", inputs.get("input_ids"))
        if ids is not None:
            without = {k: v for k, v in inputs.items() if k != "decoder_input_ids"}
            yield {**without, "labels": ids.clone()}
        labels = torch.arange(size.batch) % max(1, getattr(model.config, "num_labels", 2))
        yield {**inputs, "labels": labels}
    yield inputs


def _decoded(model: Any, names: list[str], size: Size) -> Iterator[Inputs]:
    """What the decoder of a model is told that encodes something else than text."""
    if "decoder_input_ids" in names and getattr(model.config, "is_encoder_decoder", False):
        yield {"decoder_input_ids": _words(size.batch, size.length)}
    yield {}


def _words(batch: int, length: int) -> torch.Tensor:
    return torch.randint(FIRST_WORD, FIRST_SPECIAL, (batch, length))


def _text(model: Any, names: list[str], size: Size) -> Iterator[Inputs]:
    ids = _words(size.batch, size.length)
    plain: Inputs = {"input_ids": ids}
    if "decoder_input_ids" in names and model.config.is_encoder_decoder:
        plain["decoder_input_ids"] = _words(size.batch, size.length - 4)
    if "bbox" in names:
        corner = torch.randint(0, 20, (size.batch, size.length, 2))
        plain["bbox"] = torch.cat([corner, corner + 5], -1)
    if "qformer_input_ids" in names:
        plain["qformer_input_ids"] = _words(size.batch, size.length)
    if "visual_feats" in names:
        width = getattr(model.config, "visual_feat_dim", 64)
        plain["visual_feats"] = torch.randn(size.batch, 5, width)
        plain["visual_pos"] = torch.rand(size.batch, 5, 4)
    if "attention_mask" in names:
        mask = torch.ones_like(ids)
        mask[-1, -3:] = 0
        yield {**plain, "attention_mask": mask}
        yield {**plain, "attention_mask": torch.ones_like(ids)}
    yield plain


def _with_places(model: Any, text: Inputs, medium: Inputs) -> Inputs:
    """Puts as many image tokens into a text as the images give features."""
    token = _media_token(model.config)
    if token is None or not hasattr(model, "get_image_features"):
        return text
    try:
        with torch.no_grad():
            features = model.get_image_features(**medium)
    except Exception:  # noqa: BLE001 - these images are not for this model, and the call will say so
        return text
    features = getattr(features, "pooler_output", features)
    rows = sum(
        x.numel() // x.shape[-1] for x in tree_leaves(features) if isinstance(x, torch.Tensor)
    )
    ids = text["input_ids"]
    places = torch.full((len(ids), rows // len(ids)), token)
    longer = {**text, "input_ids": torch.cat([ids[:, :1], places, ids[:, 1:]], 1)}
    if "attention_mask" in text:
        mask = text["attention_mask"]
        longer["attention_mask"] = torch.cat([torch.ones_like(places), mask], 1)
    if "mm_token_type_ids" in inspect.signature(model.forward).parameters:
        longer["mm_token_type_ids"] = (longer["input_ids"] == token).long()
    return longer


def _media_token(config: Any) -> int | None:
    for name in ("image_token_id", "image_token_index"):
        if isinstance(getattr(config, name, None), int):
            return getattr(config, name)
    return None


def _setting(config: Any, *names: str) -> Any:
    """Returns the first of these settings that the configuration or a part of it has."""
    parts = [getattr(config, each) for each in getattr(config, "sub_configs", {})]
    for owner in [config, *(part for part in parts if part is not None)]:
        for name in names:
            if getattr(owner, name, None) is not None:
                return getattr(owner, name)
    for part in parts:
        if part is not None and (found := _setting(part, *names)) is not None:
            return found
    return None


def _first(value: Any) -> Any:
    return value[0] if isinstance(value, list | tuple) else value


def _image(model: Any, names: list[str], size: Size) -> Iterator[Inputs]:
    config = model.config
    grid = next((x for x in ("image_grid_thw", "grid_thw") if x in names), None)
    name = next(
        (x for x in ("pixel_values", "hidden_states", "images", "image") if x in names), None
    )
    if name is None:
        return
    channels = _first(_setting(config, "num_channels", "in_channels", "in_chans")) or 3
    if grid:
        patch = _first(_setting(config, "patch_size")) or 8
        temporal = _setting(config, "temporal_patch_size") or 1
        shape = torch.tensor([[1, 4, 4]] * size.batch)
        yield {name: torch.randn(16 * size.batch, channels * temporal * patch * patch), grid: shape}
        return
    if name == "hidden_states":
        return
    if "spatial_shapes" in names:
        patch = _setting(config, "patch_size", "encoder_patch_size")
        yield {
            name: torch.randn(size.batch, 16, channels * patch * patch),
            "pixel_attention_mask": torch.ones(size.batch, 16, dtype=torch.long),
            "spatial_shapes": torch.tensor([[4, 4]] * size.batch),
        }
    given = _first(_setting(config, "image_size", "img_size", "input_size"))
    sides = dict.fromkeys([x for x in (given, IMAGE, DEEP_IMAGE) if isinstance(x, int)])
    for side in sides:
        yield {name: torch.randn(size.batch, channels, side, side)}
        yield {name: torch.randn(size.batch, 1, channels, side, side)}
        frames = _setting(config, "num_frames")
        if frames:
            yield {name: torch.randn(size.batch, frames, channels, side, side)}


def _audio(model: Any, names: list[str], size: Size) -> Iterator[Inputs]:
    config = model.config
    bins = _setting(config, "num_mel_bins", "n_mels", "mel_dim", "input_feat_per_channel") or 80
    if "input_features" in names:
        wide = _setting(config, "feature_size", "feature_projection_input_dim", "input_dim")
        for mels in dict.fromkeys([bins, wide or bins]):
            positions = _setting(config, "max_source_positions", "max_position_embeddings")
            for frames in dict.fromkeys([32 * size.steps, 2 * (positions or 64)]):
                yield {"input_features": torch.randn(size.batch, mels, frames)}
                yield {"input_features": torch.randn(size.batch, frames, mels)}
    if "input_values" in names:
        for samples in (800 * size.steps, 3200 * size.steps):
            yield {"input_values": torch.randn(size.batch, samples)}
            yield {"input_values": torch.randn(size.batch, 1, samples)}
        yield {"input_values": torch.randn(size.batch, 64, bins)}


def _video(model: Any, names: list[str], size: Size) -> Iterator[Inputs]:
    if "pixel_values_videos" in names and "input_ids" not in names:
        config = model.config
        side = _first(_setting(config, "image_size", "crop_size")) or IMAGE
        for frames in dict.fromkeys(
            [_setting(config, "num_frames", "frames_per_clip") or 4, 4, 16]
        ):
            yield {"pixel_values_videos": torch.randn(size.batch, frames, 3, side, side)}


def _series(model: Any, names: list[str], size: Size) -> Iterator[Inputs]:
    config = model.config
    if "returns_to_go" in names:
        yield _episode(config, size)
    if "past_values" not in names:
        return
    length = _setting(config, "context_length", "patch_length") or 32
    channels = _setting(config, "num_input_channels")
    if channels:
        past = torch.randn(size.batch, length, channels)
        yield {"past_values": past}
        return
    lags = max(getattr(config, "lags_sequence", None) or [0])
    past = torch.randn(size.batch, length + lags)
    features = max(1, getattr(config, "num_time_features", 0) or 0)
    future = getattr(config, "prediction_length", None) or 4
    yield {
        "past_values": past,
        "past_time_features": torch.randn(size.batch, length + lags, features),
        "past_observed_mask": torch.ones(size.batch, length + lags),
        "future_values": torch.randn(size.batch, future),
        "future_time_features": torch.randn(size.batch, future, features),
    }


def _episode(config: Any, size: Size) -> Inputs:
    steps = (size.batch, size.length)
    return {
        "states": torch.randn(*steps, config.state_dim),
        "actions": torch.randn(*steps, config.act_dim),
        "rewards": torch.randn(*steps, 1),
        "returns_to_go": torch.randn(*steps, 1),
        "timesteps": torch.arange(size.length).expand(steps).contiguous(),
        "attention_mask": torch.ones(steps),
    }


def nth(candidates: Iterator[Inputs], index: int) -> Inputs:
    return next(itertools.islice(candidates, index, None))
