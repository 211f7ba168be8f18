"""Warnings that are said once."""

from __future__ import annotations

import logging
import threading
import warnings

import pytest

from thunder.debug import warn_once
from thunder.errors import FallbackWarning


def test_a_message_is_logged_once(caplog):
    with caplog.at_level(logging.WARNING, "thunder"):
        assert warn_once("key", "first")
        assert not warn_once("key", "first, again")
        assert warn_once("other", "second")
    assert [(r.name, r.getMessage()) for r in caplog.records] == [
        ("thunder", "first"),
        ("thunder", "second"),
    ]


def test_logging_never_raises_where_warnings_are_errors():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert warn_once("key", "100% said")


def test_a_category_goes_through_warnings_and_names_the_caller():
    with pytest.warns(FallbackWarning, match="slow") as caught:
        warn_once("key", "slow", FallbackWarning, stacklevel=1)
    assert caught[0].filename == __file__
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warn_once("key", "slow", FallbackWarning)


def test_the_exception_can_be_seen(caplog):
    with caplog.at_level(logging.DEBUG, "thunder"):
        warn_once("key", "it failed", error=ValueError("because"))
    assert "ValueError: because" in caplog.text


def test_threads_say_it_once(caplog):
    barrier = threading.Barrier(8)

    def say() -> None:
        barrier.wait()
        warn_once("key", "said")

    threads = [threading.Thread(target=say) for _ in range(8)]
    with caplog.at_level(logging.WARNING, "thunder"):
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert len(caplog.records) == 1


def test_no_handlers_are_configured():
    assert logging.getLogger("thunder").handlers == []
    assert logging.getLogger("thunder").level == logging.NOTSET
