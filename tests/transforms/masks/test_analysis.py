"""What the analysis says that a tensor holds, compared with what eager puts into it."""

from __future__ import annotations

import itertools
import operator
from typing import Any

import pytest
import torch
from torch.utils.checkpoint import checkpoint

from tests.transforms.masks.captured import MARK, capture, dense, marked
from thunder.transforms.masks.affine import Size

ROWS, COLUMNS = 5, 7
inf = float("inf")


def rows(n=ROWS):
    return torch.arange(n)[:, None]


def columns(n=COLUMNS):
    return torch.arange(n)[None, :]


def causal(dtype=torch.bool):
    return torch.ones(ROWS, COLUMNS, dtype=dtype).tril()


def cube():
    return rows()[:, :, None] * 100 + columns()[:, :, None] * 10 + torch.arange(4)


def per_row(function):
    return torch.vmap(function)(torch.arange(ROWS))


def per_column(function):
    return torch.vmap(function)(torch.arange(COLUMNS))


UNDERSTOOD = {
    # making tensors
    "arange": lambda: torch.arange(3, 11),
    "arange with a step": lambda: torch.arange(10, 0, -3),
    "arange of 32 bits": lambda: torch.arange(4, dtype=torch.int32),
    "ones": lambda: torch.ones(2, 3),
    "ones of bools": lambda: torch.ones((2, 3), dtype=torch.bool),
    "zeros": lambda: torch.zeros(2, 3, dtype=torch.int64),
    "full of -inf": lambda: torch.full((2, 3), -inf),
    "full_like": lambda: torch.full_like(rows(), 5),
    "full of a tensor": lambda: torch.full((2, 3), torch.finfo(torch.bfloat16).min),
    "new_ones": lambda: rows().new_ones((), dtype=torch.bool),
    "new_full": lambda: rows().new_full((2, 2), 3),
    "zeros_like": lambda: torch.zeros_like(causal(), dtype=torch.float32),
    "tensor": lambda: torch.tensor(4.5),
    "half": lambda: torch.full((2,), torch.finfo(torch.float32).min).half(),
    # comparing
    "le": lambda: columns() <= rows(),
    "lt": lambda: torch.lt(columns(), rows()),
    "ge": lambda: rows().ge(columns()),
    "gt": lambda: rows() > columns() + 1,
    "eq": lambda: rows() == columns(),
    "ne": lambda: rows().ne(columns() - 2),
    "bools compared": lambda: (rows() > 2) == (columns() > 3),
    "compared with a number": lambda: columns() < 3,
    # integers
    "sums": lambda: rows() + columns() - 3,
    "differences": lambda: 4 - rows(),
    "rsub": lambda: torch.rsub(rows(), columns()),
    "products": lambda: rows() * 2 + -columns() * 3,
    "product of a bool": lambda: (rows() > 1) * 3,
    "abs": lambda: (rows() - columns()).abs(),
    "abs in a window": lambda: torch.abs(rows() - columns()) <= 2,
    "maximum": lambda: torch.maximum(rows(), columns()),
    "minimum": lambda: torch.minimum(rows() + 1, columns() * 2),
    "neg": lambda: -rows(),
    "special methods": lambda: rows().__mul__(2).__add__(columns()).__sub__(1).__neg__().__abs__(),
    "reflected special methods": lambda: columns().__rsub__(rows()).__radd__(1).__rmul__(2),
    "compared by special methods": lambda: (
        rows().__eq__(columns()).__or__(rows().__lt__(columns()))
    ),
    # logic
    "and": lambda: (columns() <= rows()) & (columns() > rows() - 3),
    "or": lambda: (columns() <= rows()) | (columns() < 2),
    "xor": lambda: (columns() <= rows()) ^ (columns() < 2),
    "not": lambda: ~(columns() <= rows()),
    "logical_and": lambda: torch.logical_and(columns() <= rows(), rows() > 1),
    "logical_not": lambda: (columns() <= rows()).logical_not(),
    "logical_or of integers": lambda: torch.logical_or(torch.zeros(2, 2), torch.ones(2, 2)),
    # choosing
    "where": lambda: torch.where(columns() <= rows(), 0.0, -inf),
    "where of tensors": lambda: torch.where(causal(), rows(), columns()),
    "where as a method": lambda: rows().where(causal(), columns()),
    "masked_fill": lambda: torch.zeros(ROWS, COLUMNS).masked_fill(~causal(), -inf),
    "masked_fill, broadcast": lambda: torch.zeros(1, COLUMNS).masked_fill(rows() > 2, -1.0),
    "tril": lambda: torch.ones(ROWS, COLUMNS).tril(),
    "tril with a diagonal": lambda: torch.tril(torch.ones(2, ROWS, COLUMNS), diagonal=-1),
    "triu": lambda: torch.triu(torch.full((ROWS, COLUMNS), -inf), diagonal=1),
    "triu of positions": lambda: (rows() + columns()).triu(2),
    # converting
    "to": lambda: causal().to(torch.float16),
    "to another device": lambda: causal().to("cpu"),
    "to bool": lambda: rows().bool(),
    "of floats to bool": lambda: torch.full((2,), -inf).bool(),
    "to int": lambda: causal().long(),
    "inverted": lambda: (1.0 - causal(torch.float32)) * torch.finfo(torch.float32).min,
    "inverted to bfloat16": lambda: (1 - causal(torch.bfloat16)) * torch.finfo(torch.bfloat16).min,
    "overflowing": lambda: torch.full((2,), torch.finfo(torch.float32).min) * 2,
    # views
    "expand": lambda: causal()[None, None].expand(2, -1, ROWS, COLUMNS),
    "broadcast_to": lambda: rows().broadcast_to(2, ROWS, COLUMNS),
    "expand_as": lambda: rows().expand_as(causal()),
    "unsqueeze": lambda: rows().unsqueeze(-1).unsqueeze(0),
    "squeeze": lambda: rows().squeeze(),
    "squeeze of a dimension": lambda: rows()[None].squeeze(0),
    "view": lambda: torch.arange(6).view(6, 1),
    "reshape": lambda: causal().reshape(1, ROWS, 1, COLUMNS),
    "view_as": lambda: torch.arange(ROWS).view_as(rows()),
    "transpose": lambda: (rows() - 2 * columns()).transpose(0, 1),
    "transpose from behind": lambda: causal()[None].transpose(-1, -2),
    "t": lambda: causal().t(),
    "permute": lambda: (rows()[:, :, None] + torch.arange(3)).permute(2, 0, 1),
    "permute of a tuple": lambda: causal()[None].permute((1, 2, 0)),
    "repeat of one row": lambda: columns().repeat(3, 1),
    "contiguous": lambda: causal().t().contiguous(),
    "clone": lambda: rows().clone(),
    # indexing
    "slice": lambda: causal()[1:3, 2:],
    "slice from behind": lambda: causal()[:, -3:],
    "negative stop": lambda: causal()[:-1],
    "integer": lambda: (rows() * 10 + columns())[2],
    "negative integer": lambda: (rows() * 10 + columns())[..., -2],
    "ellipsis": lambda: causal()[None, ..., 1:],
    "gathered": lambda: torch.arange(9)[torch.arange(3) + 2],
    "gathered twice": lambda: (rows() * 10 + columns())[rows(3), columns(4)],
    "gathered in the middle": lambda: causal()[None][:, torch.arange(2), 1:],
    "gathered around a slice": lambda: cube()[torch.arange(1), :, torch.arange(2)[:, None]],
    "gathered around an integer": lambda: cube()[torch.arange(2), 1, torch.arange(2)],
    "gathered behind a slice": lambda: cube()[None][:, torch.arange(2), 1, torch.arange(2)],
    "integer before a gather": lambda: cube()[1, :, torch.arange(2)],
    # along a dimension
    "cumsum of ones": lambda: torch.ones(2, 4, dtype=torch.int64).cumsum(-1),
    "cumsum of bools": lambda: torch.cumsum(torch.ones(2, 4, dtype=torch.bool), dim=0),
    "diff": lambda: torch.diff(torch.arange(6) * 3),
    "diff with one in front": lambda: torch.diff(columns(), prepend=columns()[:, :1] - 1, dim=-1),
    "cat": lambda: torch.cat([torch.zeros(ROWS, 2), torch.ones(ROWS, 3).tril()], dim=-1),
    "cat of positions": lambda: torch.cat([torch.arange(3), torch.arange(2), torch.arange(4) * 2]),
    # vmap
    "vmap": lambda: per_row(lambda q: per_column(lambda k: k <= q)),
    "vmap over the last": lambda: torch.vmap(lambda k: k + torch.arange(2), out_dims=1)(
        rows()[:, 0]
    ),
}


