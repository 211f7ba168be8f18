"""Recorded inputs as the statements of a script that make them again.

Also used for the tensors that a module holds. Which support functions the statements call is
found out by whoever links the script.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import torch

from thunder.repro.inputs import (
    ContainerRecord,
    NumberRecord,
    Record,
    RecordedInputs,
    TensorRecord,
    ValueRecord,
    WrapperRecord,
)
from thunder.repro.memory import Memory
from thunder.repro.recipes import Target
from thunder.repro.sizes import (
    Size,
    SymbolicSize,
    size_source,
    size_value,
    sizes_source,
)
from thunder.repro.values import ValueSource

_WORTHWHILE = 1 << 24
"""So many elements of a storage that no input reaches are made all the same."""


@dataclass(frozen=True, kw_only=True, slots=True)
class InputSource:
    """Statements that make inputs.

    Attributes:
        statements: The statements, in order.
        expressions: For each input its name, and the expression that gives it afterwards.
        values: Sources of values that the statements use: their imports and definitions.
        notes: Sentences for the reader.
    """

    statements: tuple[str, ...]
    expressions: tuple[tuple[str, str], ...]
    values: tuple[ValueSource, ...]
    notes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class StoredTensors:
    """The real values, as they are saved beside a script.

    Attributes:
        tensors: By name; one-dimensional.
        notes: Which are missing, and which changed since they were recorded.
    """

    tensors: Mapping[str, torch.Tensor]
    notes: tuple[str, ...]


def stored_tensors(recorded: RecordedInputs, *, prefix: str = "") -> StoredTensors:
    """Collects the real values of inputs.

    Args:
        recorded: The record.
        prefix: What the names of the values begin with.

    Returns:
        The values that still exist, and the states of the random generators.
    """
    tensors, notes = {}, []
    for index, memory in enumerate(recorded.memories):
        names = ", ".join(record.name for record in _tensors_in(recorded.inputs, index))
        values, as_recorded = memory.values()
        if not memory.needed or memory.device == "meta":
            continue
        if values is None:
            notes.append(f"the real values of {names} are gone: they are drawn, as recorded")
            continue
        if not as_recorded:
            notes.append(f"{names}: values as of when they were saved; they had been changed")
        tensors[f"{prefix}memory_{index}"] = values.detach().cpu()
    states = {f"random state {device}": s for device, s in recorded.random_states.items()}
    return StoredTensors(tensors | states, tuple(notes))


def input_source(
    recorded: RecordedInputs,
    *,
    stored: Iterable[str] = (),
    taken: Iterable[str] = (),
    prefix: str = "",
) -> InputSource:
    """Prints recorded inputs.

    Args:
        recorded: The record.
        stored: Names of the real values that the script can take from a dict `stored`.
        taken: Names that variables must not have.
        prefix: What the names in `stored` begin with.

    Example:
        >>> import torch
        >>> from thunder.repro.inputs import record_inputs
        >>> recorded = record_inputs([torch.arange(1.0, 7).view(2, 3).t()], names=["x"])
        >>> input_source(recorded).statements[0]
        'x = floats((6,), low=1.0, high=6.0).as_strided((3, 2), (1, 3)).data'
    """
    writer = _Writer(recorded, frozenset(stored), frozenset(taken), prefix)
    expressions = tuple((record.name, writer.expression(record)) for record in recorded.inputs)
    return InputSource(
        statements=tuple(writer.statements),
        expressions=expressions,
        values=tuple(writer.values),
        notes=recorded.notes,
    )


class _Writer:
    """Writes statements, those of a storage before those of the tensors in it."""

    def __init__(
        self,
        recorded: RecordedInputs,
        stored: frozenset[str],
        taken: frozenset[str],
        prefix: str,
    ) -> None:
        self.recorded = recorded
        self.stored = stored
        self.prefix = prefix
        self.taken = taken | recorded.symbols.keys()
        self.statements: list[str] = []
        self.values: list[ValueSource] = []
        self._made: set[int] = set()

    def expression(self, record: Record) -> str:
        """Returns an expression for an input, after the statements that it needs."""
        match record:
            case NumberRecord(number=number):
                return size_source(number)
            case ValueRecord(name=name, source=source):
                self.values.append(source)
                if source.missing:
                    return f"fill_in({f'{name}: ' + ', '.join(source.missing)!r})"
                return source.expression
            case ContainerRecord():
                return self._container(record)
            case WrapperRecord():
                return self._assign(record.name, self._wrapper(record))
            case TensorRecord():
                return self._assign(record.name, self._tensor(record))

    def _key(self, memory: int) -> str:
        return f"{self.prefix}memory_{memory}"

    def _assign(self, name: str, expression: str) -> str:
        while name in self.taken:
            name += "_"
        self.statements.append(f"{name} = {expression}")
        return name

    def _container(self, record: ContainerRecord) -> str:
        children = [self.expression(child) for child in record.children]
        if record.keys is not None:
            self.values += record.keys
            pairs = zip(record.keys, children, strict=True)
            return "{" + ", ".join(f"{key.expression}: {child}" for key, child in pairs) + "}"
        inner = ", ".join(children)
        if record.kind is list:
            return f"[{inner}]"
        return f"({inner},)" if len(children) == 1 else f"({inner})"

    def _wrapper(self, record: WrapperRecord) -> str:
        self.values += (record.owner, record.context)
        if missing := (*record.owner.missing, *record.context.missing):
            return f"fill_in({f'{record.name}: ' + ', '.join(missing)!r})"
        parts = ", ".join(
            f"{attribute!r}: {self.expression(part)}" for attribute, part in record.parts.items()
        )
        whole = (
            f"{record.owner.expression}.__tensor_unflatten__({{{parts}}}, "
            f"{record.context.expression}, {sizes_source(record.shape)}, "
            f"{sizes_source(record.stride)})"
        )
        return _with_autograd(whole, record.requires_grad, record.is_leaf, is_parameter=False)

    def _tensor(self, record: TensorRecord) -> str:
        memory = self.recorded.memories[record.memory]
        sharing = _tensors_in(self.recorded.inputs, record.memory)
        if self._key(record.memory) in self.stored:
            made = self._from_stored(record, memory, sharing)
        elif record.device == "meta":
            made = (
                f"torch.empty_strided({sizes_source(record.shape)}, "
                f'{sizes_source(record.stride)}, dtype={record.dtype}, device="meta")'
            )
        elif len(sharing) == 1 and _fills_from_start(record, memory):
            made = _drawn_alone(record)
        else:
            if record.memory not in self._made:
                self._make_memory(record.memory, sharing)
            made = _view(f"memory_{record.memory}", record, memory)
        return _with_autograd(made, record.requires_grad, record.is_leaf, record.is_parameter)

    def _from_stored(
        self, record: TensorRecord, memory: Memory, sharing: Sequence[TensorRecord]
    ) -> str:
        device = "" if record.device == "cpu" else f'.to("{record.device}")'
        source = f'stored["{self._key(record.memory)}"]{device}'
        if len(sharing) == 1:
            return _view(source, record, memory)
        if record.memory not in self._made:
            self._made.add(record.memory)
            self.statements.append(f"memory_{record.memory} = {source}")
        return _view(f"memory_{record.memory}", record, memory)

    def _make_memory(self, index: int, sharing: Sequence[TensorRecord]) -> None:
        """Makes a storage and fills the parts of it that inputs are in."""
        self._made.add(index)
        memory = self.recorded.memories[index]
        name = f"memory_{index}"
        ends = [_plus(record.offset, _extent(record)) for record in sharing]
        target = Target(f"({_total(memory, sharing, ends)},)", memory.dtype, memory.device)
        self.statements.append(f"{name} = torch.zeros({target.shape}{target.always()})")
        filled = set()
        for record, end in zip(sharing, ends, strict=True):
            where = f"{size_source(record.offset)}:{end}"
            if where in filled or _is_empty(record):
                continue
            filled.add(where)
            values = record.recipe.source(
                Target(f"({_extent(record)},)", record.dtype, record.device)
            )
            read_as = "" if record.dtype == memory.dtype else f".view({record.dtype})"
            self.statements.append(f"{name}{read_as}[{where}] = {values}")


def _drawn_alone(record: TensorRecord) -> str:
    """A tensor whose storage starts and ends with it."""
    if _is_contiguous(record):
        shape = sizes_source(record.shape)
        return record.recipe.source(Target(shape, record.dtype, record.device))
    flat = record.recipe.source(Target(f"({_extent(record)},)", record.dtype, record.device))
    return f"{flat}.as_strided({sizes_source(record.shape)}, {sizes_source(record.stride)}).data"


def _view(source: str, record: TensorRecord, memory: Memory) -> str:
    """A tensor in a storage; `.data` because the original is not a view that autograd knows of."""
    read_as = "" if record.dtype == memory.dtype else f".view({record.dtype})"
    offset = "" if record.offset == 0 else f", {size_source(record.offset)}"
    geometry = f"{sizes_source(record.shape)}, {sizes_source(record.stride)}{offset}"
    return f"{source}{read_as}.as_strided({geometry}).data"


def _with_autograd(made: str, requires_grad: bool, is_leaf: bool, is_parameter: bool) -> str:
    if is_parameter:
        return f"torch.nn.Parameter({made}{'' if requires_grad else ', requires_grad=False'})"
    if not is_leaf:
        return f"non_leaf({made})"
    return f"{made}.requires_grad_()" if requires_grad else made


def _fills_from_start(record: TensorRecord, memory: Memory) -> bool:
    if size_value(record.offset) != 0:
        return False
    return memory.elements in (0, _span(record)) and memory.dtype == record.dtype


def _span(record: TensorRecord) -> int:
    if _is_empty(record):
        return 0
    steps = zip(record.shape, record.stride, strict=True)
    return 1 + sum((size_value(size) - 1) * size_value(stride) for size, stride in steps)


def _extent(record: TensorRecord) -> str:
    if any(isinstance(size, SymbolicSize) for size in (*record.shape, *record.stride)):
        return f"extent({sizes_source(record.shape)}, {sizes_source(record.stride)})"
    return str(_span(record))


def _plus(offset: Size, extent: str) -> str:
    if isinstance(offset, int) and extent.isdecimal():
        return str(offset + int(extent))
    return extent if offset == 0 else f"{size_source(offset)} + {extent}"


def _total(memory: Memory, sharing: Sequence[TensorRecord], ends: Sequence[str]) -> str:
    """The size of a storage, an expression where sizes are symbolic."""
    if len({record.dtype for record in sharing}) > 1:
        return str(-(-memory.elements // 16) * 16)  # bytes, to be read in several dtypes
    if not all(end.isdecimal() for end in ends):
        distinct = list(dict.fromkeys(ends))
        return distinct[0] if len(distinct) == 1 else f"max({', '.join(distinct)})"
    reached = max(map(int, ends))
    spare = memory.elements - reached
    return str(memory.elements if 0 < spare <= _WORTHWHILE else reached)


def _is_contiguous(record: TensorRecord) -> bool:
    """Whether the strides, also those of sizes 1, are what torch gives a new tensor."""
    expected = 1
    for size, stride in reversed(list(zip(record.shape, record.stride, strict=True))):
        if size_value(stride) != expected:
            return False
        expected *= max(size_value(size), 1)
    return True


def _is_empty(record: TensorRecord) -> bool:
    return math.prod(size_value(size) for size in record.shape) == 0


def _tensors_in(records: Iterable[Record], memory: int) -> list[TensorRecord]:
    found = []
    for record in records:
        match record:
            case TensorRecord() if record.memory == memory:
                found.append(record)
            case WrapperRecord(parts=parts):
                found += _tensors_in(parts.values(), memory)
            case ContainerRecord(children=children):
                found += _tensors_in(children, memory)
    return found
