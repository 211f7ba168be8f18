"""Live modules written by their class and their state."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from transformers import LlamaConfig, LlamaForCausalLM

from thunder.repro import callable_source
from thunder.repro.linking import link, used_names

SCALE = 3.0
n = nn.Identity()  # a global with the name of a local variable


def scaled(x):
    return x * SCALE


class Settings:
    def __init__(self):
        self.shift = 2.0
        self.names = {"b", "a"}


class Inner(nn.Module):
    def __init__(self, n):
        super().__init__()
        self.n = n
        self.weight = nn.Parameter(torch.randn(n))
        self.register_buffer("count", torch.tensor(5), persistent=False)

    @property
    def twice(self):
        return 2 * self.n

    @staticmethod
    def double(x):
        return x + x

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return scaled(x) * self.weight + self.twice + self.double(self.count)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = Inner(4)
        self.layers = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Dropout(0.5))
        self.again = self.inner
        self.tied = self.layers[0].weight
        self.settings = Settings()
        self.frozen = nn.Parameter(torch.ones(1), requires_grad=False)
        self.nothing = None

    def forward(self, x):
        return self.layers(self.inner(x)) + self.again(x) + self.settings.shift


def remade(module):
    """Runs what was written, apart from everything here; draws are those of the recipes."""
    source = callable_source(module)
    assert not source.missing
    text = "\n\n".join([*source.definitions, f"made = {source.construction}"])
    support = link(used_names(text))
    namespace: dict[str, object] = {"__name__": "remade"}
    exec("\n".join([*source.imports, *support.imports, support.text, text]), namespace)
    return namespace["made"]


def test_a_module_is_written_with_all_of_its_state():
    module = Net().eval()
    made = remade(module)
    assert type(made) is not Net
    assert str(made) == str(module)
    assert not made.layers[2].training
    assert made.again is made.inner
    assert made.tied is made.layers[0].weight
    assert (made.settings.shift, made.settings.names) == (2.0, {"a", "b"})
    assert not made.frozen.requires_grad
    assert made.tied.requires_grad
    assert made.nothing is None
    shapes = {name: tensor.shape for name, tensor in module.state_dict().items()}
    assert {name: tensor.shape for name, tensor in made.state_dict().items()} == shapes
    made.load_state_dict(module.state_dict())
    x = torch.randn(2, 4)
    torch.testing.assert_close(made(x), module(x))


def test_a_bound_method_is_of_the_module_that_is_made():
    assert callable_source(Net().forward).construction == "make_Net()"
    assert callable_source(Net().inner.double).missing == ()


def test_a_transformers_model_is_written():
    config = LlamaConfig(
        vocab_size=32,
        hidden_size=16,
        intermediate_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        num_key_value_heads=1,
    )
    model = LlamaForCausalLM(config).eval()
    made = remade(model)
    assert isinstance(made, LlamaForCausalLM)
    made.load_state_dict(model.state_dict())
    ids = torch.arange(6)[None]
    torch.testing.assert_close(made(ids).logits, model(ids).logits)


def with_hook():
    module = Net()
    module.inner.register_forward_hook(lambda *args: None)
    return module


def of_a_closure():
    factor = 2

    class Local(nn.Module):
        def forward(self, x):
            return x * factor

    return Local()


def referring_to_itself():
    module = Net()
    module.settings.me = module.settings
    return module


@pytest.mark.parametrize("make", [with_hook, of_a_closure, referring_to_itself])
def test_what_cannot_be_written_is_a_place_to_fill_in(make):
    source = callable_source(make())
    assert source.construction.startswith("fill_in(")
    assert "import it, or write it here" in source.missing[0]
