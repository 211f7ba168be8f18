"""A call of an ATen operator as data: what tensors it gets, and how to make it."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.utils._pytree import tree_leaves, tree_map

from thunder.executors.nvfuser.lowering import Kind
from thunder.executors.nvfuser.operators import LOWERINGS


@dataclass(frozen=True)
class Spec:
    """How to make an input tensor.

    `kind` is one of normal, positive, statistic, unit, special, int, index, bool; indices are
    below `high`.
    """

    shape: tuple[int, ...]
    kind: str = "normal"
    high: int = 10
    dtype: torch.dtype | None = None
    permuted: tuple[int, ...] | None = None

    def make(self, device: str, dtype: torch.dtype, seed: int) -> torch.Tensor:
        generator = torch.Generator().manual_seed(seed)
        shape = self.shape
        if self.permuted is not None:
            shape = tuple(shape[dim] for dim in self.permuted)
        value = self._values(shape, self.dtype or dtype, generator)
        if self.permuted is not None:
            value = value.permute([self.permuted.index(dim) for dim in range(len(shape))])
        return value.to(device)

    def _values(self, shape, dtype, generator):
        match self.kind:
            case "normal":
                return torch.randn(shape, generator=generator, dtype=torch.float32).to(dtype)
            case "positive":
                return torch.rand(shape, generator=generator).add(0.1).to(dtype)
            case "statistic":
                wide = torch.float64 if dtype is torch.float64 else torch.float32
                return torch.rand(shape, generator=generator).add(0.1).to(wide)
            case "unit":
                return torch.rand(shape, generator=generator).mul(1.8).sub(0.9).to(dtype)
            case "special":
                value = torch.randn(shape, generator=generator).to(dtype)
                flat = value.view(-1)
                extras = [math.nan, math.inf, -math.inf, 0.0, -0.0, 0.5, 1.5, 2.5, -0.5]
                flat[: len(extras)] = torch.tensor(extras, dtype=dtype)[: flat.numel()]
                return value
            case "int":
                drawn = torch.randint(-self.high, self.high, shape, generator=generator)
                return drawn.to(self.dtype or torch.int64)
            case "index":
                drawn = torch.randint(0, self.high, shape, generator=generator)
                return drawn.to(self.dtype or torch.int64)
            case "bool":
                return torch.randint(0, 2, shape, generator=generator).bool()
        raise ValueError(self.kind)


@dataclass(frozen=True)
class Call:
    """One call of an ATen operator; `Spec`s stand for tensors."""

    args: tuple[Any, ...]
    kwargs: dict[str, Any] = field(default_factory=dict)
    floats: bool = True
    """Whether its float inputs follow the dtype of the test; otherwise it runs once."""
    computed: bool = False
    """Whether to hand it the results of an operator instead of the fusion's inputs."""


def call(*args: Any, floats: bool = True, **kwargs: Any) -> Call:
    return Call(args, kwargs, floats)


def f(*shape: int, **options: Any) -> Spec:
    return Spec(shape, **options)


def i(*shape: int, dtype: torch.dtype = torch.int64, **options: Any) -> Spec:
    return Spec(shape, kind="int", dtype=dtype, **options)


def index(*shape: int, high: int) -> Spec:
    return Spec(shape, kind="index", high=high)


def acc(*shape: int) -> Spec:
    """A statistic, which CUDA keeps in float32 for low precision; positive."""
    return Spec(shape, kind="statistic")


def b(*shape: int) -> Spec:
    return Spec(shape, kind="bool")


def follows_dtype(entry: Call) -> bool:
    leaves = tree_leaves((entry.args, entry.kwargs), is_leaf=lambda v: isinstance(v, Spec))
    specs = [leaf for leaf in leaves if isinstance(leaf, Spec) and leaf.dtype is None]
    return any(spec.kind not in ("int", "index", "bool") for spec in specs)


def prepare(name: str, entry: Call, dtype: torch.dtype, device: str) -> tuple[Any, list[Any]]:
    """Returns a function of tensors that makes the call, and the tensors."""
    inputs: list[torch.Tensor] = []

    def place(value: Any) -> Any:
        if isinstance(value, Spec):
            inputs.append(value.make(device, dtype, seed=len(inputs)))
            return _Place(len(inputs) - 1)
        if isinstance(value, str) and value in ("DEVICE", "DTYPE"):
            return torch.device(device) if value == "DEVICE" else dtype
        return value

    namespace, operator, overload = name.split(".")
    target = getattr(getattr(getattr(torch.ops, namespace), operator), overload)
    leaf = lambda value: isinstance(value, Spec)  # noqa: E731
    args, kwargs = tree_map(place, (entry.args, entry.kwargs), is_leaf=leaf)
    kind = LOWERINGS[name].kind
    if kind is Kind.FACTORY:
        kwargs = {"device": torch.device(device), **kwargs} if "_like" not in name else kwargs
    if not inputs:
        inputs.append(Spec((1,)).make(device, torch.float32, seed=0))
    moves = kind in (Kind.VIEW, Kind.COPY, Kind.FACTORY)

    def function(*tensors: torch.Tensor) -> Any:
        given = [changed(tensor) for tensor in tensors] if entry.computed else list(tensors)
        filled = tree_map(
            lambda v: given[v.position] if isinstance(v, _Place) else v,
            (list(args), kwargs),
            is_leaf=lambda v: isinstance(v, _Place),
        )
        if name == "aten.scatter.value":
            filled[0][0] = torch.zeros_like(filled[0][0])
        result = target(*filled[0], **filled[1])
        return tree_map(changed, result) if moves else result

    return function, inputs


@dataclass(frozen=True)
class _Place:
    position: int


def changed(value: Any) -> Any:
    """Computes something on a tensor, so that moving it is not all that a fusion does."""
    if not isinstance(value, torch.Tensor):
        return value
    if value.dtype is torch.bool:
        return value.logical_not()
    return value * 2 if value.is_floating_point() else value + 0 * value
