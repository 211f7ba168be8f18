"""PyTorch's own OpInfo samples for the operators that have lowerings."""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch.testing._internal.opinfo.core import OpInfo
from torch.utils._pytree import tree_flatten, tree_map, tree_unflatten

from tests.executors.nvfuser.calls import changed
from tests.executors.nvfuser.harness import (
    compare,
    compile_graph,
    executor_for,
    refusals,
    trace,
    with_reference,
)
from thunder.executors.nvfuser.outputs import plan_outputs

with warnings.catch_warnings():
    # The module builds NumPy values that newer releases of NumPy warn about.
    warnings.simplefilter("ignore")
    from torch.testing._internal.common_methods_invocations import op_db

SAMPLES = 8

# fmt: off
NAMES = frozenset({
    "abs", "acos", "acosh", "add", "addcdiv", "addcmul", "all", "amax", "amin", "any", "arange",
    "asin", "asinh", "atan", "atan2", "atanh", "bitwise_and", "bitwise_not", "bitwise_or",
    "bitwise_xor", "broadcast_to", "cat", "ceil", "chunk", "clamp", "clamp_max", "clamp_min",
    "clone", "contiguous", "cos", "cosh", "cumsum", "div", "eq", "erf", "erfc",
    "erfinv", "exp", "exp2", "expand", "expm1", "flatten", "floor", "floor_divide", "fmax",
    "fmin", "fmod", "frac", "full", "full_like", "gather", "ge", "gt", "isfinite",
    "isinf", "isnan", "isneginf", "isposinf", "le", "lerp", "lgamma", "log", "log10", "log1p",
    "log2", "log_softmax", "logaddexp", "logical_and", "logical_not", "logical_or", "logical_xor",
    "logsumexp", "lt", "masked_fill", "max", "maximum", "mean", "min", "minimum", "movedim",
    "mul", "narrow", "ne", "neg", "nn.functional.celu", "nn.functional.cross_entropy",
    "nn.functional.elu", "nn.functional.gelu", "nn.functional.glu",
    "nn.functional.group_norm", "nn.functional.hardshrink", "nn.functional.hardsigmoid",
    "nn.functional.hardswish", "nn.functional.hardtanh", "nn.functional.huber_loss",
    "nn.functional.instance_norm", "nn.functional.l1_loss", "nn.functional.layer_norm",
    "nn.functional.leaky_relu", "nn.functional.logsigmoid", "nn.functional.mish",
    "nn.functional.mse_loss", "nn.functional.nll_loss", "nn.functional.normalize",
    "nn.functional.pad", "nn.functional.prelu", "nn.functional.relu", "nn.functional.relu6",
    "nn.functional.rms_norm", "nn.functional.selu", "nn.functional.silu",
    "nn.functional.smooth_l1_loss", "nn.functional.softmin", "nn.functional.softplus",
    "nn.functional.softshrink", "nn.functional.softsign", "nn.functional.tanhshrink",
    "nn.functional.threshold", "norm", "ones_like", "permute", "pow", "prod", "reciprocal",
    "remainder", "repeat", "reshape", "round", "rsqrt", "rsub", "select", "sgn", "sigmoid",
    "sign", "sin", "sinh", "slice", "softmax", "split", "split_with_sizes", "sqrt", "square",
    "squeeze", "stack", "std", "std_mean", "sub", "sum", "t", "tan", "tanh", "tile", "to",
    "transpose", "tril", "triu", "true_divide", "trunc", "unbind", "unflatten", "unsqueeze",
    "var", "var_mean", "view", "where", "zeros_like",
})
# fmt: on


def operators() -> list[OpInfo]:
    """Returns the OpInfos of `NAMES`, in order."""
    chosen = {
        info.name: info for info in op_db if info.name in NAMES and not info.variant_test_name
    }
    return [chosen[name] for name in sorted(chosen)]


def dtypes(info: OpInfo, device: str) -> list[torch.dtype]:
    """Returns which of the tested dtypes the operator takes."""
    wanted = (torch.float32, torch.bfloat16, torch.int64, torch.bool)
    return [dtype for dtype in wanted if dtype in info.supported_dtypes(device)]


def samples(info: OpInfo, device: str, dtype: torch.dtype) -> Iterator[tuple[Any, list[Any]]]:
    """Yields a function of tensors and the tensors, a few for each operator."""
    torch.manual_seed(0)
    for sample in itertools.islice(info.sample_inputs(device, dtype), SAMPLES):
        leaves, layout = tree_flatten((sample.input, sample.args, sample.kwargs))
        places = [i for i, leaf in enumerate(leaves) if isinstance(leaf, torch.Tensor)]

        def function(*tensors, leaves=leaves, layout=layout, places=places):
            filled = list(leaves)
            for place, tensor in zip(places, tensors, strict=True):
                filled[place] = tensor
            first, args, kwargs = tree_unflatten(filled, layout)
            return info.op(first, *args, **kwargs)

        yield function, [leaves[place].detach() for place in places]


def computing(function: Callable[..., Any]) -> Callable[..., Any]:
    """Returns `function` with something computed on its results."""
    return lambda *tensors: tree_map(changed, function(*tensors))


def run_samples(info: OpInfo, device: str, dtype: torch.dtype) -> dict[str, str]:
    """Runs the samples that the executor takes; returns why it did not take others."""
    executor = executor_for(device)
    refused: dict[str, str] = {}
    taken = 0
    for function, tensors in samples(info, device, dtype):
        graph_module = trace(function, tensors, decompose=True)
        if not plan_outputs(graph_module.graph).fused:  # nothing but views
            function = computing(function)
            graph_module = trace(function, tensors, decompose=True)
        reasons = refusals(graph_module, executor)
        if reasons:
            refused.update(reasons)
            continue
        region = compile_graph(graph_module, executor)
        expected, reference = with_reference(function, tensors)
        compare(region(*tensors), expected, reference, exact_strides=False)
        taken += 1
    return {} if taken else refused
