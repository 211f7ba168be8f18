"""The prologue: the program of checks under which a compiled graph is used.

Dynamo's guards do the checking; this trace states what they amount to for the graph's inputs,
as torch operators that run, and lists the guards in words.
"""

from __future__ import annotations

import operator
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import fx
from torch._guards import Guard, TracingContext

from thunder.trace.copying import make_graph_module
from thunder.trace.trace import Direction, Provenance, TraceCtx

_WORDS = {
    "TYPE_MATCH": "has the type it had",
    "MODULE_MATCH": "is the same module",
    "BUILTIN_MATCH": "is the same function",
    "CLOSURE_MATCH": "is the same function",
    "FUNCTION_MATCH": "is the same function",
    "ID_MATCH": "is the same object",
    "CLASS_MATCH": "is the same class",
    "NN_MODULE": "is the same module",
    "NONE_MATCH": "is None",
    "DICT_CONTAINS": "has the same keys",
    "SEQUENCE_LENGTH": "has the same length",
    "GRAD_MODE": "gradient mode is as it was",
    "DETERMINISTIC_ALGORITHMS": "use of deterministic algorithms is as it was",
    "DEFAULT_DEVICE": "the default device is as it was",
    "GLOBAL_STATE": "autocast, threads and other global state are as they were",
    "TORCH_FUNCTION_STATE": "torch function modes are as they were",
    "AUTOGRAD_SAVED_TENSORS_HOOKS": "saved-tensor hooks are as they were",
    "EMPTY_NN_MODULE_HOOKS_DICT": "has no hooks",
    "SHAPE_ENV": "relations between symbolic sizes hold",
}
_VALUE_GUARDS = ("CONSTANT_MATCH", "EQUALS_MATCH", "BOOL_MATCH", "DUPLICATE_INPUT")


@dataclass(frozen=True, slots=True)
class GuardFacts:
    """Dynamo's guards as they stood when the graph was compiled."""

    guards: tuple[Guard, ...]

    @classmethod
    def current(cls) -> GuardFacts:
        """Takes the guards of the compile in progress; none outside Dynamo."""
        context = TracingContext.try_get()
        return cls(tuple(context.guards_context.dynamo_guards) if context else ())

    def sentences(self) -> list[str]:
        """Returns one sentence for each guard that is not about a graph input's tensor."""
        found = {_sentence(guard) for guard in self.guards}
        return sorted(sentence for sentence in found if sentence)


def prologue_trace(captured: fx.Graph, guards: GuardFacts) -> TraceCtx:
    """Builds the trace.

    Args:
        captured: The graph from Dynamo; its placeholders' `meta["example_value"]` are checked.
        guards: Dynamo's guards.
    """
    graph = fx.Graph()
    placeholders = []
    for node in captured.find_nodes(op="placeholder"):
        value = node.meta.get("example_value")
        placeholder = graph.placeholder(node.name)
        placeholder.meta["val"] = value
        placeholders.append((placeholder, value))
    for placeholder, value in placeholders:
        if isinstance(value, torch.Tensor):
            _check_tensor(graph, placeholder, value)
    graph.output(tuple(placeholder for placeholder, _ in placeholders))
    return TraceCtx(
        graph_module=make_graph_module({}, graph),
        direction=Direction.PROLOGUE,
        provenance=Provenance("guards", 0.0),
        notes=tuple(guards.sentences()),
    )


def _check_tensor(graph: fx.Graph, placeholder: fx.Node, value: torch.Tensor) -> None:
    graph.call_function(
        torch._assert_tensor_metadata,  # pyright: ignore[reportPrivateImportUsage] - public use
        (
            placeholder,
            _static(value.shape),
            _static(value.stride()) if value.layout is torch.strided else None,
            value.dtype,
        ),
        {"device": value.device, "layout": value.layout},
    )
    requires_grad = graph.call_function(getattr, (placeholder, "requires_grad"))
    wanted = "requires" if value.requires_grad else "does not require"
    if not value.requires_grad:
        requires_grad = graph.call_function(operator.not_, (requires_grad,))
    graph.call_function(torch._assert, (requires_grad, f"{placeholder.name} {wanted} a gradient"))


def _static(sizes: Sequence[Any]) -> list[int] | None:
    return list(sizes) if all(isinstance(size, int) for size in sizes) else None


def _sentence(guard: Guard) -> str | None:
    kind = guard.create_fn_name()
    if kind == "TENSOR_MATCH":
        return None
    if kind in _VALUE_GUARDS and guard.code_list:
        return f"guard: {guard.code_list[-1]}"
    words = _WORDS.get(kind, kind.replace("_", " ").lower())
    return f"guard: {guard.name + ' ' if guard.name else ''}{words}"
