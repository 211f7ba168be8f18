"""Specifications compile, and print themselves as source that does the same."""

from __future__ import annotations

import sys

import pytest
import torch
from torch import fx, nn

from tests.benchmark.programs import Scripted, small
from thunder.benchmark import (
    AbstractCompileSpecification,
    ThunderCompileSpecification,
    TorchCompileSpecification,
    TorchEagerSpecification,
    TorchInductorSpecification,
)
from thunder.benchmark.specifications import unique_contestants
from thunder.errors import BenchmarkError, OptionError
from thunder.executors import OperatorExecutor
from thunder.repro import ReproScript, module_source, record_inputs

INPUTS = (torch.randn(4, 8), torch.randn(8, 3))


def tidy(graph_module):
    """A transform that can be imported."""
    graph_module.graph.lint()


def halve(x):
    return x / 2


EVERY = [
    ThunderCompileSpecification(executors=["aten"]),
    TorchCompileSpecification(backend="eager"),
    TorchInductorSpecification(),
    TorchEagerSpecification(),
    Scripted(),
]


@pytest.mark.parametrize("specification", EVERY, ids=lambda one: one.name)
@pytest.mark.parametrize("graph", [False, True])
def test_compile_gives_the_same(specification, graph):
    function = fx.symbolic_trace(small) if graph else small
    compiled = specification.compile(function, inputs=INPUTS)
    torch.testing.assert_close(compiled(*INPUTS), small(*INPUTS))


@pytest.mark.parametrize("specification", EVERY, ids=lambda one: one.name)
def test_source_gives_an_equal_specification(specification):
    source = specification.source()
    assert source.faithful
    names = {}
    for statement in source.imports:
        exec(statement, names)
    again = eval(source.expression, names)
    assert type(again) is type(specification)
    assert again.name == specification.name
    assert again.source() == source


@pytest.mark.parametrize("specification", EVERY, ids=lambda one: one.name)
def test_compile_source_compiles(specification):
    source = specification.compile_source()
    names = {"module": fx.symbolic_trace(small)}
    for statement in (*source.imports, *source.definitions):
        exec(statement, names)
    compiled = eval(source.expression, names)
    torch.testing.assert_close(compiled(*INPUTS), small(*INPUTS))


def test_strings_keep_their_quotes_and_transforms_are_imported():
    specification = ThunderCompileSpecification(
        transforms=[tidy], executors=["aten"], options={"cpp.cxx": ["it's"]}
    )
    source = specification.compile_source()
    assert "executors=['aten']" in source.expression
    assert """options={'cpp.cxx': ["it's"]}""" in source.expression
    assert "tidy" in source.expression
    assert not source.missing


def test_what_has_no_source_is_named():
    class Local:
        def __call__(self, x):
            return x

    executor = OperatorExecutor("mine", {torch.ops.aten.relu: Local()})
    source = ThunderCompileSpecification(executors=[executor, "aten"]).compile_source()
    assert len(source.missing) == 1
    assert "Local" in source.missing[0]


def test_scripts_for_torch_do_not_import_thunder():
    graph_module = fx.symbolic_trace(small)
    for specification in (
        TorchCompileSpecification(mode="max-autotune"),
        TorchInductorSpecification(mode="max-autotune"),
        TorchEagerSpecification(),
    ):
        script = ReproScript(
            title="a script",
            module=module_source(graph_module),
            inputs=record_inputs(INPUTS, graph=graph_module.graph),
            compilers=(specification.compile_source(),),
        )
        imports = [line for line in script.text().splitlines() if "import" in line.split()[:1]]
        assert imports
        assert not [line for line in imports if "thunder" in line]


def test_inductor_gives_gradients_without_dynamo(monkeypatch):
    compiled = TorchInductorSpecification().compile(fx.symbolic_trace(small), inputs=INPUTS)
    x, w = (one.clone().requires_grad_() for one in INPUTS)
    monkeypatch.setattr(torch, "compile", None)
    grads = torch.autograd.grad(compiled(x, w).square().sum(), (x, w))
    expected = torch.autograd.grad(small(x, w).square().sum(), (x, w))
    torch.testing.assert_close(grads, expected)


def test_inductor_captures_modules_with_containers():
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.linear = nn.Linear(3, 2)

        def forward(self, x):
            return {"y": self.linear(x), "z": [x.sum()]}

    model, x = Model(), torch.randn(4, 3)
    compiled = TorchInductorSpecification().compile(model, inputs=[x])(x)
    torch.testing.assert_close(compiled, model(x))
    assert compiled["y"].requires_grad


def test_skipping_dynamo_takes_graphs():
    specification = ThunderCompileSpecification(skip_dynamo=True, executors=["aten"])
    graph_module = fx.symbolic_trace(small)
    torch.testing.assert_close(
        specification.compile(graph_module, inputs=INPUTS)(*INPUTS), small(*INPUTS)
    )
    assert specification.name == "thunder.jit"
    assert specification.compile_source().expression.startswith("thunder.jit(module")
    with pytest.raises(BenchmarkError, match="function must be captured by Dynamo"):
        specification.compile(small, inputs=INPUTS)


def test_one_function_can_be_compiled_more_often_than_dynamo_likes():
    """Each contestant has entries of its own; the ninth would run eagerly otherwise."""
    compiles = []

    def backend(graph_module, example_inputs):
        compiles.append(graph_module)
        return graph_module.forward

    for _ in range(12):
        compiled = TorchCompileSpecification(backend=backend).compile(small, inputs=INPUTS)
        compiled(*INPUTS)
    assert len(compiles) == 12


def test_wrong_options_are_refused_at_once():
    with pytest.raises(OptionError, match="fullgraph"):
        TorchCompileSpecification(full_graph=True)
    with pytest.raises(OptionError, match="transforms"):
        ThunderCompileSpecification(transform=[])
    with pytest.raises(OptionError, match="max_autotune"):
        TorchInductorSpecification(options={"max_autotun": True})
    with pytest.raises(OptionError, match="unknown"):
        TorchInductorSpecification(mode="fastest")


def test_names():
    assert (
        TorchCompileSpecification(mode="max-autotune").name == "torch.compile (mode=max-autotune)"
    )
    assert ThunderCompileSpecification(transforms=[tidy]).name == "thunder"
    eager = TorchEagerSpecification()
    assert list(unique_contestants([eager, eager, eager])) == ["eager", "eager (2)", "eager (3)"]


def test_user_defined_specification_in_a_script():
    source = Scripted(level="with \"both\" 'quotes'\n").compile_source()
    assert source.imports == ("import tests.benchmark.programs", "import torch")
    assert source.expression.endswith(".when_called(module)")
    assert not source.missing


def test_user_defined_specification_of_the_main_module(monkeypatch):
    monkeypatch.setattr(Scripted, "__module__", "__main__")
    source = Scripted().compile_source()
    assert source.expression == "module"
    assert source.missing


def test_when_called_compiles_once():
    class Counts(AbstractCompileSpecification):
        name = "counts"
        compiled = 0

        def compile(self, fn, *, inputs):
            Counts.compiled += 1
            assert len(inputs) == 2
            return fn

    call = Counts().when_called(small)
    assert Counts.compiled == 0
    for _ in range(3):
        torch.testing.assert_close(call(*INPUTS), small(*INPUTS))
    assert Counts.compiled == 1


def test_definitions_lean_on_torch_alone():
    source = TorchInductorSpecification().compile_source()
    assert "thunder" not in "".join((*source.imports, *source.definitions))
    assert sys.modules["thunder.benchmark.inductor"].__doc__
