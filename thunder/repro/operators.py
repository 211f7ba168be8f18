"""Operators that a program defines, defined again in a script.

Reads what `torch.library.custom_op` keeps of an operator. Operators of torch itself and of
installed packages need an import at most; of others only the schema is known.
"""

from __future__ import annotations

import sys
import types
from typing import Any

import torch
from torch._library.custom_ops import OPDEFS, CustomOpDef

from thunder.repro.collecting import SourceCollector, is_installed
from thunder.repro.values import write_value
from thunder.trace.operators import defining_module

_OF_TORCH = frozenset(
    {
        "_c10d_functional",
        "_c10d_functional_autograd",
        "_dtensor",
        "_inductor_test",
        "_native",
        "_quantized",
        "aten",
        "c10d",
        "c10d_functional",
        "debug_mode_ops",
        "debugprims",
        "export",
        "fsdp",
        "higher_order",
        "inductor",
        "mkl",
        "mkldnn",
        "onednn",
        "prim",
        "prims",
        "profiler",
        "quantized",
        "quantized_decomposed",
        "rngprims",
        "sparse",
        "symm_mem",
        "xnnpack",
    }
)


def write_operator(
    operator: torch._ops.OpOverload | torch._ops.OpOverloadPacket, collector: SourceCollector
) -> str:
    """Returns how to write an operator; its definition or import goes to the collector.

    Args:
        operator: The operator or one overload of it.
        collector: Gets the definition, or what is missing of it.
    """
    is_packet = isinstance(operator, torch._ops.OpOverloadPacket)
    overload = getattr(operator, operator.overloads()[0]) if is_packet else operator
    namespace, _, name = overload._schema.name.partition("::")
    definition = OPDEFS.get(overload._schema.name)
    module = defining_module(overload)
    if definition is not None and not is_installed(definition._init_fn.__module__):
        _define(definition, collector)
    elif module is not None:
        collector.names.modules.add(module)
    elif namespace not in _OF_TORCH and definition is None:
        _find(namespace, overload, collector)
    path = f"torch.ops.{namespace}.{name}"
    return path if is_packet else f"{path}.{overload._overloadname}"


def _find(namespace: str, overload: torch._ops.OpOverload, collector: SourceCollector) -> None:
    """Names what brings an operator that was registered in another way than `custom_op`."""
    if namespace in sys.modules and is_installed(namespace):
        collector.names.modules.add(namespace)
        return
    collector.miss(f"what defines the operator {overload._schema}; import it")


def _define(definition: CustomOpDef, collector: SourceCollector) -> None:
    qualified = definition._qualname
    name = qualified.replace("::", "_").replace(".", "_")
    if name in collector.definitions:
        return
    attempt = collector.fork()
    lines = _registrations(name, definition, attempt)
    if len(attempt.gaps) == len(collector.gaps):
        collector.take(attempt)
        collector.define(name, "\n".join(lines))
        return
    module = definition._init_fn.__module__
    if module == "__main__":
        collector.miss(f"the operator {qualified}, which the program defines; import it")
    else:
        collector.names.modules.add(module)


def _registrations(name: str, definition: CustomOpDef, collector: SourceCollector) -> list[str]:
    def written(function: Any) -> str:
        return write_value(function, collector)

    kernels = {device: _unwrapped(kernel) for device, kernel in definition._backend_fns.items()}
    devices = [device for device, kernel in kernels.items() if kernel is definition._init_fn]
    kernels = {device: kernel for device, kernel in kernels.items() if device not in devices}
    schema = definition._opoverload._schema
    mutated = [a.name for a in schema.arguments if a.alias_info and a.alias_info.is_write]
    only = "" if None in devices else f", device_types={devices!r}"
    lines = [
        f"{name} = torch.library.custom_op({definition._qualname!r}, "
        f"{written(definition._init_fn)}, mutates_args={mutated!r}{only}, "
        f"schema={definition._schema!r})"
    ]
    for device, kernel in kernels.items():
        lines.append(f"{name}.register_kernel({device!r}, {written(kernel)})")
    if definition._abstract_fn is not None:
        lines.append(f"{name}.register_fake({written(definition._abstract_fn)})")
    if definition._backward_fn is not None:
        setup = definition._setup_context_fn
        more = "" if setup is None else f", setup_context={written(setup)}"
        lines.append(f"{name}.register_autograd({written(definition._backward_fn)}{more})")
    if definition._vmap_fn is not None:
        lines.append(f"{name}.register_vmap({written(definition._vmap_fn)})")
    return lines


def _unwrapped(kernel: Any) -> Any:
    """Returns the user's function inside torch's wrappers of it."""
    while isinstance(kernel, types.FunctionType) and kernel.__module__.startswith("torch."):
        cells = dict(zip(kernel.__code__.co_freevars, kernel.__closure__ or (), strict=True))
        if "fn" not in cells:
            break
        kernel = cells["fn"].cell_contents
    return kernel
