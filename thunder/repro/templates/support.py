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
    **dict.fromkeys((torch.float16, torch.bfloat16, torch.float32, torch.float64), torch.float64),
    **dict.fromkeys((torch.complex32, torch.complex64, torch.complex128), torch.complex128),
}


def floats(shape, low, high, mean=0.0, std=None, dtype=torch.float32, device="cpu", **fractions):
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
        flat[chosen] = float({"negative_inf": "-inf", "zero": "0"}.get(name, name))
    return x.to(dtype)


def integers(shape, low, high, order=None, dtype=torch.int64, device="cpu"):
    """Whole numbers from `low` to `high`, both included and both present."""
    bounds = max(low, high - 2**62), min(high, 2**63 - 2) + 1  # as far as torch draws
    x = torch.randint(*bounds, shape, device=device)
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


class Keywords:
    """A function whose last inputs are passed by keyword."""

    def __init__(self, function, names):
        self.function, self.names = function, names

    def __call__(self, *inputs):
        """Calls it with positional inputs alone."""
        count = len(inputs) - len(self.names)
        return self.function(*inputs[:count], **dict(zip(self.names, inputs[count:], strict=True)))

    def around(self, compile_function):
        """The same of the compiled function."""
        return Keywords(compile_function(self.function), self.names)


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


def run(module, function, inputs, backward, around, mode=None):
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
    surroundings = around()
    with mode or contextlib.nullcontext():
        with surroundings:
            outputs = tree_leaves(function(*inputs.values()))
        roots = [x for x in outputs if isinstance(x, torch.Tensor) and x.requires_grad]
        if backward and roots:
            torch.autograd.backward(roots, [slope(x) for x in roots])
    results = {f"output {i}": x for i, x in enumerate(outputs)}
    for name, x in tensors.items():
        results[f"{name} afterwards"] = x.detach()
        if backward and x.requires_grad:
            results[f"gradient of {name}"] = x.grad
    return results


def wait():
    """Waits for the device, so that its work is timed."""
    if torch.cuda.is_available():
        torch.cuda.synchronize()


def time_forward(benchmark, make_module, make_inputs, compile_module, around):
    """Times calls of the compiled module."""
    module, inputs = make_module(), list(make_inputs().values())
    function = compile_module(module)

    def call():
        with around():
            function(*inputs)
        wait()

    call()  # compiles
    benchmark(call)


def time_backward(benchmark, make_module, make_inputs, compile_module, around):
    """Times the backward run alone: each round makes its graph by an untimed forward run."""
    module, inputs = make_module(), list(make_inputs().values())
    function = compile_module(module)

    def forward():
        for x in tree_leaves(inputs):
            if isinstance(x, torch.Tensor) and x.is_leaf:
                x.grad = None
        with around():
            outputs = tree_leaves(function(*inputs))
        roots = [x for x in outputs if isinstance(x, torch.Tensor) and x.requires_grad]
        wait()
        return (roots, [slope(x) for x in roots]), {}

    def backward(roots, slopes):
        torch.autograd.backward(roots, slopes)
        wait()

    backward(*forward()[0])  # compiles
    benchmark.pedantic(backward, setup=forward, rounds=20)


def draw_from_seeds():
    """Lets Inductor's own random operators draw the same in eager mode and compiled, in any order.

    Its kernels draw other numbers from a seed than eager, where the seed is not used at all.
    """
    lowering = importlib.import_module("torch._inductor.lowering")

    def inductor_random(size, seed, mode, **_):
        drawn = {"dtype": torch.float32, "device": seed.device, "generator": seeded(seed)}
        return getattr(torch, mode)(size, **drawn)

    def inductor_randint(low, high, size, seed):
        return torch.randint(low, high, size, device=seed.device, generator=seeded(seed))

    def seeded(seed):
        return torch.Generator(seed.device).manual_seed(int(seed))

    library = torch.library.Library("prims", "IMPL")
    lowering.make_fallback(torch.ops.prims.inductor_seeds.default, warn=False)
    for function in (inductor_random, inductor_randint):
        for key in ("CPU", "CUDA"):
            library.impl(function.__name__, function, key)
        operator = getattr(torch.ops.prims, function.__name__)
        lowering.make_fallback(operator.default, warn=False)
    return library  # which must live as long as they are used


def is_random(operator):
    """Whether an operator's result is drawn, so that another dtype would draw another one."""
    fused = any(part in str(operator) for part in ("attention", "rnn", "lstm", "gru"))
    return torch.Tag.nondeterministic_seeded in getattr(operator, "tags", ()) and not fused


def wide(x):
    """A tensor in float64, or the dtype that takes the place of another."""
    if isinstance(x, torch.Tensor):
        return x.to(WIDER.get(x.dtype, x.dtype))
    return WIDER.get(x, x) if isinstance(x, torch.dtype) else x


class Float64(TorchDispatchMode):
    """Runs operators in float64, whatever dtypes they are called with."""

    supports_higher_order_operators = True

    def __torch_dispatch__(self, operator, types, args=(), kwargs=None):
        if isinstance(operator, torch._ops.HigherOrderOperator):
            with self:
                run_body = operator.py_kernels[torch._C.DispatchKey.CompositeExplicitAutograd]
                return run_body(*args, **(kwargs or {}))
        written = args[:1] if operator._schema.is_mutable else ()
        read = tree_map(wide, args[len(written) :])
        return operator(*written, *read, **tree_map(wide, kwargs or {}))


