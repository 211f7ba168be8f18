"""Finds a recipe for the values of a tensor, cheaply enough to do it for every input.

Of a large floating-point tensor a regular sample is looked at; integers and truth values are
looked at as a whole, because an index out of range is an error and a value outside a sample is
not. Nothing is drawn from a random generator, and a CUDA tensor is waited for once.
"""

from __future__ import annotations

import dataclasses
import math

import torch

from thunder.repro.recipes import (
    AbstractRecipe,
    BooleanDensity,
    Choices,
    ComplexParts,
    Constant,
    Exactly,
    FloatRange,
    IntegerRange,
    LowerTriangle,
    Steps,
)

EXACT_INTEGERS = 64
"""Up to so many integers or truth values are listed as they are."""

_SAMPLE = 4096
_WHOLE = 1 << 20
"""Up to so many elements questions that need all of them are asked."""
_DISTINCT = 1 << 14
_FEW = 4


def measure(tensor: torch.Tensor, *, exact_floats: int = 1) -> AbstractRecipe:
    """Finds how such values can be drawn.

    The recipe is for the elements in the order of memory, from the first to the last; for a
    contiguous tensor that is the tensor itself.

    Args:
        tensor: A strided tensor of any dtype, with values (neither fake nor meta).
        exact_floats: Up to so many floating-point elements are listed as they are.

    Returns:
        The recipe; its numbers are rounded to four digits where they are statistics.

    Example:
        >>> import torch
        >>> measure(torch.tensor([2, 0, 5]))
        Exactly(values=(2, 0, 5))
    """
    tensor = tensor.detach().resolve_conj().resolve_neg()
    if tensor.numel() == 0:
        return Constant(0)
    if tensor.dtype is torch.bool:
        return _booleans(tensor)
    if tensor.is_floating_point() or tensor.is_complex():
        return _floats(tensor, exact_floats)
    return _integers(tensor)


def in_memory_order(tensor: torch.Tensor) -> torch.Tensor | None:
    """Returns a tensor's memory as one dimension, from its first to its last element.

    Args:
        tensor: A strided tensor with at least one element.

    Returns:
        The view; None when other values lie between the elements, unless they are few.
    """
    kept = [n for n, s in zip(tensor.shape, tensor.stride(), strict=True) if s != 0]
    span = 1 + sum((n - 1) * s for n, s in zip(tensor.shape, tensor.stride(), strict=True))
    if math.prod(kept) != span and span > EXACT_INTEGERS:
        return None
    return tensor.as_strided((span,), (1,), tensor.storage_offset())


def rounded(number: float) -> float:
    """Rounds to four digits, so that statistics of two equal runs print the same."""
    return float(f"{number:.4g}")


def _integers(tensor: torch.Tensor) -> AbstractRecipe:
    run = in_memory_order(tensor)
    flat = tensor.reshape(-1) if run is None else run
    if run is not None and run.numel() <= EXACT_INTEGERS:
        return Exactly(tuple(run.tolist()))
    if flat.dtype in (torch.uint16, torch.uint32, torch.uint64):
        flat = flat.to(torch.int64)  # these have no minimum in torch
    low, high = (int(bound) for bound in torch.stack(torch.aminmax(flat)).tolist())
    if low == high:
        return Constant(low)
    if high - low < _FEW:
        counts = torch.bincount((flat - low).to(torch.int64)).tolist()
        fractions = tuple(rounded(count / flat.numel()) for count in counts)
        return Choices(tuple(range(low, high + 1)), fractions)
    if run is None or run.numel() > _WHOLE:
        return IntegerRange(low, high)
    return _steps(flat.to(torch.int64), tensor) or IntegerRange(low, high, _order(flat))


def _steps(run: torch.Tensor, tensor: torch.Tensor) -> Steps | None:
    start, second = run[:2].tolist()
    if second == start or abs(second - start) * run.numel() >= 1 << 62:
        return None
    for length in dict.fromkeys((run.numel(), tensor.shape[-1] if tensor.is_contiguous() else 0)):
        if length > 1:
            row = torch.arange(length, device=run.device) * (second - start) + start
            if bool((run.view(-1, length) == row).all()):
                return Steps(start, second - start, in_rows=length != run.numel())
    return None


def _order(run: torch.Tensor) -> str | None:
    rising, strictly = (run[1:] >= run[:-1]).all(), (run[1:] > run[:-1]).all()
    if strictly:
        return "distinct sorted"
    if rising:
        return "sorted"
    if run.numel() <= _DISTINCT and torch.unique(run).numel() == run.numel():
        return "distinct"
    return None


