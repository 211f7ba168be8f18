"""One-line descriptions of values, such as `cuda:0 bf16[8, 1024]`."""

from __future__ import annotations

from typing import Any

import torch
from torch.utils._dtype_abbrs import dtype_abbrs


def describe(value: Any) -> str:
    """Describes a value of a graph.

    Args:
        value: A (fake) tensor, SymInt, number, None, or a list or tuple of these.

    Returns:
        `"cpu f32[2, s77]"` for a tensor, `"Sym(s77)"` for a symbolic number, otherwise the name
        of the type; lists and tuples give the descriptions of their elements in brackets.

    Example:
        >>> import torch
        >>> describe(torch.empty(2, 3, dtype=torch.bfloat16))
        'cpu bf16[2, 3]'
    """
    match value:
        case torch.Tensor():
            shape = ", ".join(str(size) for size in value.shape)
            kind = "" if value.layout is torch.strided else f" {value.layout}"
            return f"{value.device} {dtype_abbrs[value.dtype]}[{shape}]{kind}"
        case torch.SymInt() | torch.SymFloat() | torch.SymBool():
            return f"Sym({value})"
        case list() | tuple():
            return "(" + ", ".join(describe(element) for element in value) + ")"
        case _:
            return type(value).__name__
