"""The stand-in for a module: everything that is done with a module can be done with it."""

from __future__ import annotations

import copy
import inspect

import pytest
import torch
from torch import nn

from tests.dynamo.modules import MODULES, Net, X, assert_same, compile, graphs
from thunder.dynamo.compiled_module import CompiledModule


@pytest.fixture(params=MODULES)
def module(request):
    return MODULES[request.param]()


# ---------------------------------------------------------------------- what it is


def test_it_is_the_module_in_all_but_calls(module):
    stand_in = compile(module)
    assert stand_in is not module
    assert isinstance(stand_in, nn.Module)
    assert isinstance(stand_in, type(module))
    assert isinstance(stand_in, CompiledModule)
    assert stand_in.__class__ is type(module)
    assert type(stand_in).__name__ == type(module).__name__
    assert list(stand_in.state_dict()) == list(module.state_dict())
    assert dict(stand_in.named_parameters()) == dict(module.named_parameters())
    assert [name for name, _ in stand_in.named_modules()] == [n for n, _ in module.named_modules()]
    assert repr(stand_in) == f"thunderfx({module!r})"
    assert_same(stand_in, module)
    assert graphs(stand_in) == 1


def test_compiling_changes_nothing_of_the_original(module):
    before, cls, members = dict(vars(module)), type(module), dict(vars(type(module)))
    stand_in = compile(module, dynamic=True)
    assert dict(vars(module)) == before
    assert type(module) is cls
    assert dict(vars(cls)) == members
    module(X)
    assert graphs(stand_in) == 0
    assert not isinstance(module, CompiledModule)


def test_training_matches_eager(module):
    reference, stand_in = copy.deepcopy(module), compile(module)
    optimizers = [torch.optim.SGD(m.parameters(), lr=0.1) for m in (stand_in, reference)]
    for _ in range(3):
        for model, optimizer in zip((stand_in, reference), optimizers, strict=True):
            optimizer.zero_grad()
            model(X).square().sum().backward()
            optimizer.step()
    torch.testing.assert_close(stand_in.state_dict(), reference.state_dict())
    if not isinstance(module, Net):  # recompiles for its counter
        assert graphs(stand_in) == 1


def test_one_class_of_stand_ins_for_each_class():
    first, second = compile(Net()), compile(Net())
    assert type(first) is type(second)
    assert type(first) is not type(compile(nn.Linear(3, 3)))


def test_signature_of_forward():
    net = Net()
    assert inspect.signature(compile(net).forward) == inspect.signature(net.forward)


# ---------------------------------------------------------------------- attributes


def test_attributes_are_shared_in_both_directions():
    net = Net()
    stand_in = compile(net)
    stand_in.note = "set on the stand-in"
    net.label = "set on the module"
    assert net.note == "set on the stand-in"
    assert stand_in.label == "set on the module"
    del stand_in.note
    assert not hasattr(net, "note")
    with pytest.raises(AttributeError, match="'Net' object has no attribute 'note'"):
        stand_in.note  # noqa: B018
    stand_in.gain = 3.0
    assert (net.gain, net._gain) == (3.0, 3.0)
    assert_same(stand_in, net)


def test_members_of_the_class():
    stand_in = compile(Net())
    assert stand_in.made == 0
    assert stand_in.twice(2) == 4
    for made in (stand_in.build(), type(stand_in)(width=3), stand_in.__class__()):
        assert type(made) is Net
        assert made(X).shape == (2, 3)
    assert {"inner", "scale", "offset", "generate", "gain"} <= set(dir(stand_in))


def test_methods_that_call_the_module_run_compiled():
    net = Net()
    stand_in = compile(net)
    expected = net.generate(X, steps=3)
    net.calls = 0
    torch.testing.assert_close(stand_in.generate(X, steps=3), expected)
    assert net.calls == 3
    assert graphs(stand_in) >= 1


def test_methods_can_be_compiled_themselves():
    net = Net()
    stand_in = compile(net)
    generate = compile(stand_in.generate, fullgraph=True)
    torch.testing.assert_close(generate(X, steps=3), net.generate(X, steps=3))
    assert (graphs(generate), graphs(stand_in)) == (1, 0)


