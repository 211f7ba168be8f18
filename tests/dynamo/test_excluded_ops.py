from __future__ import annotations

import operator

import pytest
import torch
import torch.nn.functional as F
from torch import fx
from torch.testing._internal.common_methods_invocations import op_db
from torch.utils.checkpoint import checkpoint

from thunder.dynamo.splitting.excluded_ops import (
    OperatorName,
    exclusion_predicate,
    node_operator,
    operator_name,
)
from thunder.errors import OptionError


@torch.library.custom_op("thunder_tests::double", mutates_args=())
def double(x: torch.Tensor) -> torch.Tensor:
    return x * 2


@double.register_fake
def _(x):
    return torch.empty_like(x)


def captured(function, *inputs) -> fx.Graph:
    graphs = []

    def backend(graph_module, example_inputs):
        graphs.append(graph_module.graph)
        return graph_module.forward

    torch.compile(function, backend=backend, fullgraph=True)(*inputs)
    (graph,) = graphs
    return graph


def excluded_nodes(function, exclude, *inputs) -> list[str]:
    is_excluded = exclusion_predicate(exclude)
    return [node.name for node in captured(function, *inputs).nodes if is_excluded(node)]


def all_spellings(x):
    a = torch.sinc(x)
    b = torch.special.sinc(x)
    c = x.sinc()
    d = x.clone().sinc_()
    e = torch.ops.aten.sinc(x)
    f = torch.ops.aten.sinc.default(x)
    return a, b, c, d, e, f, x.cos()


def named(operator):
    """A test's name for an operator: the same in every process, unlike its `repr`."""
    return operator if isinstance(operator, str) else getattr(operator, "__name__", None)


@pytest.mark.parametrize(
    "spelling",
    [
        torch.sinc,
        torch.special.sinc,
        torch.Tensor.sinc,
        torch.Tensor.sinc_,
        torch.ops.aten.sinc,
        torch.ops.aten.sinc.default,
        "sinc",
        "torch.sinc",
        "special.sinc",
        "torch.special.sinc",
        "Tensor.sinc",
        "torch.Tensor.sinc_",
        "aten.sinc",
        "aten::sinc",
        "torch.ops.aten.sinc.default",
    ],
    ids=named,
)
def test_every_spelling_means_every_spelling(spelling):
    assert len(excluded_nodes(all_spellings, [spelling], torch.ones(2))) == 6


@pytest.mark.parametrize("spelling", [torch.add, torch.Tensor.__radd__, operator.iadd, "add"])
def test_python_operators_on_tensors(spelling):
    def function(x):
        y = x + 1
        y += 2
        return torch.add(y, 1).add_(2), x - 1

    assert len(excluded_nodes(function, [spelling], torch.ones(3))) == 4


def test_python_operators_on_sizes_stay():
    def function(x):
        return x.new_zeros(x.shape[0] + 3)

    x = torch.ones(3)
    torch._dynamo.mark_dynamic(x, 0)
    assert excluded_nodes(function, [torch.add], x) == []


@pytest.mark.parametrize(
    ("spelling", "function"),
    [
        (torch.relu_, lambda x: F.relu(x)),
        (F.gelu, lambda x: F.gelu(x)),
        ("F.silu", lambda x: F.silu(x)),
        (torch.softmax, lambda x: F.softmax(x, 0)),
        (F.linear, lambda x: F.linear(x, x)),
        ("linalg.norm", lambda x: torch.linalg.norm(x)),
        ("fft.fft", lambda x: torch.fft.fft(x).real),
        (torch.einsum, lambda x: torch.einsum("ij,jk", x, x)),
        (torch.split, lambda x: x.split(1)[0]),
        (torch.clip, lambda x: x.clamp(0)),
        ("T", lambda x: x.T),
        ("Tensor.H", lambda x: x.H),
        (torch.Tensor.mT, lambda x: x.mT),
        (torch.cond, lambda x: torch.cond(x.sum() > 0, torch.sin, torch.cos, (x,))),
        ("cond", lambda x: torch.cond(x.sum() > 0, torch.sin, torch.cos, (x,))),
        (double, lambda x: double(x)),
        ("thunder_tests::double", lambda x: double(x)),
        ("thunder_tests.double", lambda x: double(x)),
        (torch.ops.thunder_tests.double, lambda x: double(x)),
    ],
    ids=named,
)
def test_functions_of_many_kinds(spelling, function):
    assert len(excluded_nodes(function, [spelling], torch.ones(2, 2))) == 1


def test_a_bare_name_means_torchs_operator_before_a_custom_one():
    assert excluded_nodes(lambda x: double(x), ["double"], torch.ones(2)) == []
    assert excluded_nodes(lambda x: x.double(), ["double"], torch.ones(2)) == ["double"]


def test_norm_is_not_linalg_norm():
    assert operator_name(torch.norm) != operator_name(torch.linalg.norm)


def test_checkpoint_means_its_higher_order_operator():
    def function(x):
        return checkpoint(torch.sin, x, use_reentrant=False)

    x = torch.ones(2, requires_grad=True)
    assert excluded_nodes(function, [checkpoint], x) == ["tag_activation_checkpoint"]


@torch.compiler.allow_in_graph
def opaque(x):
    return x.sin()


def test_a_function_allowed_in_the_graph_is_meant_by_identity():
    assert excluded_nodes(lambda x: opaque(x), [opaque], torch.ones(2)) == ["opaque"]


def plain(x):
    return x.sin()


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ("+=", "no operator"),
        ("sincc", r"no operator 'sincc'; did you mean 'sinc'\?"),
        ("torch.sincc", "did you mean 'sinc'"),
        ("aten::sincc", "did you mean 'sinc'"),
        ("nowhere::nothing_like_it", "no operator 'nowhere::nothing_like_it' Names look like"),
        (plain, "plain is no operator of torch.*allow_in_graph"),
        (torch.nn.GELU, "GELU is a class"),
        (3, "takes callables and names, not 3"),
    ],
    ids=named,
)
def test_what_cannot_be_meant_is_refused(wrong, message):
    with pytest.raises(OptionError, match=message):
        exclusion_predicate([wrong])


def test_aliases_are_those_of_torchs_operator_database():
    # What the database calls aliases of max and min are other operators.
    others = {"maximum", "minimum"}
    pairs = [
        (info.name, alias.name)
        for info in op_db
        for alias in info.aliases or ()
        if alias.name not in others
    ]
    different = [(a, b) for a, b in pairs if _name(a) != _name(b)]
    assert len(pairs) > 60
    # Deprecated functions in Python: Dynamo looks into them.
    assert different == [("tanh", "nn.functional.tanh"), ("sigmoid", "nn.functional.sigmoid")]


def _name(text: str) -> OperatorName | None:
    text = text.removeprefix("torch.")
    for root in (torch, torch.Tensor):
        try:
            return operator_name(operator.attrgetter(text)(root))
        except AttributeError:
            continue
    raise AssertionError(f"torch has no {text}")


def test_nodes_that_are_no_operators():
    graph = fx.Graph()
    x = graph.placeholder("x")
    graph.output(x)
    assert [node_operator(node) for node in graph.nodes] == [None, None]
