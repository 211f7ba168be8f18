"""The `aten` executor: everything, op by op, as eager PyTorch runs it."""

from __future__ import annotations

from typing import final

from torch import fx

from thunder.executors.base import AbstractExecutor, Refusal


@final
class AtenExecutor(AbstractExecutor):
    """Takes every node and changes none; the last of every executor list."""

    @property
    def name(self) -> str:
        """`"aten"`."""
        return "aten"

    def check(self, node: fx.Node) -> Refusal | None:
        """Accepts every node."""
        del node
        return None
