"""Attention masks in their native form, found on a whole Dynamo graph before it is split.

Only a whole graph shows how a mask was built: in a part, it is an input. This is part of what
`executors="auto"` stands for on CUDA, where kernels that mask by themselves skip half of the
work; the proof is `AttentionMaskTransform`'s.
"""

from __future__ import annotations

import warnings

import torch
from torch import fx

from thunder.errors import FallbackWarning
from thunder.pipeline.options import CompileOptions
from thunder.trace.copying import copy_graph_module
from thunder.trace.trace import Direction
from thunder.transforms.attention_mask import AttentionMaskTransform, MaskFinding, mask_findings
from thunder.transforms.base import Stage
from thunder.transforms.pipeline import run_transforms


def give_native_masks(
    graph_module: fx.GraphModule, options: CompileOptions
) -> tuple[fx.GraphModule, tuple[MaskFinding, ...]]:
    """Rewrites the attentions of a graph whose masks are proven to have a native form.

    Args:
        graph_module: The graph from Dynamo; it is consumed.
        options: Masks are looked at where executors are chosen automatically.

    Returns:
        The graph to go on with, and what was found out about each mask.

    Raises:
        TransformError: The transform failed, and `on_failure` is `"raise"`.
    """
    if options.requested_executors != "auto" or not _on_cuda(graph_module.graph):
        return graph_module, ()
    untouched = copy_graph_module(graph_module)
    try:
        changed, _ = run_transforms(
            graph_module,
            [AttentionMaskTransform()],
            stage=Stage.CAPTURED,
            direction=Direction.CAPTURED,
        )
        return changed, tuple(mask_findings(changed))
    except Exception as error:  # the fence around what is only faster
        if options.on_failure == "raise":
            raise
        warnings.warn(
            f"{type(error).__name__}: {error}. Attention masks stay as they are.",
            FallbackWarning,
            stacklevel=2,
        )
        return untouched, ()


def _on_cuda(graph: fx.Graph) -> bool:
    values = (node.meta.get("example_value") for node in graph.find_nodes(op="placeholder"))
    return any(isinstance(value, torch.Tensor) and value.device.type == "cuda" for value in values)
