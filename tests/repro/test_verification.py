"""Scripts are run once in a fresh process, and their headers state what that showed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from thunder.errors import ReproducerError
from thunder.repro import Crashes, Differs, Fails, Hangs, Passes, Status, verify
from thunder.repro.verification import judge, message_head, quiet_environment, run_apart

HEAD = "# a script\n# Verdict: not run\n\n"


@pytest.fixture
def script(tmp_path):
    def write(body: str):
        path = tmp_path / "script.py"
        path.write_text(HEAD + body)
        return path

    return write


CASES = {
    "passes": ("pass", Passes(), Status.CONFIRMED, "runs to the end, in a fresh process"),
    "fails instead": (
        "raise KeyError('x')",
        Passes(),
        Status.DIFFERENT,
        "expected that it runs to the end; it fails with KeyError: 'x'",
    ),
    "same failure": (
        "raise ValueError('bad 0xab12 in /some/folder/file.py\\nmore')",
        Fails.like(ValueError("bad 0xcd34 in /other/file.py\nless")),
        Status.CONFIRMED,
        "fails with ValueError: bad 0x in file.py, in a fresh process",
    ),
    "another message": (
        "raise ValueError('worse')",
        Fails.like(ValueError("bad")),
        Status.DIFFERENT,
        "expected that it fails with ValueError: bad; it fails with ValueError: worse",
    ),
    "another class": (
        "raise TypeError('bad')",
        Fails.like(ValueError("bad")),
        Status.DIFFERENT,
        "expected that it fails with ValueError: bad; it fails with TypeError: bad",
    ),
    "failure as a cause": (
        "try:\n    raise ValueError('bad')\n"
        "except ValueError as error:\n    raise RuntimeError('x') from error",
        Fails.like(ValueError("bad")),
        Status.CONFIRMED,
        "fails with ValueError: bad, in a fresh process",
    ),
    "no failure": (
        "pass",
        Fails.like(ValueError("bad")),
        Status.DIFFERENT,
        "expected that it fails with ValueError: bad; it runs to the end",
    ),
    "without a message": (
        "raise NotImplementedError",
        Fails.like(NotImplementedError()),
        Status.CONFIRMED,
        "fails with NotImplementedError, in a fresh process",
    ),
    "of a rank": (  # torch's hook puts the rank before each line
        "import sys; sys.exit('[rank1]: Traceback:\\n[rank1]:   raise\\n[rank1]: ValueError: bad')",
        Fails.like(ValueError("bad")),
        Status.CONFIRMED,
        "fails with ValueError: bad, in a fresh process",
    ),
    "killed": (
        "import os; os.kill(os.getpid(), 11)",
        Passes(),
        Status.DIFFERENT,
        "expected that it runs to the end; it crashes (signal 11, SIGSEGV)",
    ),
    "crash": (
        "import os; os.kill(os.getpid(), 11)",
        Crashes(11),
        Status.CONFIRMED,
        "crashes (signal 11, SIGSEGV), in a fresh process",
    ),
    "any crash": (
        "import os; os.abort()",
        Crashes(),
        Status.CONFIRMED,
        "crashes, in a fresh process",
    ),
    "another crash": (
        "import os; os.abort()",
        Crashes(11),
        Status.DIFFERENT,
        "expected that it crashes (signal 11, SIGSEGV); it crashes (signal 6, SIGABRT)",
    ),
    "no crash": (
        "raise KeyError('x')",
        Crashes(),
        Status.DIFFERENT,
        "expected that it crashes; it fails with KeyError: 'x'",
    ),
    "hang": (
        "import time; time.sleep(60)",
        Hangs(0.5),
        Status.CONFIRMED,
        "stopped after 0.5 s in a fresh process",
    ),
    "no hang": (
        "pass",
        Hangs(60),
        Status.DIFFERENT,
        "expected that it does not end within 60 s; it runs to the end",
    ),
    "wrong result": (
        "import sys; sys.exit('further from float64 than eager explains: x' * (len(sys.argv) - 1))",
        Differs(),
        Status.CONFIRMED,
        "gives a wrong result (--check_consistency), in a fresh process",
    ),
    "exit status": (
        "raise SystemExit(3)",
        Differs(),
        Status.DIFFERENT,
        "expected that it gives a wrong result (--check_consistency); it exits with status 3",
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_verdicts(name, script):
    body, expected, status, details = CASES[name]
    path = script(body)
    verdict = verify(path, expected, timeout=60)
    assert (verdict.status, verdict.details) == (status, details)
    assert path.read_text() == f"# a script\n# Verdict: {verdict}\n\n{body}"


def test_only_the_header_is_rewritten(script):
    path = script("x = '''\n# Verdict: not run\n'''")
    verify(path, Passes(), timeout=60)
    assert path.read_text().endswith("\n\nx = '''\n# Verdict: not run\n'''")


def test_too_long(script):
    path = script("import time; time.sleep(60)")
    start = time.monotonic()
    verdict = verify(path, Passes(), timeout=0.5)
    assert time.monotonic() - start < 30
    assert str(verdict) == (
        "NOT confirmed, no result in time: stopped after 0.5 s in a fresh process"
    )


def is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    status = Path(f"/proc/{pid}/stat")
    return not (status.exists() and status.read_text().split()[2] == "Z")


def test_interrupt_stops_the_script_and_its_children(tmp_path, script):
    note = tmp_path / "children"
    path = script(
        "import os, subprocess, sys, time\n"
        "child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(60)'])\n"
        f"open({str(note)!r} + '.part', 'w').write(f'{{os.getpid()}} {{child.pid}}')\n"
        f"os.rename({str(note)!r} + '.part', {str(note)!r})\n"
        "time.sleep(60)"
    )

    def interrupt_when_running():
        while not note.exists():
            time.sleep(0.05)
        os.kill(os.getpid(), signal.SIGINT)

    threading.Thread(target=interrupt_when_running, daemon=True).start()
    with pytest.raises(KeyboardInterrupt):
        verify(path, Passes(), timeout=60)
    assert path.read_text().startswith(HEAD)
    pids = [int(pid) for pid in note.read_text().split()]
    deadline = time.monotonic() + 20
    while any(map(is_alive, pids)) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not any(map(is_alive, pids))


def test_missing_script(tmp_path):
    with pytest.raises(ReproducerError, match=r"cannot read .*gone\.py"):
        verify(tmp_path / "gone.py", Passes())


def test_debug_switches_do_not_reach_the_child(monkeypatch, script):
    for name in ("THUNDER_DEBUG", "THUNDER_DEBUG_DIR", "TORCHDYNAMO_REPRO_AFTER", "TORCH_LOGS"):
        monkeypatch.setenv(name, "1")
    monkeypatch.setenv("KEPT", "1")
    environment = quiet_environment()
    assert "KEPT" in environment
    assert not [name for name in environment if name.startswith(("THUNDER", "TORCH_LOGS"))]
    path = script("import os\nassert 'THUNDER_DEBUG' not in os.environ\nassert os.environ['KEPT']")
    assert verify(path, Passes(), timeout=60).status is Status.CONFIRMED


def test_child_runs_in_an_empty_folder():
    code = "import os, sys; sys.exit(len(os.listdir('.')))"
    assert run_apart([sys.executable, "-c", code], 60, dict(os.environ)) == (0, "")
    with pytest.raises(subprocess.TimeoutExpired):
        run_apart([sys.executable, "-c", "while True: pass"], 0.3, dict(os.environ))


def test_heads_of_messages():
    assert message_head("\n  first\nsecond") == "first"
    assert message_head("") == ""
    assert message_head("at 0xabc, /a/b/c.py, line 12, <eval_with_key>.3") == (
        "at 0x, c.py, line, <eval_with_key>"
    )


def test_wrapped_by_dynamo():
    output = (
        "Traceback (most recent call last):\n  File 'x', line 1\n"
        "torch._dynamo.exc.BackendCompilerFailed: backend='thunder' raised:\n"
        "ExecutorError: no kernel for\n"
    )
    expected = Fails("ExecutorError", "no kernel for")
    assert judge(expected, 1, output).status is Status.CONFIRMED
