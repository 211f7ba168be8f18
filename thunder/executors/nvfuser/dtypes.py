"""How torch's dtypes look to nvFuser, and in which dtype a fusion computes.

nvFuser computes bfloat16 and float16 in float32. So does every fusion here: values of a low
precision dtype are held in float32 between operators, as Inductor does, and rounded where they
leave the fusion or meet an operator whose result jumps (comparisons, rounding, casts to int).
"""

from __future__ import annotations

import functools

import torch
from torch.utils._python_dispatch import _disable_current_modes

LOW_PRECISION = frozenset({torch.bfloat16, torch.float16})
"""Dtypes that a fusion holds in float32."""

INTEGERS = frozenset({torch.int32, torch.int64})
"""Integer dtypes that nvFuser's Python interface knows."""

DATA_TYPE_NAMES = {
    torch.bfloat16: "BFloat16",
    torch.float16: "Half",
    torch.float32: "Float",
    torch.float64: "Double",
    torch.int64: "Int",
    torch.int32: "Int32",
    torch.bool: "Bool",
}
"""The supported dtypes, with the names of nvFuser's `DataType` members."""


def compute_dtype(dtype: torch.dtype) -> torch.dtype:
    """Returns the dtype in which values of `dtype` are computed.

    Example:
        >>> import torch
        >>> compute_dtype(torch.bfloat16), compute_dtype(torch.int64)
        (torch.float32, torch.int64)
    """
    return torch.float32 if dtype in LOW_PRECISION else dtype


def rounded(number: bool | int | float, dtype: torch.dtype) -> bool | int | float:
    """Returns the number that a tensor of `dtype` holds after being filled with `number`.

    Example:
        >>> import torch
        >>> rounded(0.1, torch.bfloat16), rounded(1, torch.bool)
        (0.10009765625, True)
    """
    if dtype is torch.bool:
        return bool(number)
    if not dtype.is_floating_point:
        return int(number)
    if dtype in LOW_PRECISION:
        return _nearest(float(number), dtype)
    return float(number)


@functools.cache
def _nearest(number: float, dtype: torch.dtype) -> float:
    # Tracing modes that are active during a compilation must not see this tensor.
    with _disable_current_modes():
        return torch.tensor(number, dtype=torch.float64).to(dtype).item()
