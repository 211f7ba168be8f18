"""Inputs of a program, copied so that runs do not see each other's writes.

A copy keeps what a program can notice: shapes, strides, offsets, memory that inputs share, who
requires grad and who is a leaf of autograd. Memory that no run writes to can be shared between
copies, so that a model is not held twice.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn
from torch.utils._python_dispatch import is_traceable_wrapper_subclass
from torch.utils._pytree import keystr, tree_flatten_with_path, tree_leaves, tree_map

from thunder.trace.float64 import WIDE

Convert = Callable[[torch.Tensor], torch.Tensor]


@dataclass(frozen=True, kw_only=True, slots=True)
class Inputs:
    """What a program is called with.

    Attributes:
        args: Positional arguments: tensors, numbers, anything, in containers if need be.
        state: Parameters and buffers of the module that is called, by name; empty for other
            callables. Calls put them in place of the module's own.
    """

    args: tuple[Any, ...]
    state: Mapping[str, torch.Tensor] = field(default_factory=dict)

    @staticmethod
    def of(function: Callable[..., Any], args: Iterable[Any]) -> Inputs:
        """Collects what a call of `function` starts from.

        Example:
            >>> import torch
            >>> sorted(Inputs.of(torch.nn.Linear(1, 1), [torch.ones(2, 1)]).tensors())
            ['args[0]', 'state.bias', 'state.weight']
        """
        state: dict[str, torch.Tensor] = {}
        if isinstance(function, nn.Module):
            state = {**dict(function.named_parameters()), **dict(function.named_buffers())}
        return Inputs(args=tuple(args), state=state)

    def tensors(self) -> dict[str, torch.Tensor]:
        """Returns the tensors by name."""
        found = {
            f"args{keystr(path)}": leaf
            for path, leaf in tree_flatten_with_path(self.args)[0]
            if isinstance(leaf, torch.Tensor)
        }
        return found | {f"state.{name}": tensor for name, tensor in self.state.items()}

    def differentiable(self) -> dict[str, torch.Tensor]:
        """Returns those that require grad."""
        return {name: x for name, x in self.tensors().items() if x.requires_grad}

    def names_in(self, keys: Container[int]) -> frozenset[str]:
        """Returns the names of the tensors that have memory with one of these keys."""
        return frozenset(
            name
            for name, tensor in self.tensors().items()
            if any(storage_key(part) in keys for part in plain_parts(tensor))
        )

    def keys_of(self, names: Iterable[str]) -> frozenset[int]:
        """Returns the keys of the memory behind the tensors with these names."""
        tensors = self.tensors()
        return frozenset(storage_key(part) for name in names for part in plain_parts(tensors[name]))

    def widened_nbytes(self) -> int:
        """Returns about how much memory a copy in float64 takes."""
        storages = {}
        for tensor in self.tensors().values():
            for part in plain_parts(tensor):
                factor = 8 / part.element_size() if part.dtype in WIDE else 1
                storages[storage_key(part)] = factor * part.untyped_storage().nbytes()
        return int(sum(storages.values()))

    def copy(self, *, only: Container[int] | None = None, convert: Convert | None = None) -> Inputs:
        """Returns inputs with memory of their own.

        Args:
            only: Keys (`storage_key`) of the memory to copy; other memory is shared. None for all.
            convert: What to do with each piece of memory instead of copying it as it is; gets a
                one-dimensional tensor and returns one of the same length.
        """
        copier = _Copier(only, convert)
        return Inputs(
            args=tree_map(copier.copy, self.args),
            state={name: copier.copy(tensor) for name, tensor in self.state.items()},
        )


def storage_key(tensor: torch.Tensor) -> int:
    """Returns a number that is the same for tensors that share memory."""
    return tensor.untyped_storage()._cdata


def flat_memory(tensor: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """Returns all of the memory behind a plain tensor as one dimension.

    Args:
        tensor: The tensor.
        dtype: How to read the memory.
    """
    storage = tensor.untyped_storage()
    flat = torch.empty(0, dtype=dtype, device=tensor.device)
    return flat.set_(storage, 0, (storage.nbytes() // dtype.itemsize,), (1,))


def widened(memory: torch.Tensor) -> torch.Tensor:
    """Returns floating-point memory in float64, other memory as a copy; for `Inputs.copy`."""
    return memory.to(WIDE.get(memory.dtype, memory.dtype), copy=True)


def nudged(memory: torch.Tensor) -> torch.Tensor:
    """Returns memory whose floating-point numbers are one rounding away; for `Inputs.copy`.

    The directions come from a generator of their own, which leaves torch's alone.
    """
    wide = widened(memory)
    if memory.dtype not in WIDE:
        return wide
    generator = torch.Generator(wide.device).manual_seed(0)
    noise = torch.rand(wide.shape, generator=generator, dtype=torch.float64, device=wide.device)
    return wide.mul_(noise.mul_(2).sub_(1).mul_(torch.finfo(memory.dtype).eps).add_(1))


def fingerprint(tensors: Iterable[torch.Tensor]) -> dict[int, int]:
    """Returns a number for each piece of memory that changes when it is written to.

    Args:
        tensors: Any tensors; those without plain memory are passed over.
    """
    found = {}
    for tensor in tensors:
        for part in plain_parts(tensor):
            if storage_key(part) not in found:
                found[storage_key(part)] = _checksum(part)
    return found


def _checksum(tensor: torch.Tensor) -> int:
    memory = flat_memory(tensor, torch.uint8)
    whole = len(memory) // 8 * 8
    words = memory[:whole].view(torch.int64)
    # The second sum notices numbers that change places with their neighbours.
    sums = (words.sum(), words[::2].sum(), memory[whole:].sum())
    return hash(tuple(torch.stack(sums).tolist()))


class _Copier:
    """Copies tensors and keeps together those that share memory."""

    def __init__(self, only: Container[int] | None, convert: Convert | None) -> None:
        self._only = only
        self._convert = convert
        self._memory: dict[tuple[int, torch.dtype], torch.Tensor] = {}
        self._copies: dict[int, torch.Tensor] = {}

    def copy(self, value: Any) -> Any:
        if not isinstance(value, torch.Tensor):
            return value
        if id(value) not in self._copies:
            self._copies[id(value)] = self._copy(value)
        return self._copies[id(value)]

    def _copy(self, tensor: torch.Tensor) -> torch.Tensor:
        with torch.no_grad():
            copied = self._values(tensor)
        if isinstance(tensor, nn.Parameter):
            return nn.Parameter(copied, requires_grad=tensor.requires_grad)
        copied.requires_grad_(tensor.requires_grad)
        return copied if tensor.is_leaf else _as_non_leaf(copied)

    def _values(self, tensor: torch.Tensor) -> torch.Tensor:
        if not _is_plain(tensor):
            return self._values_of_other(tensor)
        key = storage_key(tensor)
        if self._only is not None and key not in self._only:
            return tensor.detach()
        convert = self._convert
        dtype = torch.uint8 if convert is None else tensor.dtype  # bytes serve views of any dtype
        memory = self._memory.get((key, dtype))
        if memory is None:
            flat = flat_memory(tensor, dtype)
            memory = self._memory[key, dtype] = flat.clone() if convert is None else convert(flat)
        result = tensor.dtype if convert is None else memory.dtype
        copied = torch.empty(0, dtype=result, device=memory.device)
        shape, stride, offset = tensor.size(), tensor.stride(), tensor.storage_offset()
        return copied.set_(memory.untyped_storage(), offset, shape, stride)

    def _values_of_other(self, tensor: torch.Tensor) -> torch.Tensor:
        if is_traceable_wrapper_subclass(tensor):
            attributes, context = tensor.__tensor_flatten__()
            inner = {name: self.copy(getattr(tensor, name)) for name in attributes}
            return type(tensor).__tensor_unflatten__(inner, context, tensor.size(), tensor.stride())
        return tensor.detach().clone()


def _is_plain(tensor: torch.Tensor) -> bool:
    """Whether a tensor is nothing but a view of its storage."""
    return (
        type(tensor) in (torch.Tensor, nn.Parameter)
        and tensor.layout is torch.strided
        and not (tensor.is_meta or tensor.is_quantized or tensor.is_conj() or tensor.is_neg())
    )


def plain_parts(tensor: torch.Tensor) -> list[torch.Tensor]:
    """Returns the plain tensors that a tensor is made of."""
    if _is_plain(tensor):
        return [tensor]
    if not is_traceable_wrapper_subclass(tensor):
        return []
    attributes, _ = tensor.__tensor_flatten__()
    inner = tree_leaves([getattr(tensor, name) for name in attributes])
    return [part for x in inner if isinstance(x, torch.Tensor) for part in plain_parts(x)]


def _as_non_leaf(leaf: torch.Tensor) -> torch.Tensor:
    """Returns the same memory as the result of an operation that autograd has recorded."""
    result = torch.empty_like(leaf).requires_grad_().clone()
    result.data = leaf.detach()
    return result
