"""The examples run as their docstrings say."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

EXAMPLES = Path(__file__).parents[1] / "examples"


def run(*arguments, **environment):
    done = subprocess.run(
        [sys.executable, *arguments],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "FallbackWarning" not in done.stderr
    return done.stdout


def test_a_triton_kernel_as_an_executor(tmp_path):
    """Triton's interpreter runs the kernel without a GPU."""
    pytest.importorskip("triton", reason="comes with CUDA builds of torch")
    device = "cuda" if torch.cuda.is_available() else "cpu"
    interpreted = {} if device == "cuda" else {"TRITON_INTERPRET": "1"}
    rest = "inductor" if device == "cuda" else "aten"
    printed = run(
        EXAMPLES / "triton_executor.py",
        *("--device", device, "--rest", rest),
        **interpreted,
        THUNDER_DEBUG_DIR=str(tmp_path),
    )
    fusions = printed.splitlines()[-1].split()
    assert fusions[0] == "fusions:" and "triton_swigluFusion0" in fusions
