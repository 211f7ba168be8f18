"""The demo runs to its end, says what is true, and behaves on terminals and on Ctrl-C."""

from __future__ import annotations

import os
import pty
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from examples import demo

SCRIPT = Path(demo.__file__)
CHAPTERS = ("Training", "The forward trace", "Graphs and splits", "Time against", "Reproducers")


@pytest.fixture(scope="module")
def finished(tmp_path_factory) -> tuple[str, Path]:
    """What a short run printed, and the folder that it ran in."""
    folder = tmp_path_factory.mktemp("demo")
    command = [sys.executable, str(SCRIPT), "--steps", "6", "--rounds", "2"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout, folder


def test_goes_through_all_chapters(finished):
    printed, _ = finished
    positions = [printed.index(chapter) for chapter in CHAPTERS]
    assert positions == sorted(positions)
    assert "\x1b" not in printed, "no control sequences where there is no terminal"


def test_learns_what_eager_learns(finished):
    printed, _ = finished
    losses = re.findall(r"loss ([\d.]+) eager, ([\d.]+) thunderfx", printed)
    assert len(losses) == 6
    assert float(losses[-1][1]) < 0.8 * float(losses[0][1])
    assert printed.count("equal") == 3
    assert "DIFFERENT" not in printed


def test_writes_what_it_names(finished):
    printed, folder = finished
    output = folder / "demo_output"
    traces = sorted(path.name for path in output.glob("*_trace_*.py"))
    assert traces == ["backward_trace_0.py", "forward_trace_0.py"]
    for name in traces:
        compile((output / name).read_text(), name, "exec")
    scripts = re.findall(r"^  (\S+\.py)$", printed, re.MULTILINE)
    assert scripts
    assert all((folder / script).is_file() for script in scripts)


def test_times_all_three(finished):
    printed, _ = finished
    for work in ("training step", "inference"):
        row = next(line for line in printed.splitlines() if work in line)
        assert len(re.findall(r"\d+\.\d\d \(\d+\.\d\dx\)", row)) == 3


def test_interrupted_on_a_terminal(tmp_path):
    """The progress bar is drawn; Ctrl-C ends with one sentence and the usual status."""
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, str(SCRIPT), "--steps", "100000"],
        cwd=tmp_path,
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        env=os.environ | {"TERM": "xterm", "COLUMNS": "100"},
    )
    os.close(theirs)
    shown = ""
    while chunk := _read(ours):
        shown += chunk
        if "thunderfx" in shown and re.search(r"[1-9]\d*/100000", shown):
            process.send_signal(signal.SIGINT)
            break
    while chunk := _read(ours):
        shown += chunk
    assert process.wait() == 130, shown
    assert "Stopped. What was written so far is in demo_output/" in shown
    assert "Traceback" not in shown


def _read(terminal: int) -> str:
    try:
        return os.read(terminal, 4096).decode(errors="replace")
    except OSError:  # how a terminal says that the other side has gone
        return ""


def test_a_difference_is_the_exit_status(monkeypatch, tmp_path):
    monkeypatch.setattr(sys, "argv", ["demo.py", "--output", str(tmp_path)])
    for distance, status in ((0.0, 0), (1.0, 1), (float("nan"), 1)):
        check = demo.Check(what="loss", distance=distance)
        monkeypatch.setattr(demo, "run", lambda options, console, check=check: [check])
        assert demo.main() == status


def test_a_shortened_trace_says_what_is_missing():
    arguments = [f'    x{index},  # "cpu f32[2]"' for index in range(9)]
    body = [f"    y{index} = torch.sin(x{index})" for index in range(60)]
    program = "\n".join(
        [
            "import torch",
            "",
            "",
            "def forward(",
            *arguments,
            "):",
            *body,
            "",
            "",
            "def f():",
            "    pass",
        ]
    )
    lines = demo.shorten(program, width=40).splitlines()
    assert lines[0] == "def forward("
    assert lines[1:6] == [*arguments[:3], "    # ... 5 lines more ...", arguments[-1]]
    assert [*lines[6:9], *lines[-12:-2]] == ["):", *body[:2], *body[-10:]]
    assert lines[-1] == "# ... 2 lines more let it run by itself ..."
    assert demo.shorten(program, width=12).splitlines()[1] == "    x0,  # …"


@pytest.mark.parametrize("arguments", [["--steps", "0"], ["--rounds", "many"]])
def test_bad_arguments_are_explained(arguments, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["demo.py", *arguments])
    with pytest.raises(SystemExit) as stopped:
        demo.main()
    assert stopped.value.code == 2
    assert f"argument {arguments[0]}:" in capsys.readouterr().err
