"""Programs that are cut in awkward places give what eager gives.

Compared are outputs, their types and strides, aliases among inputs and outputs, changed inputs,
gradients, parameters and buffers, the modes left behind and the random numbers drawn.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint

from tests.dynamo.split_backend import SplitBackend, check, copy_arguments
from thunder.dynamo.split_reason import SplitReasonKind

T, I = "thunder", "inductor"  # noqa: E741 (as in the partitions' names)


@dataclass(frozen=True)
class Program:
    """A function and how to call it.

    Attributes:
        function: The function or module.
        calls: The arguments of each call.
        kinds: The kinds of the partitions, or None where the number of them is no promise.
        exclude: What is split off.
        options: For `check`.
    """

    function: Callable[..., Any]
    calls: Sequence[Sequence[Any]]
    kinds: Sequence[str] | None = None
    exclude: Sequence[Any] = (torch.sinc,)
    options: dict[str, Any] = field(default_factory=dict)


PROGRAMS: dict[str, Program] = {}


def program(*calls, kinds=None, exclude=(torch.sinc,), **options):
    def register(function):
        PROGRAMS[function.__name__] = Program(function, calls, kinds, exclude, options)
        return function

    return register


def tensor(*shape, grad=False, scale=1.0):
    generator = torch.Generator().manual_seed(len(PROGRAMS))
    return (torch.randn(*shape, generator=generator) * scale).requires_grad_(grad)


def leaf(*shape, scale=1.0):
    return tensor(*shape, grad=True, scale=scale)


# ------------------------------------------------------------------ modes


@program((leaf(3, 4),), kinds=[I, T])
def no_grad_region_cut(x):
    with torch.no_grad():
        weight = torch.special.sinc(x).abs() + x.cos()
    return (x * weight).tanh(), weight


@program((leaf(4, 4),), kinds=[T, I, T, I, T, I, T])
def nested_gradient_modes(x):
    with torch.no_grad():
        a = x.cos()
        with torch.enable_grad():
            b = torch.sinc(x) * a
            with torch.no_grad():
                c = torch.sinc(b)
            d = c * x
        e = torch.sinc(d)
    return a, b, c, d, e, e * x


@program((leaf(4, 4),))
def gradient_mode_set_without_context(x):
    y = torch.sinc(x * 2).cos()
    torch.set_grad_enabled(False)
    z = torch.sinc(y).cos()
    torch.set_grad_enabled(True)
    return y, z


@program((leaf(4, 4, scale=0.3), leaf(4, 4, scale=0.3)), tolerance=5e-2)
def autocast_islands(x, w):
    with torch.autocast("cpu", dtype=torch.bfloat16):
        a = x @ w
        b = torch.sinc(a) @ w
        with torch.autocast("cpu", enabled=False):
            c = torch.sinc(a.float()) @ w
            d = c @ w
        e = torch.sinc(d) @ w
    return a, b, c, d, e, e.float() @ w


@program((leaf(4, 4),), kinds=[T, I, T])
def inference_mode(x):
    with torch.inference_mode():
        w = torch.sinc(x.cos()) + 1
        w = w.cos()
    return w, w * 2


@program((tensor(1, 4, 4),), kinds=[T, I, T])
def attention_backends(x):
    with torch.nn.attention.sdpa_kernel([torch.nn.attention.SDPBackend.MATH]):
        y = F.scaled_dot_product_attention(x, x, x)
        y = torch.sinc(y)
        y = F.scaled_dot_product_attention(y, x, x)
    return y.cos()


@program((leaf(4, 4),), kinds=[T, I, T])
def saved_tensor_hooks_disabled(x):
    with torch.autograd.graph.disable_saved_tensors_hooks("not here"):
        y = torch.sinc(x.sin()) * x
    return y.cos()


@program((tensor(4, 4),), kinds=[I, T])
def deterministic_algorithms(x):
    torch.use_deterministic_algorithms(True)
    y = torch.sinc(x)
    z = y.cumsum(0)
    torch.use_deterministic_algorithms(False)
    return z + 1


# ------------------------------------------------------------------ what stays whole


@program((leaf(3, 3), leaf(3, 3)), kinds=[T, I, T])
def checkpoint_with_excluded_operator(x, w):
    return checkpoint(lambda t, w: torch.sinc(t @ w).cos() * t, x.sin(), w, use_reentrant=False) + x


@program((leaf(4, 4),), kinds=[T, I, T])
def vmap_with_excluded_operator(x):
    return torch.vmap(lambda t: torch.sinc(t).sum() + t)(x.cos()).exp()


@program((tensor(5),), kinds=[T, I, T])
def vmap_beside_excluded_operator(x):
    allowed = torch.vmap(lambda q, k: k <= q, in_dims=(None, 0))
    mask = torch.vmap(allowed, in_dims=(0, None))(x, x)
    return torch.sinc(x) * mask


@program((tensor(4, 4),), kinds=[T, I, T])
def func_grad(x):
    return torch.func.grad(lambda t: torch.sinc(t).sum())(x.cos()).exp().cos()


@program((tensor(4, 4),))
def func_jvp(x):
    return torch.func.jvp(lambda t: torch.sinc(t) * 2, (x.cos(),), (x,))


class Scale(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return torch.sinc(x)

    @staticmethod
    def backward(ctx, g):
        return g * ctx.saved_tensors[0]


@program((leaf(4, 4),), kinds=[T, I, T])
def autograd_function(x):
    return Scale.apply(x.cos()).exp()


@program((leaf(4, 4),), kinds=[T, I, T])
def cond_with_excluded_operator(x):
    return torch.cond(x.sum() > 0, torch.sinc, torch.cos, (x.sin(),)).exp()


@program((leaf(4, 4),), kinds=[T, I, T], exclude=("cond",))
def cond_excluded(x):
    return torch.cond(x.sum() > 0, torch.sin, torch.cos, (x.sin(),)).exp()


@program((leaf(4, 4),), kinds=[T, I, T])
def hook_on_an_intermediate(x):
    y = x * 2
    y.register_hook(lambda g: g * 3)
    return torch.sinc(y.sin()) + y


@program((leaf(4, 4),), exclude=("sinc", "register_hook"))
def hook_excluded(x):
    y = x * 2
    y.register_hook(lambda g: g * 3)
    return torch.sinc(y.sin()) + y


@program((tensor(4, 4),))
def version_counter_preserved(x):
    with torch.autograd.grad_mode._unsafe_preserve_version_counter(x):
        y = torch.sinc(x)
        x.add_(1)
    return x.sin() * y


# ------------------------------------------------------------------ numbers and sizes


@program((torch.tensor([1, 4, 2, 9]),), (torch.tensor([3, 0, 5, 5]),), exclude=("special_i0e",))
def numbers_from_tolist(ids):
    doubled = ids * 2
    first, *_, last = doubled.tolist()
    y = torch.special.i0e(ids.float())
    return first + last, ids + doubled[1].item() + last, y * first


@program((tensor(4, 4),), (tensor(4, 4),))
def floats_and_bools_from_item(x):
    total = x.sum().item()
    any_positive = (x > 0).any().item()
    y = torch.sinc(x) * 2
    return y * total, torch.sinc(y).cos() + (total > 0), y * any_positive


@program((tensor(4, 4), 3, 2.5), (tensor(5, 4), 4, 1.5), (tensor(6, 4), 5, 0.5), dynamic=True)
def numbers_as_arguments(x, k, f):
    n = x.shape[0] * k
    y = torch.sinc(x + k)
    g = f * 2 + k
    return y * f, y.sum() + n, (y * g).reshape(x.shape[0] * 2, -1), n, g


@program((tensor(4, 4),), (tensor(6, 6),), dynamic=True)
def sizes(x):
    y = torch.sinc(x)
    size = y.size()
    z = torch.sinc(y.view(y.size(0) * 2, -1)).cos()
    return z, x.new_zeros(x.shape) + z.sum(), y.reshape(size[::-1]) * 2, size


@program((tensor(2, 3),), (tensor(3, 3),), (tensor(7, 3),))
def sizes_become_dynamic(x):
    y = torch.sinc(x)
    return torch.cat([y, y[: x.shape[0] // 2]]).reshape(-1, 3), y.shape[0]


@program((tensor(5, 4),), (tensor(6, 4),))
def sizes_that_depend_on_data(x):
    where = torch.nonzero(x > 0)
    torch._check(where.shape[0] > 1)
    y = torch.sinc(x[where[:, 0], where[:, 1]] * 2)
    z = y.cos() * where.shape[0]
    return z, where.shape[0], torch.sinc(z) + 1


@program((tensor(4, 4),), (tensor(4, 4),))
def checked_item(x):
    n = int((x > 0).sum().item())
    torch._check(n >= 0)
    y = torch.sinc(x)
    return y.cos() + n, torch.arange(n + 1) * 2


@program((leaf(6, 4),), exclude=(torch.topk, torch.split, torch.sinc))
def tuples(x):
    values, indices = x.cos().topk(2)
    parts = torch.split(x.sin(), 2)
    return (
        values + 1,
        indices,
        torch.cat(parts).exp(),
        parts[0] * values[:2, :1],
        torch.sinc(parts[1]),
    )


# ------------------------------------------------------------------ changes in place, aliases


@program((tensor(4), torch.zeros(4)))
def inputs_changed_on_both_sides(x, log):
    log.copy_(torch.sinc(x))
    log.add_(1)
    y = x.cos()
    x.mul_(2)
    z = torch.sinc(y + log)
    log.mul_(z)
    return z.exp()


@program((tensor(3, 4),))
def outputs_are_inputs_and_views(x):
    view = x[0]
    y = torch.sinc(x)
    return x, view, y, y.t(), y[1]


@program((tensor(3, 4),))
def result_of_an_in_place_method(x):
    a = x.add_(1)
    y = torch.sinc(a)
    b = a.mul_(y)
    return a, b, y.cos() + b


@program((leaf(3, 4),), kinds=[T, I, T])
def residual_stream(x):
    h = x * 2
    a = h + 1
    b = a * a
    c = torch.sinc(b)
    h += c
    return h, (h * a).sum()


@program((leaf(4, 4), leaf(4, 4)))
def old_value_needed_for_the_gradient(x, w):
    y = x * 2
    z = torch.sinc(x)
    y.mul_(w)
    return y * z


@program((leaf(3, 4),))
def view_and_base_both_changed(x):
    y = x * 2
    view = y.view(-1)
    w = torch.sinc(x)
    view.add_(w.reshape(-1))
    y[0] = 1
    return y, view, w.cos()


@program((leaf(3, 4), leaf(3, 4)))
def base_read_after_its_view_changed(x, w):
    y = torch.zeros(3, 4)
    view = y.view(-1)
    z = torch.sinc(x)
    view.add_(w.reshape(-1))
    return y.cos() * z, y


@program((tensor(3, 4),))
def views_of_an_input_changed_without_gradients(x):
    view = x[0]
    y = torch.sinc(x)
    view.add_(1.0)
    z = torch.sinc(x)
    x.mul_(2)
    return y.cos() + view, z, view, view.detach()


@program((leaf(3, 3),), exclude=("t",))
def view_made_without_gradients(x):
    with torch.no_grad():
        y = x.t()
    return y * 1.5 + x


@program((tensor(3, 3), leaf(3, 3)))
def changed_view_of_an_input_leaves(x, w):
    view = x.view(-1)
    view.add_(w.view(-1))
    y = torch.sinc(w)
    return view.view(3, 3) * y


@program((leaf(3, 4),))
def shape_changed_in_place(x):
    y = x.detach() * 2
    z = torch.sinc(y)
    y.t_()
    w = torch.sinc(y).cos()
    y.unsqueeze_(0)
    return y, z.exp(), w


@program((tensor(4, 4),))
def data_replaced(x):
    y = torch.sinc(x.cos())
    x.data = y * 2
    return torch.sinc(x + 1)


@program((tensor(4, 4),))
def out_arguments(x):
    out = torch.empty(4, 4)
    torch.sin(x, out=out)
    y = torch.sinc(out)
    torch.add(y, 1, out=out)
    return out, y


@program((tensor(4, 4),))
def one_object_under_two_names(x):
    same = x.contiguous()
    y = torch.sinc(x)
    x.add_(1)
    return same * y + x, same


@program((leaf(4, 4),), exclude=("sinc", F.relu))
def excluded_in_place(x):
    y = x * 2
    y.sinc_()
    z = y * 1
    F.relu(z, inplace=True)
    return z.cos()


@program((leaf(4, 4), tensor(4, 4)), exclude=(torch.ops.aten.copy_,))
def copy_excluded(x, log):
    with torch.no_grad():
        log.copy_(x)
    return log + x


@program((leaf(4), torch.zeros(4)), exclude=("special_i0e", "sinc"), kinds=[I, T])
def unused_results(x, log):
    log.copy_(torch.special.i0e(x.detach()))
    y = x.cos()
    torch.sinc(y.detach())
    return y * 2


@program((leaf(4), leaf(4)), exclude=("special_i0e",))
def gradient_nobody_asks_for(x, w):
    h = (x * w).sin()
    y = w.cos()
    with torch.no_grad():
        scale = torch.special.i0e(h).sum()
    return y * scale


# ------------------------------------------------------------------ the rest


@program((leaf(8, 8),), kinds=[T, I, T])
def random_numbers_in_every_partition(x):
    a = F.dropout(x, 0.5)
    b = torch.sinc(a + torch.rand_like(a))
    return F.dropout(b, 0.5) + torch.randn(8)


@program((leaf(2, 3, 8, 8), leaf(4, 3, 3, 3)), tolerance=1e-4)
def channels_last(x, w):
    x = x.to(memory_format=torch.channels_last)
    y = F.conv2d(x, w)
    return F.relu(torch.sinc(y).permute(0, 2, 3, 1)) + 1, y


@program((leaf(4, 4),))
def partition_without_inputs(x):
    return x + torch.sinc(torch.arange(4.0))


@program((leaf(4, 4),), exclude=(torch.add,), kinds=[T, I, T])
def python_operators(x):
    y = x.cos() + 1
    y += 2
    return y * (x.shape[0] + 3)


class Tied(nn.Module):
    total: torch.Tensor

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(4, 4), nn.Linear(4, 4)
        self.second.weight = self.first.weight
        self.norm = nn.BatchNorm1d(4)
        self.register_buffer("total", torch.ones(4))
        self.constant = torch.ones(4)

    def forward(self, x):
        y = torch.sinc(self.norm(self.first(x)))
        self.total.add_(y.detach().sum(0))
        z = self.norm(self.second(y)) + self.total + self.constant
        return z + torch.tensor([1.0, 2.0, 3.0, 4.0])


class UnusedNorm(Tied):
    def forward(self, x):
        self.norm(x)
        return torch.sinc(self.first(x)).cos()


for made in (Tied(), UnusedNorm()):
    calls = ((leaf(5, 4),), (leaf(5, 4),))
    PROGRAMS[type(made).__name__] = Program(made, calls, options={"tolerance": 1e-4})


@pytest.fixture(autouse=True)
def _capture_numbers():
    with torch._dynamo.config.patch(
        capture_scalar_outputs=True, capture_dynamic_output_shape_ops=True
    ):
        yield


@pytest.mark.parametrize("name", PROGRAMS)
def test_cut_programs_do_what_eager_does(name):
    case = PROGRAMS[name]
    backend = check(case.function, *case.calls, exclude=case.exclude, **case.options)
    if case.kinds is not None:
        wanted = [f"{kind}_{index}" for index, kind in enumerate(case.kinds)]
        assert backend.names == [wanted] * len(backend.names)


AMBIENT = {
    "no_grad": torch.no_grad,
    "inference_mode": torch.inference_mode,
    "autocast": lambda: torch.autocast("cpu", dtype=torch.bfloat16),
}


def matmuls_around(x, w):
    y = x @ w
    with torch.enable_grad():
        z = torch.sinc(y) @ w
    return y, z, torch.sinc(z) @ w


@pytest.mark.parametrize("ambient", AMBIENT)
def test_modes_captured_as_a_whole(ambient):
    def function(x, w):
        with AMBIENT[ambient]():
            return matmuls_around(x, w)

    arguments = (leaf(4, 4, scale=0.3), leaf(4, 4, scale=0.3))
    backend = check(function, arguments, tolerance=5e-2)
    assert len(backend.names[0]) >= 5


@pytest.mark.parametrize("ambient", AMBIENT)
def test_the_mode_around_the_call_holds_inside(ambient):
    make = tensor if ambient == "inference_mode" else leaf  # eager refuses gradients there
    x, w = make(4, 4, scale=0.3), make(4, 4, scale=0.3)
    backend = SplitBackend((torch.sinc,))
    compiled = torch.compile(matmuls_around, backend=backend)
    with AMBIENT[ambient]():
        expected, actual = matmuls_around(x, w), compiled(x, w)
    facts = [[(t.dtype, t.requires_grad) for t in outputs] for outputs in (actual, expected)]
    assert facts[0] == facts[1]
    torch.testing.assert_close(actual, expected)
    assert len(backend.names[0]) >= 5


def test_gradient_mode_left_changed_stays_changed():
    def function(x):
        y = torch.sinc(x * 2)
        torch.set_grad_enabled(False)
        return y, torch.sinc(y).cos()

    x = leaf(3)
    outputs = []
    for run in (function, torch.compile(function, backend=SplitBackend((torch.sinc,)))):
        with torch.enable_grad():
            y, z = run(x)
            outputs.append((y.requires_grad, z.requires_grad, torch.is_grad_enabled()))
    assert outputs[0] == outputs[1] == (True, False, False)


def test_regions_that_move_as_a_whole_say_so():
    backend = check(vmap_with_excluded_operator, (leaf(4, 4),))
    excluded, whole = backend.splits[0].reasons
    assert excluded.kind is SplitReasonKind.EXCLUDED_OP
    assert whole.kind is SplitReasonKind.INDIVISIBLE_REGION
    assert whole.info.startswith("a vmap cannot be cut, so its ")
    assert whole.info.endswith("operators are left to Inductor together with sinc")


def test_one_compiled_function_called_in_many_ways():
    def function(x):
        return torch.sinc(x.cos()).exp() * x

    compiled = torch.compile(function, backend=SplitBackend((torch.sinc,)))
    for x in (leaf(3), tensor(3), leaf(3).double(), leaf(3, 3).t(), leaf(6)[::2]):
        (mine,), (other,) = copy_arguments((x,)), copy_arguments((x,))
        torch.testing.assert_close(compiled(mine), function(other))
    (twice,) = copy_arguments((leaf(3),))
    (compiled(twice) + compiled(twice * 2)).sum().backward()
    (again,) = copy_arguments((leaf(3),))
    (function(again) + function(again * 2)).sum().backward()
    torch.testing.assert_close(twice.grad, again.grad)
