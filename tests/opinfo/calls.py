"""Calls of operators, made from the samples that PyTorch's OpInfo has of each."""

from __future__ import annotations

import contextlib
import enum
import operator
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch.testing._internal.common_methods_invocations import op_db
from torch.testing._internal.opinfo.core import OpInfo
from torch.utils._pytree import tree_leaves

DTYPES = (torch.float32, torch.bfloat16, torch.int64, torch.bool, torch.complex64)

OPERATORS: dict[str, OpInfo] = {
    op.name + (f":{op.variant_test_name}" if op.variant_test_name else ""): op for op in op_db
}
"""All operators; a name with a colon is a variant, which has samples of its own."""

UNDEFINED_VALUES = {
    "empty",
    "empty_like",
    "empty_permuted",
    "empty_strided",
    "new_empty",
    "new_empty_strided",
}
"""Operators that return memory as it is."""


class Form(enum.Enum):
    """How an operator is called; the value is its name in `excused.txt`."""

    FUNCTION = "function"
    NONCONTIGUOUS = "noncontiguous"
    IN_PLACE = "in-place"
    IN_PLACE_ON_COPY = "in-place on a copy"


@dataclass(frozen=True, kw_only=True, slots=True)
class Call:
    """One call of an operator.

    Attributes:
        function: The operator, its method or what OpInfo wraps around it.
        args: Positional arguments.
        kwargs: Keyword arguments.
    """

    function: Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: dict[str, Any]


def supported_dtypes(op: OpInfo) -> list[torch.dtype]:
    return [dtype for dtype in DTYPES if dtype in op.supported_dtypes("cpu")]


def forms(op: OpInfo, dtype: torch.dtype) -> list[Form]:
    """Returns the forms to compare: layouts matter in one dtype, writing in each kind of it."""
    found = [Form.FUNCTION]
    if dtype is torch.float32:
        found.append(Form.NONCONTIGUOUS)
    if op.inplace_variant is not None and dtype in (torch.float32, torch.int64):
        found.append(Form.IN_PLACE)
        if dtype is torch.float32 and _has_gradient(op, dtype):
            found.append(Form.IN_PLACE_ON_COPY)
    return found


def calls(op: OpInfo, dtype: torch.dtype, form: Form) -> Iterator[Call]:
    """Makes the calls of one form; the same ones each time.

    Args:
        op: The operator.
        dtype: Of its (first) input.
        form: How to call it.
    """
    torch.manual_seed(0)
    gradient = form is not Form.IN_PLACE and _has_gradient(op, dtype)
    for sample in op.sample_inputs("cpu", dtype, requires_grad=gradient):
        if form is Form.NONCONTIGUOUS:
            if not _is_strided((sample.input, sample.args, sample.kwargs)):
                continue
            sample = sample.noncontiguous()
        if form in (Form.IN_PLACE, Form.IN_PLACE_ON_COPY) and sample.broadcasts_input:
            continue
        yield Call(
            function=_function(op, form),
            args=(sample.input, *sample.args),
            kwargs=dict(sample.kwargs),
        )


def _function(op: OpInfo, form: Form) -> Callable[..., Any]:
    if form is Form.IN_PLACE:
        return op.inplace_variant
    if form is Form.IN_PLACE_ON_COPY:
        in_place = op.inplace_variant

        def on_copy(value: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
            return in_place(value.clone(), *args, **kwargs)

        return on_copy
    if "wrapper_set_seed" in getattr(getattr(op.op, "__code__", None), "co_names", ()):
        # Dynamo does not trace into what sets the seed; the operator is all that is of interest.
        for owner in (torch.Tensor, torch):
            with contextlib.suppress(AttributeError):
                return operator.attrgetter(op.name)(owner)
    return op.op


def _is_strided(values: Any) -> bool:
    tensors = [leaf for leaf in tree_leaves(values) if isinstance(leaf, torch.Tensor)]
    return all(tensor.layout is torch.strided for tensor in tensors)


def _has_gradient(op: OpInfo, dtype: torch.dtype) -> bool:
    return bool(op.supports_autograd) and dtype in op.supported_backward_dtypes("cpu")
