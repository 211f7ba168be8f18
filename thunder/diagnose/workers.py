"""Processes that answer questions, and are replaced when they crash or take too long.

A worker is a fork of this process, so it has everything that a question is about: graphs, inputs,
executors, a user's check. It is warm after its first answer. On CUDA, which does not survive a
fork, questions are answered in this process, one after another, and a crash is a crash.
"""

from __future__ import annotations

import abc
import contextlib
import faulthandler
import multiprocessing
import os
import signal
import threading
import time
import warnings
from collections.abc import Callable, Sequence
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from typing import Any, Generic, TypeVar, final

import torch
from torch._inductor import config as inductor_config
from torch.hub import tqdm  # pyright: ignore[reportPrivateImportUsage] - the one that fx uses

from thunder.diagnose.finding import Finding, Kind

Question = TypeVar("Question")
Answer = Callable[[Question], Finding]
Accept = Callable[[Finding], bool]


class AbstractWorkers(abc.ABC, Generic[Question]):
    """Answers questions. A context manager: leaving it ends all processes."""

    asked = 0
    """How many questions were started."""

    @abc.abstractmethod
    def first(self, questions: Sequence[Question], accept: Accept) -> tuple[int, Finding] | None:
        """Finds the first question, in their order, whose answer is accepted.

        Args:
            questions: The questions; later ones may be asked ahead of need.
            accept: Decides on an answer.

        Returns:
            Its position and the answer, or None.
        """

    def ask(self, question: Question) -> Finding:
        """Answers one question."""
        found = self.first([question], lambda finding: True)
        assert found is not None
        return found[1]

    def __enter__(self) -> AbstractWorkers[Question]:
        """Returns itself."""
        return self

    def __exit__(self, *error: object) -> None:
        """Ends what is still running."""
        self.close()

    @abc.abstractmethod
    def close(self) -> None:
        """Ends what is still running."""


@final
class InProcess(AbstractWorkers[Question]):
    """Answers in this process."""

    def __init__(self, answer: Answer[Question]) -> None:
        """Keeps the function that answers."""
        self._answer = answer

    def first(self, questions: Sequence[Question], accept: Accept) -> tuple[int, Finding] | None:
        """Asks one after another."""
        for position, question in enumerate(questions):
            self.asked += 1
            finding = self._answer(question)
            if accept(finding):
                return position, finding
        return None

    def close(self) -> None:
        """Has nothing to end."""


@final
class Forked(AbstractWorkers[Question]):
    """Answers in forked processes, several at a time."""

    def __init__(
        self,
        answer: Answer[Question],
        *,
        count: int,
        timeout: float,
        answers_a_worker: int | None = None,
    ) -> None:
        """Prepares the workers; they start when they are needed.

        Args:
            answer: Answers a question, in the worker.
            count: How many workers run at a time.
            timeout: Seconds that an answer may take.
            answers_a_worker: After how many answers a worker is replaced; None for never.
        """
        self._answer = answer
        self._count = count
        self._timeout = timeout
        self._limit = answers_a_worker
        self._idle: list[_Worker] = []
        self._busy: dict[_Worker, int] = {}

    def first(self, questions: Sequence[Question], accept: Accept) -> tuple[int, Finding] | None:
        """Asks several at a time; waits for the answers to earlier ones before it decides."""
        waiting = list(range(len(questions)))
        refused: set[int] = set()
        accepted: dict[int, Finding] = {}
        try:
            while True:
                best = min(accepted, default=len(questions))
                if all(position in refused for position in range(best)):
                    return (best, accepted[best]) if accepted else None
                while waiting and waiting[0] < best and len(self._busy) < self._count:
                    position = waiting.pop(0)
                    self._start(position, questions[position])
                for position, finding in self._wait():
                    if accept(finding):
                        accepted[position] = finding
                    else:
                        refused.add(position)
        finally:
            for worker in list(self._busy):
                self._end(worker)

    def close(self) -> None:
        """Ends all workers."""
        for worker in [*self._idle, *self._busy]:
            self._end(worker)

    def _start(self, position: int, question: Question) -> None:
        worker = self._idle.pop() if self._idle else _Worker(self._answer)
        self.asked += 1
        self._busy[worker] = position
        worker.ask(question, self._timeout)

    def _wait(self) -> list[tuple[int, Finding]]:
        left = min(worker.deadline for worker in self._busy) - time.monotonic()
        ready = wait([worker.connection for worker in self._busy], max(left, 0.0))
        now = time.monotonic()
        answers = []
        for worker, position in list(self._busy.items()):
            if worker.connection in ready:
                finding = worker.answer()
            elif worker.deadline <= now:
                finding = Finding(kind=Kind.TIMES_OUT, text=f"no answer in {self._timeout:g} s")
            else:
                continue
            answers.append((position, finding))
            used_up = self._limit is not None and worker.answers >= self._limit
            if finding.kind in (Kind.CRASHES, Kind.TIMES_OUT) or used_up:
                self._end(worker)
            else:
                del self._busy[worker]
                self._idle.append(worker)
        return answers

    def _end(self, worker: _Worker) -> None:
        self._busy.pop(worker, None)
        if worker in self._idle:
            self._idle.remove(worker)
        worker.kill()


