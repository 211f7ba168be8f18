"""A fusion as Python source. nvFuser's own printing rounds constants; this text is exact."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import Any

import torch

from thunder.executors.nvfuser.definition import (
    Call,
    Definition,
    Literal,
    ScalarInput,
    ScalarValue,
    TensorInput,
    TensorValue,
)
from thunder.executors.nvfuser.dtypes import DATA_TYPE_NAMES

FUNCTION = "nvfuser_fusion"


@dataclass(frozen=True, kw_only=True, slots=True)
class FusionSource:
    """The parts of a script that runs a fusion by itself.

    Attributes:
        imports: Import lines.
        definition: A function `nvfuser_fusion(fd)` that defines the fusion.
        construction: Lines that leave the built fusion in `fd`.
        execution: An expression that runs `fd` on the list `inputs`, the region's inputs in the
            order of its placeholders.
        used_inputs: Which of the region's placeholders the fusion takes, in its order.
        outputs: The names of the region's graph nodes that the fusion returns.
    """

    imports: tuple[str, ...]
    definition: str
    construction: str
    execution: str
    used_inputs: tuple[int, ...]
    outputs: tuple[str, ...]

    def script(self) -> str:
        """Returns everything but the inputs as one text."""
        return "\n".join([*self.imports, "", "", self.definition, "", self.construction])


def fusion_source(
    definition: Definition, *, outputs: tuple[str, ...], device_index: int | None
) -> FusionSource:
    """Prints a fusion.

    Args:
        definition: The fusion.
        outputs: Names for its outputs.
        device_index: The CUDA device to run on; None for the inputs' own.
    """
    used = tuple(entry.position for entry in definition.inputs)
    chosen = f"[inputs[position] for position in {used}]"
    device = "" if device_index is None else f", device={device_index}"
    return FusionSource(
        imports=("import torch", "from nvfuser_direct import DataType, FusionDefinition"),
        definition=print_definition(definition),
        construction=f"with FusionDefinition() as fd:\n    {FUNCTION}(fd)\n",
        execution=f"fd.execute({chosen}{device})",
        used_inputs=used,
        outputs=outputs,
    )


def print_definition(definition: Definition) -> str:
    """Returns the function that defines a fusion, as source."""
    lines = [f"def {FUNCTION}(fd: FusionDefinition) -> None:"]
    lines += [f"    {_input(entry)}" for entry in definition.inputs]
    origin = None
    for call in definition.calls:
        if call.origin != origin:
            origin = call.origin
            lines.append(f"    # {_inert(origin)}")
        lines.append(f"    {_call(call)}")
    lines += [f"    fd.add_output({output.name})" for output in definition.outputs]
    return "\n".join(lines) + "\n"


def _inert(name: str) -> str:
    return re.sub(r"\W", "_", name)


def _input(entry: TensorInput | ScalarInput) -> str:
    if isinstance(entry, ScalarInput):
        return f"{entry.value.name} = fd.define_scalar(dtype={_data_type(entry.value.dtype)})"
    cpu = "is_cpu=True, " if entry.is_cpu else ""
    return (
        f"{entry.value.name} = fd.define_tensor(shape={list(entry.sizes)}, "
        f"contiguity={list(entry.contiguity)}, dtype={_data_type(entry.value.dtype)}, {cpu}"
        f"stride_order={list(entry.stride_order)})"
    )


def _call(call: Call) -> str:
    arguments = [_argument(argument) for argument in call.arguments]
    names = ", ".join(value.name for value in call.results)
    return f"{names} = fd.ops.{call.operator}({', '.join(arguments)})"


def _argument(argument: Any) -> str:
    match argument:
        case TensorValue() | ScalarValue():
            return argument.name
        case Literal(number=number, dtype=dtype):
            return f"fd.define_scalar({_number(number)}, dtype={_data_type(dtype)})"
        case torch.dtype():
            return _data_type(argument)
        case list():
            return f"[{', '.join(map(_argument, argument))}]"
        case bool() | int() | float():
            return _number(argument)
    raise AssertionError(f"no source for {argument!r}")


def _number(number: bool | int | float) -> str:
    if isinstance(number, bool):
        return repr(number)
    if isinstance(number, int):
        return int.__repr__(number)
    text = float.__repr__(number)  # NumPy's float64 is a float whose own repr names NumPy
    return text if math.isfinite(number) else f"float({text!r})"


def _data_type(dtype: torch.dtype) -> str:
    return f"DataType.{DATA_TYPE_NAMES[dtype]}"
