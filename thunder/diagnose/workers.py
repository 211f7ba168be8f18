"""Processes that answer questions, and are replaced when they crash or take too long.

A worker is a fork of this process, so it has everything that a question is about: graphs, inputs,
executors, a user's check. It is warm after its first answer. On CUDA, which does not survive a
fork, questions are answered in this process, one after another, and a crash is a crash.

Workers are killed, and locks that processes share do not outlive that well. What is guarded:

- tqdm's lock, which `fx.Interpreter` takes to show no progress, is a semaphore that all forks of a
  process share. Each worker has a lock of its own instead, so none can take this process's along.
- Inductor's pool of compile processes: torch forgets it in a fork, and workers compile alone.
- The locks of `logging` are made anew in a fork by Python, files that Inductor locks are let go by
  the system, and what is sent is no tensor, so torch_shm_manager has no part.

What is not: a lock that another thread of this process holds at the time of a fork. A worker that
does not start, or that waits for a shared lock when its time is over, says nothing about its
question, which is asked again in another one.
"""

from __future__ import annotations

import abc
import bisect
import contextlib
import faulthandler
import multiprocessing
import os
import signal
import threading
import time
import types
import warnings
from collections.abc import Callable, Iterator, Sequence
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
Say = Callable[[str], None]

_START_SECONDS = 60.0
"""What a worker may take before it is ready for its first question; milliseconds as a rule."""

_WORD_SECONDS = 1.0
"""What a worker that is late may take to say what it waits for."""

_SAY_SECONDS = 10.0
"""How often a wait is spoken of."""

_TRIES = 3
"""How often a question is asked whose worker fails for reasons of its own."""

_SHARED_LOCKS = (("tqdm.std", "acquire"), ("multiprocessing.synchronize", "__enter__"))
"""Modules and functions that wait for a lock between processes."""


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
        say: Say = lambda words: None,
    ) -> None:
        """Prepares the workers; they start when they are needed.

        Args:
            answer: Answers a question, in the worker.
            count: How many workers run at a time.
            timeout: Seconds that an answer may take.
            answers_a_worker: After how many answers a worker is replaced; None for never.
            say: Told, in words, of waits that are long and of questions that are asked again.
        """
        self._answer = answer
        self._count = count
        self._timeout = timeout
        self._limit = answers_a_worker
        self._say = say
        self._said = time.monotonic()
        self._idle: list[_Worker] = []
        self._busy: dict[_Worker, int] = {}

    def first(self, questions: Sequence[Question], accept: Accept) -> tuple[int, Finding] | None:
        """Asks several at a time; waits for the answers to earlier ones before it decides."""
        waiting = list(range(len(questions)))
        refused: set[int] = set()
        accepted: dict[int, Finding] = {}
        tries = dict.fromkeys(waiting, _TRIES)
        try:
            while True:
                best = min(accepted, default=len(questions))
                if all(position in refused for position in range(best)):
                    return (best, accepted[best]) if accepted else None
                while waiting and waiting[0] < best and len(self._busy) < self._count:
                    position = waiting.pop(0)
                    self._start(position, questions[position])
                for position, finding in self._wait():
                    tries[position] -= 1
                    if finding.kind is Kind.UNANSWERED and tries[position]:
                        self._say(f"{finding.text}; its question is asked again")
                        bisect.insort(waiting, position)
                    elif accept(finding):
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
        """Waits until something happens; returns the answers that are there."""
        due = min(self._said + _SAY_SECONDS, *(worker.deadline for worker in self._busy))
        ready = wait([worker.connection for worker in self._busy], max(due - time.monotonic(), 0))
        answers = []
        for worker, position in list(self._busy.items()):
            if worker.connection in ready:
                finding = worker.receive()
            elif worker.deadline <= time.monotonic():
                finding = worker.explain()
            else:
                continue
            if finding is None:  # it is ready for its question
                continue
            answers.append((position, finding))
            used_up = self._limit is not None and worker.answers >= self._limit
            if finding.kind in _LAST_WORDS or used_up:
                self._end(worker)
            else:
                del self._busy[worker]
                self._idle.append(worker)
        self._speak_of_waits()
        return answers

    def _speak_of_waits(self) -> None:
        now = time.monotonic()
        if self._busy and now >= self._said + _SAY_SECONDS:
            self._said = now
            seconds = now - min(worker.asked for worker in self._busy)
            self._say(f"no answer for {seconds:.0f} s, {self._timeout:g} s at most")

    def _end(self, worker: _Worker) -> None:
        self._busy.pop(worker, None)
        if worker in self._idle:
            self._idle.remove(worker)
        worker.kill()


