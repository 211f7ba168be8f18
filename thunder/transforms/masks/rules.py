"""The table of all rules, by every way in which a graph spells an operation."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import torch
from torch import fx
from torch._functorch import predispatch

from thunder.transforms.masks import indexing, layout, pointwise
from thunder.transforms.masks.operators import Memory, Operator, OperatorTable, operator_table

_TABLE: OperatorTable = operator_table(
    created={**pointwise.CREATED, **layout.CREATED},
    fresh={**pointwise.FRESH, **layout.FRESH},
    views={**pointwise.VIEWS, **layout.VIEWS},
    written=(*pointwise.WRITTEN, *layout.WRITTEN),
    others={
        torch.where: Operator(pointwise.where, Memory.FRESH),
        "where": Operator(pointwise.method_where, Memory.FRESH),
        "fill_": Operator(pointwise.fill, Memory.WRITES, creates=True),
        "zero_": Operator(pointwise.filled(0), Memory.WRITES, creates=True),
        torch.concat: Operator(layout.cat, Memory.FRESH),
        operator.getitem: Operator(indexing.getitem, Memory.VIEW),
        predispatch._add_batch_dim: Operator(layout.add_batch_dim, Memory.VIEW),
        predispatch._remove_batch_dim: Operator(layout.remove_batch_dim, Memory.VIEW),
    },
)

FRESH_FUNCTIONS: frozenset[Callable[..., Any]] = frozenset({torch.nn.functional.embedding})
"""Functions without a rule that positions go into and whose result has memory of its own."""


def operator_of(node: fx.Node) -> Operator | None:
    """Returns what is known of the operation that a node calls, None when nothing is."""
    if node.op not in ("call_function", "call_method"):
        return None
    return _TABLE.get(node.target)


def transform_depth_change(node: fx.Node) -> int:
    """Returns 1 for a node that enters a functorch transform, -1 for one that leaves it, else 0.

    `vmap`, `grad` and `jvp` change what the nodes between them mean.
    """
    name = getattr(node.target, "__name__", "") if node.op == "call_function" else ""
    if name.endswith("_increment_nesting"):
        return 1
    return -1 if name.endswith("_decrement_nesting") else 0