class _Worker:
    """One forked process and the connection to it."""

    def __init__(self, answer: Answer[Any]) -> None:
        self.connection, there = multiprocessing.Pipe()
        self.answers = 0
        self.deadline = 0.0
        with warnings.catch_warnings():
            # Threads of this process do not exist in the worker, which starts none of theirs.
            warnings.filterwarnings("ignore", ".*fork", DeprecationWarning)
            self.process: BaseProcess = multiprocessing.get_context("fork").Process(
                target=_serve, args=(there, self.connection, answer), daemon=True
            )
            self.process.start()
        there.close()

    def ask(self, question: Any, timeout: float) -> None:
        self.deadline = time.monotonic() + timeout
        # A worker that is gone shows when its answer is waited for.
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            self.connection.send(question)

    def answer(self) -> Finding:
        self.answers += 1
        try:
            return self.connection.recv()
        except (EOFError, ConnectionResetError):
            self.process.join()
        code = self.process.exitcode or 0
        text = f"signal {-code}" if code < 0 else f"exit status {code}"
        return Finding(kind=Kind.CRASHES, text=f"ended the process: {text}", signal=code)

    def kill(self) -> None:
        pid = self.process.pid
        if self.process.is_alive() and pid is not None:
            try:
                os.killpg(pid, signal.SIGKILL)  # with the C++ compiler that it may have started
            except ProcessLookupError:  # it has no group of its own yet
                self.process.kill()
        self.process.join()
        self.connection.close()


def _own_locks() -> None:
    """Gives the worker locks that die with it.

    tqdm, by which `fx.Interpreter` shows progress even where it shows none, has one lock for all
    forks of a process. A worker that is killed while it holds that would take it along for ever.
    """
    set_lock = getattr(tqdm, "set_lock", None)  # torch's stand-in for tqdm has no locks
    if set_lock is not None:
        set_lock(threading.RLock())


def _serve(connection: Connection, other_end: Connection, answer: Answer[Any]) -> None:
    """Runs in the worker: answers until the other side is gone."""
    _own_locks()
    other_end.close()  # the fork's copy, which would keep the other side from ever being gone
    faulthandler.disable()  # a crash is an answer, not news
    os.setsid()  # Ctrl-C is for the asking process, which then ends its workers
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    quiet = os.open(os.devnull, os.O_RDWR)
    for stream in (1, 2):
        os.dup2(quiet, stream)
    torch.set_num_threads(1)  # OpenMP's threads do not survive a fork
    inductor_config.compile_threads = 1
    with contextlib.suppress(EOFError, BrokenPipeError), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        while True:
            question = connection.recv()
            try:
                finding = answer(question)
            except Exception as error:  # noqa: BLE001 (a fence: our failure is not the graph's)
                finding = Finding(kind=Kind.CHECK_FAILS, text=f"{type(error).__name__}: {error}")
            connection.send(finding)
