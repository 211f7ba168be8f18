"""Saves the reproducers of a model's regions and runs them."""

from __future__ import annotations

import runpy
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from unittest import mock

import torch

from tests.zoo.cases import loss_of, make_case
from tests.zoo.judging import EXECUTORS
from thunder import save_reproducer, thunderfx


def run_scripts(model_type: str, *, checks: bool = True) -> Iterator[str]:
    """Compiles a model, forward and backward, and runs the scripts of its regions.

    Args:
        model_type: The model's type.
        checks: Whether the scripts compare with eager.

    Yields:
        The name of each script that ran.

    Raises:
        SystemExit: A script says that results are wrong.
    """
    case = make_case(model_type)
    case.model.train()
    compiled = thunderfx(case.model, executors=EXECUTORS, on_failure="raise")
    loss_of(compiled(**case.inputs)).backward()
    with tempfile.TemporaryDirectory() as folder:
        for path in save_reproducer(compiled, folder):
            torch._dynamo.reset()
            arguments = [str(path), *(["--check_consistency"] if checks else [])]
            with mock.patch.object(sys, "argv", arguments):
                _run(path)
            yield path.name


def _run(path: Path) -> None:
    try:
        runpy.run_path(str(path), run_name="__main__")
    except SystemExit as error:
        if error.code not in (None, 0):
            raise AssertionError(f"{path.name}: {error.code}") from error
