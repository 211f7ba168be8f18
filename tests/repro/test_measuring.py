"""What is found out about values, and that a script's values are like them."""

from __future__ import annotations

import math

import pytest
import torch

from tests.repro.capture import support
from thunder.repro.measuring import in_memory_order, measure
from thunder.repro.recipes import (
    BooleanDensity,
    Choices,
    ComplexParts,
    Constant,
    Exactly,
    FloatRange,
    IntegerRange,
    LowerTriangle,
    Steps,
    Target,
    Unmeasured,
    number_source,
)


def drawn(recipe, like):
    """Evaluates a recipe."""
    target = Target(str(tuple(like.shape)), like.dtype, str(like.device))
    torch.manual_seed(0)
    return eval(recipe.source(target), vars(support()))


INTEGERS = {
    "few": (torch.tensor([3, 1, 3]), Exactly((3, 1, 3))),
    "indices": (torch.randint(5, 50_001, (4000,)), IntegerRange(5, 50_000)),
    "arange": (torch.arange(100), Steps(0, 1)),
    "down": (torch.arange(300, 0, -3), Steps(300, -3)),
    "positions": (torch.arange(100).repeat(3, 1), Steps(0, 1, in_rows=True)),
    "permutation": (torch.randperm(1000), IntegerRange(0, 999, "distinct")),
    "offsets": (torch.arange(100).repeat_interleave(2), IntegerRange(0, 99, "sorted")),
    "sorted_distinct": (torch.arange(100) ** 2, IntegerRange(0, 9801, "distinct sorted")),
    "constant": (torch.full((100,), 7), Constant(7)),
    "unsigned": ((torch.arange(5, 72) * 900).to(torch.uint16), Steps(4500, 900)),
}


def in_range(values):
    """Makes sure that both ends of a random range are there."""
    if values.dim() == 1 and values.numel() == 4000:
        values[0], values[1] = 5, 50_000
    return values


@pytest.mark.parametrize("name", INTEGERS)
def test_integers(name):
    values, expected = INTEGERS[name]
    values = in_range(values)
    recipe = measure(values)
    assert recipe == expected
    made = drawn(recipe, values)
    assert (made.dtype, made.shape) == (values.dtype, values.shape)
    wide, original = made.to(torch.int64), values.to(torch.int64)
    assert (wide.min(), wide.max()) == (original.min(), original.max())
    if name not in ("indices", "permutation", "offsets", "sorted_distinct"):
        assert torch.equal(wide, original)
    if "distinct" in name or name == "permutation":
        assert wide.unique().numel() == original.numel()
    if name in ("offsets", "sorted_distinct"):
        assert (wide[1:] >= wide[:-1]).all()


def test_largest_integers_do_not_overflow():
    values = torch.randint(0, 10, (200,))
    values[0], values[1] = 2**63 - 1, -(2**62)
    made = drawn(measure(values), values)
    assert (made.min(), made.max()) == (-(2**62), 2**63 - 1)


def test_attention_masks():
    padding = torch.ones(8, 100, dtype=torch.int64)
    padding[:, 90:] = 0
    assert measure(padding) == Choices((0, 1), (0.1, 0.9))
    causal = torch.ones(2, 40, 40, dtype=torch.bool).tril()
    assert measure(causal) == LowerTriangle()
    assert torch.equal(drawn(measure(causal), causal), causal)
    additive = torch.zeros(100, 100).masked_fill(~torch.ones(100, 100).tril().bool(), -math.inf)
    recipe = measure(additive)
    assert isinstance(recipe, Choices) and recipe.values == (-math.inf, 0.0)
    made = drawn(recipe, additive)
    assert set(made.unique().tolist()) == {-math.inf, 0.0}
    lowest = torch.finfo(torch.float32).min
    assert measure(torch.where(additive < 0, lowest, 0.0)).values == (lowest, 0.0)


def test_booleans():
    assert measure(torch.tensor([True, False])) == Exactly((True, False))
    assert measure(torch.zeros(1000, dtype=torch.bool)) == Constant(False)
    values = torch.rand(10_000) > 0.8
    recipe = measure(values)
    assert isinstance(recipe, BooleanDensity)
    assert abs(drawn(recipe, values).double().mean() - values.double().mean()) < 0.02


def test_normal_floats():
    values = torch.randn(300, 300) * 3 + 5
    recipe = measure(values)
    assert isinstance(recipe, FloatRange) and recipe.std is not None
    made = drawn(recipe, values)
    assert abs(made.mean() - 5) < 0.2
    assert abs(made.std() - 3) < 0.2
    assert made.min() == pytest.approx(recipe.low) and made.max() == pytest.approx(recipe.high)


def test_uniform_floats_stay_in_their_range():
    values = torch.rand(100_000)
    recipe = measure(values)
    assert isinstance(recipe, FloatRange) and recipe.std is None
    made = drawn(recipe, values)
    assert made.min() >= 0 and made.max() <= 1
    assert abs(made.mean() - 0.5) < 0.02


def test_a_single_nan_in_a_million_is_found():
    values = torch.randn(1000, 1000)
    values[3, 7] = math.nan
    recipe = measure(values)
    assert recipe.fractions["nan"] == 1e-6
    assert drawn(recipe, values).isnan().any()


def test_one_odd_value_among_equal_ones_is_found():
    values = torch.zeros(100_000)
    assert measure(values) == Constant(0.0)
    values[77_777] = 1.5
    assert measure(values) != Constant(0.0)


def test_zeros_keep_their_fraction():
    values = torch.randn(10_000).relu()
    made = drawn(measure(values), values)
    assert 0.45 < made.eq(0).double().mean() < 0.75
    assert made.min() == 0


def test_nothing_finite():
    values = torch.full((100,), math.nan)
    assert drawn(measure(values), values).isnan().all()
    assert drawn(Constant(math.inf), values).isposinf().all()


def test_small_floats_are_listed_when_asked():
    values = torch.tensor([0.1, math.nan, -math.inf])
    recipe = measure(values, exact_floats=3)
    torch.testing.assert_close(drawn(recipe, values), values, equal_nan=True, rtol=0, atol=0)


@pytest.mark.filterwarnings("ignore:ComplexHalf support is experimental:UserWarning")
@pytest.mark.parametrize("dtype", [torch.complex64, torch.complex128, torch.complex32])
def test_complex(dtype):
    values = torch.complex(torch.randn(500, dtype=torch.float64), torch.rand(500).double() + 3)
    values = values.to(dtype)
    recipe = measure(values)
    assert isinstance(recipe, ComplexParts)
    made = drawn(recipe, values)
    assert made.dtype == dtype
    assert made.to(torch.complex64).imag.min() >= 2.9


def test_unmeasured():
    assert drawn(Unmeasured(), torch.zeros(3)).dtype == torch.float32
    assert drawn(Unmeasured(), torch.zeros(3, dtype=torch.int32)).tolist() == [0, 0, 0]
    assert drawn(Unmeasured(), torch.zeros(3, dtype=torch.complex64)).dtype == torch.complex64
    assert drawn(Unmeasured(), torch.zeros(3, device="meta")).is_meta


def test_memory_order():
    assert in_memory_order(torch.zeros(3, 4).t()).shape == (12,)
    assert in_memory_order(torch.zeros(3, 1).expand(3, 4)).shape == (3,)
    assert in_memory_order(torch.zeros(200, 4)[:, 0]) is None


def test_numbers_need_no_import():
    for value in (math.inf, -math.inf, 0.1, True, 3, complex(0.5, -math.inf)):
        assert eval(number_source(value), {}) == value
    assert math.isnan(eval(number_source(math.nan), {}))
