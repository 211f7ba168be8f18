"""A stand-in for `nvfuser_direct` that checks calls as nvFuser does and computes with torch.

It follows the documented rules: what `define_tensor` accepts, the dtype of every result, which
operators may see low precision, which arguments must be lists or scalars of nvFuser's own. A
fusion that passes here and computes the right values is a fusion that nvFuser understands; what
nvFuser makes of it on a GPU is tested in tests/gpu.
"""

from __future__ import annotations

import enum
import math
import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch


class DataType(enum.Enum):
    BFloat16 = torch.bfloat16
    Half = torch.float16
    Float = torch.float32
    Double = torch.float64
    Int = torch.int64
    Int32 = torch.int32
    Bool = torch.bool


LOW = {DataType.BFloat16, DataType.Half}
FLOATS = {DataType.Float, DataType.Double}
INTS = {DataType.Int, DataType.Int32}
# fmt: off
FLOAT_UNARY = {
    "acos", "acosh", "asin", "asinh", "atan", "atanh", "cos", "cosh", "erf", "erfc", "erfcinv",
    "erfinv", "exp", "exp2", "expm1", "lgamma", "log", "log10", "log1p", "log2", "reciprocal",
    "rsqrt", "sigmoid", "sin", "sinh", "sqrt", "tan", "tanh",
}
# fmt: on
FLOAT_ONLY_SAME = {"ceil", "floor", "frac", "round", "trunc"}
ANY_SAME = {"abs", "neg", "sign"}
TESTS = {"isfinite", "isinf", "isnan", "isneginf", "isposinf"}
ARITHMETIC = {"add", "sub", "mul", "pow", "fmod", "remainder", "maximum", "minimum"}
COMPARISONS = {"eq", "ne", "lt", "le", "gt", "ge"}
LOGIC = {"logical_and", "logical_or"}
BITS = {"bitwise_and", "bitwise_or", "bitwise_xor"}
TORCH_NAMES: dict[str, str] = {"truediv": "true_divide"}


@dataclass(eq=False)
class Val:
    data_type: DataType
    compute: Callable[[dict[Any, Any]], Any]
    symbolic: bool = False

    def is_symbolic(self):
        return self.symbolic


@dataclass(eq=False)
class TensorView(Val):
    sizes: tuple[int, ...] = ()
    source: str = ""
    expanded: frozenset[int] = frozenset()
    """Dimensions without elements of their own, which nvFuser returns with stride 0."""

    def dtype(self):
        return self.data_type

    @property
    def ndim(self):
        return len(self.sizes)


def accepted(name):
    """Returns the dtypes that a binary operator takes here."""
    if name in LOGIC:
        return {DataType.Bool}
    if name in BITS:
        return INTS
    if name in ("truediv", "atan2", "pow"):
        return FLOATS
    return FLOATS | INTS | ({DataType.Bool} if name in COMPARISONS else set())


def run(value, env):
    if id(value) not in env:
        env[id(value)] = value.compute(env)
        if isinstance(value, TensorView):
            result = env[id(value)]
            assert result.dtype is value.data_type.value, (value.source, result.dtype)
            assert result.ndim == value.ndim, (value.source, result.shape, value.sizes)
            for size, declared in zip(result.shape, value.sizes, strict=True):
                assert declared in (-1, size), (value.source, result.shape, value.sizes)
    return env[id(value)]


def is_number(value):
    return type(value) in (bool, int, float)


def result_size(sizes):
    known = [size for size in sizes if size != 1]
    if not known:
        return 1
    concrete = {size for size in known if size != -1}
    assert len(concrete) <= 1, f"sizes {sizes} do not agree"
    return concrete.pop() if concrete else -1


def broadcast(*shapes):
    rank = max(map(len, shapes))
    padded = [(1,) * (rank - len(shape)) + tuple(shape) for shape in shapes]
    return tuple(result_size(sizes) for sizes in zip(*padded, strict=True))


