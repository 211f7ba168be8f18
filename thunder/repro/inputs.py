"""Records what a graph is called with, so that a script can make such inputs again.

Recording happens while a graph is compiled or run for the first time, so it is cheap: see
`measuring.py` for values, `memory.py` for what is kept. Printing is `input_source.py`'s job.
"""

from __future__ import annotations

import keyword
import re
import types
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import fx
from torch._subclasses.fake_tensor import FakeTensor
from torch.utils._python_dispatch import (
    _disable_current_modes,
    is_traceable_wrapper_subclass,
)

from thunder.repro.measuring import measure
from thunder.repro.memory import Memory, make_memory
from thunder.repro.recipes import AbstractRecipe, Unmeasured
from thunder.repro.sizes import Size, Symbols
from thunder.repro.surroundings import Surroundings, record_surroundings
from thunder.repro.values import ValueSource, value_source

KEEP_BYTES = 16 << 20


@dataclass(frozen=True, kw_only=True, slots=True)
class TensorRecord:
    """A plain tensor.

    Attributes:
        name: Name in the script.
        shape: The sizes.
        stride: The strides.
        offset: Offset into the storage, in elements.
        dtype: The dtype.
        device: The device's name.
        requires_grad: Whether gradients are recorded for it.
        is_leaf: Whether it is a leaf of autograd.
        is_parameter: Whether it is a Parameter.
        memory: Index of its storage; inputs with the same one share it.
        recipe: How to draw its values.
    """

    name: str
    shape: tuple[Size, ...]
    stride: tuple[Size, ...]
    offset: Size
    dtype: torch.dtype
    device: str
    requires_grad: bool
    is_leaf: bool
    is_parameter: bool
    memory: int
    recipe: AbstractRecipe


@dataclass(frozen=True, kw_only=True, slots=True)
class NumberRecord:
    """A whole number, symbolic when it was."""

    name: str
    number: Size


@dataclass(frozen=True, kw_only=True, slots=True)
class ValueRecord:
    """Anything that is written as source when it is recorded."""

    name: str
    source: ValueSource


@dataclass(frozen=True, kw_only=True, slots=True)
class WrapperRecord:
    """A tensor subclass that holds plain tensors.

    Attributes:
        name: Name in the script.
        owner: The class, as source.
        parts: The inner tensors by attribute.
        context: What the class needs besides to be put together again.
        shape: The sizes of the whole.
        stride: The strides of the whole.
        requires_grad: Whether gradients are recorded for it.
        is_leaf: Whether it is a leaf of autograd.
    """

    name: str
    owner: ValueSource
    parts: Mapping[str, Record]
    context: ValueSource
    shape: tuple[Size, ...]
    stride: tuple[Size, ...]
    requires_grad: bool
    is_leaf: bool


@dataclass(frozen=True, kw_only=True, slots=True)
class ContainerRecord:
    """A list, tuple or dict of inputs; `keys` is None except for a dict."""

    name: str
    kind: type
    keys: tuple[ValueSource, ...] | None
    children: tuple[Record, ...]


Record = TensorRecord | NumberRecord | ValueRecord | WrapperRecord | ContainerRecord


@dataclass(frozen=True, kw_only=True, slots=True)
class RecordedInputs:
    """Everything that is known about the inputs of one call.

    Attributes:
        inputs: One record an input.
        memories: The storages that the records refer to by index.
        symbols: Values of the dynamic sizes by name.
        surroundings: Modes and settings around the call.
        random_states: States of the random generators by device.
        notes: What could not be recorded, for the reader of a script.
    """

    inputs: tuple[Record, ...]
    memories: tuple[Memory, ...] = ()
    symbols: Mapping[str, int] = field(default_factory=dict)
    surroundings: Surroundings = field(default_factory=Surroundings)
    random_states: Mapping[str, torch.Tensor] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    @property
    def requires_grad(self) -> bool:
        """Whether a backward run makes sense: an input requires grad, and gradients are on."""
        return self.surroundings.gradients and any(_requires_grad(r) for r in self.inputs)


