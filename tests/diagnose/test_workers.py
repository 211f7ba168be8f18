"""Workers answer, crash and are replaced."""

import math
import os
import signal
import subprocess
import sys
import time

import pytest

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