def _booleans(tensor: torch.Tensor) -> AbstractRecipe:
    run = in_memory_order(tensor)
    if run is not None and run.numel() <= EXACT_INTEGERS:
        return Exactly(tuple(run.tolist()))
    density = tensor.count_nonzero().item() / tensor.numel()
    if density in (0.0, 1.0):
        return Constant(bool(density))
    if tensor.dim() > 1 and tensor.is_contiguous() and tensor.numel() <= _WHOLE:
        triangle = torch.ones(tensor.shape[-2:], dtype=torch.bool, device=tensor.device).tril()
        if bool((tensor == triangle).all()):
            return LowerTriangle()
    return BooleanDensity(rounded(density))


def _floats(tensor: torch.Tensor, exact: int) -> AbstractRecipe:
    run = in_memory_order(tensor)
    if run is not None and run.numel() <= exact:
        return Exactly(tuple(run.cpu().tolist()))
    if tensor.is_complex():
        real, imaginary = torch.view_as_real(_sample(tensor)).unbind(-1)
        return ComplexParts(_real_floats(real), _real_floats(imaginary))
    sample = _sample(tensor).to("cpu", torch.float64)
    recipe = _real_floats(sample)
    if sample.numel() == tensor.numel() or tensor.numel() > _WHOLE:
        return recipe
    return _with_rare_values(recipe, tensor)


def _sample(tensor: torch.Tensor) -> torch.Tensor:
    """Every so many elements along the longest dimensions, as one dimension on the CPU."""
    steps = [1] * tensor.dim()
    counts = list(tensor.shape)
    while math.prod(counts) > _SAMPLE:
        longest = max(range(len(counts)), key=counts.__getitem__)
        steps[longest] *= 2
        counts[longest] = -(-tensor.shape[longest] // steps[longest])
    return tensor[tuple(slice(None, None, step) for step in steps)].reshape(-1).cpu()


def _real_floats(sample: torch.Tensor) -> AbstractRecipe:
    sample = sample.to(torch.float64)
    few = _few_values(sample)
    if few is not None:
        return few
    finite = sample[sample.isfinite()]
    fractions = _special(sample)
    if finite.numel() == 0:
        return FloatRange(low=0.0, high=0.0, fractions=fractions)
    low, high = finite.aminmax()
    std, mean = torch.std_mean(finite, correction=0)
    low, high, mean, std = (rounded(n) for n in torch.stack((low, high, mean, std)).tolist())
    zeros = float((finite == 0).count_nonzero()) / sample.numel()
    if zeros > 0.01:
        fractions["zero"] = rounded(zeros)
    if std >= 0.25 * (high - low):  # the deviation of a uniform distribution is 0.29 of its range
        return FloatRange(low=low, high=high, fractions=fractions)
    return FloatRange(low=low, high=high, mean=mean, std=std, fractions=fractions)


def _few_values(sample: torch.Tensor) -> AbstractRecipe | None:
    if len(set(sample[:64].tolist())) > _FEW:  # a NaN differs from itself, so it leads on
        return None
    values, counts = torch.unique(sample, return_counts=True)
    if values.numel() == 1:
        return Constant(values.item())
    if values.numel() > _FEW or sample.numel() < 4 * _FEW or values.isnan().any():
        return None
    fractions = tuple(rounded(count / sample.numel()) for count in counts.tolist())
    return Choices(tuple(values.tolist()), fractions)


def _special(sample: torch.Tensor) -> dict[str, float]:
    found = {
        "nan": sample.isnan(),
        "inf": sample == math.inf,
        "negative_inf": sample == -math.inf,
    }
    counts = torch.stack(list(found.values())).count_nonzero(1).tolist()
    return {
        name: rounded(count / sample.numel())
        for name, count in zip(found, counts, strict=True)
        if count
    }


def _with_rare_values(recipe: AbstractRecipe, tensor: torch.Tensor) -> AbstractRecipe:
    """Looks for what a sample can miss: a single NaN, or one value that is not the constant."""
    if tensor.dtype.itemsize == 1:  # float8 knows no reductions
        tensor = tensor.to(torch.float32)
    match recipe:
        case Constant(value=value) if not bool((tensor == value).all()):
            return _real_floats(tensor.reshape(-1).cpu())
        case FloatRange() if not math.isfinite(tensor.sum(dtype=torch.float32).item()):
            special = _special(tensor.reshape(-1).cpu())
            return dataclasses.replace(recipe, fractions={**recipe.fractions, **special})
    return recipe