_LAST_WORDS = (Kind.CRASHES, Kind.TIMES_OUT, Kind.UNANSWERED)
"""What no worker is asked after."""


class _Worker:
    """One forked process and the connection to it."""

    def __init__(self, answer: Answer[Any]) -> None:
        self.connection, there = multiprocessing.Pipe()
        self.answers = 0
        self.asked = 0.0
        self.deadline = 0.0
        self._timeout = 0.0
        self._is_ready = False
        with warnings.catch_warnings(), _ctrl_c_held():
            # Threads of this process do not exist in the worker, which starts none of theirs.
            warnings.filterwarnings("ignore", ".*fork", DeprecationWarning)
            self.process: BaseProcess = multiprocessing.get_context("fork").Process(
                target=_serve, args=(there, self.connection, answer), daemon=True
            )
            self.process.start()
        there.close()

    def ask(self, question: Any, timeout: float) -> None:
        self.asked = time.monotonic()
        self._timeout = timeout
        self.deadline = self.asked + (timeout if self._is_ready else _START_SECONDS)
        # A worker that is gone shows when its answer is waited for.
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            self.connection.send(question)

    def receive(self) -> Finding | None:
        """Returns the answer that is there, or None when the worker says that it is ready."""
        try:
            finding = self.connection.recv()
        except (EOFError, OSError):
            return self._ended()
        if finding is None:
            self._is_ready = True
            self.asked = time.monotonic()
            self.deadline = self.asked + self._timeout
        else:
            self.answers += 1
        return finding

    def explain(self) -> Finding:
        """Says why there is no answer in time: what was asked goes on, or a lock of ours is gone.

        Only Python code can be interrupted to say so; any other is busy with the question.
        """
        if not self._is_ready:
            text = f"a worker did not start in {_START_SECONDS:g} s"
            return Finding(kind=Kind.UNANSWERED, text=text)
        text = f"no answer in {self._timeout:g} s"
        if self.process.is_alive() and self.process.pid is not None:
            os.kill(self.process.pid, signal.SIGUSR1)
        late = self.receive() if self.connection.poll(_WORD_SECONDS) else None
        if late is None or late.kind is Kind.TIMES_OUT:
            return Finding(kind=Kind.TIMES_OUT, text=text)
        return late

    def _ended(self) -> Finding:
        self.process.join(_WORD_SECONDS)
        code = self.process.exitcode or 0
        text = f"signal {-code}" if code < 0 else f"exit status {code}"
        if not self._is_ready:
            return Finding(kind=Kind.UNANSWERED, text=f"a worker ended at its start: {text}")
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


@contextlib.contextmanager
def _ctrl_c_held() -> Iterator[None]:
    """Lets Ctrl-C come after a worker is made, and not to a worker that is being made."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _own_locks() -> None:
    """Gives the worker a lock for progress bars that ends with it."""
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
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
    quiet = os.open(os.devnull, os.O_RDWR)
    for stream in (1, 2):
        os.dup2(quiet, stream)
    torch.set_num_threads(1)  # OpenMP's threads do not survive a fork
    inductor_config.compile_threads = 1
    with contextlib.suppress(EOFError, BrokenPipeError), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        _Service(connection, answer).run()


class _Service:
    """The worker's side of the connection."""

    def __init__(self, connection: Connection, answer: Answer[Any]) -> None:
        self._connection = connection
        self._answer = answer
        self._is_answering = False
        signal.signal(signal.SIGUSR1, self._say_what_it_waits_for)

    def run(self) -> None:
        self._connection.send(None)
        while True:
            question = self._connection.recv()
            self._is_answering = True
            try:
                finding = self._answer(question)
            except Exception as error:  # noqa: BLE001 (a fence: our failure is not the graph's)
                finding = Finding(kind=Kind.CHECK_FAILS, text=f"{type(error).__name__}: {error}")
            self._is_answering = False
            self._connection.send(finding)

    def _say_what_it_waits_for(self, number: int, frame: types.FrameType | None) -> None:
        if not self._is_answering:  # the answer is on its way
            return
        finding = Finding(kind=Kind.TIMES_OUT)
        if frame is not None:
            place = (frame.f_globals.get("__name__"), frame.f_code.co_name)
            if place in _SHARED_LOCKS:
                text = f"a worker waits for a lock that processes share ({place[0]})"
                finding = Finding(kind=Kind.UNANSWERED, text=text)
        self._connection.send(finding)
