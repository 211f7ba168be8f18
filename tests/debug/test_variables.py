"""The environment variables, in real processes where it matters."""

from __future__ import annotations

import logging
import os

import pytest

from thunder.debug import parse_environment
from thunder.debug.variables import DEBUG, DEBUG_DIR, REPRODUCERS, VARIABLES
from thunder.errors import DebugFlagError

CHECK = "from thunder.debug import parse_environment; parse_environment()"


def test_an_empty_environment_is_fine(monkeypatch):
    for variable in VARIABLES:
        monkeypatch.delenv(variable.name, raising=False)
    parse_environment()
    assert DEBUG.read() == frozenset()
    assert DEBUG_DIR.read() is None


def test_values_are_read_when_needed(monkeypatch, tmp_path):
    monkeypatch.setenv("THUNDER_DEBUG", "1")
    monkeypatch.setenv("THUNDER_DEBUG_DIR", "~/dump")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert DEBUG.read() == {"TRACE"}
    assert DEBUG_DIR.read() == tmp_path / "dump"


def test_an_invalid_value_names_variable_value_and_choices(monkeypatch):
    monkeypatch.setenv("THUNDER_DEBUG", "loud")
    with pytest.raises(DebugFlagError, match=r"THUNDER_DEBUG='loud': .* 1 or trace"):
        parse_environment()


def test_the_home_of_nobody(monkeypatch):
    monkeypatch.setenv("THUNDER_DEBUG_DIR", "~no-such-user/dump")
    with pytest.raises(DebugFlagError, match="THUNDER_DEBUG_DIR='~no-such-user/dump'"):
        parse_environment()


def test_a_slip_in_a_name_is_pointed_out(monkeypatch, caplog):
    monkeypatch.setenv("THUNDER_DEBUG_DRI", "somewhere")
    monkeypatch.setenv("THUNDER_ANNOTATE_TRACES", "1")
    with caplog.at_level(logging.WARNING, "thunder"):
        parse_environment()
    assert [record.getMessage() for record in caplog.records] == [
        "THUNDER_DEBUG_DRI is set, but is no variable of thunder's; did you mean THUNDER_DEBUG_DIR?"
    ]


def test_an_invalid_value_stops_a_program(program, tmp_path):
    status, out, err = program.run(CHECK, cwd=tmp_path, THUNDER_DEBUG="7")
    assert (status, out) == (1, "")
    last = err.strip().splitlines()[-1]
    assert last.startswith(
        "thunder.errors.DebugFlagError: THUNDER_DEBUG='7': '7' is neither a level"
    )
    assert not (tmp_path / "thunder_debug").exists()


def test_an_installed_package_announces_its_flags(program, tmp_path):
    """Its flags are usable in THUNDER_DEBUG, which is read before it is imported."""
    package = tmp_path / "tiler-1.0.dist-info"
    package.mkdir()
    (package / "METADATA").write_text("Metadata-Version: 2.1\nName: tiler\nVersion: 1.0\n")
    (package / "entry_points.txt").write_text("[thunder.debug_flags]\ntiling = tiler:TILING\n")
    code = f"""{CHECK}
from thunder.debug import DebugFlag, enabled
print(enabled(DebugFlag.TRACE), enabled(DebugFlag.FUSION_CODE))
print(enabled(DebugFlag.register("tiling", "Log the tile sizes.")))
"""
    path = f"{program.environment['PYTHONPATH']}:{tmp_path}"
    status, out, err = program.run(
        code, cwd=tmp_path, THUNDER_DEBUG="trace,tiling", PYTHONPATH=path
    )
    assert (status, out) == (0, "True False\nTrue\n"), err


@pytest.mark.parametrize("before", [None, "on"])
def test_a_variable_can_be_restored(monkeypatch, before):
    monkeypatch.delenv("THUNDER_REPRODUCERS", raising=False)
    if before is not None:
        monkeypatch.setenv("THUNDER_REPRODUCERS", before)
    with REPRODUCERS.restored():
        os.environ["THUNDER_REPRODUCERS"] = "off"
    assert os.environ.get("THUNDER_REPRODUCERS") == before
