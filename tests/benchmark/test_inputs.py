"""Copies of inputs: alike in everything but the memory."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from thunder.benchmark.inputs import Inputs, fingerprint, nudged, storage_key, widened
from thunder.benchmark.writes import WriteWatcher


def geometry(x):
    return x.dtype, x.device, tuple(x.shape), x.stride(), x.storage_offset()


def every_kind():
    base = torch.randn(24)
    leaf = torch.randn(3, 4, requires_grad=True)
    return {
        "contiguous": base,
        "view": base.view(4, 6)[1:, ::2],
        "transposed": torch.randn(3, 5).t(),
        "expanded": torch.randn(3, 1).expand(3, 7),
        "offset": torch.arange(10)[4:],
        "other dtype": base.view(torch.int32)[3:],
        "leaf": leaf,
        "non-leaf": leaf * 2,
        "parameter": nn.Parameter(torch.randn(2), requires_grad=False),
        "whole numbers": torch.tensor([1, 2]),
        "empty": torch.empty(0, 3),
        "scalar": torch.tensor(2.0),
        "half": torch.randn(3).bfloat16(),
        "channels last": torch.randn(1, 2, 3, 3).to(memory_format=torch.channels_last),
    }


def test_copies_are_alike():
    originals = every_kind()
    inputs = Inputs(args=(originals, 3, "x", None))
    copied = inputs.copy().args
    assert copied[1:] == (3, "x", None)
    for name, original in originals.items():
        copy = copied[0][name]
        assert geometry(copy) == geometry(original), name
        assert copy.requires_grad == original.requires_grad, name
        assert copy.is_leaf == original.is_leaf, name
        assert type(copy) is type(original), name
        torch.testing.assert_close(copy, original, rtol=0, atol=0)
        assert not copy.numel() or copy.data_ptr() != original.data_ptr(), name


def test_shared_memory_stays_shared():
    copied = Inputs(args=(every_kind(),)).copy().args[0]
    assert storage_key(copied["contiguous"]) == storage_key(copied["view"])
    copied["contiguous"].zero_()
    assert not copied["view"].any()
    assert not copied["other dtype"].any(), "views of another dtype share it, too"


def test_one_tensor_given_twice_stays_one():
    x = torch.ones(2)
    first, (second,) = Inputs(args=(x, [x])).copy().args
    assert first is second


def test_only_some_memory_is_copied():
    x, y = torch.ones(2, requires_grad=True), torch.ones(2)
    own_x, own_y = Inputs(args=(x, y)).copy(only={storage_key(y)}).args
    assert own_x is not x
    assert own_x.requires_grad
    assert storage_key(own_x) == storage_key(x)
    assert storage_key(own_y) != storage_key(y)


def test_non_leaves_can_be_written_to():
    leaf = torch.ones(3, requires_grad=True)
    (copied,) = Inputs(args=(leaf * 3,)).copy().args
    edge = torch.autograd.graph.get_gradient_edge(copied)
    copied.mul_(2)
    (grad,) = torch.autograd.grad(copied.sum(), [edge])
    assert grad.tolist() == [2.0] * 3
    assert copied.tolist() == [6.0] * 3


def test_tensors_that_are_more_than_memory():
    sparse = torch.eye(3).to_sparse()
    nested = torch.nested.nested_tensor([torch.ones(2), torch.ones(3)], layout=torch.jagged)
    conjugated = torch.randn(2, dtype=torch.complex64).conj()
    copied = Inputs(args=(sparse, nested, conjugated)).copy().args
    assert torch.equal(copied[0].to_dense(), sparse.to_dense())
    assert torch.equal(copied[1].values(), nested.values())
    assert copied[1].values().data_ptr() != nested.values().data_ptr()
    assert torch.equal(copied[2], conjugated)


def test_widened_and_nudged():
    x = torch.randn(100, dtype=torch.bfloat16, requires_grad=True)
    index = torch.arange(3)
    wide, same_index = Inputs(args=(x, index)).copy(convert=widened).args
    assert wide.dtype is torch.float64
    assert wide.requires_grad
    assert wide.is_leaf
    assert torch.equal(wide.detach(), x.detach().double())
    assert torch.equal(same_index, index)
    moved, same_index = Inputs(args=(x, index)).copy(convert=nudged).args
    step = (moved.detach() / wide.detach() - 1).abs()
    assert 0 < step.mean() <= step.max() <= torch.finfo(torch.bfloat16).eps
    assert torch.equal(same_index, index)


def test_state_of_modules():
    model = nn.BatchNorm1d(2)
    inputs = Inputs.of(model, [torch.randn(3, 2)])
    assert list(inputs.tensors()) == [
        "args[0]",
        "state.weight",
        "state.bias",
        "state.running_mean",
        "state.running_var",
        "state.num_batches_tracked",
    ]
    assert list(inputs.differentiable()) == ["state.weight", "state.bias"]
    assert isinstance(inputs.copy().state["weight"], nn.Parameter)


def test_fingerprints_notice_every_write():
    x = torch.zeros(1001, dtype=torch.bfloat16)
    for index in (0, 500, 1000):
        before = fingerprint([x])
        x[index] = 1
        assert fingerprint([x]) != before
    before = fingerprint([x])
    x[[0, 1]] = x[[1, 0]]
    assert fingerprint([x]) != before, "numbers changed places"
    assert fingerprint([x]) == fingerprint([x[3:]])


def writes_in_place(x, index):
    x[0] = 5
    index.add_(1)
    return x


def writes_through_a_view(x, index):
    x.t()[1:].mul_(2)
    return index


def writes_to_an_out_argument(x, index):
    return torch.add(x, 1, out=x), index


def writes_nothing(x, index):
    return x.clone().add_(1), index + 1


@pytest.mark.parametrize(
    "function, expected",
    [
        (writes_in_place, {"args[0]", "args[1]"}),
        (writes_through_a_view, {"args[0]"}),
        (writes_to_an_out_argument, {"args[0]"}),
        (writes_nothing, set()),
    ],
)
def test_writes_are_seen_and_undone(function, expected):
    inputs = Inputs(args=(torch.randn(3, 3), torch.arange(4)))
    before = [x.clone() for x in inputs.args]
    with WriteWatcher(inputs.tensors().values()) as watcher:
        function(*inputs.args)
    watcher.undo()
    assert inputs.names_in(watcher.written) == expected
    assert inputs.keys_of(expected) == watcher.written
    for x, original in zip(inputs.args, before, strict=True):
        assert torch.equal(x, original)


def test_batch_norm_writes_without_saying_so():
    model = nn.BatchNorm1d(2)
    inputs = Inputs.of(model, [torch.randn(3, 2)])
    with WriteWatcher(inputs.tensors().values()) as watcher:
        model(*inputs.args)
    watcher.undo()
    assert inputs.names_in(watcher.written) == {
        "state.running_mean",
        "state.running_var",
        "state.num_batches_tracked",
    }
    assert torch.equal(inputs.state["running_mean"], torch.zeros(2))
