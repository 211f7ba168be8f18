"""Printed modules compute what their graphs compute, run by themselves and compile again."""

from __future__ import annotations

import textwrap

import numpy as np
import pytest
import torch
from torch import fx

from tests.repro.capture import Captured, load, support
from tests.repro.programs import TWO_MATRICES, Block, Counting
from thunder.repro import module_source
from thunder.trace.copying import make_graph_module


def make(source, folder):
    """Executes a module's source as a script would, and makes the module."""
    path = folder / "printed.py"
    helpers = ["floats", "integers", "booleans", "choices", "steps", "non_leaf", "fill_in"]
    text = "\n".join([*source.imports, *source.definitions])
    path.write_text(f"from support_code import {', '.join(helpers)}\n{text}\n\n{source.text}\n")
    return load(path)


@pytest.fixture(autouse=True)
def _support_code(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "support_code", support())


def tensors(outputs):
    leaves = torch.utils._pytree.tree_leaves(outputs)
    return [leaf for leaf in leaves if isinstance(leaf, torch.Tensor)]


def results(function, inputs):
    """Returns outputs, gradients and inputs after a call on copies of the inputs."""
    torch.manual_seed(0)
    copies = [
        x.detach().clone().requires_grad_(x.requires_grad) if isinstance(x, torch.Tensor) else x
        for x in inputs
    ]
    outputs = function(*copies)
    roots = [x for x in tensors(outputs) if x.requires_grad]
    if roots:
        torch.autograd.backward(roots, [torch.ones_like(root) for root in roots])
    gradients = [x.grad for x in copies if isinstance(x, torch.Tensor)]
    return outputs, gradients, copies


@pytest.mark.parametrize("name", TWO_MATRICES)
def test_printed_module_does_what_the_graph_does(name, tmp_path):
    captured = Captured(
        TWO_MATRICES[name],
        torch.randn(4, 4, requires_grad=True),
        torch.randn(4, 4, requires_grad=True),
    )
    source = module_source(captured.graph_module)
    assert source.faithful
    module = make(source, tmp_path).Module()
    # Outside of a compile torch cannot run two of the graphs: of a nested region, and with a
    # constant whose imaginary part is infinite.
    runs_alone = name not in ("nested_region", "odd_arguments")
    original = captured.graph_module if runs_alone else TWO_MATRICES[name]
    expected = results(original, captured.example_inputs)
    found = results(module, captured.example_inputs)
    torch.testing.assert_close(found[1:], expected[1:], equal_nan=True)
    torch.testing.assert_close(tensors(found[0]), tensors(expected[0]), equal_nan=True)
    if name in ("modes", "odd_arguments"):
        return  # bf16 differs by roundings; torch itself cannot print an infinite complex number
    if name == "per_sample_gradients" and torch.__version__ < "2.12":
        return  # older Dynamos do not take functorch's markers a second time
    torch._dynamo.reset()
    compiled = torch.compile(module, backend="aot_eager", fullgraph=True)
    again = results(compiled, captured.example_inputs)
    torch.testing.assert_close(again, found, equal_nan=True)


def test_comments_cite_the_users_lines(tmp_path):
    source = module_source(Captured(lambda x: x.sin() + 1, torch.ones(2)).graph_module)
    assert "# File: tests/repro/test_module_source.py:" in source.text
    assert "code: source = module_source(Captured(lambda x: x.sin() + 1" in source.text
    assert str(tmp_path.root) + "work" not in source.text
    assert "# cpu f32[2]" in source.text


def test_values_are_freed_after_their_last_use():
    source = module_source(Captured(lambda x: (x.sin() * 2).cos(), torch.ones(2)).graph_module)
    lines = [line.strip() for line in source.text.splitlines() if line.strip()[:1] != "#"]
    assert "del sin" in lines
    assert lines.index("del sin") == lines.index("mul = sin * 2  # cpu f32[2]") + 1


