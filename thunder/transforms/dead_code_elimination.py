"""Removes nodes whose results nobody uses."""

from __future__ import annotations

from typing import final

from torch import fx

from thunder.transforms.base import AbstractTransform


@final
class DeadCodeElimination(AbstractTransform):
    """fx's own dead code elimination; keeps what writes to memory or draws random numbers."""

    @property
    def name(self) -> str:
        """`"dead code elimination"`."""
        return "dead code elimination"

    def apply(self, graph_module: fx.GraphModule) -> tuple[fx.GraphModule, bool]:
        """Removes dead nodes in place."""
        return graph_module, graph_module.graph.eliminate_dead_code()
