"""Modules that a program refers to, as source.

Not all objects that look like modules can be imported: `torch.ops.aten` is an attribute of
`torch.ops`, and a module that a program made with `types.ModuleType` is known to nobody else.
"""

from __future__ import annotations

import sys
import types

from thunder.repro.collecting import SourceCollector

_OF_TORCH = ("torch.ops.aten", "torch.ops.prims", "torch.ops.higher_order")


def write_module(module: types.ModuleType, collector: SourceCollector) -> str | None:
    """Writes a module as an expression.

    Args:
        module: A module, or an object that poses as one.
        collector: Gets the import, and a note about operators that others must define.

    Returns:
        The expression; None when no import gives this module.

    Example:
        >>> import torch
        >>> collector = SourceCollector()
        >>> write_module(torch.ops.aten, collector), collector.imports()
        ('torch.ops.aten', ('import torch',))
    """
    name = module.__name__
    parts = name.split(".")
    for cut in range(len(parts), 0, -1):
        owner = ".".join(parts[:cut])
        found = sys.modules.get(owner)
        if found is None or not _is_importable(owner, found):
            continue
        for part in parts[cut:]:
            found = vars(found).get(part, types)
        if found is not module:
            return None
        collector.names.modules.add(owner)
        if name.startswith("torch.ops.") and name not in _OF_TORCH:
            collector.note(f"uses operators of {name}: import here what defines them")
        return name
    return None


def _is_importable(name: str, module: types.ModuleType) -> bool:
    """Whether a fresh process finds it: what has no spec was put in place by this one."""
    return name != "__main__" and getattr(module, "__spec__", None) is not None
