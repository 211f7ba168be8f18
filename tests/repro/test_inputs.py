"""Inputs that scripts make are like those that were recorded, in every respect that matters."""

from __future__ import annotations

import gc
import math
import weakref

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.testing._internal.two_tensor import TwoTensor

from tests.repro.capture import Captured, recorded_by_name, support
from thunder.repro.input_source import input_source, stored_tensors
from thunder.repro.inputs import NumberRecord, TensorRecord, record_inputs, unique_names
from thunder.repro.sizes import SymbolicSize

SHARED = torch.arange(40.0)
BYTES = torch.arange(16, dtype=torch.int32)

TENSORS = {
    "contiguous": lambda: torch.randn(3, 4),
    "transposed": lambda: torch.randn(4, 3).t(),
    "expanded": lambda: torch.randn(3, 1).expand(3, 5),
    "expanded_over_rows": lambda: torch.randn(5).expand(3, 5),
    "offset": lambda: torch.randn(30)[8:20].view(3, 4),
    "gaps": lambda: torch.randn(20, 20)[:, ::2],
    "overlapping": lambda: torch.randn(16).as_strided((3, 3), (2, 1), 1),
    "channels_last": lambda: torch.randn(2, 3, 4, 5).to(memory_format=torch.channels_last),
    "larger_storage": lambda: torch.randn(100)[:10],
    "size_one_strides": lambda: torch.randn(1, 4).t().t()[:, :1],
    "scalar": lambda: torch.tensor(2.5),
    "empty": lambda: torch.zeros(0, 3),
    "parameter": lambda: torch.nn.Parameter(torch.randn(5)),
    "frozen_parameter": lambda: torch.nn.Parameter(torch.randn(2), requires_grad=False),
    "leaf": lambda: torch.randn(4, requires_grad=True),
    "result": lambda: torch.randn(4, requires_grad=True) * 2,
    "result_with_stride": lambda: (torch.randn(4, 3, requires_grad=True) * 2).t(),
    "expanded_result": lambda: (torch.randn(3, 1, requires_grad=True) * 2).expand(3, 4),
    "half": lambda: torch.randn(4, 4).half(),
    "bfloat16": lambda: torch.randn(400).bfloat16(),
    "double": lambda: torch.randn(300, dtype=torch.float64),
    "float8": lambda: torch.randn(4, 4).to(torch.float8_e4m3fn),
    "float8_e5m2": lambda: torch.randn(300).to(torch.float8_e5m2),
    "complex": lambda: torch.randn(20, dtype=torch.complex64),
    "complex128": lambda: torch.randn(200, dtype=torch.complex128),
    "int8": lambda: torch.randint(-100, 100, (200,), dtype=torch.int8),
    "uint16": lambda: torch.randint(0, 60000, (200,)).to(torch.uint16),
    "bool": lambda: torch.rand(300) > 0.8,
    "meta": lambda: torch.empty_strided((2, 3), (1, 2), device="meta"),
    "conjugated": lambda: torch.randn(20, dtype=torch.complex64).conj().resolve_conj(),
}


def remade(recorded, stored=()):
    """Executes the statements as a script would."""
    source = input_source(recorded, stored=stored)
    namespace = {**vars(support()), "stored": dict(stored), **recorded.symbols}
    for value in source.values:
        exec("\n".join((*value.imports, *value.definitions)), namespace)
    torch.manual_seed(0)
    exec("\n".join(source.statements), namespace)
    return {name: eval(made, namespace) for name, made in source.expressions}


def geometry(x):
    return {
        "type": type(x),
        "shape": x.shape,
        "stride": x.stride(),
        "offset": x.storage_offset(),
        "storage": x.untyped_storage().nbytes(),
        "dtype": x.dtype,
        "device": x.device,
        "layout": x.layout,
        "requires_grad": x.requires_grad,
        "is_leaf": x.is_leaf,
        "is_view": x._is_view(),
    }


@pytest.mark.parametrize("name", TENSORS)
def test_tensor_is_made_as_it_was(name):
    original = TENSORS[name]()
    made = remade(recorded_by_name(x=original))["x"]
    expected = geometry(original)
    expected["is_view"] = False  # of nothing that the script's autograd would know
    assert geometry(made) == expected


