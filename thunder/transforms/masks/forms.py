"""Which mask a tensor is: all true, causal, a sliding window, or none that kernels know by name.

Each answer is proven for every index and every size, by comparing the tensor's function with
that of the named mask.
"""

from __future__ import annotations

import enum
from collections.abc import Iterator
from dataclasses import dataclass
from typing import final

import torch

from thunder.transforms.masks.affine import Affine, Index, variable
from thunder.transforms.masks.indexed_tensor import FLOATS, IndexedTensor
from thunder.transforms.masks.piecewise import Choice, Leaf, Tree, Value, combine, conditions


class MaskForm(enum.Enum):
    """What a mask is."""

    NONE = "no mask"
    """The call has none."""

    ALL_TRUE = "all true"
    """Every query attends to every key."""

    CAUSAL = "causal"
    """A query attends to the keys up to its own position, counted from the first of each."""

    SHIFTED_CAUSAL = "shifted causal"
    """A query attends to the keys up to a fixed distance from its position."""

    SLIDING_WINDOW = "sliding window"
    """A query attends to itself and to a fixed number of keys before it."""

    OTHER = "other"
    """The mask is known, and none of the above."""

    DATA = "data"
    """The mask depends on what is in the program's inputs."""

    LEARNED = "learned"
    """Gradients flow into the mask."""

    UNKNOWN = "unknown"
    """The mask comes from operations that are not understood."""


@final
@dataclass(frozen=True, slots=True)
class Mask:
    """A mask's form, with the distance that belongs to it.

    Attributes:
        form: What it is.
        distance: Of a sliding window, how many keys it holds; of a shifted causal mask, how many
            keys after its own position a query attends to.
    """

    form: MaskForm
    distance: Affine | None = None

    def __str__(self) -> str:
        """Gives the form in words."""
        match self.form:
            case MaskForm.SLIDING_WINDOW:
                return f"a sliding window of {self.distance} keys"
            case MaskForm.SHIFTED_CAUSAL:
                return f"causal with the diagonal shifted by {self.distance} keys"
            case form:
                return form.value


def mask_of(tensor: IndexedTensor) -> Mask:
    """Returns which mask a tensor is.

    Args:
        tensor: Shape (..., queries, keys). A bool tensor is True where a query attends; a float
            tensor is added to the scores, and only one that holds nothing but zero and minus
            infinity (or its dtype's smallest number, which is the same to a softmax over a row
            that has a zero) is taken for a mask.

    Returns:
        The first of `MaskForm`'s forms that it is proven to be; `OTHER` when it is none.
    """
    kept = combine(lambda value: _kept(value, tensor.dtype), [tensor.tree], tensor.space)
    if kept is None:
        return Mask(MaskForm.OTHER)
    for mask, tree in _candidates(kept, len(tensor.shape)):
        if combine(lambda left, right: Leaf(left == right), [kept, tree], tensor.space) == _YES:
            return mask
    return Mask(MaskForm.OTHER)


_YES, _NO = Leaf(True), Leaf(False)


def _kept(value: Value, dtype: torch.dtype) -> Leaf | None:
    if isinstance(value, bool):
        return Leaf(value)
    if dtype not in FLOATS or isinstance(value, Affine):
        return None
    if value == 0:
        return _YES
    return _NO if value in (-torch.inf, torch.finfo(dtype).min) else None


def _candidates(kept: Tree, rank: int) -> Iterator[tuple[Mask, Tree]]:
    """Yields the masks that a tensor could be, judged by the conditions it distinguishes."""
    yield Mask(MaskForm.ALL_TRUE), _YES
    if rank < 2:
        return
    ahead = variable(Index(rank - 2)) - variable(Index(rank - 1))
    yield Mask(MaskForm.CAUSAL), Choice(ahead, _YES, _NO)
    for condition in conditions(kept):
        for window in (condition + ahead + 1, -condition + ahead):
            if not _is_about_position(window, rank):
                inside = Choice(window - 1 - ahead, _YES, _NO)
                yield Mask(MaskForm.SLIDING_WINDOW, window), Choice(ahead, inside, _NO)
        for shift in (condition - ahead, -condition - 1 - ahead):
            if not _is_about_position(shift, rank):
                yield Mask(MaskForm.SHIFTED_CAUSAL, shift), Choice(ahead + shift, _YES, _NO)


def _is_about_position(distance: Affine, rank: int) -> bool:
    return any(isinstance(of, Index) and of.dimension >= rank - 2 for of, _ in distance.terms)
