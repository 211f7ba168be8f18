"""The `aten` executor: everything, op by op, as eager PyTorch runs it."""

from __future__ import annotations

from typing import final

import torch
from torch import fx

from thunder.executors.base import AbstractExecutor, Refusal


@final
class AtenExecutor(AbstractExecutor):
    """Takes every node and changes none; the last of every executor list."""

    @property
    def name(self) -> str:
        """`"aten"`."""
        return "aten"

    @property
    def version(self) -> str:
        """That of torch."""
        return str(torch.__version__)

    def check(self, node: fx.Node) -> Refusal | None:
        """Accepts every node."""
        del node
        return None
