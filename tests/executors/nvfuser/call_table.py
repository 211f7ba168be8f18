"""Calls of every ATen operator that has a lowering, by the operator's name."""

from __future__ import annotations

import math

import torch

from tests.executors.nvfuser.calls import Call, acc, b, call, f, follows_dtype, i, index
from thunder.executors.nvfuser.lowering import Kind
from thunder.executors.nvfuser.lowerings.pointwise import FLOAT_UNARY
from thunder.executors.nvfuser.operators import LOWERINGS

X = f(4, 6)
POSITIVE = f(4, 6, kind="positive")
UNIT = f(4, 6, kind="unit")
SPECIAL = f(4, 6, kind="special")
I = i(4, 6)  # noqa: E741 - the integer beside X and B
I32 = i(4, 6, dtype=torch.int32)
B = b(4, 6)
IMAGE = f(2, 4, 3, 5)
LAST = f(2, 4, 3, 5, permuted=(0, 2, 3, 1))

_UNIT_DOMAIN = {"acos", "asin", "atanh", "erfinv"}
_POSITIVE_DOMAIN = {"log", "log10", "log1p", "log2", "rsqrt", "sqrt", "lgamma", "reciprocal"}


def _unary_calls(name: str) -> list[Call]:
    if name in _UNIT_DOMAIN:
        return [call(UNIT), call(f(kind="unit"))]
    if name in _POSITIVE_DOMAIN:
        return [call(POSITIVE)]
    if name == "acosh":
        return [call(f(4, 6, kind="positive")), call(SPECIAL)]
    return [call(X), call(I, floats=False), call(B, floats=False), call(SPECIAL)]


def _both(name: str, *tensors: Call, scalars: tuple[Call, ...] = ()) -> dict[str, list[Call]]:
    return {f"aten.{name}.Tensor": list(tensors), f"aten.{name}.Scalar": list(scalars)}


_ARITHMETIC_TENSORS = (
    call(X, X),
    call(X, f(6)),
    call(f(4, 1), f(1, 6)),
    call(X, f()),
    call(I, X),
    call(I, I, floats=False),
    call(I32, I, floats=False),
    call(B, X),
    call(X, 0.7),
    call(0.7, X),
    call(I, 2, floats=False),
    call(LAST, LAST),
    call(SPECIAL, X),
)
_NO_BOOL_TENSORS = tuple(entry for entry in _ARITHMETIC_TENSORS if B not in entry.args)
_ARITHMETIC_SCALARS = (call(X, 0.3), call(I, 3, floats=False), call(I, 0.3, floats=False))
_SCALED = (call(X, X, alpha=0.5), call(I, I, alpha=3, floats=False))
_COMPARED = (
    call(X, X),
    call(X, f(6)),
    call(X, I),
    call(I, B, floats=False),
    call(B, B, floats=False),
    call(SPECIAL, X),
    call(X, f(dtype=torch.float64)),
)
_COMPARED_SCALARS = (
    call(X, 0.1),
    call(f(4, 6, kind="index", high=3), 1),
    call(I, 0.5, floats=False),
    call(B, 1, floats=False),
    call(SPECIAL, math.inf),
)

