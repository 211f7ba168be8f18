"""Random numbers from a seed that the graph carries, as Inductor's decompositions make them.

Eager's own sequence cannot be reproduced, so operators that promise it (`rand_like`,
`native_dropout`, `bernoulli`) are left to ATen. Numbers drawn from a seed must come out alike
wherever the seed is used; so a node is taken only when its seed serves this node alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import fx

from thunder.executors.nvfuser.builder import Builder, as_sizes
from thunder.executors.nvfuser.definition import Literal, Operand, TensorValue
from thunder.executors.nvfuser.layout import tensor
from thunder.executors.nvfuser.lowering import Kind, Lowering
from thunder.executors.nvfuser.sizes import concrete_shape


def random(
    builder: Builder, size: Sequence[Any], seed: Operand, mode: str, **_: Any
) -> TensorValue:
    """Draws from [0, 1) or from the normal distribution."""
    operator = {"rand": "uniform", "randn": "normal"}[mode]
    bounds = [Literal(number=number, dtype=torch.float32) for number in (0.0, 1.0)]
    shape = concrete_shape(builder.result.shape)
    return builder.emit(
        operator,
        *bounds,
        as_sizes(size),
        dtype=torch.float32,
        shape=shape,
        rng_seed=tensor(builder, seed),
        rng_offset=Literal(number=0, dtype=torch.int64),
    )


def _refuse_random(
    result: torch.Tensor, size: Any, seed: torch.Tensor, mode: str, **options: Any
) -> str | None:
    if mode not in ("rand", "randn"):
        return f"it draws {mode!r}"
    if any(options.values()):
        return "it must draw what eager would draw"
    return None


def _refuse_shared_seed(node: fx.Node) -> str | None:
    reason = "its seed is used elsewhere, where other numbers would be drawn from it"
    lookup = node.args[1]
    if not isinstance(lookup, fx.Node) or len(lookup.users) != 1 or lookup.op != "call_function":
        return reason
    seeds = lookup.args[0] if lookup.args else None
    if not isinstance(seeds, fx.Node) or seeds.op != "call_function":
        return reason
    if any(user.op == "output" for user in seeds.users):
        return reason
    return None


LOWERINGS: dict[str, Lowering] = {
    "prims.inductor_random.default": Lowering(
        lower=random, kind=Kind.COMPUTE, refuse=_refuse_random, refuse_node=_refuse_shared_seed
    ),
}