def test_methods_that_call_forward_run_compiled():
    stand_in = compile(nn.Linear(3, 2))
    torch.testing.assert_close(stand_in.forward(X), stand_in(X))
    assert graphs(stand_in) == 1


def test_container_protocols():
    children = nn.Linear(3, 3), nn.ReLU()
    stand_in = compile(nn.Sequential(*children))
    assert len(stand_in) == 2
    assert list(stand_in) == list(children)
    assert stand_in[0] is children[0]
    stand_in.append(nn.Tanh())
    assert_same(stand_in, stand_in._compilation.module)
    assert stand_in(X).abs().max() < 1
    assert "a" in compile(nn.ModuleDict({"a": nn.ReLU()}))


def test_an_attribute_created_by_forward():
    class Lazy(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("ref", None)

        def forward(self, x):
            if self.ref is None:
                self.ref = x.mean(0)
            return x - self.ref

    module = Lazy()
    stand_in = compile(module)
    first = stand_in(X)
    torch.testing.assert_close(first, X - X.mean(0))
    assert module.ref is stand_in.ref
    assert list(module.state_dict()) == ["ref"]
    torch.testing.assert_close(stand_in(X + 5), X + 5 - X.mean(0))


def test_a_user_attribute_called_like_the_compiler_is_seen_by_forward():
    class Named(nn.Module):
        def __init__(self):
            super().__init__()
            self._backend = 3

        def forward(self, x):
            return x * self._backend

    module = Named()
    torch.testing.assert_close(compile(module)(X), X * 3)


# ---------------------------------------------------------------------- weights


@pytest.mark.parametrize("side", ["stand-in", "module"])
def test_weights_are_shared_however_they_are_replaced(side):
    module = nn.Linear(3, 2)
    stand_in = compile(module)
    changed = stand_in if side == "stand-in" else module
    stand_in(X)
    changed.load_state_dict({k: v * 2 + 1 for k, v in changed.state_dict().items()})
    assert_same(stand_in, module)
    changed.weight = nn.Parameter(torch.ones(2, 3))
    assert stand_in.weight is module.weight
    assert_same(stand_in, module)
    changed.weight.data = changed.weight.data * 3
    assert_same(stand_in, module)
    changed.load_state_dict({k: v + 1 for k, v in changed.state_dict().items()}, assign=True)
    assert_same(stand_in, module)
    with torch.no_grad():
        changed.weight.mul_(2)
    assert_same(stand_in, module)


@pytest.mark.parametrize("side", ["stand-in", "module"])
def test_freezing(side):
    module = nn.Sequential(nn.Linear(3, 4), nn.Linear(4, 1))
    stand_in = compile(module)
    changed = stand_in if side == "stand-in" else module
    for frozen in (False, True, False):
        changed[0].requires_grad_(not frozen)
        module.zero_grad()
        stand_in(X).sum().backward()
        assert (module[0].weight.grad is None) == frozen
        assert module[1].weight.grad is not None
    changed.requires_grad_(False)
    assert not stand_in(X).requires_grad


@pytest.mark.parametrize("side", ["stand-in", "module"])
def test_train_and_eval(side):
    module = nn.Sequential(nn.Dropout(0.5), nn.BatchNorm1d(3))
    stand_in = compile(module)
    changed = stand_in if side == "stand-in" else module
    for training in (True, False, True):
        assert changed.train(training) is changed
        assert stand_in.training is module.training is training
        assert module[0].training is training
        torch.manual_seed(1)
        result = stand_in(torch.ones(64, 3))
        assert bool((result.std(0) > 0).all()) is training
    assert stand_in[1].num_batches_tracked == 2


@pytest.mark.parametrize("side", ["stand-in", "module"])
def test_conversion(side):
    module = nn.Linear(3, 2)
    stand_in = compile(module)
    changed = stand_in if side == "stand-in" else module
    assert changed.double() is changed
    assert stand_in(X.double()).dtype == torch.float64
    assert changed.to(torch.bfloat16) is changed
    assert stand_in(X.bfloat16()).dtype == torch.bfloat16
    assert changed.half() is changed
    assert module.weight.dtype == stand_in.weight.dtype == torch.float16
    changed.to("meta")
    assert stand_in(X.half().to("meta")).is_meta


def test_apply_and_zero_grad():
    seen = []
    stand_in = compile(nn.Sequential(nn.Linear(3, 3)))
    stand_in(X).sum().backward()
    stand_in.zero_grad()
    assert stand_in[0].weight.grad is None
    assert stand_in.apply(lambda m: seen.append(m)) is stand_in
    assert [type(m) for m in seen] == [nn.Linear, type(stand_in)]


def test_functional_call_and_stacked_state():
    module = nn.Linear(3, 2)
    stand_in = compile(module)
    other = {name: torch.ones_like(value) for name, value in module.named_parameters()}
    result = torch.func.functional_call(stand_in, other, (X,))
    torch.testing.assert_close(result, torch.func.functional_call(module, other, (X,)))
    assert_same(stand_in, module)


# ---------------------------------------------------------------------- hooks


def record(log, name):
    def hook(module, *rest):
        log.append((name, type(module).__name__))

    return hook


@pytest.mark.parametrize("side", ["stand-in", "module"])
@pytest.mark.parametrize("when", ["before", "after"])
def test_hooks_fire_once_whenever_and_wherever_they_are_registered(module, side, when):
    log: list[tuple[str, str]] = []
    if side == "module" and when == "before":
        target, stand_in = module, None
    else:
        stand_in = compile(module)
        target = stand_in if side == "stand-in" else module
    if when == "after" and stand_in is not None:
        stand_in(X).sum().backward()
    handles = [
        target.register_forward_pre_hook(record(log, "pre")),
        target.register_forward_hook(record(log, "forward")),
        target.register_full_backward_pre_hook(record(log, "backward pre")),
        target.register_full_backward_hook(record(log, "backward")),
    ]
    stand_in = stand_in or compile(module)
    name = type(module).__name__
    for _ in range(2):
        log.clear()
        stand_in(X.clone().requires_grad_()).sum().backward()
        assert log == [(n, name) for n in ("pre", "forward", "backward pre", "backward")]
    for handle in handles:
        handle.remove()
    log.clear()
    stand_in(X).sum().backward()
    assert log == []


def test_hooks_can_change_arguments_and_results(module):
    stand_in = compile(module)
    expected = module(X * 2) + 1
    stand_in.register_forward_pre_hook(lambda m, args: (args[0] * 2,))
    module.register_forward_hook(lambda m, args, result: result + 1)
    if not any(isinstance(m, nn.BatchNorm1d) for m in module.modules()):
        torch.testing.assert_close(stand_in(X), expected)
    torch.testing.assert_close(stand_in(X), module(X))


def test_hooks_with_keywords_and_on_errors():
    class Strict(nn.Module):
        def forward(self, x, *, ok=True):
            if not ok:
                raise ValueError("told to fail")
            return x + 1

    log = []
    stand_in = compile(Strict())
    stand_in.register_forward_pre_hook(lambda m, args, kwargs: log.append(kwargs), with_kwargs=True)
    stand_in.register_forward_hook(lambda m, args, out: log.append(out), always_call=True)
    stand_in(X, ok=True)
    with pytest.raises(ValueError, match="told to fail"):
        stand_in(X, ok=False)
    assert log[0] == {"ok": True}
    assert log[2:] == [{"ok": False}, None]


def test_a_hook_is_outside_the_compiled_region(module):
    """With fullgraph=True a hook that Dynamo cannot capture would be an error inside."""
    seen = []
    stand_in = compile(module, fullgraph=True)
    stand_in.register_forward_hook(lambda m, args, out: seen.append(out.sum().item()))
    stand_in(X)
    module.register_forward_pre_hook(lambda m, args: seen.append(id(m)))
    stand_in(X)
    assert len(seen) == 3


def test_global_hooks_fire_once():
    log = []
    stand_in = compile(nn.Linear(3, 2))
    handle = nn.modules.module.register_module_forward_hook(record(log, "global"))
    try:
        stand_in(X)
    finally:
        handle.remove()
    assert log == [("global", "Linear")]


def test_state_dict_hooks():
    module = nn.Linear(3, 2)
    stand_in = compile(module)
    stand_in.register_state_dict_post_hook(
        lambda m, state, prefix, meta: state.update({prefix + "extra": 1})
    )
    assert list(stand_in.state_dict()) == ["weight", "bias", "extra"]
