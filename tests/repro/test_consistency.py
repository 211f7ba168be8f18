"""The check inside scripts: rounding raises no alarm, wrong answers do."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

from tests.repro.capture import Captured, load, support
from thunder.repro import CompileSource


@pytest.fixture(autouse=True)
def _unchanged_settings():
    """Scripts change this setting for their own process."""
    with torch._inductor.config.patch("fallback_random", False):
        yield


def check(tmp_path, captured, definition, backward=True, **fields):
    """Runs the check of a script whose compiler is `wrap`, here in this process."""
    compiler = CompileSource(
        name="wrap", expression="wrap(module)", definitions=(definition,), imports=("import torch",)
    )
    path = captured.script(compiler, backward=backward, **fields).write(tmp_path / "script.py")
    module = load(path)
    source = captured.script(compiler).module
    return module.check_consistency(
        module.make_module,
        module.make_inputs,
        module.compile_with_wrap,
        backward,
        getattr(module, "around", module.contextlib.nullcontext),
        source.precision,
        getattr(module, "Draws", None),
    )


# What a compiler may do: compute in float32 and round once, add up in another order.
IN_FLOAT32 = """
class InFloat32(torch.utils._python_dispatch.TorchDispatchMode):
    def __torch_dispatch__(self, operator, types, args=(), kwargs=None):
        low = (torch.bfloat16, torch.float16)
        def wide(x):
            if isinstance(x, torch.Tensor) and x.dtype in low:
                return x.float()
            return torch.float32 if x in low else x
        if operator._schema.is_mutable or torch.Tag.nondeterministic_seeded in operator.tags:
            return operator(*args, **(kwargs or {}))
        map_ = torch.utils._pytree.tree_map
        found = operator(*map_(wide, args), **map_(wide, kwargs or {}))
        expected = operator(*args, **(kwargs or {}))
        def back(x, y):
            return x.to(y.dtype) if isinstance(x, torch.Tensor) else y
        return map_(back, found, expected)

def wrap(module):
    def run(*inputs):
        with InFloat32():
            return module(*inputs)
    return run
"""
IN_OTHER_ORDER = """
def wrap(module):
    def run(*inputs):
        original = torch.Tensor.sum
        torch.Tensor.sum = lambda x, dim: sum(x.unbind(dim))
        try:
            return module(*inputs)
        finally:
            torch.Tensor.sum = original
    return run
"""


def bf16(*shape):
    return torch.randn(*shape, dtype=torch.bfloat16, requires_grad=True)


def under_autocast(x, w):
    with torch.autocast("cpu", dtype=torch.bfloat16):
        return (x @ w).softmax(-1).sum(), F.gelu(x @ w)


HONEST = {
    "softmax": (lambda x: (x * 3).softmax(-1), lambda: (bf16(64, 257),)),
    "layer_norm": (
        lambda x, w, b: F.layer_norm(x, (300,), w, b),
        lambda: (bf16(64, 300), bf16(300), bf16(300)),
    ),
    "long_sums": (
        lambda x: (x.sum(), x.mean(0), (x * x).mean(), x.float().var()),
        lambda: (bf16(500, 300),),
    ),
    "mlp": (
        lambda x, v, w: F.gelu(x @ v) @ w,
        lambda: (bf16(32, 64), bf16(64, 128), bf16(128, 32)),
    ),
    "loss": (
        lambda x, w, t: F.cross_entropy((x @ w).float(), t),
        lambda: (bf16(32, 64), bf16(64, 300), torch.randint(0, 300, (32,))),
    ),
    "autocast": (
        under_autocast,
        lambda: (torch.randn(32, 64, requires_grad=True), torch.randn(64, 64)),
    ),
    "indices": (
        lambda x: (x.argmax(-1), x.topk(3).indices, (x > 0.5).sum()),
        lambda: (bf16(50, 50),),
    ),
    "dropout": (lambda x: F.dropout(x, 0.5) * 2 + torch.randn_like(x), lambda: (bf16(90, 90),)),
    "constant_rows": (
        lambda x: F.layer_norm(x, (300,)),
        lambda: (torch.ones(4, 300, requires_grad=True),),
    ),
    "in_place_and_alias": (
        lambda x, row: (row.mul_(2), x.sum(0)),
        lambda: (lambda m: (m, m[1]))(torch.randn(3, 400).bfloat16()),
    ),
}


@pytest.mark.parametrize("name", HONEST)
def test_rounding_is_no_bug(name, tmp_path):
    program, inputs = HONEST[name]
    captured = Captured(program, *inputs())
    assert check(tmp_path, captured, IN_FLOAT32, backward=captured.inputs.requires_grad) == []


def test_order_of_additions_is_no_bug(tmp_path):
    captured = Captured(lambda x: x.sum(-1), torch.rand(3, 30_000, requires_grad=True))
    assert check(tmp_path, captured, IN_OTHER_ORDER, backward=False) == []


def scaled(factor):
    return f"""
def wrap(module):
    return lambda *inputs: torch.utils._pytree.tree_map(
        lambda x: x * {factor} if x.is_floating_point() else x, module(*inputs)
    )