@pytest.mark.parametrize("name", UNDERSTOOD)
def test_understood(name):
    program = UNDERSTOOD[name]
    (tensor,) = marked(capture(lambda: MARK(program())))
    assert tensor is not None
    expected = program()
    assert tensor.dtype == expected.dtype
    torch.testing.assert_close(dense(tensor), expected, rtol=0, atol=0)


WRITTEN = {
    "masked_fill_": lambda m: m.masked_fill_(rows() > 2, True),
    "fill_": lambda m: m.fill_(True),
    "zero_": lambda m: m.zero_(),
    "tril_": lambda m: m.tril_(-1),
    "logical_not_": lambda m: m.logical_not_(),
    "&=": lambda m: operator.iand(m, columns() > 2),
    "__iand__": lambda m: m.__iand__(columns() > 2),
}


@pytest.mark.parametrize("name", WRITTEN)
def test_written_by_a_known_operation(name):
    """Both the tensor and what the operation returns hold the new elements."""
    write = WRITTEN[name]

    def program():
        mask = causal()
        result = write(mask)
        return MARK(mask), MARK(result)

    for tensor in marked(capture(program)):
        assert tensor is not None
        assert torch.equal(dense(tensor), write(causal()))


def test_augmented_assignment():
    """As older transformers write it: `mask *= arange > position`."""

    def program():
        mask = torch.full((ROWS, COLUMNS), -1.0)
        mask *= columns() > rows()
        mask += 2
        return MARK(mask)

    (tensor,) = marked(capture(program))
    assert tensor is not None
    assert torch.equal(dense(tensor), torch.full((ROWS, COLUMNS), -1.0) * (columns() > rows()) + 2)


