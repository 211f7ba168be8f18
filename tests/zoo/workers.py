"""Runs a function in a process of its own, which may hang, crash or take memory."""

from __future__ import annotations

import contextlib
import logging
import multiprocessing
import os
import pickle
import resource
import time
import warnings
from collections.abc import Callable, Iterator
from multiprocessing.connection import Connection
from typing import IO, Any

import torch
import transformers

PRELOADED = (
    "torch._dynamo",
    "torch._inductor.compile_fx",
    "tests.zoo.cases",
    "tests.zoo.judging",
    "tests.zoo.scripts",
)
"""What takes seconds to import, and is imported once for all processes."""

MEMORY = 8 << 30

_processes = multiprocessing.get_context("forkserver")
_processes.set_forkserver_preload(list(PRELOADED))


class DiedError(Exception):
    """A process ran out of time, or crashed."""


def results_of(function: Callable[..., Iterator[Any]], *args: Any, limit: float) -> Iterator[Any]:
    """Yields what a generator function yields in another process, as it comes.

    Args:
        function: A generator function that can be pickled, as what it yields.
        args: Its arguments.
        limit: Seconds until the process is ended.

    Raises:
        DiedError: It was ended, or ended by itself before the function did.
        Exception: What the function raised.
    """
    ours, theirs = _processes.Pipe(duplex=False)
    process = _processes.Process(target=_work, args=(theirs, function, args), daemon=True)
    process.start()
    theirs.close()
    end = time.monotonic() + limit
    try:
        while ours.poll(max(0.0, end - time.monotonic())):
            try:
                kind, value = ours.recv()
            except EOFError:
                process.join()
                raise DiedError(f"the process ended with status {process.exitcode}") from None
            if kind == "error":
                raise value
            if kind == "end":
                return
            yield value
        raise DiedError(f"not done after {limit:g} s")
    finally:
        process.kill()
        process.join()
        ours.close()


def _work(connection: Connection, function: Callable[..., Iterator[Any]], args: Any) -> None:
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    torch.set_num_threads(1)
    torch.manual_seed(0)
    warnings.simplefilter("ignore")
    logging.disable(logging.ERROR)
    transformers.logging.set_verbosity_error()
    try:
        with open(os.devnull, "w") as nowhere, _printing_to(nowhere):  # noqa: PTH123 - no file
            for value in function(*args):
                connection.send(("value", value))
        connection.send(("end", None))
    except Exception as error:  # noqa: BLE001 - raised again where it is waited for
        connection.send(("error", _portable(error)))


@contextlib.contextmanager
def _printing_to(file: IO[str]) -> Iterator[None]:
    with contextlib.redirect_stdout(file), contextlib.redirect_stderr(file):
        yield


def _portable(error: Exception) -> Exception:
    """Returns an error, or one that says the same where it cannot be sent."""
    try:
        pickle.loads(pickle.dumps(error))
    except Exception:  # noqa: BLE001 - whatever its class does
        return RuntimeError(f"{type(error).__name__}: {error}")
    return error
