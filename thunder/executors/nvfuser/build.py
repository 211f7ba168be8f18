"""Plays a `Definition` to nvFuser and verifies that nvFuser understood it the same way."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import torch
from torch.utils._python_dispatch import _disable_current_modes

from thunder.errors import ExecutorError
from thunder.executors.nvfuser.definition import (
    Call,
    Definition,
    Literal,
    ScalarInput,
    ScalarValue,
    TensorValue,
)
from thunder.executors.nvfuser.dtypes import DATA_TYPE_NAMES


def build(definition: Definition, library: ModuleType) -> Any:
    """Returns the `FusionDefinition` of a fusion.

    Args:
        definition: The fusion.
        library: `nvfuser_direct`, or what behaves like it.

    Raises:
        ExecutorError: nvFuser refused a call, or gave a result another dtype or rank.
    """
    failure: Exception | None = None
    # nvFuser computes strides with ATen, which modes of an AOTAutograd trace would intercept.
    with _disable_current_modes(), library.FusionDefinition() as fd:
        # nvFuser prints what leaves this block by an exception, so nothing does.
        try:
            _play(definition, fd, library)
        except Exception as error:  # noqa: BLE001 - kept, and raised below
            failure = error
    if isinstance(failure, ExecutorError):
        raise failure
    if failure is not None:
        raise ExecutorError(f"nvFuser refused a definition: {failure}") from failure
    return fd


def _play(definition: Definition, fd: Any, library: ModuleType) -> None:
    values: dict[str, Any] = {}
    for entry in definition.inputs:
        if isinstance(entry, ScalarInput):
            data_type = _data_type(entry.value.dtype, library)
            values[entry.value.name] = fd.define_scalar(dtype=data_type)
            continue
        values[entry.value.name] = fd.define_tensor(
            shape=list(entry.sizes),
            contiguity=list(entry.contiguity),
            dtype=_data_type(entry.value.dtype, library),
            is_cpu=entry.is_cpu,
            stride_order=list(entry.stride_order),
        )
    for call in definition.calls:
        _call(call, values, fd, library)
    for output in definition.outputs:
        fd.add_output(values[output.name])


def _call(call: Call, values: dict[str, Any], fd: Any, library: ModuleType) -> None:
    arguments = [_argument(argument, values, fd, library) for argument in call.arguments]
    try:
        returned = getattr(fd.ops, call.operator)(*arguments)
    except Exception as error:
        raise ExecutorError(
            f"nvFuser refused {call.operator} for {call.origin}: {type(error).__name__}: {error}"
        ) from error
    results = (returned,) if len(call.results) == 1 else tuple(returned)
    for value, result in zip(call.results, results, strict=True):
        if isinstance(value, TensorValue):
            _verify(call, value, result, library)
        values[value.name] = result


def _verify(call: Call, value: TensorValue, result: Any, library: ModuleType) -> None:
    expected = _data_type(value.dtype, library)
    if result.dtype() != expected or result.ndim != len(value.shape):
        raise ExecutorError(
            f"nvFuser's {call.operator} for {call.origin} gave {result.dtype()} with "
            f"{result.ndim} dimensions instead of {expected} with {len(value.shape)}"
        )


def _argument(argument: Any, values: dict[str, Any], fd: Any, library: ModuleType) -> Any:
    match argument:
        case TensorValue() | ScalarValue():
            return values[argument.name]
        case Literal(number=number, dtype=dtype):
            return fd.define_scalar(number, dtype=_data_type(dtype, library))
        case torch.dtype():
            return _data_type(argument, library)
        case list():
            return [_argument(element, values, fd, library) for element in argument]
    return argument


def _data_type(dtype: torch.dtype, library: ModuleType) -> Any:
    return getattr(library.DataType, DATA_TYPE_NAMES[dtype])
