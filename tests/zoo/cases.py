"""A tiny model with random weights for each architecture, and inputs in two sizes."""

from __future__ import annotations

import copy
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.utils._pytree import tree_leaves
from transformers import PreTrainedModel

from tests.zoo.architectures import default_config, model_classes
from tests.zoo.inputs import SIZES, Inputs, Size, input_candidates, nth
from tests.zoo.overrides import OVERRIDES
from tests.zoo.shrinking import PLANS, shrink

LARGEST = 40_000_000
"""Parameters of a model that is not tiny."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Case:
    """A model and what it is called with.

    Attributes:
        model: The model.
        inputs: Keyword arguments of its calls, in the first size.
        other: The same in the second size; the first again where another size does not run.
        resized: Whether the second size runs.
    """

    model: nn.Module
    inputs: Inputs
    other: Inputs
    resized: bool


class NoCaseError(Exception):
    """Nothing that was tried for an architecture runs in eager mode."""


def make_case(model_type: str) -> Case:
    """Makes the first class and inputs of an architecture that train in eager mode.

    Args:
        model_type: Its type, such as `llama`.

    Raises:
        NoCaseError: None do.
    """
    classes = _classes(model_type)
    problems = []
    for plan in PLANS:
        try:
            config = shrink(default_config(model_type), OVERRIDES.get(model_type), plan)
        except Exception as error:  # noqa: BLE001 - another plan may do
            problems.append(_first_line(error))
            continue
        for model_class in classes:
            try:
                torch.manual_seed(3)
                model = _without_chance(_on_meta_first(model_class, config))
                return _with_inputs(model)
            except Exception as error:  # noqa: BLE001 - another class may do
                problems.append(f"{model_class.__name__}: {_first_line(error)}")
    raise NoCaseError("; ".join(dict.fromkeys(problems)))


def _classes(model_type: str) -> list[type[PreTrainedModel]]:
    classes = list(model_classes(model_type))
    if not classes:
        raise NoCaseError("no class of its own: a part of another architecture")
    return classes


def loss_of(outputs: Any) -> torch.Tensor:
    """Returns the model's loss, or a number that each floating-point output has a part in.

    Args:
        outputs: What the model returned.
    """
    loss = getattr(outputs, "loss", None)
    if isinstance(loss, torch.Tensor) and loss.numel() == 1 and loss.requires_grad:
        return loss.reshape(())
    return sum(
        (_weighted(x) for x in tensors_of(outputs) if x.requires_grad),
        start=torch.zeros(()),
    )


def tensors_of(outputs: Any) -> list[torch.Tensor]:
    """Returns the tensors in what a model returned, in order.

    Args:
        outputs: A model output, tensor, tuple or mapping.
    """
    items = dict(outputs) if hasattr(outputs, "to_tuple") else outputs
    return [leaf for leaf in tree_leaves(items) if isinstance(leaf, torch.Tensor)]


def _weighted(x: torch.Tensor) -> torch.Tensor:
    finite = torch.where(x.isfinite(), x, 0).float()
    weights = torch.linspace(0.5, 1.5, x.numel()).reshape(x.shape)
    return (finite * weights).mean() + finite.square().mean()


def _on_meta_first(model_class: Any, config: Any) -> nn.Module:
    """Makes a model, unless it would be large."""
    with torch.device("meta"):
        count = sum(p.numel() for p in model_class(_copy(config)).parameters())
    if count > LARGEST:
        raise NoCaseError(f"{count / 1e6:.0f} million parameters after shrinking")
    return model_class(_copy(config))


def _copy(config: Any) -> Any:
    return type(config).from_dict(config.to_dict())


def _without_chance(model: nn.Module) -> nn.Module:
    """Switches dropout off where the configuration has no word for it."""
    for module in model.modules():
        if isinstance(module, nn.modules.dropout._DropoutNd):
            module.p = 0.0
        for name in ("dropout", "hidden_dropout", "attention_dropout", "layerdrop"):
            if isinstance(getattr(module, name, None), float):
                setattr(module, name, 0.0)
    return model


def _with_inputs(model: nn.Module) -> Case:
    problems = []
    for first, second in SIZES:
        torch.manual_seed(7)
        for index, inputs in enumerate(input_candidates(model, first)):
            try:
                _train_once(model, inputs)
            except Exception as error:  # noqa: BLE001 - other inputs may do
                problems.append(_first_line(error))
                continue
            other, resized = _resized(model, index, second)
            return Case(model=model, inputs=inputs, other=other or inputs, resized=resized)
    raise NoCaseError(" | ".join(dict.fromkeys(problems)) or "no inputs to try")


def _resized(model: nn.Module, index: int, size: Size) -> tuple[Inputs | None, bool]:
    torch.manual_seed(8)
    try:
        inputs = nth(input_candidates(model, size), index)
        _train_once(model, inputs)
    except Exception:  # noqa: BLE001 - recorded as not resized
        return None, False
    return inputs, True


def _train_once(model: nn.Module, inputs: Inputs) -> None:
    """Runs a copy: some models keep something of a call."""
    loss = loss_of(copy.deepcopy(model).train()(**inputs))
    if not loss.requires_grad:
        raise NoCaseError("no output requires grad")
    loss.backward()
    if not loss.isfinite():
        raise NoCaseError(f"the loss is {loss.item()}")


def _first_line(error: Exception) -> str:
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {' '.join(lines)[:160]}"