def set_item(mask):
    mask[0, 1] = True


NOT_FOLLOWED = {
    "setitem": set_item,
    "through a view": lambda m: m[1:].fill_(True),
    "through a diagonal": lambda m: m.diagonal().fill_(False),
    "through a transposed view": lambda m: m.t().tril_(),
    "through an unknown view": lambda m: m.unfold(0, 2, 1).zero_(),
    "through a conversion that copies nothing": lambda m: m.to(torch.bool).zero_(),
    "copy_": lambda m: m.copy_(torch.rand(ROWS, COLUMNS) > 0.5),
    "random_": lambda m: m.bernoulli_(0.5),
    "out=": lambda m: torch.logical_not(causal(), out=m),
    "index_fill_": lambda m: m.index_fill_(0, torch.tensor([1]), True),
    "inplace=True": lambda m: torch.nn.functional.dropout(m, 0.5, True, True),
}


@pytest.mark.parametrize("name", NOT_FOLLOWED)
def test_written_in_another_way(name):
    """What was known is forgotten, for the tensor and for its views; other tensors stay known."""
    write = NOT_FOLLOWED[name]

    def program():
        other, mask = causal(), causal() if name != "inplace=True" else causal(torch.float32)
        view = mask[None]
        before = MARK(mask)
        write(mask)
        return before, MARK(mask), MARK(view), MARK(other)

    before, mask, view, other = marked(capture(program))
    assert before is not None
    assert mask is None
    assert view is None
    assert other is not None


def test_reading_is_no_writing():
    def program(weight, x):
        positions = torch.arange(ROWS)
        mask = positions[:, None] >= columns()
        embedded = torch.nn.functional.embedding(positions, weight)
        angles = positions.float() * x.sum()
        embedded += angles[:, None].cos()
        x.copy_(mask.sum())
        return MARK(mask), MARK(positions), embedded

    mask, positions = marked(capture(program, torch.randn(ROWS, 4), torch.randn(3)))
    assert mask is not None
    assert positions is not None


def test_a_function_that_is_not_known_may_write():
    @torch.library.custom_op("thunder_tests::touch", mutates_args=("x",))
    def touch(x: torch.Tensor) -> None:
        x.fill_(1)

    def program():
        mask, other = causal(), causal()
        torch.ops.thunder_tests.touch(mask)
        return MARK(mask), MARK(other)

    mask, other = marked(capture(program))
    assert mask is None
    assert other is not None


UNKNOWN = {
    "an input": lambda x: x > 0,
    "an input's part": lambda x: causal() & (x > 0),
    "a constant tensor": lambda x: torch.tensor([[True, False]]),
    "random": lambda x: torch.rand(ROWS, COLUMNS) > 0.5,
    "uninitialised": lambda x: torch.empty(ROWS, COLUMNS),
    "floor division": lambda x: rows() // 2 >= columns() // 2,
    "remainders": lambda x: rows() % 2 == 0,
    "flattened": lambda x: causal().reshape(-1),
    "repeated": lambda x: rows().repeat(2, 1),
    "real positions": lambda x: torch.arange(0.0, 1.0, 0.25),
    "positions as floats": lambda x: rows().float() >= columns().float(),
    "narrow integers": lambda x: torch.arange(4, dtype=torch.uint8) < 2,
    "products of positions": lambda x: rows() * columns(),
    "learned": lambda x: torch.zeros(2, 2) * x.sum(),
    "gathered with data": lambda x: torch.arange(4)[x.argmax(-1) % 4],
    "complex": lambda x: torch.ones(2, dtype=torch.complex64),
}


