"""Makes inputs out of their record: the real values where they still exist, drawn ones elsewhere.

The statements are those that a script would run, so what is run and timed here is what a script
runs and times. Parameters share memory with the model as long as it lives; a program of N bytes of
weights is not held twice. Everything else gets memory of its own.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator, Sequence
from typing import Any

import torch

from thunder.repro import RecordedInputs
from thunder.repro.input_source import input_source
from thunder.repro.inputs import Record, TensorRecord
from thunder.repro.linking import link, support_names, used_names


def make_example_inputs(recorded: RecordedInputs) -> list[Any]:
    """Makes the inputs of one call.

    Args:
        recorded: The record. The same record gives the same inputs, as long as the program's own
            values live; the state of the random generators is left as it was.

    Returns:
        One value for each input.

    Example:
        >>> import torch
        >>> from thunder.repro import record_inputs
        >>> make_example_inputs(record_inputs([torch.arange(3), 4]))
        [tensor([0, 1, 2]), 4]
    """
    stored = _real_values(recorded)
    source = input_source(recorded, stored=stored, taken={*support_names(), "torch", "stored"})
    results = ", ".join(expression for _, expression in source.expressions)
    body = [*source.statements, f"inputs = [{results}]"]
    linked = link(used_names("\n".join(body)))
    lines = ["import torch", *linked.imports]
    lines += [line for value in source.values for line in value.imports]
    lines += [linked.text]
    lines += [line for value in source.values for line in value.definitions]
    lines += [f"{name} = {value}" for name, value in recorded.symbols.items()]
    namespace: dict[str, Any] = {"stored": stored, "__name__": "thunder_example_inputs"}
    with _own_random_state():
        exec(compile("\n".join([*lines, *body]), "<example inputs>", "exec"), namespace)
    return namespace["inputs"]


@contextlib.contextmanager
def surroundings_of(recorded: RecordedInputs) -> Iterator[None]:
    """Sets the modes that a call was recorded under: autocast, gradients, inference mode.

    Args:
        recorded: The record.
    """
    with contextlib.ExitStack() as stack:
        for expression in recorded.surroundings.contexts:
            stack.enter_context(eval(expression, {"torch": torch}))  # written by the recorder
        yield


def _real_values(recorded: RecordedInputs) -> dict[str, torch.Tensor]:
    of_parameters = set(_parameter_memories(recorded.inputs))
    found = {}
    for index, memory in enumerate(recorded.memories):
        values, _ = memory.values()
        if values is None or not memory.needed or memory.device == "meta":
            continue
        values = values.detach()
        if index not in of_parameters and str(values.device) == memory.device:
            values = values.clone()
        found[f"memory_{index}"] = values
    return found


def _parameter_memories(records: Sequence[Record]) -> Iterator[int]:
    for record in records:
        if isinstance(record, TensorRecord) and record.is_parameter:
            yield record.memory


@contextlib.contextmanager
def _own_random_state() -> Iterator[None]:
    devices = [torch.cuda.current_device()] if _cuda_is_in_use() else []
    with torch.random.fork_rng(devices=devices):
        torch.manual_seed(0)
        yield


def _cuda_is_in_use() -> bool:
    return "torch.cuda" in sys.modules and torch.cuda.is_initialized()
