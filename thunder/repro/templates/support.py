"""The code that scripts are made of, as one module that can be linted and tested.

`thunder.repro.linking` copies into a script the functions that it uses and nothing else. So they
depend on torch and the standard library only, and take what is the script's own as arguments.
"""

import argparse
import contextlib
import importlib
import math
import sys
from pathlib import Path

import torch
from torch._inductor import config as inductor_config
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map

WIDER = {
    torch.float16: torch.float64,
    torch.bfloat16: torch.float64,
    torch.float32: torch.float64,
    torch.float64: torch.float64,
    torch.complex32: torch.complex128,
    torch.complex64: torch.complex128,
    torch.complex128: torch.complex128,
}


def floats(shape, low, high, mean=None, std=None, dtype=torch.float32, device="cpu", **fractions):
    """Normal (or uniform) numbers in a range that they reach; `nan=0.1`: a tenth are NaN."""
    wide = torch.float64 if dtype is torch.float64 else torch.float32
    x = torch.empty(shape, dtype=wide, device=device)
    x = x.uniform_(low, high) if std is None else x.normal_(mean, std).clamp_(low, high)
    flat = x.view(-1)
    if flat.numel() > 1:
        flat[0], flat[-1] = low, high
    for order, (name, fraction) in enumerate(fractions.items(), 1):
        chosen = torch.rand(flat.shape, device=device) < fraction
        if flat.numel():
            chosen[order * flat.numel() // (len(fractions) + 1)] = True
        flat[chosen] = {"negative_inf": -math.inf, "zero": 0.0}.get(name) or float(name)
    return x.to(dtype)


def integers(shape, low, high, order=None, dtype=torch.int64, device="cpu"):
    """Whole numbers from `low` to `high`, both included and both present."""
    x = torch.randint(low, min(high, 2**63 - 2) + 1, shape, device=device)
    flat = x.view(-1)
    if order in ("distinct", "distinct sorted"):
        flat[1:-1] = torch.randperm(high - low - 1, device=device)[: flat.numel() - 2] + low + 1
    if flat.numel() > 1:
        flat[0], flat[-1] = low, high
    if order in ("sorted", "distinct sorted"):
        x = flat.sort().values.view(shape)
    return x.to(dtype)


def booleans(shape, density, device="cpu"):
    """Truth values, a fraction `density` of them true."""
    return torch.rand(shape, device=device) < density


def choices(shape, values, fractions, dtype=torch.float32, device="cpu"):
    """Numbers out of a few `values`, each with its fraction."""
    steps = torch.tensor(fractions, device=device).cumsum(0)[:-1]
    drawn = torch.bucketize(torch.rand(shape, device=device), steps)
    count = min(drawn.numel(), len(values))
    drawn.view(-1)[:count] = torch.arange(count, device=device)
    return torch.tensor(values, dtype=dtype, device=device)[drawn]


def steps(shape, start, step, in_rows=False, dtype=torch.int64, device="cpu"):
    """Whole numbers that rise or fall evenly; with `in_rows`, anew in each row."""
    index = torch.arange(math.prod(shape), device=device)
    return (start + step * (index % shape[-1] if in_rows else index)).view(shape).to(dtype)


def extent(size, stride):
    """How many elements of a storage lie between the first and the last of a tensor."""
    return 0 if 0 in size else 1 + sum((n - 1) * s for n, s in zip(size, stride, strict=True))


def non_leaf(x):
    """The same memory as the result of an operation, as the tensor was in the original run."""
    result = torch.empty_like(x).requires_grad_().clone()
    result.data = x
    return result


def load(name):
    """The tensors that were saved beside this script."""
    return torch.load(Path(__file__).with_name(name), weights_only=True)


def fill_in(what):
    """Marks something that could not be written down."""
    raise NotImplementedError(f"FILL IN (see the comments of this script): {what}")


def mark_static(inputs, dynamic):
    """Keeps those sizes fixed that were fixed in the original run."""
    for name, x in inputs.items():
        if isinstance(x, torch.Tensor):
            for dim in set(range(x.dim())) - set(dynamic.get(name, ())):
                torch._dynamo.mark_static(x, dim)
    return inputs


def slope(x):
    """The gradient that the backward run starts from: another number for each element."""
    slopes = torch.linspace(0.5, 1.5, x.numel(), dtype=torch.float64, device=x.device)
    return slopes.view(x.shape).to(x.dtype)


def run(module, function, inputs, backward, around):
    """Calls `function`, which runs `module`; returns all that it made or changed, by name."""
    tensors = {}
    for name, value in inputs.items():
        leaves = [x for x in tree_leaves(value) if isinstance(x, torch.Tensor)]
        tensors |= {name if len(leaves) == 1 else f"{name}[{i}]": x for i, x in enumerate(leaves)}
    if isinstance(module, torch.nn.Module):
        tensors |= dict(module.named_parameters()) | dict(module.named_buffers())
    for x in tensors.values():
        if x.requires_grad and not x.is_leaf:
            x.retain_grad()
    torch.manual_seed(0)
    with around():
        outputs = tree_leaves(function(*inputs.values()))
    if backward:
        roots = [x for x in outputs if isinstance(x, torch.Tensor) and x.requires_grad]
        torch.autograd.backward(roots, [slope(x) for x in roots])
    results = {f"output {i}": x for i, x in enumerate(outputs)}
    for name, x in tensors.items():
        results[f"{name} afterwards"] = x.detach()
        if backward and x.requires_grad:
            results[f"gradient of {name}"] = x.grad
    return results


def is_random(operator):
    """Whether an operator's result is drawn, so that another dtype would draw another one."""
    fused = any(part in str(operator) for part in ("attention", "rnn", "lstm", "gru"))
    return torch.Tag.nondeterministic_seeded in getattr(operator, "tags", ()) and not fused


class Draws(TorchDispatchMode):
    """Notes what random operators draw."""

    supports_higher_order_operators = True

    def __init__(self):
        super().__init__()
        self.drawn = []
        inductor_config.fallback_random = True  # else Inductor draws other numbers than eager

    def __torch_dispatch__(self, operator, types, args=(), kwargs=None):
        if isinstance(operator, torch._ops.HigherOrderOperator):
            return call_higher_order(self, operator, args, kwargs)
        result = operator(*args, **(kwargs or {}))
        if is_random(operator):
            self.drawn.append(tree_map(torch.clone, result))
        return result


class Float64(TorchDispatchMode):
    """Runs operators in float64; random ones give what eager drew, in the same order."""

    supports_higher_order_operators = True

    def __init__(self, drawn):
        super().__init__()
        self.drawn = iter(drawn)

    def __torch_dispatch__(self, operator, types, args=(), kwargs=None):
        if isinstance(operator, torch._ops.HigherOrderOperator):
            return call_higher_order(self, operator, args, kwargs)
        is_write = operator._schema.is_mutable

        def wide(x):
            if isinstance(x, torch.Tensor):
                return x if is_write else x.to(WIDER.get(x.dtype, x.dtype))
            return WIDER.get(x, x) if isinstance(x, torch.dtype) else x

        args, kwargs = tree_map(wide, (args, kwargs or {}))
        drawn = next(self.drawn, None) if is_random(operator) else None
        if drawn is None:
            return operator(*args, **kwargs)
        if operator is torch.ops.aten.native_dropout.default:
            return args[0] * drawn[1] / (1 - args[1]), drawn[1]
        return args[0].copy_(drawn) if is_write else tree_map(wide, drawn)


def call_higher_order(mode, operator, args, kwargs):
    """Runs a higher-order operator such as `cond` with `mode` active in its body."""
    with mode:
        implementation = operator.py_kernels[torch._C.DispatchKey.CompositeExplicitAutograd]
        return implementation(*args, **(kwargs or {}))


def widen(values, noise=0.0):
    """The tensors in float64, with their strides, shared memory and grad flags.

    `noise` is the largest relative change that is made to each number.
    """
    bases = {}

    def wide(x):
        if not isinstance(x, torch.Tensor) or x.dtype not in WIDER:
            return x
        storage = x.untyped_storage()
        key = storage._cdata, x.dtype
        if key not in bases:
            count = storage.nbytes() // x.element_size()
            base = x.detach().as_strided((count,), (1,), 0).to(WIDER[x.dtype], copy=True)
            bases[key] = base.mul_(1 + noise * (2 * torch.rand_like(base) - 1)) if noise else base
        y = bases[key].as_strided(x.size(), x.stride(), x.storage_offset()).data
        y.requires_grad_(x.requires_grad)
        return y if x.is_leaf else non_leaf(y)

    return tree_map(wide, values)


def run_in_float64(make_module, make_inputs, backward, around, drawn=(), noise=0.0):
    """Runs the module in float64, on inputs that are changed by `noise` at most."""
    module, inputs = make_module(), make_inputs()
    torch.manual_seed(1)
    inputs = widen(inputs, noise)
    if isinstance(module, torch.nn.Module):
        for x in [*module.parameters(), *module.buffers()]:
            if x.dtype in WIDER:
                x.data = widen(x.data, noise)
    default = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    try:
        with Float64(drawn):
            return run(module, module, inputs, backward, around)
    finally:
        torch.set_default_dtype(default)


def distance(x, reference):
    """Largest and root-mean-square distance; equal infinities and NaNs are no distance."""
    if not (x.is_floating_point() or x.is_complex()):
        gap = (x != reference).double()
    else:
        wide = torch.complex128 if x.is_complex() else torch.float64
        x, reference = x.to(wide), reference.to(wide)
        same = (x == reference) | (x.isnan() & reference.isnan())
        gap = (x - reference).abs().masked_fill(same, 0).nan_to_num(math.inf, math.inf)
    return (gap.max().item(), gap.square().mean().sqrt().item()) if gap.numel() else (0.0, 0.0)


def rounding(x, reference):
    """The distance that rounding the result alone can make, several times over."""
    if not (x.is_floating_point() or x.is_complex()):
        return 0.0, 0.0
    size = distance(reference.nan_to_num(0, 0, 0), torch.zeros_like(reference))
    return 16 * torch.finfo(x.dtype).eps * size[0], 4 * torch.finfo(x.dtype).eps * size[1]


def kind(x):
    """What must be the same in eager and compiled runs before values are looked at."""
    if not isinstance(x, torch.Tensor):
        return repr(x)
    return f"{x.dtype} {list(x.shape)} on {x.device}, requires_grad={x.requires_grad}"


def judge(eager, compiled, reference, wobble):
    """Says in words how a result compares, and whether it is wrong.

    It is when it lies further from float64 than the error of eager explains, and further than
    the float64 result moves when the inputs are rounded once more (`wobble`).
    """
    if kind(eager) != kind(compiled):
        return f"is {kind(compiled)}, eager gives {kind(eager)}", True
    if not isinstance(eager, torch.Tensor) or eager.is_meta:
        return "the same", False
    if getattr(reference, "shape", None) != eager.shape:
        close = torch.testing.assert_close
        try:
            close(compiled, eager, equal_nan=True)
        except AssertionError as error:
            return " ".join(str(error).split()), True
        return "close to eager (there is no float64 reference for it)", False
    from_eager, from_compiled = distance(eager, reference), distance(compiled, reference)
    explained = (
        4 * max(error, moved) + unit
        for error, moved, unit in zip(
            from_eager,
            (0.0, 0.0) if wobble is None else distance(wobble, reference),
            rounding(eager, reference),
            strict=True,
        )
    )
    wrong = any(c > limit for c, limit in zip(from_compiled, explained, strict=True))
    return f"from float64: eager {from_eager[0]:.1e}, compiled {from_compiled[0]:.1e}", wrong


def check_consistency(make_module, make_inputs, compile_module, backward, around, precision, draws):
    """Compares the compiled run with eager; returns the names of wrong results."""
    recorder = draws() if draws else contextlib.nullcontext()
    module = make_module()
    with recorder:
        eager = run(module, module, make_inputs(), backward, around)
    module = make_module()
    compiled = run(module, compile_module(module), make_inputs(), backward, around)
    arguments = make_module, make_inputs, backward, around, getattr(recorder, "drawn", ())
    reference, wobble = {}, {}
    try:
        reference = run_in_float64(*arguments)
    except Exception as error:  # an operator that does not know float64, for instance
        print(f"no float64 reference: {type(error).__name__}: {error}")
    if any(judge(eager[n], compiled[n], reference.get(n), None)[1] for n in eager) and reference:
        wobble = run_in_float64(*arguments, noise=torch.finfo(precision).eps)
    wrong = []
    for name in eager:
        words, is_wrong = judge(eager[name], compiled[name], reference.get(name), wobble.get(name))
        print(f"{'WRONG' if is_wrong else 'ok':5}  {name}: {words}")
        wrong += [name] if is_wrong else []
    return wrong


def main(
    make_module,
    make_inputs,
    compile_module,
    backward,
    around=contextlib.nullcontext,
    precision=torch.float32,
    draws=None,
):
    """Does what the command line asks for."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--check_consistency", action="store_true", help="compare with eager")
    choices = ("forward", "forward+backward")
    parser.add_argument("--compute_type", choices=choices, default=choices[backward])
    parser.add_argument("--minimize", action="store_true", help="shrink the graph, with thunder")
    options = parser.parse_args()
    backward = options.compute_type == "forward+backward"
    if options.minimize:
        try:
            diagnose = importlib.import_module("thunder.diagnose")
        except ImportError:
            sys.exit("--minimize needs thunder: pip install thunderfx")
        diagnose.minimize(__file__)
    elif options.check_consistency:
        parts = make_module, make_inputs, compile_module, backward, around, precision, draws
        if wrong := check_consistency(*parts):
            sys.exit(f"further from float64 than eager explains: {', '.join(wrong)}")
    else:
        module = make_module()
        run(module, compile_module(module), make_inputs(), backward, around)
        print(f"ran {options.compute_type}")
