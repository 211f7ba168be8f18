"""Stand-ins copied, stored, compiled again, and with their module changed under them."""

from __future__ import annotations

import abc
import copy
import gc
import io
import pickle
import weakref
from typing import Any

import pytest
import torch
from torch import fx, nn
from torch.nn.utils import parametrizations, parametrize, prune, weight_norm

from tests.dynamo.modules import MODULES, Net, X, assert_same, compile, graphs
from thunder.dynamo.compiled_module import CompiledModule

# ---------------------------------------------------------------------- copies


def roundtrip_torch(module):
    file = io.BytesIO()
    torch.save(module, file)
    file.seek(0)
    return torch.load(file, weights_only=False)


COPIES = {
    "deepcopy": copy.deepcopy,
    "pickle": lambda m: pickle.loads(pickle.dumps(m)),
    "oldest pickle": lambda m: pickle.loads(pickle.dumps(m, protocol=2)),
    "torch.save": roundtrip_torch,
}


@pytest.mark.parametrize("how", COPIES)
@pytest.mark.parametrize("kind", ["linear", "sequential", "graph module"])
def test_copies_are_compiled_and_independent(how, kind):
    module = MODULES[kind]()
    stand_in = compile(module, dynamic=False)
    stand_in(X)
    twin = COPIES[how](stand_in)
    assert isinstance(twin, CompiledModule)
    assert twin._compilation.options == stand_in._compilation.options
    assert twin._backend is not stand_in._backend
    assert graphs(twin) == 0
    torch.testing.assert_close(twin.state_dict(), stand_in.state_dict())
    with torch.no_grad():
        for parameter in twin.parameters():
            parameter.add_(1)
    assert_same(stand_in, module)
    assert_same(twin, twin._compilation.module)
    assert graphs(twin) == 1
    assert not torch.equal(twin(X), stand_in(X))


def test_a_deepcopy_keeps_aliases_within_what_is_copied():
    module = nn.Linear(3, 3)
    both = nn.ModuleList([module, compile(module)])
    twin: Any = copy.deepcopy(both)
    assert twin[1]._compilation.module is twin[0]
    assert twin[0].weight is twin[1].weight
    assert twin[0].weight is not module.weight


def test_a_shallow_copy_shares_weights_and_is_compiled_by_itself():
    module = Net()
    stand_in = compile(module)
    twin = copy.copy(stand_in)
    twin.label = "twin"
    assert module.label == "net"
    assert twin.scale is module.scale
    torch.testing.assert_close(twin(X), module(X))
    assert (graphs(twin), graphs(stand_in)) == (1, 0)


def test_what_cannot_be_pickled_is_named():
    stand_in = compile(nn.Linear(3, 2), transforms=[lambda graph_module: None])
    with pytest.raises((pickle.PicklingError, AttributeError), match="lambda"):
        pickle.dumps(stand_in)


def test_state_dicts_load_across():
    module, stand_in = nn.Linear(3, 2), compile(nn.Linear(3, 2))
    module.load_state_dict(stand_in.state_dict())
    assert_same(stand_in, module)


def test_a_child_keeps_its_names():
    first, second = nn.Linear(3, 3), nn.Linear(3, 2)
    eager = nn.Sequential(first, second)
    mixed = nn.Sequential(compile(first), second)
    assert list(mixed.state_dict()) == list(eager.state_dict())
    torch.testing.assert_close(mixed(X), eager(X))
    assert graphs(mixed[0]) == 1
    assert "(0): thunderfx(Linear(" in repr(mixed)
    twin = copy.deepcopy(mixed)
    twin.load_state_dict(eager.state_dict())
    torch.testing.assert_close(twin(X), eager(X))


# ---------------------------------------------------------------------- several compilations


def test_two_of_one_module_do_not_disturb_each_other():
    module = nn.Sequential(nn.Linear(3, 3), nn.ReLU())
    first, second = compile(module), compile(module, dynamic=True)
    for each in (first, second, first):
        assert_same(each, module)
    assert (graphs(first), graphs(second)) == (1, 1)
    module.load_state_dict({k: v + 1 for k, v in module.state_dict().items()})
    for each in (first, second):
        assert_same(each, module)
    assert (graphs(first), graphs(second)) == (1, 1)
    del first
    gc.collect()
    assert_same(second, module)


def test_compiling_a_stand_in_compiles_the_module_anew():
    module = nn.Linear(3, 2)
    first = compile(module)
    second = compile(first)
    assert second._compilation.module is module
    assert type(second) is type(first)
    assert_same(second, module)
    assert (graphs(first), graphs(second)) == (0, 1)


def test_compiling_what_torch_compiled():
    module = nn.Linear(3, 2)
    stand_in = compile(torch.compile(module, backend="eager"))
    assert stand_in._compilation.module is module
    assert_same(stand_in, module)


