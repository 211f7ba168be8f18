"""Small programs as models contain them, decomposed as Inductor does, forward and backward."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F

from tests.executors.nvfuser.calls import Spec, acc, b, f, i, index


@dataclass(frozen=True)
class Program:
    name: str
    function: Callable[..., Any]
    inputs: tuple[Spec, ...]
    backward: bool = True
    dtypes: tuple[torch.dtype, ...] = (torch.float32, torch.bfloat16)
    scale: int = 1
    """By how much the GPU tests enlarge the last dimension; not used on the CPU."""

    def make(self, device: str, dtype: torch.dtype) -> list[torch.Tensor]:
        return [spec.make(device, dtype, seed) for seed, spec in enumerate(self.inputs)]


def rope(x, cos, sin):
    half = x.shape[-1] // 2
    rotated = torch.cat((-x[..., half:], x[..., :half]), dim=-1)
    return x * cos + rotated * sin


def llama_rms_norm(x, weight):
    wide = x.float()
    normal = wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + 1e-6)
    return weight * normal.to(x.dtype)


def masked_softmax(scores, mask):
    return F.softmax(scores.masked_fill(~mask, torch.finfo(scores.dtype).min), dim=-1)


def repeat_kv(x):
    return x[:, :, None].expand(2, 2, 3, 5, 8).reshape(2, 6, 5, 8) * 2


def dropout_mask(x, u):
    keep = u > 0.1
    return torch.where(keep, x / 0.9, 0.0)


def channels_last_norm(x, weight, bias):
    return F.batch_norm(x, None, None, weight, bias, training=True)


LAST = f(2, 4, 6, 5, permuted=(0, 2, 3, 1))

PROGRAMS = [
    Program("softmax", lambda x: F.softmax(x, -1), (f(4, 6, 40),)),
    Program("softmax_dim1", lambda x: F.softmax(x, 1), (f(4, 6, 8),)),
    Program(
        "softmax_inf_row",
        lambda x: F.softmax(x.masked_fill(x > -9, -float("inf")), -1),
        (f(4, 8),),
        backward=False,
    ),
    Program("log_softmax", lambda x: F.log_softmax(x, -1), (f(4, 40),)),
    Program("masked_softmax", masked_softmax, (f(2, 3, 8, 8), b(8, 8))),
    Program(
        "layer_norm", lambda x, w, c: F.layer_norm(x, (40,), w, c), (f(4, 6, 40), f(40), f(40))
    ),
    Program("layer_norm_two", lambda x: F.layer_norm(x, (6, 8)), (f(4, 6, 8),)),
    Program("rms_norm", lambda x, w: F.rms_norm(x, (40,), w), (f(4, 6, 40), f(40))),
    Program("llama_rms_norm", llama_rms_norm, (f(4, 6, 40), f(40))),
    Program("add_rms_norm", lambda x, r, w: llama_rms_norm(x + r, w), (f(4, 40), f(4, 40), f(40))),
    Program("group_norm", lambda x, w, c: F.group_norm(x, 2, w, c), (f(2, 4, 6, 5), f(4), f(4))),
    Program(
        "batch_norm", channels_last_norm, (f(2, 4, 6, 5), acc(4), acc(4)), dtypes=(torch.float32,)
    ),
    Program(
        "batch_norm_channels_last",
        channels_last_norm,
        (LAST, acc(4), acc(4)),
        dtypes=(torch.float32,),
    ),
    Program("gelu", F.gelu, (f(4, 6),)),
    Program("gelu_tanh_bias", lambda x, c: F.gelu(x + c, approximate="tanh"), (f(4, 6), f(6))),
    Program("silu", F.silu, (f(4, 6),)),
    Program("swiglu", lambda x, y: F.silu(x) * y, (f(4, 6), f(4, 6))),
    Program("geglu_split", lambda x: (lambda u, v: F.gelu(u) * v)(*x.chunk(2, -1)), (f(4, 12),)),
    Program("relu_squared", lambda x: F.relu(x).square(), (f(4, 6),)),
    Program("mish_elu", lambda x: F.mish(x) + F.elu(x) + F.softplus(x), (f(4, 6),)),
    Program(
        "hard",
        lambda x: F.hardswish(x) + F.hardsigmoid(x) + F.hardtanh(x),
        (f(4, 6),),
        dtypes=(torch.float32,),
    ),
    Program("dropout_mask", dropout_mask, (f(4, 6), f(4, 6, kind="positive")), backward=False),
    Program("rope", rope, (f(2, 3, 5, 8), f(5, 8), f(5, 8))),
    Program("rope_transposed", rope, (f(2, 3, 5, 8, permuted=(0, 2, 1, 3)), f(5, 8), f(5, 8))),
    Program("repeat_kv", repeat_kv, (f(2, 2, 5, 8),)),
    Program(
        "cross_entropy",
        lambda x, t: F.cross_entropy(x, t, ignore_index=3),
        (f(8, 30), index(8, high=30)),
    ),
    Program(
        "cross_entropy_wide",
        lambda x, t: F.cross_entropy(x.float(), t),
        (f(8, 30), index(8, high=30)),
    ),
    Program(
        "nll_none",
        lambda x, t: F.nll_loss(F.log_softmax(x, -1), t, reduction="none"),
        (f(8, 30), index(8, high=30)),
    ),
    Program("mse", F.mse_loss, (f(4, 6), f(4, 6))),
    Program("smooth_l1", F.smooth_l1_loss, (f(4, 6), f(4, 6))),
    Program("bce", F.binary_cross_entropy_with_logits, (f(4, 6), f(4, 6, kind="positive"))),
    Program(
        "kl",
        lambda x, y: F.kl_div(F.log_softmax(x, -1), F.softmax(y, -1), reduction="batchmean"),
        (f(4, 6), f(4, 6)),
    ),
    Program("layer_scale_residual", lambda x, r, s: r + x * s, (f(2, 5, 8), f(2, 5, 8), f(8))),
    Program("cosine", lambda x, y: F.cosine_similarity(x, y), (f(4, 6), f(4, 6))),
    Program("normalize", lambda x: F.normalize(x, dim=-1), (f(4, 6),)),
    Program("variance", lambda x: x.var(-1) + x.std(-1), (f(4, 6),)),
    Program("logsumexp", lambda x: torch.logsumexp(x, -1), (f(4, 6),)),
    Program("transpose_add", lambda x, y: x.t() + y, (f(4, 6), f(6, 4))),
    Program("permute_norm", lambda x: F.layer_norm(x.permute(0, 2, 1), (6,)), (f(4, 6, 8),)),
    Program("cat_gelu", lambda x, y: F.gelu(torch.cat([x, y], 1)), (f(4, 6), f(4, 3))),
    Program("pad_add", lambda x: F.pad(x, (1, 2, 0, 1)) + 1, (f(4, 6),)),
    Program("slice_mul", lambda x: x[:, 1:5] * x[:, :4], (f(4, 6),)),
    Program("stack_mean", lambda x, y: torch.stack([x, y]).mean(0), (f(4, 6), f(4, 6))),
    Program("tril_scores", lambda x: x.tril() * 2, (f(2, 5, 5),)),
    Program(
        "int_math",
        lambda x, y: ((x * 3 - y) // 4, (x % 5) & 3, x.float() / 7),
        (i(4, 6), i(4, 6)),
        backward=False,
        dtypes=(torch.float32,),
    ),
    Program(
        "causal_bias",
        lambda x: torch.where(
            torch.arange(8, device=x.device)[:, None] >= torch.arange(8, device=x.device), x, -1e9
        ),
        (f(2, 8, 8),),
    ),
    Program("zero_dim", lambda x, s: x * s + s.exp(), (f(4, 6), f())),
    Program("all_zero_dim", lambda x, y: (x * y).tanh(), (f(), f())),
    Program("size_one", lambda x, y: (x + y).sum(0, keepdim=True) * y, (f(1, 6), f(4, 1))),
    Program("rank_five", lambda x: (x * 2).sum((1, 3)), (f(2, 3, 2, 3, 4),)),
    Program("scalar_loss", lambda x: (x.sin() * x).mean(), (f(4, 6),)),
    Program("two_outputs", lambda x: x.exp() + x.exp().sum(-1, keepdim=True), (f(4, 6),)),
]
