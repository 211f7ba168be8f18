"""Inputs of fusions that say where in its window a pooling found its maximum.

Inductor saves these for the backward graph as small numbers. Which of them point into the image
depends on where the window is: at its border others do not. Numbers that are drawn from their range
would be read outside, so such an input is made of one number that every window allows.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from torch import fx

from thunder.repro import RecordedInputs
from thunder.repro.inputs import Record, TensorRecord
from thunder.repro.recipes import Constant

_OPERATOR = "prims::_low_memory_max_pool_offsets_to_indices"
_CHOSEN = "here it is the same place in all"
_DRAWN = "drawn ones may lie outside of the image: save the real inputs (serialize_inputs=True)"


def with_valid_offsets(recorded: RecordedInputs, graph: fx.Graph) -> RecordedInputs:
    """Returns the record with such inputs made of valid offsets.

    Args:
        recorded: The inputs of a fusion.
        graph: Its graph.
    """
    placeholders = graph.find_nodes(op="placeholder")
    if len(placeholders) != len(recorded.inputs):
        return recorded
    records: list[Record] = []
    notes = list(recorded.notes)
    for node, record in zip(placeholders, recorded.inputs, strict=True):
        user = next(filter(_reads_offsets, node.users), None)
        if user is None or not isinstance(record, TensorRecord):
            records.append(record)
            continue
        offset = _offset(user, record)
        valid = record if offset is None else replace(record, recipe=Constant(offset))
        records.append(valid)
        notes.append(
            f"{record.name} holds places in windows; {_DRAWN if offset is None else _CHOSEN}"
        )
    return replace(recorded, inputs=tuple(records), notes=tuple(notes))


def _reads_offsets(node: fx.Node) -> bool:
    return getattr(getattr(node.target, "_schema", None), "name", "") == _OPERATOR


def _offset(user: fx.Node, record: TensorRecord) -> int | None:
    """Returns an offset that all windows allow; None where there is none, or sizes are dynamic."""
    kernel, *geometry = map(_numbers, user.args[1:6])
    sizes = [kernel, record.shape, *geometry]
    if not all(isinstance(number, int) for numbers in sizes for number in numbers):
        return None
    windows = [size for size in record.shape[-len(kernel) :] if isinstance(size, int)]
    flat = 0
    for place, size in zip(_first_inside(windows, *geometry), kernel, strict=True):
        if place is None:
            return None
        flat = flat * size + place
    return flat


def _first_inside(
    windows: Sequence[int],
    image: Sequence[int],
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
) -> Iterator[int | None]:
    """Yields for each dimension the first place that lies in the image in every window."""
    for count, size, step, border, apart in zip(
        windows, image, stride, padding, dilation, strict=True
    ):
        place = -(-border // apart)
        last = (count - 1) * step - border + place * apart
        yield place if last < size else None


def _numbers(value: object) -> Sequence[int]:
    return value if isinstance(value, Sequence) else ()
