"""Which flags are on."""

from __future__ import annotations

import threading

import pytest

from thunder.debug import DebugFlag, active, active_flags, enabled
from thunder.errors import DebugFlagError


def test_nothing_is_on_by_itself():
    assert active_flags() == frozenset()
    assert not enabled(DebugFlag.TRACE)


def test_an_inner_block_replaces_an_outer_one():
    with active("trace"):
        with active([DebugFlag.CHECK_TRACE]):
            assert active_flags() == {DebugFlag.CHECK_TRACE}
        with active(False):
            assert active_flags() == frozenset()
        assert enabled("trace")
    assert active_flags() == frozenset()


def test_a_failure_leaves_nothing_on():
    with pytest.raises(ZeroDivisionError), active(True):
        raise ZeroDivisionError
    assert active_flags() == frozenset()


def test_the_environment_adds_to_it(monkeypatch):
    monkeypatch.setenv("THUNDER_DEBUG", "2")
    assert active_flags() == {DebugFlag.TRACE, DebugFlag.FUSION_REGION}
    with active("check_trace"):
        assert active_flags() == {
            DebugFlag.TRACE,
            DebugFlag.FUSION_REGION,
            DebugFlag.CHECK_TRACE,
        }


def test_an_extension_asks_for_its_own_flag():
    flag = DebugFlag.register("tiling", "Log the tile sizes.")
    try:
        with active(True):
            assert enabled(flag)
        with active("trace"):
            assert not enabled(flag)
    finally:
        DebugFlag.deregister(flag)


def test_an_unknown_flag_is_an_error():
    with pytest.raises(DebugFlagError, match="unknown debug flag 'tracing'; did you mean 'trace'"):
        enabled("tracing")
    with pytest.raises(DebugFlagError), active("tracing"):
        raise AssertionError("not reached")


def test_other_threads_are_not_affected():
    seen = []
    with active("trace"):
        thread = threading.Thread(target=lambda: seen.append(active_flags()))
        thread.start()
        thread.join()
    assert seen == [frozenset()]
