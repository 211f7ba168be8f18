"""The real values behind recorded inputs: small ones copied, large ones only watched.

A recording must not keep a model or its activations alive. So memory up to a budget is copied to
the CPU when it is recorded; of the rest only weak references stay, which give the values as long
as the program itself keeps them.
"""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch


@dataclass(frozen=True, kw_only=True, slots=True)
class Memory:
    """One storage, shared by one or more inputs.

    Attributes:
        dtype: Dtype of the inputs in it; `torch.uint8` when they differ.
        device: The device's name.
        elements: Size of the storage, in elements of `dtype`.
        needed: How many elements, from the start, the inputs reach.
        copy: The values, on the CPU, when they were copied.
        owners: Weak references to the inputs in it.
        versions: The inputs' version counters when they were recorded.
    """

    dtype: torch.dtype
    device: str
    elements: int
    needed: int
    copy: torch.Tensor | None = None
    owners: tuple[weakref.ref[torch.Tensor], ...] = field(default=())
    versions: tuple[int, ...] = ()

    def values(self) -> tuple[torch.Tensor | None, bool]:
        """Returns the values, and whether they are those of the recorded moment.

        Returns:
            A one-dimensional tensor of `needed` elements, or None when the program has freed
            the memory; True when nothing wrote to it since.
        """
        if self.copy is not None:
            return self.copy, True
        owners = [owner() for owner in self.owners]
        alive = next((owner for owner in owners if owner is not None), None)
        if alive is None:
            return None, True
        changed = any(
            owner is not None and version_of(owner) != version
            for owner, version in zip(owners, self.versions, strict=True)
        )
        return flat_memory(alive, self.dtype, self.needed), not changed


def make_memory(tensors: Sequence[torch.Tensor], budget: int) -> Memory:
    """Records a storage.

    Args:
        tensors: The real tensors in it, at least one; none is kept alive.
        budget: How many bytes may be copied.

    Returns:
        The record; `copy` is set when the values fit the budget and no parameter is among them
        (those live as long as their model).
    """
    first = tensors[0]
    same = all(tensor.dtype == first.dtype for tensor in tensors)
    dtype = first.dtype if same else torch.uint8
    needed = max(reach(tensor) * tensor.element_size() for tensor in tensors)
    if not same:  # so that it can be read in each of the dtypes
        needed = min(-(-needed // 16) * 16, first.untyped_storage().nbytes())
    lives_on = any(isinstance(tensor, torch.nn.Parameter) for tensor in tensors)
    memory = Memory(
        dtype=dtype,
        device=str(first.device),
        elements=first.untyped_storage().nbytes() // dtype.itemsize,
        needed=needed // dtype.itemsize,
        owners=tuple(weakref.ref(tensor) for tensor in tensors),
        versions=tuple(version_of(tensor) for tensor in tensors),
    )
    if lives_on or needed > budget or first.is_meta:
        return memory
    return Memory(
        dtype=dtype,
        device=memory.device,
        elements=memory.elements,
        needed=memory.needed,
        copy=flat_memory(first, dtype, memory.needed).to("cpu", copy=True),
    )


def reach(tensor: torch.Tensor) -> int:
    """Returns how many elements of its storage, from the start, a tensor reaches."""
    if tensor.numel() == 0:
        return 0
    steps = zip(tensor.shape, tensor.stride(), strict=True)
    return int(tensor.storage_offset()) + 1 + sum((size - 1) * stride for size, stride in steps)


def flat_memory(tensor: torch.Tensor, dtype: torch.dtype, elements: int) -> torch.Tensor:
    """Returns the start of a tensor's storage as one dimension.

    Args:
        tensor: Any strided tensor with memory.
        dtype: How to read the memory.
        elements: How much of it.
    """
    flat = torch.empty(0, dtype=dtype, device=tensor.device)
    storage: Any = tensor.untyped_storage()
    return flat.set_(storage, 0, (elements,), (1,))


def version_of(tensor: torch.Tensor) -> int:
    """Returns a tensor's version counter; inference tensors have none and give 0."""
    return 0 if tensor.is_inference() else int(tensor._version)