def test_module_of_dynamo_holds_no_state():
    source = module_source(Captured(Block(), torch.randn(3, 4)).graph_module)
    assert "__init__" not in source.text


@pytest.mark.parametrize("store", [False, True])
def test_traced_module_with_submodules(store, tmp_path):
    module = Counting()
    source = module_source(fx.symbolic_trace(module), store_values=store)
    assert source.faithful
    printed = make(source, tmp_path)
    if store:
        printed.STORED, printed.load = "", lambda _: dict(source.stored)
    made = printed.Module()
    assert made.table.tolist() == module.table.tolist()  # constants are exact in any case
    assert made(torch.randn(2, 4)).shape == (2, 3)
    assert {k: v.shape for k, v in made.state_dict().items()} == {
        k: v.shape for k, v in module.state_dict().items()
    }
    if store:
        x = torch.randn(2, 4)
        torch.testing.assert_close(made(x), module(x))


def test_tied_tensors_stay_tied(tmp_path):
    source = module_source(fx.symbolic_trace(Block()))
    made = make(source, tmp_path).Module()
    assert made.second.weight is made.first.weight
    assert len(list(made.parameters())) == len(list(Block().parameters()))


HOSTILE = """a'''b\"\"\"c\n{d}\\ $e ${f} % </script>"""


def hostile_graph():
    """A graph with names, strings, attributes and stack traces that try to become code."""
    graph = fx.Graph()
    x = graph.placeholder("x")
    sin = graph.call_function(torch.sin, (x,))
    sin.name = "import os; os._exit(3) #"
    sin.meta["stack_trace"] = textwrap.dedent(
        """\
          File "/somewhere/evil\n.py", line 1, in f\n    raise SystemExit('''\n\"\"\"
        """
    )
    named = graph.call_function(dict, kwargs={"text": HOSTILE})
    named.name = "class"
    table = graph.get_attr("weird 'name'")
    torch_node = graph.call_function(torch.add, (sin, table))
    torch_node.name = "torch"
    cos = graph.call_function(torch.cos, (torch_node,))
    cos.name = "print"
    graph.output((cos, named))
    root = torch.nn.Module()
    setattr(root, "weird 'name'", torch.nn.Parameter(torch.ones(2)))
    return fx.GraphModule(root, graph)


@pytest.mark.filterwarnings("ignore:Attempted to insert a get_attr Node")
def test_text_of_graphs_is_inert(tmp_path):
    source = module_source(hostile_graph())
    made = make(source, tmp_path).Module()
    value, named = made(torch.zeros(2))
    torch.testing.assert_close(value, torch.ones(2).cos())
    assert named == {"text": HOSTILE}


def test_what_has_no_source_is_named(tmp_path):
    graph = fx.Graph()
    x = graph.placeholder("x")
    graph.output(graph.call_function(pick, (x, object())))
    source = module_source(make_graph_module(torch.nn.Module(), graph))
    assert not source.faithful
    assert source.missing == ("a builtins.object",)
    assert "FILL IN: a builtins.object" in "\n".join(source.definitions)
    torch.testing.assert_close(make(source, tmp_path).Module()(torch.ones(2)), torch.ones(2))


def pick(x, _):
    return x


def test_numpy_functions(tmp_path):
    captured = Captured(lambda x: np.sin(x) + x.sum(), np.ones(3))
    source = module_source(captured.graph_module)
    assert source.faithful
    (found,) = make(source, tmp_path).Module()(torch.ones(3, dtype=torch.float64))
    np.testing.assert_allclose(found, np.sin(1) + 3)


def test_randomness_and_precision_are_noticed():
    with_dropout = Captured(lambda x: torch.nn.functional.dropout(x).half(), torch.ones(2))
    source = module_source(with_dropout.graph_module)
    assert source.is_random
    assert source.precision is torch.float16
    plain = module_source(Captured(lambda x: x + 1, torch.ones(2)).graph_module)
    assert not plain.is_random
    assert plain.precision is torch.float32
