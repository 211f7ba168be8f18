"""Lets attention share keys and values among queries where the program repeats them.

With grouped queries a model has fewer heads of keys and values than of queries, and copies each
as often as it is shared before it calls attention with a mask. Kernels that share them read less
and need no copies; they take no mask tensor, so this runs after `attention_mask`.
"""

from __future__ import annotations

import dataclasses
import itertools
import operator
from collections.abc import Callable, Iterable, Iterator
from typing import Any, final

import torch
from torch import fx

from thunder.transforms.attention_call import (
    AttentionCall,
    attention_call,
    set_arguments,
    shares_keys,
)
from thunder.transforms.base import AbstractTransform, Stage
from thunder.transforms.masks.affine import Affine
from thunder.transforms.masks.operators import Memory, written_operands
from thunder.transforms.masks.rules import operator_of
from thunder.transforms.masks.sizes import size_expression
from thunder.transforms.masks.unused import remove_unused


@final
class GroupedQueryTransform(AbstractTransform):
    """Replaces repeated keys and values by `enable_gqa=True`.

    Only attentions without a mask are rewritten, and only where torch then takes a kernel that
    shares keys itself, which depends on the device, the dtype, the sizes and the user's settings.
    """

    stage = Stage.CAPTURED

    def __init__(self, shares: Callable[[AttentionCall], bool] = shares_keys) -> None:
        """Makes the transform.

        Args:
            shares: Says whether the kernel that a call is given reads shared keys in place.
        """
        self._shares = shares

    @property
    def name(self) -> str:
        """`"grouped query"`."""
        return "grouped query"

    def apply(self, graph_module: fx.GraphModule) -> tuple[fx.GraphModule, bool]:
        """Rewrites the attentions in place, in the graph and in the bodies that it calls.

        Args:
            graph_module: A graph from Dynamo.

        Returns:
            The same graph module, and whether an attention was rewritten.
        """
        repeated: list[fx.Node] = []
        modules = [
            module for module in graph_module.modules() if isinstance(module, fx.GraphModule)
        ]
        for node in [node for module in modules for node in module.graph.nodes]:
            call = attention_call(node)
            shared = self._shared(node, call) if call is not None else None
            if call is not None and shared is not None:
                set_arguments(node, key=shared.key, value=shared.value, enable_gqa=True)
                repeated += [call.key, call.value]
        if repeated:
            remove_unused(graph_module, repeated)
            for module in modules:
                module.recompile()
        return graph_module, bool(repeated)

    def _shared(self, node: fx.Node, call: AttentionCall) -> AttentionCall | None:
        """Returns the call with keys and values that are not repeated, None to leave it."""
        if call.attn_mask is not None or call.enable_gqa is not False:
            return None
        key, value = _repeated(call.key), _repeated(call.value)
        if key is None or value is None:
            return None
        if key.times != value.times or _written_between((call.key, call.value), node):
            return None
        shared = dataclasses.replace(call, key=key.of, value=value.of, enable_gqa=True)
        return shared if self._shares(shared) else None


@final
@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class _Repeated:
    """A tensor whose heads are each repeated some times in a row."""

    of: fx.Node
    times: int


def _repeated(node: Any) -> _Repeated | None:
    """Returns what is repeated along the heads, None for other tensors.

    Understood is what models write: `repeat_interleave`, and a dimension that is inserted behind
    the heads, expanded, and merged with them. The sizes on both sides of a step prove what it did.
    """
    if _is_call(node, _REPEATING):
        return _interleaved(node)
    expanded = _operand(node, _MERGING)
    inserted = _operand(expanded, _EXPANDING)
    base = _operand(inserted, _INSERTING)
    shapes = [_shape(step) for step in (base, inserted, expanded, node)]
    times = _times(*[shape for shape in shapes if shape is not None])
    return _Repeated(of=base, times=times) if base is not None and times else None


def _interleaved(node: fx.Node) -> _Repeated | None:
    match node.args, dict(node.kwargs):
        case ((fx.Node() as base, int(times)), {"dim": 1 | -3, **others}) if not others:
            pass
        case ((fx.Node() as base, int(times), 1 | -3), {**others}) if not others:
            pass
        case _:
            return None
    shape = _shape(base)
    return _Repeated(of=base, times=times) if shape is not None and len(shape) == 4 else None


def _times(
    base: tuple[Affine, ...] = (),
    inserted: tuple[Affine, ...] = (),
    expanded: tuple[Affine, ...] = (),
    merged: tuple[Affine, ...] = (),
) -> int:
    """Returns how often heads are repeated by steps of these shapes, 0 if they are not."""
    if len(base) != 4 or len(expanded) != 5:
        return 0
    batch, heads, length, features = base
    times = expanded[2]
    if not (times.is_constant and heads.is_constant):
        return 0
    proven = (
        inserted == (batch, heads, Affine(1), length, features)
        and expanded == (batch, heads, times, length, features)
        and merged == (batch, heads * times.constant, length, features)
    )
    return times.constant if proven else 0


_REPEATING = frozenset({"repeat_interleave", torch.repeat_interleave})
_MERGING = frozenset({"reshape", "view", "flatten", torch.reshape, torch.flatten})
_EXPANDING = frozenset({"expand", "broadcast_to", torch.broadcast_to})
_INSERTING = frozenset({"unsqueeze", torch.unsqueeze, operator.getitem})


def _operand(node: Any, targets: frozenset[Any]) -> fx.Node | None:
    """Returns what a step works on, None if the node is another step."""
    if not _is_call(node, targets) or not isinstance(node.args[0], fx.Node):
        return None
    if node.target is operator.getitem:
        index = node.args[1]
        whole = (None, slice(None, None, None), Ellipsis)
        if not isinstance(index, tuple) or any(item not in whole for item in index):
            return None
    return node.args[0]


def _written_between(first: Iterable[fx.Node], last: fx.Node) -> bool:
    """Says whether anything may be written to after a copy was made and before it is used."""
    return any(
        _may_write(node)
        for start in first
        for node in itertools.takewhile(lambda node: node is not last, _after(start))
    )


def _after(node: fx.Node) -> Iterator[fx.Node]:
    while node.op != "output":
        node = node.next
        yield node


def _may_write(node: fx.Node) -> bool:
    operation = operator_of(node)
    if operation is not None and "out" not in node.kwargs:
        return operation.memory is Memory.WRITES
    return node.op.startswith("call") and bool(written_operands(node))


def _is_call(node: Any, targets: frozenset[Any]) -> bool:
    return isinstance(node, fx.Node) and node.op.startswith("call") and node.target in targets


def _example(node: Any) -> torch.Tensor | None:
    example = node.meta.get("example_value") if isinstance(node, fx.Node) else None
    return example if isinstance(example, torch.Tensor) else None


def _shape(node: Any) -> tuple[Affine, ...] | None:
    example = _example(node)
    return None if example is None else tuple(size_expression(size) for size in example.shape)
