"""Every refusal is a sentence that says what about the node nvFuser cannot take."""

from __future__ import annotations

import operator

import pytest
import torch

from tests.executors.nvfuser.edges import normal
from tests.executors.nvfuser.harness import executor_for, refusals, trace
from thunder.executors.nvfuser import NvFuserExecutor, available, supported_operators
from thunder.executors.nvfuser.operators import DECLINED, LOWERINGS

aten = torch.ops.aten
X = normal(4, 6, device="cpu")
I = torch.arange(24).view(4, 6)  # noqa: E741 - the integer beside X
INDEX = torch.tensor([0, 1])

REFUSED = {
    "no lowering": (lambda x: aten.sinc(x), [X], "aten.sinc.default has no translation to nvFuser"),
    "declined": (lambda x: aten.sort(x)[0], [X], "finds the largest values but not where they are"),
    "random": (aten.rand_like, [X], "nvFuser cannot read a seed from memory"),
    "adding": (
        lambda x, i: aten.index_put(x, [i], x[:2], True),
        [X, INDEX],
        "nvFuser cannot add to places that may coincide",
    ),
    "matmul": (aten.mm, [X, X.t().contiguous()], "left to the vendor's libraries"),
    "dtype": (lambda x: x + 1, [I.to(torch.int8)], "torch.int8 is not supported"),
    "complex": (lambda x: x * 2, [X.to(torch.complex64)], "torch.complex64 is not supported"),
    "rank": (lambda x: x * 2, [normal(*[2] * 9, device="cpu")], "9 dimensions, more than 8"),
    "empty": (lambda x: x * 2, [X[:0]], "an empty tensor"),
    "sparse": (lambda x: x * 2, [X.to_sparse()], "a torch.sparse_coo tensor"),
    "bool": (lambda x: aten.add(x, x), [X > 0], "arithmetic on bool tensors is left to ATen"),
    "floor of int": (aten.floor, [I], "translated for floats, not torch.int64"),
    "integer division": (lambda x: aten.div(x, x, rounding_mode="floor"), [I], "divide by zero"),
    "integer power": (lambda x: aten.pow(x, 7), [I], "constant exponents 1 to 4"),
    "nan of int": (aten.isnan, [I], "integers are never NaN"),
    "slice step": (lambda x: aten.slice(x, 1, 0, 6, 2), [X], "a slice with a step"),
    "slice of one": (lambda x: aten.slice(x, 1, 3, 4), [X], "down to one element"),
    "pieces of one": (lambda x: aten.split(x, 3)[1] * 2, [X], "down to one element"),
    "half of one": (lambda x: aten.glu(x[:2], 0), [X], "down to one element"),
    "pad that leaves one": (
        lambda x: aten.constant_pad_nd(x, [-5, 2]),
        [X],
        "down to one element",
    ),
    "as_strided": (
        lambda x: aten.as_strided(x, [2, 2], [1, 1]),
        [X],
        "only changes the shape of a dense tensor",
    ),
    "layout": (
        lambda x: aten.new_empty_strided(x, [4, 6], [12, 1]) * 0,
        [X],
        "has no translation",
    ),
    "look-up": (lambda x, i: aten.index_select(x, 0, i), [X, INDEX], "nvFuser checks no index"),
    "int table": (lambda x: aten.gather(x, 1, x[:, :1] % 6), [I], "table of integers"),
    "partial gather": (lambda x, i: aten.gather(x, 1, i), [X, I[:2] % 6], "several elements"),
    "scatter": (
        lambda x, i: aten.scatter(x, 1, i, 1.0),
        [X, I[:, :1] % 6],
        "a tensor that is not made of one number",
    ),
    "variance": (
        lambda x: aten.var.correction(x, [1], correction=0.5),
        [X],
        "correction is not an integer",
    ),
    "variance of one": (
        lambda x: aten.var.correction(x, [1], correction=1),
        [X[:, :1].contiguous()],
        "fewer elements than its correction needs",
    ),
    "norm order": (lambda x: aten.linalg_vector_norm(x, 3), [X], "orders 1, 2 and infinity"),
    "class weights": (
        lambda x, t, w: aten.nll_loss_forward(x, t, w, 1, -100),
        [X, I[:, 0] % 6, X[0]],
        "it weighs the classes",
    ),
    "element": (
        lambda x: aten.sort(x)[1],
        [X],
        "it takes an element of a result that nvFuser does not compute",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refusals(name):
    function, inputs, reason = REFUSED[name]
    found = refusals(trace(function, inputs), executor_for("cpu"))
    assert any(reason in text for text in found.values()), found


def test_result_with_gaps_is_refused():
    graph_module = trace(lambda x: x * 2, [X])
    (node,) = [node for node in graph_module.graph.nodes if node.op == "call_function"]
    node.meta["val"] = node.meta["val"].new_empty_strided((4, 6), (12, 1))
    refusal = executor_for("cpu").check(node)
    assert refusal is not None and refusal.reason == "its result has gaps or overlaps in memory"


def test_tensors_elsewhere_are_refused():
    graph_module = trace(lambda x: x * 2, [X])
    (node,) = [node for node in graph_module.graph.nodes if node.op == "call_function"]
    refusal = NvFuserExecutor(library_module=executor_for("cpu")._library).check(node)
    assert refusal is not None and refusal.reason == "it handles a tensor on cpu"


@pytest.mark.skipif(torch.cuda.is_available(), reason="says what is missing without CUDA")
def test_every_node_is_refused_where_nvfuser_is_missing():
    missing = available()
    assert missing is not None and missing.reason.startswith("nvFuser")
    graph_module = trace(lambda x: x * 2, [X])
    assert refusals(graph_module, NvFuserExecutor()) == {"aten.mul.Tensor": missing.reason}


def test_matmul_on_request():
    graph_module = trace(aten.mm, [X, X.t().contiguous()])
    assert not refusals(graph_module, executor_for("cpu", matmul=True))


def test_tables_do_not_contradict_each_other():
    names = {name.rpartition(".")[0] for name in LOWERINGS}
    # Of these the overloads without places are translated.
    assert names & set(DECLINED) == {"aten.max", "aten.min"}
    rows = supported_operators()
    assert [row.name for row in rows if not row.by_default] == [
        "aten.addmm.default",
        "aten.bmm.default",
        "aten.mm.default",
    ]
    assert len(rows) == len(LOWERINGS)


def test_operators_exist_in_torch():
    """A misspelt name in a table would never be found."""
    for name in LOWERINGS:
        namespace, called, overload = [*name.split("."), "default"][:3]
        if namespace == "operator":
            assert callable(getattr(operator, called))
        else:
            assert hasattr(getattr(getattr(torch.ops, namespace), called), overload), name
