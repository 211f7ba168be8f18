"""Which inputs a program writes to, found out while it runs, and undone."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, final

import torch
from torch._higher_order_ops.triton_kernel_wrap import triton_kernel_wrapper_mutation
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from thunder.benchmark.inputs import flat_memory, plain_parts, storage_key
from thunder.trace.float64 import UNDECLARED_WRITES, run_inside


@final
class WriteWatcher(TorchDispatchMode):
    """Saves memory right before an operator writes to it, so that `undo` can bring it back.

    Only what is written to is ever copied. It sees what operators declare.

    Example:
        >>> import torch
        >>> x, y = torch.zeros(2), torch.ones(2)
        >>> with WriteWatcher([x, y]) as watcher:
        ...     _ = x.add_(y)
        >>> watcher.undo()
        >>> x, len(watcher.written)
        (tensor([0., 0.]), 1)
    """

    supports_higher_order_operators = True

    def __init__(self, tensors: Iterable[torch.Tensor]) -> None:
        """Watches the memory behind some tensors.

        Args:
            tensors: The tensors; those without plain memory are passed over.
        """
        super().__init__()
        self._watched = {
            storage_key(part): part for tensor in tensors for part in plain_parts(tensor)
        }
        self._saved: dict[int, torch.Tensor] = {}

    @property
    def written(self) -> frozenset[int]:
        """Keys (`storage_key`) of the memory that was written to."""
        return frozenset(self._saved)

    def undo(self) -> None:
        """Restores what the memory held before; `written` stays."""
        for key, saved in self._saved.items():
            flat_memory(self._watched[key], torch.uint8).copy_(saved)

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Saves what the operator is going to write to, and runs it."""
        kwargs = kwargs or {}
        if isinstance(func, torch._ops.HigherOrderOperator):
            if func is triton_kernel_wrapper_mutation:  # what it writes to is not declared here
                self._save(tree_leaves((args, kwargs)))
            return run_inside(self, func, args, kwargs)
        undeclared = UNDECLARED_WRITES.get(func._schema.name, ())
        for index, argument in enumerate(func._schema.arguments):
            declared = argument.alias_info is not None and argument.alias_info.is_write
            if declared or argument.name in undeclared:
                value = args[index] if index < len(args) else kwargs.get(argument.name)
                self._save(tree_leaves(value))
        return func(*args, **kwargs)

    def _save(self, values: Iterable[Any]) -> None:
        for value in values:
            if not isinstance(value, torch.Tensor):
                continue
            for part in plain_parts(value):
                key = storage_key(part)
                if key in self._watched and key not in self._saved:
                    self._saved[key] = flat_memory(part, torch.uint8).clone()