class Ops:
    """`fd.ops`. Elementwise operators take positional arguments only."""

    def __getattr__(self, name):
        if name in FLOAT_UNARY | FLOAT_ONLY_SAME | ANY_SAME | TESTS | {
            "logical_not",
            "bitwise_not",
        }:
            return lambda *args: self._unary(name, *args)
        if name in ARITHMETIC | COMPARISONS | LOGIC | BITS | {"div", "truediv", "atan2"}:
            return lambda *args: self._binary(name, *args)
        raise AttributeError(f"nvFuser has no operator {name}")

    def _unary(self, name: str, x):
        assert isinstance(x, TensorView), f"{name} of {x!r}"
        dtype = x.data_type
        assert dtype not in LOW, f"{name} on {dtype}: cast first"
        if name in FLOAT_UNARY | FLOAT_ONLY_SAME | TESTS:
            assert dtype in FLOATS, f"{name} on {dtype}"
        if name in ("bitwise_not",):
            assert dtype in INTS, f"{name} on {dtype}"
        if name in ANY_SAME:
            assert dtype is not DataType.Bool, f"{name} on {dtype}"
        result = DataType.Bool if name in TESTS or name == "logical_not" else dtype
        function = getattr(torch, TORCH_NAMES.get(name, name))
        return tensor(result, x.sizes, lambda env: function(run(x, env)), name, x.expanded)

    def _binary(self, name: str, x, y):
        operands = (x, y)
        tensors = [value for value in operands if isinstance(value, TensorView)]
        if not tensors:
            return self._sizes(name, x, y)
        for value in operands:
            assert isinstance(value, Val), f"{name}: pass scalars by define_scalar, not {value!r}"
        dtypes = {value.data_type for value in tensors}
        assert len(dtypes) == 1, f"{name} on {dtypes}: the dtype would depend on promotion"
        (dtype,) = dtypes
        for value in operands:
            if not isinstance(value, TensorView):
                same = value.data_type is dtype or (value.symbolic and dtype is not DataType.Bool)
                assert same, f"{name}: scalar {value.data_type} beside {dtype}"
        assert dtype in accepted(name), f"{name} on {dtype}"
        result = DataType.Bool if name in COMPARISONS | LOGIC else dtype
        shape = broadcast(*(v.sizes if isinstance(v, TensorView) else () for v in operands))

        def compute(env):
            left, right = (self._operand(value, dtype, env) for value in operands)
            if name == "div":
                mode = None if dtype in FLOATS else "trunc"
                return torch.div(left, right, rounding_mode=mode)
            return getattr(torch, TORCH_NAMES.get(name, name))(left, right)

        return tensor(result, shape, compute, name, without_elements(operands, shape))

    def size(self, x, dim):
        assert isinstance(x, TensorView) and type(dim) is int
        return Val(DataType.Int, lambda env: run(x, env).shape[dim], symbolic=True)

    def _sizes(self, name: str, x, y):
        assert x.data_type is y.data_type is DataType.Int
        function = getattr(operator, {"div": "floordiv"}.get(name, name))
        return Val(DataType.Int, lambda env: function(run(x, env), run(y, env)), symbolic=True)

    def _operand(self, value, dtype, env):
        found = run(value, env)
        if isinstance(value, TensorView):
            return found
        return torch.tensor(found, dtype=dtype.value)

    def where(self, condition, x, y):
        assert isinstance(condition, TensorView) and condition.data_type is DataType.Bool
        dtypes = {value.data_type for value in (x, y) if not value.symbolic}
        assert len(dtypes) == 1, f"where on {dtypes}"
        (dtype,) = dtypes
        assert dtype not in LOW
        parts = (condition, x, y)
        shape = broadcast(*(v.sizes if isinstance(v, TensorView) else () for v in parts))
        return tensor(
            dtype,
            shape,
            lambda env: torch.where(
                run(condition, env), self._operand(x, dtype, env), self._operand(y, dtype, env)
            ),
            "where",
            without_elements(parts, shape),
        )

    def cast(self, x, dtype):
        assert isinstance(x, TensorView) and isinstance(dtype, DataType)
        assert dtype is not DataType.Bool, "cast to bool by a comparison"
        return tensor(dtype, x.sizes, lambda env: run(x, env).to(dtype.value), "cast", x.expanded)

    def _reduce(self, name, x, dims, keepdim):
        assert isinstance(dims, list) and dims, "dims is a list that is not empty"
        assert type(keepdim) is bool
        assert x.data_type not in LOW | {DataType.Bool}, f"{name} on {x.data_type}"
        assert all(0 <= dim < x.ndim for dim in dims) and len(set(dims)) == len(dims)
        shape = reduced(x.sizes, dims, keepdim)

        def compute(env):
            value = run(x, env)
            if name == "sum":
                return value.sum(dims, keepdim=keepdim)
            if name in ("max", "min"):
                return getattr(value, "a" + name)(dims, keepdim=keepdim)
            for dim in sorted(dims, reverse=True):
                value = value.prod(dim, keepdim=keepdim)
            return value

        kept = [dim for dim in range(x.ndim) if keepdim or dim not in dims]
        expanded = {at for at, dim in enumerate(kept) if dim in x.expanded and dim not in dims}
        return tensor(x.data_type, shape, compute, name, expanded)

    def sum(self, x, dims, keepdim=False):
        return self._reduce("sum", x, dims, keepdim)

    def prod(self, x, dims, keepdim=False):
        return self._reduce("prod", x, dims, keepdim)

    def max(self, x, dims, keepdim=False):
        return self._reduce("max", x, dims, keepdim)

    def min(self, x, dims, keepdim=False):
        return self._reduce("min", x, dims, keepdim)

    def var_mean(self, x, dims, correction=1, keepdim=False):
        assert isinstance(dims, list) and dims and type(correction) is int
        assert x.data_type in FLOATS, f"var_mean on {x.data_type}"
        shape = reduced(x.sizes, dims, keepdim)
        pair = lambda env: torch.var_mean(  # noqa: E731
            run(x, env), dims, correction=correction, keepdim=keepdim
        )
        return (
            tensor(x.data_type, shape, lambda env: pair(env)[0], "var"),
            tensor(x.data_type, shape, lambda env: pair(env)[1], "mean"),
        )

    def set(self, x):
        return tensor(x.data_type, x.sizes, lambda env: run(x, env), "set", x.expanded)

    def cumsum(self, x, dim):
        assert x.data_type not in LOW | {DataType.Bool}
        return tensor(x.data_type, x.sizes, lambda env: run(x, env).cumsum(dim), "cumsum")

    # -- shapes ----------------------------------------------------------------------------------

    def reshape(self, x, new_shape):
        assert isinstance(new_shape, list)
        assert not x.expanded, "nvFuser 0.2.36 gives wrong values here"
        assert sum(size == -1 for size in new_shape if is_number(size)) <= 1
        shape = tuple(size if type(size) is int else -1 for size in new_shape)
        known = [size for size in x.sizes if size != -1]
        if len(known) == x.ndim and all(type(s) is int for s in new_shape):
            # A -1 in a static reshape is resolved by nvFuser at once.
            rest = math.prod(size for size in shape if size != -1)
            shape = tuple(math.prod(known) // rest if size == -1 else size for size in shape)
            assert math.prod(shape) == math.prod(known), (x.sizes, new_shape)
        return tensor(
            x.data_type,
            shape,
            lambda env: run(x, env).reshape([number(size, env) for size in new_shape]),
            "reshape",
        )

    def permute(self, x, dims):
        assert sorted(dims) == list(range(x.ndim))
        shape = tuple(x.sizes[dim] for dim in dims)
        expanded = {at for at, dim in enumerate(dims) if dim in x.expanded}
        return tensor(
            x.data_type, shape, lambda env: run(x, env).permute(dims), "permute", expanded
        )

    def broadcast(self, x, flags):
        assert all(type(flag) is bool for flag in flags) and flags.count(False) == x.ndim
        old = iter(x.sizes)
        shape = tuple(1 if flag else next(old) for flag in flags)

        def compute(env):
            value = run(x, env)
            for dim, flag in enumerate(flags):
                value = value.unsqueeze(dim) if flag else value
            return value

        kept = [dim for dim, flag in enumerate(flags) if not flag]
        return tensor(x.data_type, shape, compute, "broadcast", {kept[dim] for dim in x.expanded})

    def squeeze(self, x, dims):
        assert all(x.sizes[dim] == 1 for dim in dims), "squeeze of a dimension not known to be 1"
        shape = tuple(size for dim, size in enumerate(x.sizes) if dim not in dims)
        kept = [dim for dim in range(x.ndim) if dim not in dims]
        expanded = {at for at, dim in enumerate(kept) if dim in x.expanded}
        return tensor(
            x.data_type, shape, lambda env: run(x, env).squeeze(dims), "squeeze", expanded
        )

    def broadcast_in_dim(self, x, shape, dims):
        assert list(dims) == sorted(set(dims)) and len(dims) == x.ndim
        sizes = [size if type(size) is int else -1 for size in shape]
        for dim, old in zip(dims, x.sizes, strict=True):
            assert old in (1, -1) or sizes[dim] in (-1, old), (x.sizes, shape, dims)
            sizes[dim] = old if sizes[dim] == -1 and type(shape[dim]) is int else sizes[dim]

        def compute(env):
            value = run(x, env)
            wanted = [number(size, env) for size in shape]
            for dim, old in zip(dims, value.shape, strict=True):
                wanted[dim] = old if wanted[dim] == -1 else wanted[dim]
            flags = [1] * len(shape)
            for dim, size in zip(dims, value.shape, strict=True):
                flags[dim] = size
            return value.reshape(flags).expand(wanted)

        real = {dim for old, dim in enumerate(dims) if x.sizes[old] != 1 and old not in x.expanded}
        expanded = {dim for dim, size in enumerate(sizes) if size != 1 and dim not in real}
        return tensor(x.data_type, tuple(sizes), compute, "broadcast_in_dim", expanded)

    def slice(self, x, starts, ends):
        assert isinstance(starts, list) and isinstance(ends, list)
        assert all(0 <= start <= end for start, end in zip(starts, ends, strict=True))
        assert all(end <= size for end, size in zip(ends, x.sizes, strict=True))
        shape = tuple(end - start for start, end in zip(starts, ends, strict=True))
        places = tuple(slice(start, end) for start, end in zip(starts, ends, strict=True))
        return tensor(x.data_type, shape, lambda env: run(x, env)[places], "slice", x.expanded)

    def pad(self, x, widths, value=None):
        assert isinstance(value, Val)
        floating = x.data_type in FLOATS | LOW
        assert floating == (value.data_type in FLOATS), f"pad {x.data_type} by {value.data_type}"
        assert len(widths) % 2 == 0 and all(width >= 0 for width in widths)
        sizes = list(x.sizes)
        for place in range(len(widths) // 2):
            sizes[-1 - place] += widths[2 * place] + widths[2 * place + 1]
        return tensor(
            x.data_type,
            tuple(sizes),
            lambda env: torch.constant_pad_nd(run(x, env), list(widths), run(value, env)),
            "pad",
        )

    def cat(self, tensors, dim=0):
        dtypes = {value.data_type for value in tensors}
        assert len(dtypes) == 1, f"cat of {dtypes}"
        sizes = list(tensors[0].sizes)
        sizes[dim] = sum(value.sizes[dim] for value in tensors)
        return tensor(
            dtypes.pop(),
            tuple(sizes),
            lambda env: torch.cat([run(value, env) for value in tensors], dim),
            "cat",
        )

    def stride_order(self, x, order):
        assert sorted(order) == list(range(x.ndim))

        def compute(env):
            value = run(x, env)
            outer = sorted(range(x.ndim), key=lambda dim: -order[dim])
            inverse = [outer.index(dim) for dim in range(x.ndim)]
            return value.permute(outer).contiguous().permute(inverse)

        return tensor(x.data_type, x.sizes, compute, "stride_order", x.expanded)

    # -- the rest --------------------------------------------------------------------------------

    def full(self, shape, value, dtype):
        assert isinstance(shape, list) and isinstance(value, Val)
        sizes = tuple(size if type(size) is int else -1 for size in shape)
        return tensor(
            dtype,
            sizes,
            lambda env: torch.full(
                [number(size, env) for size in shape], run(value, env), dtype=dtype.value
            ),
            "full",
        )

    def iota(self, length, start, step, dtype):
        assert dtype is DataType.Int
        assert all(value.data_type is DataType.Int for value in (length, start, step))
        size = run(length, {})
        return tensor(
            dtype,
            (size,),
            lambda env: torch.arange(size) * run(step, env) + run(start, env),
            "iota",
        )

    def matmul(self, x, y):
        assert x.data_type is y.data_type
        shape = (*x.sizes[:-1], y.sizes[-1])
        return tensor(x.data_type, shape, lambda env: run(x, env) @ run(y, env), "matmul")


def tensor(dtype, sizes, compute, source, expanded=()):
    return TensorView(
        dtype, compute, sizes=tuple(sizes), source=source, expanded=frozenset(expanded)
    )


def without_elements(values, sizes):
    """Returns the dimensions that no operand of an elementwise operator has elements for."""
    real = set()
    for value in values:
        if isinstance(value, TensorView):
            lead = len(sizes) - value.ndim
            real |= {
                lead + dim
                for dim, size in enumerate(value.sizes)
                if size != 1 and dim not in value.expanded
            }
    return {dim for dim, size in enumerate(sizes) if size != 1 and dim not in real}


def reduced(sizes, dims, keepdim):
    if keepdim:
        return tuple(1 if dim in dims else size for dim, size in enumerate(sizes))
    return tuple(size for dim, size in enumerate(sizes) if dim not in dims)


def number(size, env):
    return size if type(size) is int else run(size, env)


@dataclass(eq=False)
class FusionDefinition:
    """Records a fusion; `execute` computes it with torch, wherever the inputs are."""

    ops: Ops = field(default_factory=Ops)
    inputs: list[Val] = field(default_factory=list)
    outputs: list[TensorView] = field(default_factory=list)
    checks: list[Any] = field(default_factory=list)
    runs: int = 0

    def __enter__(self):
        return self

    def __exit__(self, *_):
        return None

    def define_tensor(self, shape, contiguity, dtype, is_cpu=False, stride_order=()):
        assert len(shape) == len(contiguity) == len(stride_order)
        assert sorted(stride_order) == list(range(len(shape)))
        for dim, size in enumerate(shape):
            assert size >= -1
            flag = contiguity[len(shape) - 1 - stride_order[dim]]
            assert flag is None if size == 1 else True, "a size of 1 needs None"
        if is_cpu:
            assert not shape, "only scalars may be on the CPU"
        expanded = {
            dim
            for dim, size in enumerate(shape)
            if size != 1 and contiguity[len(shape) - 1 - stride_order[dim]] is None
        }
        value = tensor(dtype, shape, lambda env: env["missing"], "input", expanded)
        self.inputs.append(value)
        self.checks.append((tuple(shape), tuple(contiguity), tuple(stride_order)))
        return value

    def define_scalar(self, value=None, dtype=None):
        assert dtype is not None, "every scalar here says its dtype"
        if value is None:
            scalar = Val(dtype, lambda env: env["missing"], symbolic=True)
            self.inputs.append(scalar)
            self.checks.append(None)
            return scalar
        assert is_number(value), f"{value!r} is no Python number"
        wanted = {DataType.Bool: bool, **dict.fromkeys(INTS, int), **dict.fromkeys(FLOATS, float)}
        assert type(value) is wanted[dtype], f"{value!r} as {dtype}"
        return Val(dtype, lambda env: value)

    def add_output(self, value):
        assert isinstance(value, TensorView)
        assert not value.expanded, f"{value.source} would come back with stride 0"
        self.outputs.append(value)

    @property
    def fec(self):
        assert self.runs, "the executor cache exists after the first run"
        return self

    def execute(self, inputs: Sequence[Any], *, device=None):
        inputs = list(inputs)
        assert len(inputs) == len(self.inputs)
        env: dict[Any, Any] = {}
        for declared, given, check in zip(self.inputs, inputs, self.checks, strict=True):
            if check is None:
                assert type(given) is int
            else:
                assert given.dtype is declared.data_type.value
                check_layout(given, *check)
            env[id(declared)] = given
        self.runs += 1
        return [fresh(run(output, env)) for output in self.outputs]

    def get_cuda_kernel(self, inputs, device=0):
        assert self.runs
        return "__global__ void nvfuser_fake() {}"

    def get_scheduled_ir(self, inputs, device=0):
        assert self.runs
        return "Inputs: Outputs: %kernel {}"


def fresh(value):
    """Returns the value in a buffer of its own, dense in the order of its strides."""
    return value.clone(memory_format=torch.preserve_format)


def check_layout(given, shape, contiguity, stride_order):
    assert given.ndim == len(shape)
    expected = 1
    for rank in range(len(shape)):
        dim = stride_order.index(rank)
        size, stride = given.shape[dim], given.stride(dim)
        assert shape[dim] in (-1, size), f"size {size} where {shape[dim]} was declared"
        flag = contiguity[len(shape) - 1 - rank]
        if flag is None:
            assert size == 1 or stride == 0, "None where the dimension is no broadcast"
            continue
        if flag:
            assert size == 1 or stride == expected, "stride mismatch with contiguity info"
        expected = stride * size
