"""Workers answer, crash and are replaced."""

import math
import multiprocessing
import os
import signal
import subprocess
import sys
import time

import pytest

from thunder.diagnose import workers as workers_module
from thunder.diagnose.finding import Finding, Kind
from thunder.diagnose.workers import Forked, InProcess


def _answer(question):
    if question == "crash":
        os.kill(os.getpid(), signal.SIGSEGV)
    if question == "exit":
        os._exit(3)
    if question == "sleep":
        time.sleep(60)
    kind = Kind.FAILS if question in ("yes", "late yes") else Kind.PASSES
    if question == "late yes":
        time.sleep(0.5)
    return Finding(kind=kind, text=str(os.getpid()))


def _fails(finding):
    return finding.kind is Kind.FAILS


@pytest.fixture
def workers():
    with Forked(_answer, count=2, timeout=2.0) as pool:
        yield pool


def test_a_worker_answers_again_and_is_not_this_process(workers):
    pids = {workers.ask("no").text for _ in range(3)}
    assert len(pids) == 1
    assert pids != {str(os.getpid())}


def test_a_crash_is_an_answer_and_the_next_question_gets_one(workers):
    crash = workers.ask("crash")
    assert (crash.kind, crash.signal) == (Kind.CRASHES, -signal.SIGSEGV)
    assert workers.ask("exit").signal == 3
    assert workers.ask("yes").kind is Kind.FAILS


def test_too_long_is_an_answer_and_the_process_is_gone(workers):
    assert workers.ask("sleep").kind is Kind.TIMES_OUT
    assert workers.ask("yes").kind is Kind.FAILS


def test_the_first_in_order_counts_not_the_first_in_time(workers):
    position, _ = workers.first(["no", "late yes", "yes"], _fails)
    assert position == 1
    assert workers.first(["no", "no"], _fails) is None


def test_leaving_ends_the_processes():
    with Forked(_answer, count=2, timeout=5.0) as pool:
        pid = int(pool.ask("no").text)
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


def test_a_worker_can_be_for_one_answer():
    with Forked(_answer, count=1, timeout=5.0, answers_a_worker=1) as pool:
        assert pool.ask("no").text != pool.ask("no").text


def test_in_process():
    workers = InProcess(_answer)
    found = workers.first(["no", "yes"], _fails)
    assert found is not None
    position, finding = found
    assert (position, finding.text, workers.asked) == (1, str(os.getpid()), 2)


HOLDING = """
import faulthandler, os, time, torch
from torch import fx
from torch.hub import tqdm
from thunder.diagnose.finding import Kind
from thunder.diagnose.workers import Forked

faulthandler.dump_traceback_later(60, exit=True)
graph = fx.symbolic_trace(lambda x: x.exp().sin())
fx.Interpreter(graph).run(torch.ones(2))  # makes the lock

def hold(question):
    tqdm.get_lock().acquire()
    time.sleep(60)

with Forked(hold, count=1, timeout=1.0) as workers:
    assert workers.ask("x").kind is Kind.TIMES_OUT
print(fx.Interpreter(graph).run(torch.zeros(1)).item())
"""


def test_a_worker_that_is_killed_takes_no_lock_along():
    """Progress bars of `fx.Interpreter` have one lock for all forks."""
    done = subprocess.run(
        [sys.executable, "-c", HOLDING], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert float(done.stdout) == pytest.approx(math.sin(1.0))


def test_a_wait_for_a_shared_lock_is_no_answer_and_the_question_is_asked_again():
    """Here the lock is given back when the first waits are noticed."""
    lock = multiprocessing.get_context("fork").Lock()
    said = []

    def answer(question):
        with lock:
            return Finding(kind=Kind.FAILS if question == "yes" else Kind.PASSES)

    def say(words):
        if not said:
            lock.release()
        said.append(words)

    lock.acquire()
    with Forked(answer, count=2, timeout=0.3, say=say) as pool:
        found = pool.first(["no", "yes", "no"], _fails)
    assert found is not None
    assert found[0] == 1
    assert said[0] == (
        "a worker waits for a lock that processes share (multiprocessing.synchronize); "
        "its question is asked again"
    )


def test_a_lock_that_is_never_given_back_is_no_answer_either():
    lock = multiprocessing.get_context("fork").Lock()

    def answer(question):
        with lock:
            return Finding(kind=Kind.PASSES)

    lock.acquire()
    with Forked(answer, count=1, timeout=0.2) as pool:
        finding = pool.ask("x")
    assert (finding.kind, pool.asked) == (Kind.UNANSWERED, 3)
    assert not finding.is_like(Finding(kind=Kind.TIMES_OUT))


@pytest.mark.parametrize(
    ("start", "text"),
    [
        (lambda: time.sleep(60), "a worker did not start in 0.3 s"),
        (lambda: os._exit(5), "a worker ended at its start: exit status 5"),
    ],
)
def test_a_worker_that_does_not_start_is_no_answer(start, text, monkeypatch):
    monkeypatch.setattr(workers_module, "_own_locks", start)
    monkeypatch.setattr(workers_module, "_START_SECONDS", 0.3)
    with Forked(_answer, count=1, timeout=5.0) as pool:
        finding = pool.ask("yes")
    assert (finding.kind, finding.text) == (Kind.UNANSWERED, text)


def test_a_long_wait_is_spoken_of(monkeypatch):
    monkeypatch.setattr(workers_module, "_SAY_SECONDS", 0.3)
    said = []
    with Forked(_answer, count=1, timeout=1.0, say=said.append) as pool:
        assert pool.ask("sleep").kind is Kind.TIMES_OUT
    assert said
    assert set(said) <= {f"no answer for {seconds} s, 1 s at most" for seconds in range(3)}
