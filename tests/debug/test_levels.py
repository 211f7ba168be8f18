"""The words of `THUNDER_DEBUG`."""

from __future__ import annotations

import pytest

from thunder.debug import DebugFlag
from thunder.debug.levels import parse_levels
from thunder.errors import DebugFlagError

ONE = {"TRACE"}
TWO = ONE | {"FUSION_REGION"}
THREE = TWO | {"FUSION_CODE"}
FOUR = THREE | {"TORCH_COMPILE_DEBUG"}


@pytest.mark.parametrize(
    ("text", "keys"),
    [
        ("", set()),
        ("0", set()),
        ("1", ONE),
        ("trace", ONE),
        ("2", TWO),
        ("nvfuser_region", TWO),
        ("fusion_region", TWO),
        ("3", THREE),
        ("nvfuser_code", THREE),
        ("NVFUSER-CODE", THREE),
        ("fusion_code", THREE),
        ("4", FOUR),
        ("torch_compile_debug", FOUR),
        ("trace,nvfuser_code", THREE),
        (" 1 , check_trace ,", ONE | {"CHECK_TRACE"}),
        ("save_reproducer", {"SAVE_REPRODUCER"}),
        ("0,SAVE_REPRODUCER,2", TWO | {"SAVE_REPRODUCER"}),
    ],
)
def test_words(text, keys):
    assert parse_levels(text) == keys


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("5", "'5' is neither"),
        ("-1", "'-1' is neither"),
        ("NvFuser-Regoin", "'NvFuser-Regoin' .* did you mean 'nvfuser_region'"),
        ("1;2", "'1;2' is neither"),
        ("on", "'on' is neither"),
        ("trace,nvfuser_regoin", "'nvfuser_regoin' .* did you mean 'nvfuser_region'"),
        ("check_traces", "did you mean 'check_trace'"),
    ],
)
def test_unknown_words_are_answered_with_the_valid_ones(text, hint):
    with pytest.raises(DebugFlagError, match=hint) as caught:
        parse_levels(text)
    valid = "0 1 trace 2 nvfuser_region 3 nvfuser_code 4 torch_compile_debug save_reproducer"
    assert all(word in str(caught.value) for word in valid.split())


def test_flags_of_extensions_are_words():
    flag = DebugFlag.register("tiling", "Log the tile sizes.")
    try:
        assert parse_levels("1,tiling") == ONE | {"TILING"}
    finally:
        DebugFlag.deregister(flag)
