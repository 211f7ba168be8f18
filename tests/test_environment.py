"""The environment check refuses what cannot work, is cheap, and the report tells facts."""

from __future__ import annotations

import json
import platform
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch

import thunder.environment
from thunder.environment import (
    check_environment,
    check_import_name,
    check_torch_version,
    environment_report,
    package_version,
)
from thunder.errors import UnsupportedEnvironmentError


def install_rival(site: Path) -> None:
    """Puts the metadata of another distribution that provides `thunder` into `site`."""
    metadata = site / "lightning_thunder-0.2.6.dist-info" / "METADATA"
    metadata.parent.mkdir()
    metadata.write_text("Metadata-Version: 2.1\nName: lightning-thunder\nVersion: 0.2.6\n")


@pytest.mark.parametrize(
    "version", ["2.10.0", "2.10.0a0+gitabc", "2.13.0+cpu", "2.14.0.dev20260101", "3.0"]
)
def test_supported_torch_passes(version):
    check_torch_version(version)


@pytest.mark.parametrize("version", ["2.9.1+cu128", "2.2.0", "1.13.1", "unknown"])
def test_other_torch_is_refused_with_the_remedy(version):
    with pytest.raises(UnsupportedEnvironmentError) as caught:
        check_torch_version(version)
    message = str(caught.value)
    assert version in message
    assert "pip install 'torch>=2.10'" in message


def test_rival_in_another_folder(tmp_path, monkeypatch):
    install_rival(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(UnsupportedEnvironmentError, match="the other one is hidden") as caught:
        check_import_name()
    for part in ("thunderfx", "lightning-thunder 0.2.6", "pip uninstall"):
        assert part in str(caught.value)


def test_rival_in_the_same_folder(tmp_path, monkeypatch):
    install_rival(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(
        thunder.environment, "__file__", str(tmp_path / "thunder" / "environment.py")
    )
    with pytest.raises(UnsupportedEnvironmentError, match="files are mixed"):
        check_import_name()


@pytest.mark.parametrize(
    ("spoil", "says"),
    [
        ("import torch; torch.__version__ = '2.9.0'", "needs torch 2.10 or newer"),
        ("import sys; sys.path.insert(0, {site!r})", "both provide the import name `thunder`"),
    ],
)
def test_importing_the_package_checks(tmp_path, spoil, says):
    install_rival(tmp_path)
    program = f"{spoil.format(site=str(tmp_path))}\nimport thunder"
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert run.returncode == 1
    last = run.stderr.strip().splitlines()[-1]
    assert last.startswith("thunder.errors.UnsupportedEnvironmentError: ")
    assert says in last


def test_check_is_cheap():
    def seconds():
        start = time.perf_counter()
        check_environment()
        return time.perf_counter() - start

    assert min(seconds() for _ in range(5)) < 0.005


def test_report_states_this_process():
    report = environment_report()
    assert report.torch == torch.__version__
    assert report.python == f"CPython {platform.python_version()}"
    assert report.cpu_threads == torch.get_num_threads()
    assert bool(report.devices) == torch.cuda.is_available()
    assert report.thunder == package_version()


def test_report_as_text_and_data():
    report = environment_report()
    data = json.loads(json.dumps(report.as_dict()))
    assert data["torch"] == torch.__version__
    lines = str(report).splitlines()
    assert [line.partition(":")[0] for line in lines] == list(data)
    assert report.headline().count("\n") == 0
    assert torch.__version__ in report.headline()


def test_report_is_the_same_in_another_process():
    program = "from thunder.environment import environment_report; print(environment_report())"
    run = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert run.stdout.strip() == str(environment_report())


def test_missing_compiler_is_said(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CXX", raising=False)  # where a path is in it, PATH does not matter
    thunder.environment._compiler.cache_clear()
    try:
        assert environment_report().compiler == "none found"
    finally:
        thunder.environment._compiler.cache_clear()
