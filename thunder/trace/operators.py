"""Which module must be imported before an operator exists in `torch.ops`."""

from __future__ import annotations

import torch
import torch._prims
from torch._library.custom_ops import OPDEFS

_NAMESPACE_MODULES = {
    "inductor": "torch._inductor.lowering",
    "_inductor_test": "torch._inductor.lowering",
    "rngprims": "torch._prims.rng_prims",
    "quantized_decomposed": "torch.ao.quantization.fx._decomposed",
    "torchvision": "torchvision",
}


def defining_module(operator: torch._ops.OpOverload) -> str | None:
    """Returns the module that defines `operator`, or None when torch itself brings it.

    Args:
        operator: An operator overload. Those defined by `torch.library.custom_op` in `__main__`
            have no module that another program could import; they give None too.
    """
    namespace, _, name = operator._schema.name.partition("::")
    if namespace == "prims" and name not in torch._prims.__all__:
        return "torch._inductor.inductor_prims"
    definition = OPDEFS.get(f"{namespace}::{name}")
    if definition is not None:
        module = definition._init_fn.__module__
        return None if module == "__main__" else module
    return _NAMESPACE_MODULES.get(namespace)
