"""Gives attention its native mask where the program builds the same one as a tensor.

Models build their masks explicitly when they are traced, and a kernel that is handed a mask
tensor reads it and computes the masked half too. Where the tensor is proven to be causal, or
true everywhere, for every input that the graph accepts, this transform passes `is_causal=True`
or no mask instead. What a mask is, `masks` finds out; which kernel runs is for executors.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from dataclasses import dataclass
from typing import final

import torch
from torch import fx

from thunder.trace.source_lines import SourceLine, source_line
from thunder.transforms.attention_call import attention_call, set_arguments
from thunder.transforms.base import AbstractTransform, Stage
from thunder.transforms.masks.affine import Affine
from thunder.transforms.masks.analysis import Observation, observe
from thunder.transforms.masks.forms import Mask, MaskForm, mask_of
from thunder.transforms.masks.indexed_tensor import IndexedTensor
from thunder.transforms.masks.origins import describe_origin
from thunder.transforms.masks.sizes import size_expression
from thunder.transforms.masks.unused import remove_unused

_FINDING = "thunder_mask_finding"
"""Where in a node's `meta` its finding is."""


@final
@dataclass(frozen=True, kw_only=True, slots=True)
class MaskFinding:
    """What was found out about the mask of one attention.

    Attributes:
        node: Name of the attention's node.
        form: What the mask is.
        rewritten: Whether the attention was given its native form.
        reason: Why it was, or was not, as a sentence.
        source: The user's line; None when it is not recorded.
    """

    node: str
    form: MaskForm
    rewritten: bool
    reason: str
    source: SourceLine | None

    def __str__(self) -> str:
        """Gives one line of a report."""
        where = f" ({self.source})" if self.source else ""
        return f"{self.node}: {self.reason}{where}"


@final
class AttentionMaskTransform(AbstractTransform):
    """Replaces mask tensors by the forms that attention kernels have.

    Rewritten are masks that are causal with as many queries as keys, and masks that are true
    everywhere; bool masks and masks that are added to the scores. All others stay. Each
    attention's finding is kept in its node's `meta`; `mask_findings` collects them.

    Results change only as far as another kernel changes them: by rounding, in which weights
    dropout drops, and where scores or values are not finite. It must see the whole graph: split
    first, and a mask is an input of the part that uses it.

    Example:
        >>> import torch
        >>> from torch.nn.functional import scaled_dot_product_attention
        >>> def attend(x):
        ...     position = torch.arange(x.shape[-2])
        ...     mask = position[:, None] >= position[None, :]
        ...     return scaled_dot_product_attention(x, x, x, attn_mask=mask)
        >>> def backend(graph_module, inputs):
        ...     graph_module, changed = AttentionMaskTransform().apply(graph_module)
        ...     print(*[finding.reason for finding in mask_findings(graph_module)])
        ...     return graph_module
        >>> x = torch.randn(1, 2, 4, 8)
        >>> torch.testing.assert_close(torch.compile(attend, backend=backend)(x), attend(x))
        the mask tensor is causal: is_causal=True says the same
    """

    stage = Stage.CAPTURED

    @property
    def name(self) -> str:
        """`"attention mask"`."""
        return "attention mask"

    def apply(self, graph_module: fx.GraphModule) -> tuple[fx.GraphModule, bool]:
        """Rewrites the attentions in place, in the graph and in the bodies that it calls.

        Args:
            graph_module: A graph from Dynamo.

        Returns:
            The same graph module, and whether an attention was rewritten.
        """
        masks: list[fx.Node] = []
        inspect = _Inspector(graph_module)
        for observation in observe(graph_module, _mask_operand):
            finding = inspect(observation)
            observation.node.meta[_FINDING] = finding
            if finding.rewritten:
                masks.append(observation.operand)
                set_arguments(observation.node, attn_mask=None)
                if finding.form is MaskForm.CAUSAL:
                    set_arguments(observation.node, is_causal=True)
        if masks:
            remove_unused(graph_module, masks)
            for module in graph_module.modules():
                if isinstance(module, fx.GraphModule):
                    module.recompile()
        return graph_module, bool(masks)


def mask_findings(graph_module: fx.GraphModule) -> list[MaskFinding]:
    """Returns what `AttentionMaskTransform` found, in program order.

    Args:
        graph_module: A graph that the transform was applied to, or one made from it by passes
            that keep nodes' `meta`.

    Returns:
        One finding for each attention that was given a mask, those in bodies of higher-order
        operators where the operator names its body.
    """
    return list(_findings(graph_module, set()))


def _findings(graph_module: fx.GraphModule, seen: set[fx.GraphModule]) -> Iterator[MaskFinding]:
    seen.add(graph_module)
    for node in graph_module.graph.nodes:
        if _FINDING in node.meta:
            yield node.meta[_FINDING]
        if node.op == "get_attr":
            body = getattr(graph_module, str(node.target), None)
            if isinstance(body, fx.GraphModule) and body not in seen:
                yield from _findings(body, seen)


def _mask_operand(node: fx.Node) -> fx.Node | None:
    call = attention_call(node)
    return call.attn_mask if call is not None and isinstance(call.attn_mask, fx.Node) else None


@final
class _Inspector:
    """Turns observations into findings; what layers share is looked at once."""

    def __init__(self, root: fx.GraphModule) -> None:
        self._mask_of = functools.cache(mask_of)
        self._origin = functools.cache(functools.partial(describe_origin, root=root))

    def __call__(self, observation: Observation) -> MaskFinding:
        if observation.tensor is None:
            form, reason = self._origin(observation.operand)
            rewritten = False
        else:
            mask = self._mask_of(observation.tensor)
            form = mask.form
            obstacle = _obstacle(observation, observation.tensor, mask)
            rewritten = obstacle is None
            reason = obstacle or _NATIVE[form]
        return MaskFinding(
            node=observation.node.name,
            form=form,
            rewritten=rewritten,
            reason=reason,
            source=source_line(observation.node),
        )


_NATIVE = {
    MaskForm.CAUSAL: "the mask tensor is causal: is_causal=True says the same",
    MaskForm.ALL_TRUE: "the mask tensor is true everywhere: no mask says the same",
}


def _obstacle(observation: Observation, tensor: IndexedTensor, mask: Mask) -> str | None:
    """Says why an attention keeps a mask that is known; None when nothing speaks against."""
    call = attention_call(observation.node)
    assert call is not None
    if mask.form not in _NATIVE:
        return f"the mask is {mask}, which attention kernels have no argument for"
    if observation.transformed:
        return "the attention runs under a functorch transform such as torch.vmap"
    if call.is_causal is not False:
        return "the attention is given is_causal as well"
    query, key = _shape(call.query), _shape(call.key)
    if query is None or key is None or (_shape(observation.node) or ())[:-1] != query[:-1]:
        return "the mask may change the result's shape"
    queries, keys = query[-2], key[-2]
    if mask.form is MaskForm.CAUSAL and (tensor.shape[-2:] != (queries, keys) or queries != keys):
        return f"the mask is causal, but there are {queries} queries for {keys} keys"
    return None


def _shape(node: fx.Node) -> tuple[Affine, ...] | None:
    example = node.meta.get("example_value") if isinstance(node, fx.Node) else None
    if not isinstance(example, torch.Tensor):
        return None
    return tuple(size_expression(size) for size in example.shape)
