"""A debug folder of its own for each test, and programs in fresh processes."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest

from thunder.debug import folder as folder_module
from thunder.debug import log

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(autouse=True)
def _unspoken(monkeypatch):
    """Lets each test see the warnings that are said once."""
    monkeypatch.setattr(log, "_said", {})


@pytest.fixture(autouse=True)
def temporary(tmp_path, monkeypatch) -> Path:
    """Where a fallback goes; nothing is left behind."""
    path = tmp_path / "temporary"
    path.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(path))
    return path


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """The folder that THUNDER_DEBUG_DIR names; nobody has made it yet."""
    path = tmp_path / "dump"
    monkeypatch.setenv("THUNDER_DEBUG_DIR", str(path))
    folder_module.reset()
    yield path
    folder_module.reset()


class Program:
    """A Python program in a process of its own."""

    def __init__(self, temporary: Path) -> None:
        self.environment = {
            name: value for name, value in os.environ.items() if not name.startswith("THUNDER_")
        } | {"PYTHONPATH": str(ROOT), "TMPDIR": str(temporary)}

    def start(
        self, code: str, *, cwd: Path, before: Callable[[], None] | None = None, **variables: str
    ) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, "-c", code],
            cwd=cwd,
            env=self.environment | variables,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            preexec_fn=before,
        )

    def run(
        self, code: str, *, cwd: Path, before: Callable[[], None] | None = None, **variables: str
    ) -> tuple[int, str, str]:
        """Returns exit status, standard output and standard error."""
        process = self.start(code, cwd=cwd, before=before, **variables)
        out, err = process.communicate(timeout=180)
        return process.returncode, out, err


@pytest.fixture
def program(temporary) -> Program:
    return Program(temporary)