@pytest.mark.parametrize("name", UNKNOWN)
def test_unknown(name):
    program = UNKNOWN[name]
    assert marked(capture(lambda x: MARK(program(x)), torch.randn(ROWS, COLUMNS))) == [None]


def test_numbers_that_wrap_around_are_not_integers():
    def program():
        small = torch.arange(100, dtype=torch.int32) * 2**30
        large = torch.arange(100) * 2**30
        return MARK(small), MARK(large)

    small, large = marked(capture(program))
    assert small is None
    assert large is not None


DYNAMIC = {
    "causal": lambda q, k: columns(k) <= rows(q),
    "shifted by the difference": lambda q, k: columns(k) <= rows(q) + (k - q),
    "shaped by a product": lambda q, k: torch.zeros(q * k) if q else None,
    "triangle": lambda q, k: torch.ones(q, k, dtype=torch.bool).tril(),
    "concatenated": lambda q, k: torch.cat([torch.arange(q), torch.arange(k)]),
    "expanded": lambda q, k: torch.ones(1, 1, dtype=torch.bool).expand(q, k),
    "sliced from a size": lambda q, k: torch.arange(q + k)[q:],
    "filled with a size": lambda q, k: torch.full((2,), q + 1),
    "gathered": lambda q, k: torch.arange(q + k)[torch.arange(k) + 1],
}


@pytest.mark.parametrize("name", DYNAMIC)
def test_symbolic_sizes(name):
    """One answer for all sizes: it is evaluated at several."""
    program = DYNAMIC[name]

    def marking(x):
        return MARK(program(x.shape[0], x.shape[1])), x + 1

    graph = capture(marking, torch.randn(5, 7), dynamic=True)
    (tensor,) = marked(graph)
    assert tensor is not None
    x = next(node for node in graph.graph.nodes if node.name.startswith("l_x"))
    symbols = [str(size) for size in x.meta["example_value"].shape]
    for q, k in [(5, 7), (2, 2), (6, 3)]:
        sizes = dict(zip(symbols, (q, k), strict=True))
        sizes |= {f"{first}*{second}": q * k for first, second in itertools.permutations(symbols)}
        torch.testing.assert_close(dense(tensor, sizes), program(q, k), rtol=0, atol=0)


def test_guards_are_facts():
    """Dynamo guards that the slice starts inside; the analysis builds on it."""

    def program(x):
        return MARK(torch.arange(8)[x.shape[0] - 4 :])

    (tensor,) = marked(capture(program, torch.randn(5), dynamic=True))
    assert tensor is not None
    (size,) = [of for of, _ in tensor.shape[0].terms if isinstance(of, Size)]
    assert (size.lower, size.upper) == (4, 12)
    assert dense(tensor, {size.name: 6}).tolist() == [2, 3, 4, 5, 6, 7]


def test_followed_into_checkpoints():
    def body(x, mask):
        return x + MARK(mask), MARK(mask[1:])

    def program(x):
        mask = causal()
        first, _ = checkpoint(body, x, mask, use_reentrant=False)
        second, part = checkpoint(body, first, mask, use_reentrant=False)
        return second, part

    tensors = marked(capture(program, torch.randn(ROWS, COLUMNS, requires_grad=True)))
    assert len(tensors) == 4
    for tensor, expected in zip(tensors, [causal(), causal()[1:]] * 2, strict=True):
        assert tensor is not None
        assert torch.equal(dense(tensor), expected)


def test_a_body_can_write():
    def body(x, mask):
        mask.zero_()
        return x + MARK(mask)

    def program(x):
        mask, other = causal(), causal()
        x = checkpoint(body, x, mask, use_reentrant=False)
        return x, MARK(mask), MARK(other)

    graph = capture(program, torch.randn(ROWS, COLUMNS, requires_grad=True))
    outside, other, inside = marked(graph)
    assert outside is None
    assert other is not None
    assert inside is not None
    assert not dense(inside).any()


def test_a_body_that_is_called_with_different_masks():
    def run(x, mask):
        return x + MARK(mask)

    body: Any = torch.compiler.nested_compile_region(run)

    def program(x, same):
        first = causal()
        second = causal() if same else causal().logical_not()
        return body(body(x, first), second)

    x = torch.randn(ROWS, COLUMNS)
    (same,) = marked(capture(lambda x: program(x, True), x))
    torch._dynamo.reset()
    (different,) = marked(capture(lambda x: program(x, False), x))
    assert same is not None
    assert different is None
