"""Calls of `scaled_dot_product_attention` in a captured graph: reading and rewriting them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, final

import torch
from torch import fx

_FUNCTIONS: frozenset[Callable[..., Any]] = frozenset(
    {
        torch.nn.functional.scaled_dot_product_attention,
        torch.ops.aten.scaled_dot_product_attention,
        torch.ops.aten.scaled_dot_product_attention.default,
    }
)
_PARAMETERS = (
    *("query", "key", "value", "attn_mask"),
    *("dropout_p", "is_causal", "scale", "enable_gqa"),
)


@final
@dataclass(frozen=True, kw_only=True, slots=True)
class AttentionCall:
    """The operands of one call that play a part in masking.

    Attributes:
        query: Shape (..., heads, queries, features).
        key: Shape (..., heads, keys, features).
        mask: Broadcastable to (..., heads, queries, keys), or None.
        is_causal: Whether the kernel masks the future itself; a node when that is dynamic.
    """

    query: Any
    key: Any
    mask: Any
    is_causal: Any


def attention_call(node: fx.Node) -> AttentionCall | None:
    """Returns a node's operands if it computes attention, None if it does not.

    Args:
        node: A node of a graph from Dynamo.
    """
    if node.op != "call_function" or node.target not in _FUNCTIONS:
        return None
    given = dict(zip(_PARAMETERS, node.args, strict=False)) | node.kwargs
    return AttentionCall(
        query=given.get("query"),
        key=given.get("key"),
        mask=given.get("attn_mask"),
        is_causal=given.get("is_causal", False),
    )


def use_native_mask(node: fx.Node, *, is_causal: bool) -> None:
    """Makes an attention without a mask tensor.

    Args:
        node: A call of attention.
        is_causal: Whether the kernel is to mask the future.
    """
    _set_argument(node, "attn_mask", None)
    if is_causal:
        _set_argument(node, "is_causal", True)


def _set_argument(node: fx.Node, name: str, value: Any) -> None:
    position = _PARAMETERS.index(name)
    if position < len(node.args):
        node.update_arg(position, value)
    else:
        node.update_kwarg(name, value)
