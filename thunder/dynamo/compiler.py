"""`ThunderCompiler`, the torch.compile backend."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Literal

from torch import fx
from torch._inductor.compile_fx import compile_fx


class ThunderCompiler:
    """First version, replaced soon: the signature is what counts."""

    def __init__(
        self,
        *,
        executors: str | Sequence[Any] = "auto",
        transforms: Iterable[Any] = (),
        exclude_ops: Iterable[Any] = (),
        debug: Any = False,
        on_failure: Literal["fallback", "raise"] = "fallback",
        contest: Literal["full", "cached", "off"] = "cached",
        mode: str | None = None,
        options: Mapping[str, Any] | None = None,
    ) -> None:
        """Keeps the options."""
        self.subgraph_infos: list[Any] = []

    def __call__(
        self, graph_module: fx.GraphModule, example_inputs: Sequence[Any], **kwargs: Any
    ) -> Callable[..., Any]:
        """Compiles one Dynamo graph."""
        return compile_fx(graph_module, list(example_inputs))