@pytest.mark.parametrize("name", TENSORS)
def test_real_values_come_back(name):
    original = TENSORS[name]()
    if original.is_meta:
        return
    recorded = recorded_by_name(x=original)
    made = remade(recorded, stored_tensors(recorded).tensors)["x"]
    assert (made.shape, made.stride(), made.dtype) == (
        original.shape,
        original.stride(),
        original.dtype,
    )
    torch.testing.assert_close(made.detach(), original.detach(), rtol=0, atol=0)
    assert (made.requires_grad, made.is_leaf) == (original.requires_grad, original.is_leaf)


@pytest.mark.parametrize("with_values", [False, True])
def test_inputs_that_share_memory_share_it_again(with_values):
    values = {
        "matrix": SHARED[8:20].view(3, 4),
        "tail": SHARED[10:],
        "alone": torch.ones(3),
        "row": SHARED[8:12].detach().requires_grad_(),
        "whole": BYTES,
        "as_floats": BYTES.view(torch.float32),
    }
    recorded = recorded_by_name(**values)
    made = remade(recorded, stored_tensors(recorded).tensors if with_values else ())
    made["matrix"][0, 2] = 77
    assert made["tail"][0] == 77
    assert made["row"][2] == 77
    assert made["row"].requires_grad and made["row"].is_leaf
    made["whole"].fill_(0)
    assert made["as_floats"].eq(0).all()
    storages = [x.untyped_storage().data_ptr() for x in made.values()]
    assert len(set(storages)) == 3


def test_dynamic_sizes_stay_symbolic():
    def program(x, y, n):
        return x @ y.t() + x.shape[0] + n

    captured = Captured(program, torch.randn(6, 3), torch.randn(3, 5).t(), 7, dynamic=True)
    by_name = {record.name: record for record in captured.inputs.inputs}
    x = by_name["l_x_"]
    assert isinstance(x, TensorRecord)
    assert all(isinstance(size, SymbolicSize) for size in x.shape)
    source = input_source(captured.inputs)
    statement = next(s for s in source.statements if s.startswith("l_x_"))
    assert str(x.shape[0].text) in statement
    made = remade(captured.inputs)
    for value, original in zip(made.values(), captured.example_inputs, strict=True):
        if isinstance(original, torch.Tensor):
            assert (value.shape, value.stride()) == (original.shape, original.stride())
    smaller = {name: max(value - 1, 2) for name, value in captured.inputs.symbols.items()}
    namespace = {**vars(support()), **smaller}
    exec("\n".join(source.statements), namespace)
    assert namespace["l_x_"].shape == tuple(smaller[size.text] for size in x.shape)


def test_number_with_an_expression_keeps_it():
    captured = Captured(lambda x: x.view(-1).sin(), torch.randn(6, 3), dynamic=True)
    numbers = [r for r in captured.inputs.inputs if isinstance(r, NumberRecord)]
    assert {n.number.text for n in numbers} == captured.inputs.symbols.keys()


def test_fake_inputs_are_recorded_without_values():
    with FakeTensorMode():
        fake = torch.empty_strided((4, 3), (1, 4), dtype=torch.float16, device="cuda:0")
    record = record_inputs([fake, 3, None]).inputs[0]
    assert (record.device, record.stride, record.dtype) == ("cuda:0", (1, 4), torch.float16)
    source = input_source(record_inputs([fake]))
    assert 'torch.randn((12,), dtype=torch.float16, device="cuda:0")' in source.statements[0]


def test_containers_and_plain_values():
    values = [
        [torch.ones(2), {"a": torch.zeros(3), "n": 4}],
        None,
        True,
        2.5,
        torch.float16,
        "'x'\n",
    ]
    made = list(remade(record_inputs(values)).values())
    assert made[0][0].tolist() == [1, 1]
    assert made[0][1]["a"].shape == (3,)
    assert made[0][1]["n"] == 4
    assert made[1:] == values[1:]


def test_wrapper_subclass_is_put_together_again():
    original = TwoTensor(torch.randn(2, 3), torch.randn(2, 3))
    recorded = recorded_by_name(x=original)
    made = remade(recorded)["x"]
    assert type(made) is TwoTensor
    assert made.shape == original.shape
    again = remade(recorded, stored_tensors(recorded).tensors)["x"]
    torch.testing.assert_close(again.b, original.b)


def test_what_cannot_be_made_says_so_when_the_script_runs():
    source = input_source(recorded_by_name(x=torch.eye(2).to_sparse(), y=object()))
    with pytest.raises(NotImplementedError, match="layout torch"):
        eval(source.expressions[0][1], vars(support()))
    assert any("FILL IN" in note for note in source.notes)