def test_torch_compile_of_a_stand_in_replaces_the_backend():
    seen = []

    def backend(graph_module, example_inputs):
        seen.append(graph_module)
        return graph_module.forward

    stand_in = compile(nn.Linear(3, 2))
    torch.testing.assert_close(torch.compile(stand_in, backend=backend)(X), stand_in(X))
    assert len(seen) == 1


def test_compiling_in_place_is_for_one_side_only():
    seen = []

    def backend(graph_module, example_inputs):
        seen.append(graph_module)
        return graph_module.forward

    module = Net()
    stand_in = compile(module)
    module.compile(backend=backend)
    stand_in(X)
    assert (len(seen), graphs(stand_in)) == (0, 1)
    module(X)
    assert (len(seen), graphs(stand_in)) == (1, 1)
    stand_in.compile(backend=backend)
    stand_in(X)
    assert (len(seen), graphs(stand_in)) == (2, 1)


@pytest.mark.parametrize("kind", MODULES)
def test_inside_a_larger_compiled_function_it_is_captured_with_the_rest(kind):
    module = MODULES[kind]()
    stand_in = compile(module)
    outer = compile(lambda x: stand_in(x) + stand_in.forward(x), fullgraph=True)
    torch.testing.assert_close(outer(X), module(X) + module(X))
    assert (graphs(outer), graphs(stand_in)) == (1, 0)
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.add_(1)
    torch.testing.assert_close(outer(X), module(X) + module(X))


def test_as_a_child_of_a_larger_compiled_module():
    child = Net()
    outer = compile(nn.Sequential(compile(child), nn.Tanh()), fullgraph=True)
    torch.testing.assert_close(outer(X), child(X).tanh())
    assert (graphs(outer), graphs(outer[0])) == (1, 0)


def test_graph_breaks():
    class Breaks(nn.Module):
        def forward(self, x):
            x = x.sin()
            torch._dynamo.graph_break()
            return x.cos()

    stand_in = compile(Breaks())
    torch.testing.assert_close(stand_in(X), X.sin().cos())
    assert graphs(stand_in) == 2


# ---------------------------------------------------------------------- forward replaced


@pytest.mark.parametrize("side", ["stand-in", "module"])
def test_a_forward_patched_into_the_instance(side):
    module: Any = nn.Linear(3, 2)
    stand_in = compile(module)
    stand_in(X)
    changed = stand_in if side == "stand-in" else module
    original = module.forward
    changed.forward = lambda x: original(x) * 2
    torch.testing.assert_close(stand_in(X), original(X) * 2)
    torch.testing.assert_close(module(X), original(X) * 2)
    assert graphs(stand_in) == 2
    del changed.forward
    torch.testing.assert_close(stand_in(X), original(X))


def test_a_forward_patched_into_the_class(monkeypatch):
    stand_in = compile(Net())
    stand_in(X)
    monkeypatch.setattr(Net, "forward", lambda self, x: self.inner(x))
    torch.testing.assert_close(stand_in(X), stand_in.inner(X))
    assert graphs(stand_in) == 2


def test_an_edited_graph_module():
    graph_module = fx.symbolic_trace(nn.Sequential(nn.Linear(3, 3), nn.Tanh()))
    for edited in (graph_module, compile(graph_module)):
        stand_in = edited if isinstance(edited, CompiledModule) else compile(graph_module)
        stand_in(X)
        output = next(n for n in edited.graph.nodes if n.op == "output")
        with edited.graph.inserting_before(output):
            output.args = (edited.graph.call_function(torch.neg, (output.args[0],)),)
        edited.recompile()
        torch.testing.assert_close(stand_in(X), graph_module(X))
        assert graphs(stand_in) == 2


