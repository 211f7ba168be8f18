"""One call of attention as a problem to measure: what it is given, and runs on inputs like those.

Which kernel shall run it is decided in `attention_contest.py`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, final

import torch
from torch import fx
from torch._dynamo.testing import rand_strided
from torch._subclasses.fake_tensor import FakeTensor
from torch.backends import cuda
from torch.backends.cuda import SDPAParams
from torch.nn.attention import SDPBackend

from thunder.transforms.attention_call import AttentionCall, attention_call

Attention = Callable[..., torch.Tensor]

_CAN_RUN = {
    SDPBackend.CUDNN_ATTENTION: cuda.can_use_cudnn_attention,
    SDPBackend.FLASH_ATTENTION: cuda.can_use_flash_attention,
    SDPBackend.EFFICIENT_ATTENTION: cuda.can_use_efficient_attention,
}


@final
@dataclass(frozen=True, kw_only=True, slots=True)
class TensorFacts:
    """What the choice of a kernel depends on in a tensor.

    Attributes:
        shape: Its sizes.
        stride: Its strides.
        dtype: Its dtype.
        device: Its device; not part of its `repr`, by which ranks look verdicts up.
        requires_grad: Whether its gradient is computed.
    """

    shape: tuple[int, ...]
    stride: tuple[int, ...]
    dtype: torch.dtype
    device: torch.device = field(repr=False)
    requires_grad: bool

    def make(self) -> torch.Tensor:
        """Returns random numbers laid out like it."""
        return rand_strided(self.shape, self.stride, self.dtype, self.device)

    def make_mask(self) -> torch.Tensor:
        """Returns a random mask laid out like it, with rows that mask everything."""
        lowest = None if self.dtype is torch.bool else torch.finfo(self.dtype).min
        size = 1 + sum((n - 1) * step for n, step in zip(self.shape, self.stride, strict=True))
        hides = torch.rand(size, device=self.device) < 0.25
        if lowest is None:
            memory = ~hides
        else:
            memory = torch.zeros(size, dtype=self.dtype, device=self.device)
            memory.masked_fill_(hides, -math.inf)
        mask = memory.as_strided(self.shape, self.stride)
        if self.shape[-2] > 2 and self.stride[-2]:
            owned = mask[tuple(slice(None if step else 1) for step in self.stride)]
            owned[..., 0, :] = False if lowest is None else -math.inf
            owned[..., 1, :] = False if lowest is None else lowest
        return mask


@final
@dataclass(frozen=True, kw_only=True, slots=True)
class AttentionProblem:
    """A call of attention with known sizes and no dropout.

    Attributes:
        query: Shape (batch, heads, queries, features).
        key: Shape (batch, heads, keys, features).
        value: Shape (batch, heads, keys, features).
        attn_mask: Broadcastable to (batch, heads, queries, keys), or None.
        is_causal: Whether the kernel masks the future itself.
        scale: What scores are multiplied by; None for 1/sqrt(features).
        enable_gqa: Whether groups of queries share keys.
    """

    query: TensorFacts
    key: TensorFacts
    value: TensorFacts
    attn_mask: TensorFacts | None
    is_causal: bool
    scale: float | None
    enable_gqa: bool

    def make_inputs(self) -> list[Any]:
        """Returns random query, key and value, and the mask."""
        operands = (self.query, self.key, self.value)
        tensors = [facts.make().requires_grad_(facts.requires_grad) for facts in operands]
        return [*tensors, self.attn_mask and self.attn_mask.make_mask()]

    def run(self, attention: Attention, inputs: list[Any]) -> list[torch.Tensor]:
        """Runs attention forward, and backward where gradients are wanted.

        Args:
            attention: `scaled_dot_product_attention`, or that by one kernel.
            inputs: As `make_inputs` gives them, or in another precision.

        Returns:
            The result, and the gradients of its sum of squares.
        """
        query, key, value, mask = inputs
        result = attention(
            query,
            key,
            value,
            attn_mask=mask,
            is_causal=self.is_causal,
            scale=self.scale,
            enable_gqa=self.enable_gqa,
        )
        wanted = [x for x in (query, key, value) if x.requires_grad]
        if not wanted:
            return [result]
        return [result, *torch.autograd.grad(result, wanted, result.detach())]

    def kernels(self) -> list[SDPBackend]:
        """Returns the kernels that can run it and that the user allows, torch's choice first.

        Empty where torch would not choose one of them.
        """
        query, key, value, mask = self.make_inputs()
        parameters = SDPAParams(query, key, value, mask, 0.0, self.is_causal, self.enable_gqa)
        choice = SDPBackend(
            torch.ops.aten._fused_sdp_choice(
                *(query, key, value, mask, 0.0, self.is_causal),
                scale=self.scale,
                enable_gqa=self.enable_gqa,
            )
        )
        able = [kernel for kernel, can_run in _CAN_RUN.items() if can_run(parameters)]
        if choice not in able:
            return []
        return [choice, *(kernel for kernel in able if kernel is not choice)]

    def of_one_group(self) -> AttentionProblem:
        """Returns the problem for one row of the batch and the queries of one head of keys.

        Rows and heads do not mix, so what is wrong in the whole is wrong in a part; and float64
        scores of a part fit into memory.
        """
        queries = self.query.shape[1] // self.key.shape[1] if self.enable_gqa else 1
        mask = self.attn_mask
        return replace(
            self,
            query=_first(self.query, (1, queries)),
            key=_first(self.key, (1, 1)),
            value=_first(self.value, (1, 1)),
            attn_mask=mask and _first(mask, (1, min(queries, mask.shape[1]))),
        )

    @property
    def score_bytes(self) -> int:
        """Bytes of its scores in float64."""
        return 8 * math.prod(self.query.shape[:3]) * self.key.shape[2]


def attention_problem(node: fx.Node) -> AttentionProblem | None:
    """Returns a call of attention as a problem, if it is one that can be measured.

    Args:
        node: A node of a graph from Dynamo.

    Returns:
        None where it is no attention, has sizes that are symbols, draws random numbers (another
        kernel draws others), learns its mask, or runs in an autocast or functorch context, which
        its inputs do not show.
    """
    call = attention_call(node)
    if call is None or call.dropout_p != 0 or not isinstance(call.is_causal, bool):
        return None
    query, key, value, mask = (
        _facts(operand) for operand in (call.query, call.key, call.value, call.attn_mask)
    )
    if query is None or key is None or value is None or not _is_plain(call, node, mask):
        return None
    return AttentionProblem(
        query=query,
        key=key,
        value=value,
        attn_mask=mask,
        is_causal=call.is_causal,
        scale=call.scale,
        enable_gqa=bool(call.enable_gqa),
    )


def _is_plain(call: AttentionCall, node: fx.Node, mask: TensorFacts | None) -> bool:
    if call.attn_mask is not None and (mask is None or mask.requires_grad):
        return False
    if not isinstance(call.scale, float | None) or (call.is_causal and mask is not None):
        return False
    operands = (call.query, call.key, call.value)
    examples = [operand.meta["example_value"] for operand in operands]
    result = node.meta.get("example_value")
    return (
        all(example.dim() == 4 and example.numel() for example in examples)
        and isinstance(result, FakeTensor)
        and result.dtype == examples[0].dtype
    )


def _facts(operand: Any) -> TensorFacts | None:
    example = operand.meta.get("example_value") if isinstance(operand, fx.Node) else None
    if not isinstance(example, FakeTensor) or example.layout is not torch.strided:
        return None
    shape, stride = example.shape, example.stride()
    missing = 4 - len(shape)
    if not all(isinstance(size, int) for size in (*shape, *stride)):
        return None
    return TensorFacts(
        shape=(1,) * missing + tuple(shape),
        stride=(0,) * missing + tuple(stride),
        dtype=example.dtype,
        device=example.device,
        requires_grad=example.requires_grad and torch.is_grad_enabled(),
    )


def _first(facts: TensorFacts, sizes: tuple[int, int]) -> TensorFacts:
    return replace(facts, shape=(*sizes, *facts.shape[2:]))