class Broken:
    """Fails at whatever is asked of it."""

    def constructor_arguments(self):
        raise RuntimeError("no arguments today")


def test_what_cannot_be_recorded_does_not_stop_the_recording():
    recorded = recorded_by_name(x=Broken(), y=torch.ones(2))
    (note,) = recorded.notes
    assert note == (f"x is a {__name__}.Broken, which raises RuntimeError when looked at: FILL IN")
    assert remade(record_inputs([torch.ones(2)]))["input_0"].tolist() == [1, 1]


def test_nested_tensors_are_gaps():
    values = [torch.randn(2, 3), torch.randn(4, 3)]
    nested = torch.nested.nested_tensor(values, layout=torch.jagged)
    captured = Captured(lambda x: x * 2, nested)
    assert any("layout torch.jagged" in note for note in captured.inputs.notes)


def test_recording_keeps_nothing_large_alive():
    big, parameter = torch.randn(1 << 16), torch.nn.Parameter(torch.randn(8))
    small = torch.arange(5)
    references = [weakref.ref(x) for x in (big, parameter, small)]
    recorded = record_inputs([big, parameter, small], keep_bytes=1 << 10)
    del big, parameter, small
    gc.collect()
    assert [reference() for reference in references] == [None, None, None]
    stored = stored_tensors(recorded)
    assert stored.tensors["memory_2"].tolist() == [0, 1, 2, 3, 4]
    assert "memory_0" not in stored.tensors
    assert any("input_0 are gone" in note for note in stored.notes)
    assert any("input_1 are gone" in note for note in stored.notes)


def test_budget_is_kept_in_order():
    values = [torch.zeros(200), torch.zeros(300), torch.zeros(50)]
    recorded = record_inputs(values, keep_bytes=1000)
    assert [memory.copy is not None for memory in recorded.memories] == [True, False, True]


def test_living_values_are_those_of_now_and_the_script_says_so():
    parameter = torch.nn.Parameter(torch.zeros(3))
    recorded = recorded_by_name(weight=parameter)
    with torch.no_grad():
        parameter.add_(1)
    stored = stored_tensors(recorded)
    assert stored.tensors["memory_0"].tolist() == [1, 1, 1]
    assert stored.notes == ("weight: values as of when they were saved; they had been changed",)


def test_copies_are_of_the_recorded_moment():
    x = torch.zeros(3)
    recorded = recorded_by_name(x=x)
    x.add_(1)
    assert stored_tensors(recorded).tensors["memory_0"].tolist() == [0, 0, 0]


def test_recording_draws_nothing_and_changes_nothing():
    x = torch.randn(5000, requires_grad=True)
    state, version = torch.get_rng_state(), x._version
    with torch.device("meta"), torch.autocast("cpu", dtype=torch.bfloat16):
        recorded = recorded_by_name(x=x, y=torch.rand(3, device="cpu") * 0)
    assert recorded.inputs[0].device == "cpu"
    assert x._version == version
    torch.rand(3, out=torch.empty(3))
    fresh = torch.get_rng_state()
    torch.set_rng_state(state)
    torch.rand(3)
    torch.rand(3)
    assert torch.equal(torch.get_rng_state(), fresh)


def test_names_are_identifiers_and_differ():
    names = unique_names(["x", "x", "class", "1a", "a b", "ü"], 8, taken=["x"])
    assert names == ["x_1", "x_2", "_class", "_1a", "a_b", "_", "input_6", "input_7"]


def test_requires_grad_asks_inputs_and_grad_mode():
    x = torch.ones(2, requires_grad=True)
    assert recorded_by_name(x=[{"a": x}]).requires_grad
    assert not recorded_by_name(x=x.detach()).requires_grad
    with torch.no_grad():
        assert not recorded_by_name(x=x).requires_grad


def test_special_floats_are_drawn_again():
    x = torch.randn(2000)
    x[::10], x[1::20], x[2::40] = math.nan, math.inf, -math.inf
    made = remade(recorded_by_name(x=x))["x"]
    for test in (torch.isnan, torch.isposinf, torch.isneginf):
        assert abs(test(made).double().mean() - test(x).double().mean()) < 0.03
    assert made[made.isfinite()].min() >= -5