def test_a_call_of_the_users_own_is_compiled_as_a_whole():
    class Called(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = nn.Linear(3, 3)

        def __call__(self, x):
            return super().__call__(x.sin()).cos()

        def forward(self, x):
            return self.inner(x)

    module = Called()
    log = []
    module.register_forward_hook(lambda m, args, out: log.append(1))
    stand_in = compile(module)
    assert_same(stand_in, module)
    targets = [
        n.target for n in stand_in._backend.subgraph_infos[0].original_graph_module.graph.nodes
    ]
    assert {"sin", "cos"} <= set(targets)
    assert len(log) == 2
    torch.testing.assert_close(stand_in.forward(X), module.forward(X))


# ---------------------------------------------------------------------- classes replaced


class Symmetric(nn.Module):
    def forward(self, x):
        return x + x.mT


@pytest.mark.parametrize("side", ["stand-in", "module"])
def test_parametrizations(side):
    module = nn.Linear(3, 3)
    stand_in = compile(module)
    stand_in(X)
    changed = stand_in if side == "stand-in" else module
    parametrize.register_parametrization(changed, "weight", Symmetric())
    assert parametrize.is_parametrized(stand_in)
    assert parametrize.is_parametrized(module)
    torch.testing.assert_close(stand_in.weight, stand_in.weight.mT)
    assert list(stand_in.state_dict()) == ["bias", "parametrizations.weight.original"]
    assert_same(stand_in, module)
    twin = copy.deepcopy(stand_in)
    assert_same(twin, module)
    parametrize.remove_parametrizations(changed, "weight")
    assert type(module) is nn.Linear
    assert_same(stand_in, module)
    assert isinstance(stand_in, CompiledModule)


@pytest.mark.parametrize("side", ["stand-in", "module"])
@pytest.mark.parametrize("norm", [parametrizations.weight_norm, parametrizations.spectral_norm])
def test_norm_parametrizations(side, norm):
    module = nn.Linear(3, 3).eval()
    stand_in = compile(module)
    norm(stand_in if side == "stand-in" else module)
    assert_same(stand_in, module)
    stand_in(X).sum().backward()
    assert all(p.grad is not None for p in module.parameters())


@pytest.mark.filterwarnings("ignore:.*weight_norm:FutureWarning")
@pytest.mark.parametrize("side", ["stand-in", "module"])
def test_norms_and_masks_that_work_by_hooks(side):
    module: Any = nn.Linear(3, 2)
    stand_in = compile(module)
    stand_in(X)
    changed = stand_in if side == "stand-in" else module
    weight_norm(changed)
    with torch.no_grad():
        module.weight_g.mul_(2)
    assert_same(stand_in, module)
    nn.utils.remove_weight_norm(changed)
    assert_same(stand_in, module)
    prune.l1_unstructured(changed, "weight", amount=3)
    assert int((stand_in.weight == 0).sum()) == 3
    assert_same(stand_in, module)
    prune.remove(changed, "weight")
    assert_same(stand_in, module)


def test_lazy_modules():
    module = nn.LazyLinear(2)
    stand_in = compile(module)
    assert stand_in(X).shape == (2, 2)
    assert type(module) is nn.Linear
    assert isinstance(stand_in, CompiledModule)
    assert type(stand_in) is type(compile(nn.Linear(1, 1)))
    assert_same(stand_in, module)
    assert graphs(stand_in) == 1


# ---------------------------------------------------------------------- unusual classes


def test_registries_of_subclasses_and_metaclasses_are_not_told():
    known = []

    class Meta(type):
        def __new__(mcs, name, bases, namespace, **keywords):
            known.append(name)
            return super().__new__(mcs, name, bases, namespace, **keywords)

    class Registered(nn.Module, metaclass=Meta):
        def __init_subclass__(cls, key):
            known.append(key)

        def forward(self, x):
            return x + 1

    class Leaf(Registered, key="leaf"):
        pass

    before = list(known)
    torch.testing.assert_close(compile(Leaf())(X), X + 1)
    assert known == before


def test_abstract_base_classes():
    class Base(nn.Module, abc.ABC):
        @abc.abstractmethod
        def forward(self, x): ...

    class Leaf(Base):
        def forward(self, x):
            return x + 1

    leaf = Leaf()
    stand_in = compile(leaf)
    assert not isinstance(nn.Linear(1, 1), type(stand_in))
    assert not isinstance(leaf, type(stand_in))
    assert isinstance(leaf, Leaf)
    assert isinstance(stand_in, Base)
    torch.testing.assert_close(stand_in(X), X + 1)


def test_a_finalizer_runs_for_the_module_alone():
    closed = []

    class Closing(nn.Module):
        def __del__(self):
            closed.append(1)

        def forward(self, x):
            return x + 1

    module = Closing()
    stand_in = compile(module)
    del stand_in
    gc.collect()
    assert closed == []
    del module
    gc.collect()
    assert closed == [1]


def test_a_getattr_and_slots_of_the_users_own():
    class Proxy(nn.Module):
        __slots__ = ("hidden",)

        def __init__(self):
            super().__init__()
            self.base = nn.Linear(3, 3)
            self.hidden = 3

        def __getattr__(self, name):
            try:
                return super().__getattr__(name)
            except AttributeError:
                return getattr(self.base, name)

        def forward(self, x):
            return self.base(x) * self.hidden

    module = Proxy()
    stand_in = compile(module)
    assert stand_in.weight is module.base.weight
    assert_same(stand_in, module)
    stand_in.hidden = 4
    assert module.hidden == stand_in.hidden == 4
    assert_same(stand_in, module)
    del stand_in.hidden
    assert not hasattr(module, "hidden")


def test_neither_keeps_what_it_need_not():
    module = nn.Linear(3, 2)
    stand_in = compile(module)
    stand_in(X)
    stand_in_alive, module_alive = weakref.ref(stand_in), weakref.ref(module)
    weight_alive = weakref.ref(module.weight)
    del stand_in
    gc.collect()
    assert stand_in_alive() is None
    del module
    gc.collect()
    assert module_alive() is None
    assert weight_alive() is None


def test_the_shared_attributes_outlive_the_name_of_the_module():
    stand_in = compile(Net())
    gc.collect()
    stand_in.label = "still here"
    assert_same(stand_in, stand_in._compilation.module)