def record_inputs(
    values: Sequence[Any],
    *,
    graph: fx.Graph | None = None,
    names: Sequence[str] = (),
    keep_bytes: int = KEEP_BYTES,
    exact_floats: int = 1,
) -> RecordedInputs:
    """Records the inputs of a call.

    Args:
        values: The inputs: tensors (real or fake), numbers, SymInts, or anything else, in lists,
            tuples and dicts if need be.
        graph: The graph that is called. Its placeholders, one for each value, give names and,
            by their fake values, the sizes that are dynamic.
        names: Names to use where there is no graph.
        keep_bytes: How many bytes of values may be copied, so that a script can have the real
            ones even after the program has freed them. Parameters are never copied.
        exact_floats: Up to so many floating-point elements are listed in scripts as they are.

    Returns:
        The record. It keeps no input alive and draws no random number.

    Example:
        >>> import torch
        >>> recorded = record_inputs([torch.zeros(2, 3), 4], names=["x", "n"])
        >>> [record.name for record in recorded.inputs], recorded.inputs[0].recipe
        (['x', 'n'], Constant(value=0.0))
    """
    placeholders = list(graph.find_nodes(op="placeholder")) if graph is not None else []
    if len(placeholders) == len(values):
        names = [node.name for node in placeholders]
    fakes = [node.meta.get("example_value", node.meta.get("val")) for node in placeholders]
    if len(fakes) != len(values):
        fakes = list(values)
    surroundings = record_surroundings()
    with _disable_current_modes(), torch._C.DisableTorchFunction(), torch.no_grad():
        recorder = _Recorder(keep_bytes, exact_floats)
        for value, fake in zip(values, fakes, strict=True):
            recorder.learn(value, fake)
        unique = unique_names(names, len(values))
        each = zip(unique, values, fakes, strict=True)
        records = [recorder.record_or_note(*one) for one in each]
        return RecordedInputs(
            inputs=tuple(records),
            memories=recorder.memories(),
            symbols=recorder.symbols.named(),
            surroundings=surroundings,
            random_states=_random_states(),
            notes=tuple(recorder.notes),
        )


def unique_names(names: Iterable[str], count: int, taken: Iterable[str] = ()) -> list[str]:
    """Makes identifiers out of names, each different.

    Args:
        names: The wished names; missing ones are made up.
        count: How many are needed.
        taken: Names that must not be used.
    """
    used = set(taken)
    wished = [*names][:count]
    wished += [f"input_{index}" for index in range(len(wished), count)]
    result = []
    for wish in wished:
        stem = re.sub(r"\W", "_", wish, flags=re.ASCII) or "_"
        stem = f"_{stem}" if stem[0].isdigit() or keyword.iskeyword(stem) else stem
        name, number = stem, 0
        while name in used:
            number += 1
            name = f"{stem}_{number}"
        used.add(name)
        result.append(name)
    return result