"""


WRONG = {
    "a bit off in float32": (lambda x: x.sin(), torch.randn(100), scaled(1.0001), ["output 0"]),
    "off in bfloat16": (
        lambda x: x.softmax(-1),
        torch.randn(64, 64, dtype=torch.bfloat16),
        scaled(1.06),
        ["output 0"],
    ),
    "tiny gradients": (
        lambda x: (x * 1e-9).sum(),
        torch.randn(100, requires_grad=True),
        """
class Half(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.clone()
    @staticmethod
    def backward(ctx, g):
        return g / 2

def wrap(module):
    return lambda x: module(Half.apply(x))
""",
        ["gradient of l_x_"],
    ),
    "one element of many": (
        lambda x: x.sin(),
        torch.randn(100_000),
        """
def wrap(module):
    def run(x):
        (y,) = module(x)
        y[777] += 0.1
        return (y,)
    return run
""",
        ["output 0"],
    ),
    "an index": (
        lambda x: x.argmax(-1),
        torch.randn(100, 10),
        """
def wrap(module):
    return lambda x: (module(x)[0].roll(1),)
""",
        ["output 0"],
    ),
    "a lost mutation": (
        lambda x: x.add_(1),
        torch.randn(10),
        "def wrap(module):\n    return lambda x: module(x.clone())",
        ["l_x_ afterwards"],
    ),
    "an invented mutation": (
        lambda x: x + 1,
        torch.randn(10),
        "def wrap(module):\n    return lambda x: (module(x)[0], x.mul_(2))[:1]",
        ["l_x_ afterwards"],
    ),
    "another dtype": (
        lambda x: x + 1,
        torch.randn(10),
        "def wrap(module):\n    return lambda x: (module(x)[0].double(),)",
        ["output 0"],
    ),
    "a NaN": (
        lambda x: x + 1,
        torch.randn(10),
        "def wrap(module):\n    return lambda x: (module(x)[0] * float('nan'),)",
        ["output 0"],
    ),
    "a lost grad_fn": (
        lambda x: x * 2,
        torch.randn(10, requires_grad=True),
        "def wrap(module):\n    return lambda x: (module(x)[0].detach(),)",
        ["output 0", "gradient of l_x_"],
    ),
    "another dropout rate": (
        lambda x: F.dropout(x, 0.5),
        torch.randn(1000),
        "def wrap(module):\n    return lambda x: (torch.nn.functional.dropout(x, 0.4),)",
        ["output 0"],
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_wrong_answers_are_found(name, tmp_path, capsys):
    program, x, definition, expected = WRONG[name]
    captured = Captured(program, x)
    assert check(tmp_path, captured, definition, backward=x.requires_grad) == expected
    assert capsys.readouterr().out.count("WRONG") == len(expected)


@torch.library.custom_op("repro_consistency::only_float32", mutates_args=())
def only_float32(x: torch.Tensor) -> torch.Tensor:
    if x.dtype is not torch.float32:
        raise TypeError("only float32")
    return x * 2


@only_float32.register_fake
def _(x):
    return torch.empty_like(x)


def test_without_a_reference_eager_is_one(tmp_path, capsys, monkeypatch):
    # In this process the operator exists already.
    monkeypatch.setattr(torch.library, "custom_op", lambda *_, **__: only_float32)
    captured = Captured(lambda x: only_float32(x), torch.randn(10))
    assert check(tmp_path, captured, scaled(1), backward=False) == []
    assert "no float64 reference: TypeError: only float32" in capsys.readouterr().out
    assert check(tmp_path, captured, scaled(1.01), backward=False) == ["output 0"]


def test_float64_run_leaves_nothing_behind(tmp_path):
    captured = Captured(lambda x: x.sin(), torch.randn(10))
    check(tmp_path, captured, scaled(1), backward=False)
    assert torch.get_default_dtype() is torch.float32


def test_widening_keeps_what_aliases_what():
    module = support()
    base = torch.arange(12.0)
    x, y = base.view(3, 4).t(), base[2:5].detach().requires_grad_()
    wide = module.widen({"x": x, "y": [y, 3], "z": torch.arange(2)})
    assert wide["x"].dtype is torch.float64 and wide["x"].stride() == x.stride()
    assert wide["y"][0].requires_grad and wide["y"][1] == 3
    assert wide["z"].dtype is torch.int64
    wide["x"].data.add_(1)
    assert wide["y"][0].tolist() == [3, 4, 5]
    noisy = module.widen([torch.ones(1000)], noise=0.01)[0]
    assert 0.98 < noisy.min() < 0.995 and 1.005 < noisy.max() < 1.02


def test_distances_understand_infinities():
    module, inf, nan = support(), float("inf"), float("nan")
    same = torch.tensor([inf, -inf, nan, 1.0])
    assert module.distance(same, same.double()) == (0.0, 0.0)
    assert module.distance(torch.tensor([inf]), torch.tensor([1.0]).double())[0] == inf
    assert module.distance(torch.tensor([nan]), torch.tensor([1.0]).double())[0] == inf
    assert module.distance(torch.tensor([1, 2]), torch.tensor([1, 3]))[0] == 1
    assert module.distance(torch.zeros(0), torch.zeros(0)) == (0.0, 0.0)
