"""Whether nvFuser can take a node: what holds for every operator, then the operator's own word."""

from __future__ import annotations

import operator
from typing import Any

import torch
from torch import fx
from torch.fx.node import map_arg
from torch.utils._pytree import tree_leaves

from thunder.executors.nvfuser.descriptors import is_dense
from thunder.executors.nvfuser.dtypes import DATA_TYPE_NAMES
from thunder.executors.nvfuser.lowering import Kind, Lowering
from thunder.executors.nvfuser.operators import (
    DECLINED,
    MATRIX_PRODUCTS,
    lowering_of,
    operator_name,
)
from thunder.executors.nvfuser.sizes import all_concrete, concrete

MAX_RANK = 8
"""nvFuser takes more, but nothing beyond this has been tried."""


def refusal_reason(node: fx.Node, *, device_type: str, matmul: bool) -> str | None:
    """Says why a node cannot be translated.

    Args:
        node: A node of a functional ATen graph, with fake values in `meta["val"]`.
        device_type: Where tensors must be.
        matmul: Whether matrix products are wanted.

    Returns:
        A sentence, or None when the node can be translated.
    """
    if node.target is operator.getitem:
        return _element_reason(node, device_type=device_type, matmul=matmul)
    lowering = lowering_of(node)
    if lowering is None:
        name = operator_name(node)
        return DECLINED.get(name.rpartition(".")[0], f"{name} has no translation to nvFuser")
    if operator_name(node) in MATRIX_PRODUCTS and not matmul:
        return "matrix products are left to the vendor's libraries"
    results = [leaf for leaf in tree_leaves(node.meta.get("val")) if leaf is not None]
    if lowering.kind is Kind.SIZE:
        return _own_reason(node, lowering)
    if not results or not all(isinstance(leaf, torch.Tensor) for leaf in results):
        return "it does not return tensors"
    operands = _operands(node)
    return (
        _first(_tensor_reason(tensor, device_type, result=True) for tensor in results)
        or _first(_tensor_reason(tensor, device_type, result=False) for tensor in operands)
        or _device_reason(results, operands)
        or _layout_reason(lowering, results)
        or _own_reason(node, lowering)
    )


def _first(reasons: Any) -> str | None:
    return next((reason for reason in reasons if reason), None)


def _element_reason(node: fx.Node, *, device_type: str, matmul: bool) -> str | None:
    producer = node.args[0]
    if not isinstance(producer, fx.Node) or producer.op != "call_function":
        return "it takes an element of an input"
    if refusal_reason(producer, device_type=device_type, matmul=matmul) is not None:
        return "it takes an element of a result that nvFuser does not compute"
    return None


def _operands(node: fx.Node) -> list[torch.Tensor]:
    values = [source.meta.get("val") for source in node.all_input_nodes]
    return [leaf for leaf in tree_leaves(values) if isinstance(leaf, torch.Tensor)]


def _tensor_reason(tensor: torch.Tensor, device_type: str, *, result: bool) -> str | None:
    if tensor.layout is not torch.strided:
        return f"it handles a {tensor.layout} tensor"
    if tensor.dtype not in DATA_TYPE_NAMES:
        return f"{tensor.dtype} is not supported"
    if tensor.ndim > MAX_RANK:
        return f"it handles a tensor of {tensor.ndim} dimensions, more than {MAX_RANK}"
    if any(concrete(size) == 0 for size in tensor.shape):
        return "it handles an empty tensor"
    if tensor.device.type == device_type:
        return None
    if tensor.device.type == "cpu" and tensor.ndim == 0 and not result:
        return None
    return f"it handles a tensor on {tensor.device.type}"


def _device_reason(results: list[torch.Tensor], operands: list[torch.Tensor]) -> str | None:
    devices = {tensor.device for tensor in (*results, *operands) if tensor.device.type != "cpu"}
    return "it handles tensors on several devices" if len(devices) > 1 else None


def _layout_reason(lowering: Lowering, results: list[torch.Tensor]) -> str | None:
    if lowering.kind is Kind.VIEW:
        return None
    for tensor in results:
        known = all_concrete((*tensor.shape, *tensor.stride()))
        if known and not is_dense(tensor.shape, tensor.stride()):
            return "its result has gaps or overlaps in memory"
    return None


def _own_reason(node: fx.Node, lowering: Lowering) -> str | None:
    args, kwargs = map_arg((node.args, node.kwargs), lambda source: source.meta.get("val"))
    refusal = lowering.refuse(node.meta["val"], *args, **kwargs)
    return refusal or lowering.refuse_node(node)
