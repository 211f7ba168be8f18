"""Calls of `scaled_dot_product_attention` in a captured graph: reading and rewriting them.

The one place that knows the call's signature and which kernels torch has for it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, final

import torch
from torch import fx
from torch.backends.cuda import SDPAParams, can_use_flash_attention

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
    """The arguments of one call: nodes of the graph, or Python values.

    Attributes:
        query: Shape (..., heads, queries, features).
        key: Shape (..., heads, keys, features).
        value: Shape (..., heads, keys, features).
        attn_mask: Broadcastable to (..., heads, queries, keys), or None.
        dropout_p: Probability of dropping a weight.
        is_causal: Whether the kernel masks the future itself.
        scale: What scores are multiplied by; None for 1/sqrt(features).
        enable_gqa: Whether key and value may have fewer heads, shared by groups of queries.
    """

    query: Any = None
    key: Any = None
    value: Any = None
    attn_mask: Any = None
    dropout_p: Any = 0.0
    is_causal: Any = False
    scale: Any = None
    enable_gqa: Any = False


def attention_call(node: fx.Node) -> AttentionCall | None:
    """Returns a node's arguments if it computes attention, None if it does not.

    Args:
        node: A node of a graph from Dynamo.
    """
    if node.op != "call_function" or node.target not in _FUNCTIONS:
        return None
    given = dict(zip(_PARAMETERS, node.args, strict=False)) | node.kwargs
    return AttentionCall(**given)


def set_arguments(node: fx.Node, **values: Any) -> None:
    """Changes arguments of a call of attention.

    Args:
        node: The call.
        values: The arguments by the names that `AttentionCall` has for them.
    """
    for name, value in values.items():
        position = _PARAMETERS.index(name)
        if position < len(node.args):
            node.update_arg(position, value)
        else:
            node.update_kwarg(name, value)


def shares_keys(call: AttentionCall) -> bool:
    """Says whether a kernel that reads shared keys in place can run a call.

    Args:
        call: A call without a mask, with fewer heads of keys than of queries.

    Returns:
        Whether flash attention may be used, on a CUDA device: wherever it may, torch chooses it
        or cuDNN's, and both share keys. What the user allows (`torch.nn.attention.sdpa_kernel`)
        is part of the answer. False on other devices.
    """
    query, key, value = (_fake(of) for of in (call.query, call.key, call.value))
    constant = isinstance(call.dropout_p, float) and isinstance(call.is_causal, bool)
    if not constant or not isinstance(query, torch.Tensor) or query.device.type != "cuda":
        return False
    parameters = SDPAParams(query, key, value, None, call.dropout_p, call.is_causal, True)
    return can_use_flash_attention(parameters)


def _fake(argument: Any) -> Any:
    return argument.meta.get("example_value") if isinstance(argument, fx.Node) else argument