CALLS: dict[str, list[Call]] = {
    **{f"aten.{name}.default": _unary_calls(name) for name in FLOAT_UNARY},
    **{
        f"aten.{name}.default": [call(X), call(SPECIAL), call(I, floats=False)]
        for name in ("abs", "neg", "sign", "sgn")
    },
    **{
        f"aten.{name}.default": [call(X), call(SPECIAL)]
        for name in ("ceil", "floor", "frac", "round", "trunc")
    },
    **_both("add", *_ARITHMETIC_TENSORS, *_SCALED, scalars=_ARITHMETIC_SCALARS),
    **_both("sub", *_NO_BOOL_TENSORS, *_SCALED, scalars=_ARITHMETIC_SCALARS),
    **_both("rsub", call(X, X), *_SCALED, scalars=(*_ARITHMETIC_SCALARS, call(X, 2, 3))),
    **_both("mul", *_ARITHMETIC_TENSORS, call(B, B, floats=False), scalars=_ARITHMETIC_SCALARS),
    **_both(
        "div",
        call(X, POSITIVE),
        call(X, f(dtype=torch.float64, kind="positive")),
        call(I, i(4, 6, high=5), floats=False),
        call(X, 3.0),
        call(B, X),
        scalars=(call(X, 0.3), call(I, 3, floats=False)),
    ),
    "aten.floor_divide.default": [call(X, POSITIVE), call(I, 3, floats=False)],
    "aten.true_divide.Tensor": [call(X, POSITIVE)],
    "aten.div.Tensor_mode": [
        call(X, POSITIVE, rounding_mode="trunc"),
        call(f(64, 32), f(64, 32), rounding_mode="floor"),
        call(f(64, 32, kind="index", high=40), f(64, 32, kind="positive"), rounding_mode="floor"),
        call(SPECIAL, X, rounding_mode="floor"),
        call(I, 3, rounding_mode="floor", floats=False),
        call(I, -3, rounding_mode="floor", floats=False),
        call(I, -3, rounding_mode="trunc", floats=False),
        call(X, POSITIVE, rounding_mode=None),
    ],
    "aten.div.Scalar_mode": [
        call(X, 0.3, rounding_mode="floor"),
        call(I, 4, rounding_mode="trunc", floats=False),
    ],
    **_both(
        "remainder",
        call(X, POSITIVE),
        scalars=(call(X, 0.7), call(X, -0.7), call(I, 3, floats=False), call(I, -3, floats=False)),
    ),
    **_both(
        "fmod",
        call(X, POSITIVE),
        scalars=(call(X, 0.7), call(I, 3, floats=False), call(I, -3, floats=False)),
    ),
    "aten.pow.Tensor_Scalar": [
        *(call(X, exponent) for exponent in (0, 1, 1.0, 2, 3, 2.0, -1, -2, 5)),
        *(call(POSITIVE, exponent) for exponent in (0.5, -0.5, 1.5)),
        *(call(I, exponent, floats=False) for exponent in (1, 2, 3, 4)),
        call(I, 0.5 + 1.5, floats=False),
        call(SPECIAL, 0),
    ],
    "aten.pow.Tensor_Tensor": [call(POSITIVE, X), call(POSITIVE, I)],
    "aten.pow.Scalar": [call(2.0, X), call(2, X)],
    "aten.square.default": [call(X), call(I, floats=False)],
    **{
        f"aten.{name}.default": [call(X, f(6)), call(SPECIAL, X), call(X, SPECIAL)]
        for name in ("maximum", "minimum", "fmax", "fmin", "atan2")
    },
    "aten.clamp.default": [
        call(X, -0.5, 0.5),
        call(X, 0.1),
        call(X, None, 0.1),
        call(SPECIAL, -0.5, 0.5),
        call(X, 1.0, -1.0),
        call(I, -2, 3, floats=False),
        call(I, -0.5, 2.5, floats=False),
    ],
    "aten.clamp.Tensor": [call(X, f(6), f(4, 1)), call(X, None, X)],
    "aten.clamp_min.default": [call(X, 0.1), call(SPECIAL, 0)],
    "aten.clamp_min.Tensor": [call(X, f(6))],
    "aten.clamp_max.default": [call(X, 0.1)],
    "aten.clamp_max.Tensor": [call(X, f(6))],
    "aten.lerp.Scalar": [call(X, X, 0.3), call(X, f(6), 0.7)],
    "aten.lerp.Tensor": [call(X, X, UNIT)],
    "aten.addcmul.default": [call(X, X, f(6)), call(X, X, X, value=0.5)],
    "aten.addcdiv.default": [call(X, X, POSITIVE), call(X, X, POSITIVE, value=0.5)],
    "prims.fma.default": [
        call(
            f(4, 6, dtype=torch.float32),
            f(4, 6, dtype=torch.float32),
            f(4, 6, dtype=torch.float32),
            floats=False,
        )
    ],
    # -- comparisons, logic ----------------------------------------------------------------------
    **{
        key: calls
        for name in ("eq", "ne", "lt", "le", "gt", "ge")
        for key, calls in _both(name, *_COMPARED, scalars=_COMPARED_SCALARS).items()
    },
    **{
        f"aten.{name}.default": [call(SPECIAL)]
        for name in ("isnan", "isinf", "isfinite", "isposinf", "isneginf")
    },
    "aten.logical_not.default": [call(B, floats=False), call(SPECIAL), call(I, floats=False)],
    **{
        f"aten.{name}.default": [call(B, B, floats=False), call(SPECIAL, I)]
        for name in ("logical_and", "logical_or", "logical_xor")
    },
    **{
        key: calls
        for name in ("bitwise_and", "bitwise_or", "bitwise_xor")
        for key, calls in {
            f"aten.{name}.Tensor": [
                call(I, I, floats=False),
                call(B, B, floats=False),
                call(B, b(6), floats=False),
                call(I32, B, floats=False),
            ],
            f"aten.{name}.Scalar": [call(I, 5, floats=False), call(B, True, floats=False)],
            f"aten.{name}.Scalar_Tensor": [call(5, I, floats=False)],
        }.items()
    },
    "aten.bitwise_not.default": [call(I, floats=False), call(B, floats=False)],
    "aten.where.self": [
        call(B, X, X),
        call(b(6), X, f(4, 1)),
        call(B, I, X),
        call(b(4, 1), f(6), f()),
        call(B, I, I32, floats=False),
        call(B, B, b(6), floats=False),
    ],
    "aten.where.ScalarOther": [call(B, X, 0.1), call(B, I, 2, floats=False)],
    "aten.where.ScalarSelf": [call(B, 0.1, X)],
    "aten.where.Scalar": [call(B, 1.0, 0.0, floats=False), call(B, 1, 0, floats=False)],
    "aten.masked_fill.Scalar": [call(X, B, -math.inf), call(X, b(6), 0.1), call(I, B, 7)],
    "aten.masked_fill.Tensor": [call(X, B, f())],
    # -- casts -----------------------------------------------------------------------------------
    **{
        name: [
            *(
                call(source, dtype)
                for source in (X, f(4, 6, kind="int"))
                for dtype in (torch.float32, torch.float64, torch.bfloat16, torch.float16)
            ),
            *(call(f(4, 6, kind="int"), dtype) for dtype in (torch.int64, torch.int32, torch.bool)),
            *(
                call(source, dtype, floats=False)
                for source in (I, I32, B)
                for dtype in (torch.float32, torch.int64, torch.int32, torch.bool, torch.bfloat16)
            ),
        ]
        for name in ("prims.convert_element_type.default",)
    },
    "aten._to_copy.default": [call(X, dtype=torch.float32), call(X, dtype=torch.int64), call(X)],
    # -- reductions ------------------------------------------------------------------------------
    "aten.sum.default": [call(X), call(I, floats=False), call(B, floats=False), call(f())],
    "aten.sum.dim_IntList": [
        call(X, [0]),
        call(X, [-1], True),
        call(IMAGE, [0, 2, 3]),
        call(X, []),
        call(X, None),
        call(f(), [0]),
        call(f(1, 6), [0]),
        call(I, [1], floats=False),
        call(X, [1], dtype=torch.float64),
        call(LAST, [1], True),
        call(SPECIAL, [1]),
    ],
    "aten.mean.default": [call(X)],
    "aten.mean.dim": [call(X, [1]), call(IMAGE, [2, 3], True), call(X, None)],
    "aten.amax.default": [
        call(X, [1]),
        call(SPECIAL, [1], True),
        call(I, [0], floats=False),
        call(X),
        call(B, [1], floats=False),
    ],
    "aten.amin.default": [call(X, [1]), call(SPECIAL, [1], True), call(B, [1], floats=False)],
    "aten.max.default": [call(X), call(I, floats=False), call(B, floats=False)],
    "aten.min.default": [call(X), call(SPECIAL)],
    "aten.prod.default": [call(UNIT), call(i(2, 3, high=3), floats=False)],
    "aten.prod.dim_int": [call(UNIT, 1), call(UNIT, 0, True)],
    "aten.any.default": [call(B, floats=False), call(X)],
    "aten.any.dim": [
        call(B, 1, floats=False),
        call(X, 0, True),
        call(f(4, 6, kind="index", high=2), 1),
    ],
    "aten.any.dims": [call(IMAGE, [1, 2]), call(B, None, floats=False)],
    "aten.all.default": [call(B, floats=False), call(X)],
    "aten.all.dim": [call(B, 1, floats=False), call(f(4, 6, kind="index", high=2), 0, True)],
    "aten.all.dims": [call(IMAGE, [1, 2]), call(b(4, 6), [0], floats=False)],
    "aten.var.correction": [
        call(X, [1]),
        call(X, [1], correction=0, keepdim=True),
        call(X, None),
        call(IMAGE, [0, 2, 3], correction=1),
    ],
    "aten.std.correction": [call(X, [1], correction=0), call(X, [0])],
    "aten.var_mean.correction": [
        call(X, [1], correction=0, keepdim=True),
        call(LAST, [0, 2, 3], correction=0, keepdim=True),
        call(X, [0], correction=1),
    ],
    "aten.logsumexp.default": [call(X, [1]), call(X, [0, 1], True), call(SPECIAL, [1])],
    "aten.linalg_vector_norm.default": [
        call(X),
        call(X, 1, [1]),
        call(X, math.inf, [0], True),
        call(X, 2, [1], True),
    ],
    "aten.cumsum.default": [
        call(X, 1),
        call(X, 0),
        call(I, -1, floats=False),
        call(B, 1, floats=False),
        call(f(), 0),
    ],
    # -- softmax, norms --------------------------------------------------------------------------
    "aten._softmax.default": [call(X, -1, False), call(IMAGE, 1, False), call(f(4, 700), 1, False)],
    "aten._log_softmax.default": [call(X, 1, False), call(IMAGE, 1, False)],
    "aten._softmax_backward_data.default": [
        call(X, POSITIVE, 1, "DTYPE"),
        call(IMAGE, f(2, 4, 3, 5, kind="positive"), 1, "DTYPE"),
    ],
    "aten._log_softmax_backward_data.default": [call(X, X, 1, "DTYPE")],
    "aten.native_layer_norm.default": [
        call(X, [6], f(6), f(6), 1e-5),
        call(X, [6], None, None, 1e-5),
        call(IMAGE, [3, 5], f(3, 5), None, 1e-3),
        call(f(6), [6], f(6), f(6), 1e-5),
        call(f(3, 2000), [2000], f(2000), f(2000), 1e-5),
    ],
    "aten.native_layer_norm_backward.default": [
        call(X, X, [6], acc(4, 1), acc(4, 1), f(6), f(6), [True, True, True]),
        call(X, X, [6], acc(4, 1), acc(4, 1), None, None, [True, False, False]),
    ],
    "aten._fused_rms_norm.default": [
        call(X, [6], f(6), 1e-5),
        call(X, [6], None, None),
        call(IMAGE, [3, 5], f(3, 5), 1e-5),
    ],
    "aten._fused_rms_norm_backward.default": [
        call(X, X, [6], acc(4, 1), f(6), [True, True]),
        call(X, X, [6], acc(4, 1), None, [True, False]),
    ],
    "aten.native_group_norm.default": [
        call(IMAGE, f(4), f(4), 2, 4, 15, 2, 1e-5),
        call(IMAGE, None, None, 2, 4, 15, 4, 1e-5),
    ],
    "aten._native_batch_norm_legit_functional.default": [
        call(IMAGE, acc(4), acc(4), acc(4), acc(4), True, 0.1, 1e-5),
        call(LAST, None, None, acc(4), acc(4), True, 0.3, 1e-5),
    ],
    "aten._native_batch_norm_legit.no_stats": [call(IMAGE, acc(4), acc(4), True, 0.1, 1e-5)],
    "aten.native_batch_norm_backward.default": [
        call(IMAGE, IMAGE, acc(4), None, None, acc(4), acc(4), True, 1e-5, [True] * 3),
    ],
    # -- activations -----------------------------------------------------------------------------
    "aten.relu.default": [call(X), call(SPECIAL)],
    "aten.threshold_backward.default": [call(X, X, 0), call(X, SPECIAL, 0)],
    "aten.gelu.default": [call(X), call(X, approximate="tanh")],
    "aten.gelu_backward.default": [call(X, X), call(X, X, approximate="tanh")],
    "aten.silu.default": [call(X)],
    "aten.silu_backward.default": [call(X, X)],
    "aten.glu.default": [call(X), call(X, 0)],
    "aten.sigmoid_backward.default": [call(X, POSITIVE)],
    "aten.tanh_backward.default": [call(X, UNIT)],
    "aten.leaky_relu.default": [call(X, 0.1)],
    "aten.leaky_relu_backward.default": [call(X, X, 0.1, False)],
    "aten.elu.default": [call(X), call(X, 1.5, 1.1, 0.9)],
    "aten.elu_backward.default": [
        call(X, 1.0, 1.0, 1.0, False, X),
        call(X, 1.5, 1.1, 0.9, True, UNIT),
    ],
    "aten.hardtanh.default": [call(X, -0.5, 0.5), call(SPECIAL)],
    "aten.hardtanh_backward.default": [call(X, X, -0.5, 0.5)],
    "aten.hardsigmoid.default": [call(f(4, 6))],
    "aten.hardsigmoid_backward.default": [call(X, X, floats=False)],
    "aten.hardswish.default": [call(X)],
    "aten.hardswish_backward.default": [call(X, X)],
    "aten.softplus.default": [call(X), call(X, 2.0, 1.0)],
    "aten.softplus_backward.default": [call(X, X, 2.0, 1.0)],
    "aten.mish.default": [call(X)],
    # -- shapes ----------------------------------------------------------------------------------
    "aten.view.default": [
        call(IMAGE, [8, 15]),
        call(IMAGE, [2, -1]),
        call(X, [24, 1]),
        call(X, [1, 2, 2, 6]),
    ],
    "aten._unsafe_view.default": [call(X, [2, 12])],
    "aten.reshape.default": [call(X, [2, 12])],
    "aten.permute.default": [call(IMAGE, [0, 2, 3, 1]), call(X, [1, 0]), call(LAST, [3, 1, 0, 2])],
    "aten.transpose.int": [call(IMAGE, 1, -1), call(X, 0, 0)],
    "aten.t.default": [call(X), call(f(6))],
    "aten.unsqueeze.default": [call(X, 0), call(X, -1), call(f(), 0)],
    "aten.squeeze.default": [call(f(1, 4, 1, 6)), call(X)],
    "aten.squeeze.dim": [call(f(4, 1, 6), 1), call(X, 1)],
    "aten.squeeze.dims": [call(f(1, 4, 1, 6), [0, 2]), call(f(1, 4, 6), [0, 1])],
    "aten.expand.default": [
        call(f(4, 1), [4, 6]),
        call(f(6), [2, 4, 6]),
        call(f(1, 6), [3, -1]),
        call(f(), [2, 3]),
    ],
    "prims.broadcast_in_dim.default": [
        call(f(4, dtype=torch.float32), [2, 4, 3], [1], floats=False)
    ],
    "aten.slice.Tensor": [
        call(X, 1, 1, 4),
        call(X, 0, -2),
        call(X, 1, 0, 9223372036854775807),
        call(X, -1, 2, -1),
        call(X, 1, 3, 5),
    ],
    "aten.select.int": [call(X, 0, 1), call(IMAGE, -1, -2)],
    "aten.split.Tensor": [call(X, 4, 1)],
    "aten.split_with_sizes.default": [call(X, [2, 4], -1)],
    "aten.unbind.int": [call(f(3, 4), 0)],
    "aten.as_strided.default": [call(f(1, 2, 2, 6), [4, 6], [6, 1])],
    "aten.alias.default": [call(X)],
    "aten.detach.default": [call(X)],
    "aten.clone.default": [call(X), call(LAST), call(LAST, memory_format=torch.contiguous_format)],
    "aten.lift_fresh_copy.default": [call(X)],
    "aten.repeat.default": [call(X, [2, 1]), call(X, [2, 3, 2]), call(f(1, 6), [3, 1])],
    # -- joining, factories, indexing ------------------------------------------------------------
    "aten.cat.default": [
        call([X, X]),
        call([X, f(4, 2)], 1),
        call([X, f(4, 2, dtype=torch.float32)], -1),
        call([I, I], 0, floats=False),
        call([X]),
    ],
    "aten.stack.default": [call([X, X]), call([X, X, X], -1)],
    "aten.constant_pad_nd.default": [
        call(X, [1, 2]),
        call(X, [0, 0, 2, 1], 0.1),
        call(X, [-1, 2]),
        call(X, [-1, -2, 0, -1]),
        call(I, [1, 1], 7, floats=False),
        call(X, [1, 1, 1, 1], -math.inf),
        call(B, [1, 2], 1, floats=False),
    ],
    "aten.slice_scatter.default": [call(X, f(2, 6), 0, 1, 3), call(X, f(4, 2), 1, 0, 2)],
    "aten.select_scatter.default": [call(X, f(6), 0, 1), call(X, f(4), 1, -1)],
    "aten.full.default": [
        call([4, 6], 0.1, dtype=torch.float32, floats=False),
        call([], 3, dtype=torch.int64, floats=False),
        call([4, 1], True, dtype=torch.bool, floats=False),
        call([4, 6], 0.1, dtype=torch.bfloat16, floats=False),
        call([], -math.inf, dtype=torch.float32, floats=False),
    ],
    "aten.zeros.default": [call([4, 6], dtype=torch.float32, floats=False)],
    "aten.ones.default": [call([4, 6], dtype=torch.int64, floats=False)],
    "aten.full_like.default": [call(X, 0.1)],
    "aten.zeros_like.default": [call(X), call(LAST)],
    "aten.ones_like.default": [call(X)],
    "aten.scalar_tensor.default": [call(0.1, dtype=torch.float32, floats=False)],
    "prims.iota.default": [
        call(
            6,
            start=0,
            step=1,
            dtype=torch.int64,
            device="DEVICE",
            requires_grad=False,
            floats=False,
        ),
        call(
            6,
            start=3,
            step=-2,
            dtype=torch.int32,
            device="DEVICE",
            requires_grad=False,
            floats=False,
        ),
    ],
    "aten.arange.default": [call(6, floats=False), call(6.0, floats=False)],
    "aten.arange.start": [call(2, 8, floats=False)],
    "aten.arange.start_step": [call(2, 14, 2, floats=False), call(0.5, 3.5, 0.5, floats=False)],
    "aten.triu.default": [call(X), call(f(3, 4, 6), 1), call(X, -2)],
    "aten.tril.default": [call(X), call(f(3, 4, 6), 1), call(X, -2)],
    "aten.gather.default": [
        call(X, 1, index(4, 1, high=6)),
        call(X, 0, index(1, 6, high=4)),
        call(SPECIAL, -1, index(4, 1, high=6)),
        call(f(8, 700), 1, index(8, 1, high=700)),
    ],
    "aten.scatter.value": [call(X, 1, index(4, 1, high=6), -1.0)],
    # -- losses ----------------------------------------------------------------------------------
    "aten.mse_loss.default": [call(X, X), call(X, X, 0), call(X, X, 2)],
    "aten.mse_loss_backward.default": [call(f(), X, X, 1), call(X, X, X, 0)],
    "aten.nll_loss_forward.default": [
        call(X, index(4, high=6), None, 1, 2),
        call(X, index(4, high=6), None, 2, -100),
        call(f(6), index(high=6), None, 1, -100),
    ],
    "aten.nll_loss_backward.default": [
        call(f(), X, index(4, high=6), None, 1, 2, f(kind="positive")),
        call(f(4), X, index(4, high=6), None, 0, 2, f(kind="positive")),
    ],
    # -- on request ------------------------------------------------------------------------------
    "aten.mm.default": [call(X, f(6, 5))],
    "aten.bmm.default": [call(f(2, 4, 6), f(2, 6, 3))],
    "aten.addmm.default": [call(f(5), X, f(6, 5)), call(f(5), X, f(6, 5), beta=0.5, alpha=2)],
}


CUDA_ONLY = {"aten._fused_rms_norm.default", "aten._fused_rms_norm_backward.default"}
"""Operators that are decomposed on the CPU."""

WIDE_STATISTICS = {
    "aten.native_layer_norm_backward.default",
    "aten._native_batch_norm_legit_functional.default",
    "aten._native_batch_norm_legit.no_stats",
    "aten.native_batch_norm_backward.default",
}
"""Operators whose statistics have other dtypes on the CPU than on CUDA for low precision."""


def calls_of(name: str, dtype: torch.dtype, device: str) -> list[Call]:
    """Returns the calls of an operator that are to run in a dtype; without floats, in one."""
    found: list[Call] = []
    for entry in CALLS[name]:
        if dtype is not torch.float32 and not (entry.floats and follows_dtype(entry)):
            continue
        if dtype is torch.bfloat16 and device == "cpu" and name in WIDE_STATISTICS:
            continue
        found.append(entry)
        if LOWERINGS[name].kind in (Kind.VIEW, Kind.MOVEMENT, Kind.COPY):
            found.append(Call(entry.args, entry.kwargs, entry.floats, computed=True))
    return found
