"""The table of supported operators, put together from the families in `lowerings/`."""

from __future__ import annotations

import types
from collections.abc import Mapping
from dataclasses import dataclass

from torch import fx

from thunder.executors.nvfuser.lowering import Kind, Lowering
from thunder.executors.nvfuser.lowerings import (
    activations,
    batch_norm,
    casts,
    comparisons,
    factories,
    indexing,
    joining,
    losses,
    matmul,
    normalization,
    pointwise,
    reductions,
    shapes,
    softmax,
    symbolic,
)

FAMILIES: Mapping[str, Mapping[str, Lowering]] = {
    "activations": activations.LOWERINGS,
    "batch_norm": batch_norm.LOWERINGS,
    "casts": casts.LOWERINGS,
    "comparisons": comparisons.LOWERINGS,
    "factories": factories.LOWERINGS,
    "indexing": indexing.LOWERINGS,
    "joining": joining.LOWERINGS,
    "losses": losses.LOWERINGS,
    "normalization": normalization.LOWERINGS,
    "pointwise": pointwise.LOWERINGS,
    "reductions": reductions.LOWERINGS,
    "shapes": shapes.LOWERINGS,
    "softmax": softmax.LOWERINGS,
    "symbolic": symbolic.LOWERINGS,
}
"""Family name to table; matrix products are apart because they are taken on request only."""

MATRIX_PRODUCTS: Mapping[str, Lowering] = matmul.LOWERINGS

LOWERINGS: Mapping[str, Lowering] = {
    name: lowering
    for table in (*FAMILIES.values(), MATRIX_PRODUCTS)
    for name, lowering in table.items()
}
"""Every lowering by the name of its operator, such as `"aten.add.Tensor"`."""

assert len(LOWERINGS) == sum(map(len, FAMILIES.values())) + len(MATRIX_PRODUCTS), "listed twice"

_NO_SEED = "nvFuser cannot read a seed from memory, and eager's random numbers are not its own"
_NO_LOOKUP = "nvFuser checks no index when it looks up in memory"
_NO_ADDING = "nvFuser cannot add to places that may coincide"
_NO_PLACES = "nvFuser finds the largest values but not where they are"
_LIBRARY = "it is left to the vendor's libraries"

DECLINED: Mapping[str, str] = {
    **dict.fromkeys(
        (
            "prims.inductor_random",
            "prims.inductor_randint",
            "prims.inductor_seeds",
            "prims.inductor_lookup_seed",
            "aten.rand",
            "aten.rand_like",
            "aten.randn",
            "aten.randn_like",
            "aten.bernoulli",
            "aten.native_dropout",
        ),
        _NO_SEED,
    ),
    **dict.fromkeys(
        ("aten.embedding", "aten.index", "aten._unsafe_index", "aten.index_select"), _NO_LOOKUP
    ),
    **dict.fromkeys(
        (
            "aten.embedding_dense_backward",
            "aten.index_add",
            "aten.index_put",
            "aten._unsafe_index_put",
            "aten._unsafe_masked_index_put_accumulate",
            "aten.scatter_add",
            "aten.scatter_reduce",
        ),
        _NO_ADDING,
    ),
    **dict.fromkeys(
        ("aten.argmax", "aten.argmin", "aten.max", "aten.min", "aten.sort", "aten.topk"),
        _NO_PLACES,
    ),
    **dict.fromkeys(
        (
            "aten.convolution",
            "aten.convolution_backward",
            "aten._scaled_dot_product_cudnn_attention",
            "aten._scaled_dot_product_cudnn_attention_backward",
            "aten._scaled_dot_product_efficient_attention",
            "aten._scaled_dot_product_efficient_attention_backward",
            "aten._scaled_dot_product_flash_attention",
            "aten._scaled_dot_product_flash_attention_backward",
        ),
        _LIBRARY,
    ),
}
"""Why some operators have no lowering, by name without the overload."""


@dataclass(frozen=True, kw_only=True, slots=True)
class SupportedOperator:
    """A row of the table of supported operators.

    Attributes:
        name: The ATen operator, such as `"aten.add.Tensor"`.
        family: The module in `lowerings/` that translates it.
        kind: What it does to data.
        by_default: Whether the executor takes it without being asked.
    """

    name: str
    family: str
    kind: Kind
    by_default: bool


def supported_operators() -> tuple[SupportedOperator, ...]:
    """Returns the supported operators by family and name.

    Example:
        >>> [row.name for row in supported_operators() if row.family == "casts"]
        ['aten._to_copy.default', 'prims.convert_element_type.default']
    """
    families = {**FAMILIES, "matmul": MATRIX_PRODUCTS}
    return tuple(
        SupportedOperator(
            name=name, family=family, kind=table[name].kind, by_default=family != "matmul"
        )
        for family, table in sorted(families.items())
        for name in sorted(table)
    )


def lowering_of(node: fx.Node) -> Lowering | None:
    """Returns the lowering of a node, or None when its operator is not in the table."""
    return LOWERINGS.get(operator_name(node)) if node.op == "call_function" else None


def operator_name(node: fx.Node) -> str:
    """Returns the name of a node's operator: `"aten.add.Tensor"`, or `"operator.add"`."""
    if isinstance(node.target, types.BuiltinFunctionType):
        return f"operator.{node.target.__name__}"
    return str(node.target)