class _Recorder:
    """Records values one by one and puts those together that share memory."""

    def __init__(self, keep_bytes: int, exact_floats: int) -> None:
        self.keep_bytes = keep_bytes
        self.exact_floats = exact_floats
        self.symbols = Symbols()
        self.notes: list[str] = []
        self._storages: dict[int, int] = {}
        self._sharing: list[list[torch.Tensor]] = []

    def learn(self, value: Any, fake: Any) -> None:
        """Binds the symbols of one input."""
        if isinstance(fake, torch.Tensor) and isinstance(value, torch.Tensor):
            for symbolic, real in zip(_geometry(fake), _geometry(value), strict=False):
                self.symbols.bind(symbolic, real if type(real) is int else None)
        else:
            self.symbols.bind(fake, value if type(value) is int else None)

    def record_or_note(self, name: str, value: Any, fake: Any) -> Record:
        """Records one input; one that cannot be must not stop a compile, and gets a note."""
        try:
            return self.record(name, value, fake)
        except Exception as error:  # noqa: BLE001 - the fence around what users pass
            what = f"a {type(value).__qualname__} that could not be recorded"
            return self._gap(name, f"{what} ({type(error).__name__}: {error})")

    def record(self, name: str, value: Any, fake: Any) -> Record:
        """Records one input."""
        match value:
            case torch.Tensor():
                like = fake if isinstance(fake, torch.Tensor) else value
                return self._tensor(name, value, like)
            case bool():
                return ValueRecord(name=name, source=value_source(value))
            case torch.SymInt() if value.node.is_nested_int():
                return self._gap(name, "the ragged size of a nested tensor")
            case int() | torch.SymInt():
                real = value if isinstance(value, int) else None
                return NumberRecord(name=name, number=self.symbols.resolve(fake, real))
            case list() | tuple() | dict() if type(value) in (list, tuple, dict):
                return self._container(name, value)
        source = value_source(_plain_number(value))
        self.notes += [f"{name} is {what}: FILL IN" for what in source.missing]
        return ValueRecord(name=name, source=source)

    def memories(self) -> tuple[Memory, ...]:
        """Records the storages, copying in order of position while the budget lasts."""
        made, left = [], self.keep_bytes
        for tensors in self._sharing:
            real = not isinstance(tensors[0], FakeTensor) and not tensors[0].is_meta
            memory = make_memory(tensors, left) if real else _memory_of_fake(tensors[0])
            left -= 0 if memory.copy is None else memory.copy.nbytes
            made.append(memory)
        return tuple(made)

    def _gap(self, name: str, what: str) -> ValueRecord:
        self.notes.append(f"{name} is {what}: FILL IN")
        return ValueRecord(name=name, source=ValueSource(expression="None", missing=(what,)))

    def _container(self, name: str, value: Any) -> ContainerRecord:
        children = list(value.values()) if isinstance(value, dict) else list(value)
        keys = tuple(map(value_source, value)) if isinstance(value, dict) else None
        records = (
            self.record(f"{name}_{index}", child, child) for index, child in enumerate(children)
        )
        return ContainerRecord(name=name, kind=type(value), keys=keys, children=tuple(records))

    def _tensor(self, name: str, value: torch.Tensor, fake: torch.Tensor) -> Record:
        if is_traceable_wrapper_subclass(value) and not value.is_nested:
            return self._wrapper(name, value, fake)
        if value.layout is not torch.strided or value.is_quantized:
            sizes = "" if value.is_nested else f", shape {list(value.shape)}"
            return self._gap(name, f"a tensor of layout {value.layout}{sizes}, {value.dtype}")
        sizes = [
            self.symbols.resolve(symbolic, real if isinstance(real, int) else None)
            for symbolic, real in zip(_geometry(fake), _geometry(value), strict=True)
        ]
        dims = value.dim()
        return TensorRecord(
            name=name,
            shape=tuple(sizes[:dims]),
            stride=tuple(sizes[dims:-1]),
            offset=sizes[-1],
            dtype=value.dtype,
            device=str(value.device),
            requires_grad=value.requires_grad,
            is_leaf=value.is_leaf,
            is_parameter=isinstance(value, torch.nn.Parameter),
            memory=self._memory(value),
            recipe=self._recipe(name, value),
        )

    def _wrapper(self, name: str, value: torch.Tensor, fake: torch.Tensor) -> WrapperRecord:
        flatten: Any = value.__tensor_flatten__  # pyright: ignore - subclasses have it
        attributes, context = flatten()
        parts = {}
        for attribute in attributes:
            part = getattr(value, attribute)
            like = getattr(fake, attribute, part)
            part_name = re.sub(r"\W", "_", attribute.strip("_"), flags=re.ASCII)
            parts[attribute] = self.record(f"{name}_{part_name}", part, like)
        written, owner = value_source(context), value_source(type(value))
        self.notes += [f"{name} holds {what}: FILL IN" for what in written.missing + owner.missing]
        return WrapperRecord(
            name=name,
            owner=owner,
            parts=parts,
            context=written,
            shape=tuple(self.symbols.resolve(size, None) for size in value.shape),
            stride=tuple(self.symbols.resolve(stride, None) for stride in value.stride()),
            requires_grad=value.requires_grad,
            is_leaf=value.is_leaf,
        )

    def _memory(self, value: torch.Tensor) -> int:
        key = value.untyped_storage()._cdata
        if key not in self._storages:
            self._storages[key] = len(self._sharing)
            self._sharing.append([])
        self._sharing[self._storages[key]].append(value)
        return self._storages[key]

    def _recipe(self, name: str, value: torch.Tensor) -> AbstractRecipe:
        if isinstance(value, FakeTensor) or value.is_meta:
            return Unmeasured()
        try:
            return measure(value, exact_floats=self.exact_floats)
        except (RuntimeError, TypeError, ValueError) as error:  # a dtype that knows few operators
            first_line = str(error).partition("\n")[0]
            self.notes.append(f"the values of {name} could not be measured: {first_line}")
            return Unmeasured()


def _geometry(tensor: torch.Tensor) -> list[Any]:
    return [*tensor.shape, *tensor.stride(), tensor.storage_offset()]


def _memory_of_fake(tensor: torch.Tensor) -> Memory:
    return Memory(dtype=tensor.dtype, device=str(tensor.device), elements=0, needed=0)


def _plain_number(value: Any) -> Any:
    """Gives a symbolic float or bool its hint."""
    if isinstance(value, torch.SymFloat | torch.SymBool):
        return value.node.hint
    return dict(value) if isinstance(value, types.MappingProxyType) else value


def _random_states() -> dict[str, torch.Tensor]:
    states = {"cpu": torch.get_rng_state()}
    if torch.cuda.is_available() and torch.cuda.is_initialized():
        device = torch.cuda.current_device()
        states[f"cuda:{device}"] = torch.cuda.get_rng_state(device)
    return states


def _requires_grad(record: Record) -> bool:
    match record:
        case TensorRecord() | WrapperRecord():
            return record.requires_grad
        case ContainerRecord(children=children):
            return any(map(_requires_grad, children))
    return False