class Draws(TorchDispatchMode):
    """Notes what random operators draw."""

    supports_higher_order_operators = True

    def __init__(self):
        super().__init__()
        self.drawn, self.library = [], None
        inductor_config.fallback_random = True  # else Inductor draws other numbers than eager

    def __torch_dispatch__(self, operator, types, args=(), kwargs=None):
        if self.library is None and str(operator).startswith("prims.inductor_seed"):
            self.library = draw_from_seeds()
        result = operator(*args, **(kwargs or {}))
        if is_random(operator):
            self.drawn.append(tree_map(torch.clone, result))
        return result

    def in_float64(self):
        """A mode in which the same is drawn again."""
        return Redrawn(self.drawn)


class Redrawn(Float64):
    """Runs operators in float64, and has the random ones draw what eager drew."""

    def __init__(self, drawn):
        super().__init__()
        self.drawn = iter(drawn)

    def __torch_dispatch__(self, operator, types, args=(), kwargs=None):
        drawn = next(self.drawn, None) if is_random(operator) else None
        if drawn is None:
            return super().__torch_dispatch__(operator, types, args, kwargs)
        if operator is torch.ops.aten.native_dropout.default:
            return args[0] * drawn[1] / (1 - args[1]), drawn[1]
        return args[0].copy_(drawn) if operator._schema.is_mutable else tree_map(wide, drawn)


def widen(values, noise=0.0):
    """The tensors in float64: strides, shared memory, grad flags; numbers changed by `noise`."""
    bases = {}

    def widened(x):
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
        return y if x.is_leaf else y.clone()

    return tree_map(widened, values)


def run_in_float64(make_module, make_inputs, backward, around, mode, noise=0.0):
    """Runs the module in float64, on inputs that are changed by `noise` at most."""
    module, inputs = make_module(), make_inputs()
    torch.manual_seed(1)
    inputs = widen(inputs, noise)
    if isinstance(module, torch.nn.Module):
        for x in [*module.parameters(), *module.buffers()]:
            x.data = widen(x.data, noise)
    default = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    try:
        return run(module, module, inputs, backward, around, mode)
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


def kind(x):
    """What must be the same in eager and compiled runs before values are looked at."""
    if not isinstance(x, torch.Tensor):
        return repr(x)
    return f"{x.dtype} {list(x.shape)} on {x.device}, requires_grad={x.requires_grad}"


def judge(eager, compiled, reference, wobble, largest):
    """Says how far a result lies from float64, and whether it is wrong.

    It is when the distance is explained neither by the error of eager, nor by rounding the inputs
    once more, which moves the float64 result to `wobble`, nor by adding numbers up in another
    order (`largest` is the size of the largest tensor). Without a reference, eager is one.
    """
    if kind(eager) != kind(compiled):
        return f"is {kind(compiled)}, eager gives {kind(eager)}", True
    if not isinstance(eager, torch.Tensor) or eager.is_meta:
        return "the same", False
    known = getattr(reference, "shape", None) == eager.shape
    reference = reference if known else eager
    error, found = distance(eager, reference), distance(compiled, reference)
    moved = distance(reference if wobble is None else wobble, reference)
    finite = reference.to(torch.complex128 if eager.is_complex() else torch.float64)
    size = distance(finite.nan_to_num(0, 0, 0), torch.zeros_like(finite))
    rounded = 0.0  # part of the result that roundings may change; sums are made in float32
    if eager.is_floating_point() or eager.is_complex():
        unit, additions = torch.finfo(eager.dtype).eps, largest / max(eager.numel(), 1)
        rounded = unit + (16 + additions**0.5 / 2) * min(unit, torch.finfo(torch.float32).eps)
        rounded *= 1 if known else 10
    explained = [4 * max(error[i], moved[i]) + rounded * size[i] for i in (0, 1)]
    words = "from float64" if known else "from eager, without a float64 reference"
    wrong = found[0] > explained[0] or found[1] > explained[1]
    return f"{words}: eager {error[0]:.1e}, compiled {found[0]:.1e}", wrong


def check_consistency(make_module, make_inputs, compile_module, backward, around, precision, draws):
    """Compares the compiled run with eager; returns the names of wrong results."""
    recorder = draws() if draws else None
    module = make_module()
    eager = run(module, module, make_inputs(), backward, around, recorder)
    module = make_module()
    compiled = run(module, compile_module(module), make_inputs(), backward, around)

    def in_float64(noise=0.0):
        mode = recorder.in_float64() if recorder else Float64()
        return run_in_float64(make_module, make_inputs, backward, around, mode, noise)

    largest = max((x.numel() for x in eager.values() if isinstance(x, torch.Tensor)), default=0)
    reference, wobble = {}, {}

    def judged(name):
        others = reference.get(name), wobble.get(name)
        return judge(eager[name], compiled[name], *others, largest)

    try:
        reference = in_float64()
        if any(judged(name)[1] for name in eager):
            wobble = in_float64(torch.finfo(precision).eps)
    except Exception as error:  # an operator that does not know float64, for instance
        print(f"no float64 reference: {type(error).__name__}: {error}")
    wrong = []
    for name in eager:
        words, is_wrong = judged(name)
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
    types = ("forward", "forward+backward")
    parser.add_argument("--compute_type", choices=types, default=types[backward])
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
