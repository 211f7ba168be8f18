"""The registry of debug flags, and what `debug=` stands for."""

from __future__ import annotations

import copy
import pickle
import pydoc
from typing import Any

import pytest

from thunder.debug import DebugFlag, resolve
from thunder.debug.flags import find_flag
from thunder.errors import DebugFlagError

BUILT_IN = [
    "SAVE_REPRODUCER",
    "TRACE",
    "FUSION_REGION",
    "FUSION_CODE",
    "TORCH_COMPILE_DEBUG",
    "CHECK_TRACE",
]


@pytest.fixture
def tiling():
    flag = DebugFlag.register("tiling", "Log the tile sizes.")
    yield flag
    DebugFlag.deregister(flag)


def test_the_class_lists_its_flags_in_a_fixed_order(tiling):
    early = DebugFlag.register("arrows", "Draw arrows.")
    try:
        assert [flag.name for flag in DebugFlag] == [*BUILT_IN, "arrows", "tiling"]
        assert len(DebugFlag) == len(BUILT_IN) + 2
    finally:
        DebugFlag.deregister(early)
    assert [flag.name for flag in DebugFlag] == [*BUILT_IN, "tiling"]


@pytest.mark.parametrize("name", BUILT_IN)
def test_built_in_flags_are_attributes(name):
    assert getattr(DebugFlag, name) is find_flag(name)
    assert repr(find_flag(name)) == f"DebugFlag.{name}"


def test_a_registered_flag_is_as_good_as_a_built_in_one(tiling):
    assert tiling is getattr(DebugFlag, "TILING")  # noqa: B009 - pyright does not know it
    assert (repr(tiling), str(tiling), tiling.doc) == (
        "DebugFlag.TILING",
        "tiling",
        "Log the tile sizes.",
    )
    assert tiling.owner == __name__
    assert resolve("tiling") == {tiling} == resolve(tiling)
    assert tiling in resolve(True)


def test_a_taken_name_names_both_owners(tiling):
    with pytest.raises(DebugFlagError) as caught:
        DebugFlag.register("Tiling", "Something else.")
    assert str(caught.value).count(__name__) == 2
    with pytest.raises(DebugFlagError, match=rf"of {__name__} .* by thunder\.debug\.flags"):
        DebugFlag.register("trace", "Mine.")


@pytest.mark.parametrize("name", ["", "1", "two words", "a,b", "x\n", "nvfuser_code", 3])
def test_unusable_names_are_refused(name):
    before = list(DebugFlag)
    with pytest.raises(DebugFlagError):
        DebugFlag.register(name, "A sentence.")
    assert list(DebugFlag) == before


def test_a_flag_needs_a_sentence():
    with pytest.raises(DebugFlagError, match="'silent' needs a sentence"):
        DebugFlag.register("silent", " ")


def test_built_in_flags_stay():
    with pytest.raises(DebugFlagError, match="built in"):
        DebugFlag.deregister(DebugFlag.TRACE)
    assert DebugFlag.TRACE in DebugFlag


@pytest.mark.parametrize(
    ("debug", "names"),
    [
        (False, []),
        ("", []),
        ([], []),
        (True, BUILT_IN),
        (DebugFlag.TRACE, ["TRACE"]),
        ("trace", ["TRACE"]),
        ("Save-Reproducer, fusion_code,", ["SAVE_REPRODUCER", "FUSION_CODE"]),
        (["trace", DebugFlag.CHECK_TRACE], ["TRACE", "CHECK_TRACE"]),
        ({DebugFlag.TRACE}, ["TRACE"]),
        (iter([DebugFlag.TRACE]), ["TRACE"]),
        (DebugFlag, BUILT_IN),
        (frozenset(DebugFlag), BUILT_IN),
    ],
)
def test_resolve(debug, names):
    flags = resolve(debug)
    assert isinstance(flags, frozenset)
    assert flags == {find_flag(name) for name in names}


def test_an_unknown_name_is_answered_with_the_known_ones():
    with pytest.raises(DebugFlagError) as caught:
        resolve("fusoin_code")
    message = str(caught.value)
    assert "did you mean 'fusion_code'?" in message
    assert all(name.lower() in message for name in BUILT_IN)


@pytest.mark.parametrize("debug", [1, None, 2.5, [True], [["trace"]], "2", b"trace"])
def test_other_values_are_refused(debug: Any):
    with pytest.raises(DebugFlagError, match=r"save_reproducer.* THUNDER_DEBUG"):
        resolve(debug)


def test_a_forgotten_flag_is_refused():
    flag = DebugFlag.register("gone", "Was here.")
    DebugFlag.deregister(flag)
    DebugFlag.deregister(flag)
    with pytest.raises(DebugFlagError, match="not registered"):
        resolve(flag)


def test_pickling_and_copying_keep_identity(tiling):
    for flag in (DebugFlag.TRACE, tiling):
        assert pickle.loads(pickle.dumps(flag)) is flag
        assert copy.deepcopy([flag])[0] is flag
        assert copy.copy(flag) is flag


def test_unpickling_where_the_extension_is_not_loaded():
    flag = DebugFlag.register("remote", "Only in the other process.")
    stored = pickle.dumps({flag})
    DebugFlag.deregister(flag)
    (restored,) = pickle.loads(stored)
    try:
        assert (restored.name, restored.doc, restored.owner) == (flag.name, flag.doc, flag.owner)
        assert resolve("remote") == {restored}
    finally:
        DebugFlag.deregister(restored)


def test_flags_do_not_change():
    with pytest.raises(AttributeError):
        DebugFlag.TRACE.doc = "other"  # pyright: ignore[reportAttributeAccessIssue]


def test_help_lists_all_flags(tiling):
    text = pydoc.plain(pydoc.render_doc(DebugFlag))
    for flag in DebugFlag:
        assert f"{flag.key}: {flag.doc}" in text
    assert "TILING: Log the tile sizes." in text
