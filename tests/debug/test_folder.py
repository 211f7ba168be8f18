"""Where the debug folder is, and what happens when it cannot be there."""

from __future__ import annotations

import ctypes
import logging
import os
import re
import resource
import shutil
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from thunder.debug import debug_folder, subfolder, write
from thunder.debug import folder as folder_module


@pytest.fixture
def here(tmp_path, monkeypatch):
    """A working directory, with no folder named by the environment."""
    path = tmp_path / "here"
    path.mkdir()
    monkeypatch.chdir(path)
    monkeypatch.delenv("THUNDER_DEBUG_DIR", raising=False)
    folder_module.reset()
    yield path
    folder_module.reset()


def test_the_default_is_below_the_working_directory(here, monkeypatch):
    path = write("notes", "text")
    assert path is not None
    assert re.fullmatch(rf"\d{{8}}-\d{{6}}-{os.getpid()}", path.parent.name)
    assert path.parent.parent == here / "thunder_debug"
    monkeypatch.chdir("/")  # a program that goes elsewhere goes on writing there
    assert write("more", "text") == path.parent / "more_rank0.py"


def test_a_relative_folder_and_its_parents_are_made(here, monkeypatch):
    monkeypatch.setenv("THUNDER_DEBUG_DIR", "runs/a b")
    assert write("notes", "text") == here / "runs/a b/notes_rank0.py"


def drop_privileges() -> None:
    """Makes root respect permissions after the next exec; a normal user does anyway."""
    ctypes.CDLL(None).prctl(24, 1, 0, 0, 0)  # PR_CAPBSET_DROP, CAP_DAC_OVERRIDE


def test_read_only_folders(program, temporary, tmp_path):
    """Falls back to a temporary folder, says so once, and goes on."""
    code = """
import os
from thunder.debug import write
print(write("notes", "text", graph="graph0"), write("notes", "text", graph="graph1"))
os.environ["THUNDER_DEBUG_DIR"] = "."
print(write("notes", "text", graph="graph2"))
"""
    sealed = tmp_path / "sealed"
    sealed.mkdir()
    sealed.chmod(0o555)
    status, out, err = program.run(code, cwd=sealed, before=drop_privileges)
    assert status == 0, err
    paths = [Path(path) for path in out.split()]
    assert [path.name for path in paths] == [f"graph{n}_notes_rank0.py" for n in range(3)]
    assert all(path.read_text() == "text" for path in paths)
    assert paths[0].parent == paths[1].parent != paths[2].parent
    for path in paths:
        assert path.parent.parent == temporary
        assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    assert list(sealed.iterdir()) == []
    first, second = err.splitlines()
    assert first.startswith("thunder_debug cannot be used for debug output ([Errno 13]")
    assert f"it goes to {paths[0].parent}." in first
    assert "THUNDER_DEBUG_DIR" in first
    assert second.startswith(". cannot be used")


@pytest.mark.parametrize("place", ["/dev/full", "/proc/thunder", "file", "file/below", "loop"])
def test_impossible_places(here, monkeypatch, caplog, temporary, place):
    (here / "file").write_text("mine")
    (here / "loop").symlink_to("loop")
    monkeypatch.setenv("THUNDER_DEBUG_DIR", place)
    with caplog.at_level(logging.WARNING, "thunder"):
        paths = [write("notes", "text"), write("more", "text"), subfolder("torch")]
    assert [path and path.parent.parent for path in paths] == [temporary] * 3
    assert len(caplog.records) == 1
    assert "cannot be used for debug output" in caplog.text
    assert (here / "file").read_text() == "mine"


def test_no_place_at_all(here, monkeypatch, caplog, temporary):
    monkeypatch.setenv("THUNDER_DEBUG_DIR", "/dev/full")
    temporary.rmdir()
    with caplog.at_level(logging.WARNING, "thunder"):
        results = [write("notes", "text"), subfolder("torch"), debug_folder()]
    assert results == [None, None, None]
    assert len(caplog.records) == 1
    assert "the run goes on without it" in caplog.text


def test_a_working_directory_that_is_gone(here, temporary):
    here.rmdir()
    path = write("notes", "text")
    assert path is not None
    assert path.parent.parent == temporary


def test_files_that_grow_too_large(program, tmp_path):
    """A limit that the kernel enforces, as it does a quota."""
    code = """
from thunder.debug import write
print(write("small", "x"), write("large", "x" * 100_000), write("large", "y" * 100_000))
print(write("after", "x"))
"""
    limit = (50_000, 50_000)
    status, out, err = program.run(
        code,
        cwd=tmp_path,
        before=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, limit),
        THUNDER_DEBUG_DIR="dump",
        PYTHONDONTWRITEBYTECODE="1",
    )
    assert status == 0, err
    dump = tmp_path / "dump"
    assert out == f"{dump}/small_rank0.py None None\n{dump}/after_rank0.py\n"
    assert err.count("debug output could not be written ([Errno 27]") == 1
    assert sorted(path.name for path in dump.iterdir()) == [
        ".rank0.lock",
        "after_rank0.py",
        "index.jsonl",
        "index.txt",
        "small_rank0.py",
    ]


def can_mount() -> bool:
    return (
        bool(shutil.which("unshare"))
        and not subprocess.run(
            ["unshare", "--mount", "mount", "-t", "tmpfs", "none", "/mnt"], capture_output=True
        ).returncode
    )


@pytest.mark.skipif(not can_mount(), reason="filling a disk needs the right to mount one")
def test_a_full_disk(program, tmp_path):
    (tmp_path / "disk").mkdir()
    code = """
import pathlib, subprocess
subprocess.run("mount -t tmpfs -o size=64k none disk", shell=True, check=True)
from thunder.debug import write
print(write("small", "x").read_text())
for number in range(40):
    write("notes", "x" * 4000, graph=f"graph{number}")
print(write("last", "x" * 4000))
disk = pathlib.Path("disk")
print([path for path in disk.iterdir() if path.suffix == ".tmp"])
print({path.stat().st_size for path in disk.glob("*_notes_*")})
"""
    command = ["unshare", "--mount", sys.executable, "-c", code]
    launch = f"import os; os.execvp('unshare', {command!r})"
    status, out, err = program.run(launch, cwd=tmp_path, THUNDER_DEBUG_DIR="disk")
    assert status == 0, err
    assert out == "x\nNone\n[]\n{4000}\n"
    assert err.count("debug output could not be written ([Errno 28]") == 1
    assert len(err.splitlines()) == 1 + err.count("the index of")
    assert err.count("the index of") <= 1


def test_a_planted_link_in_the_place_of_a_file_is_replaced(folder):
    victim = folder.parent / "victim"
    victim.write_text("precious")
    folder.mkdir()
    for name in ("notes_rank0.py", "index.txt"):
        (folder / name).symlink_to(victim)
    path = write("notes", "text")
    assert path is not None
    assert not path.is_symlink()
    assert path.read_text() == "text"
    assert "notes_rank0.py" in (folder / "index.txt").read_text()
    assert victim.read_text() == "precious"


@pytest.mark.parametrize("plant", ["link", "dangling", "hard link", "pipe", "folder"])
def test_a_planted_index_costs_the_index_only(folder, caplog, plant):
    victim = folder.parent / "victim"
    victim.write_text("precious")
    folder.mkdir()
    place = folder / "index.jsonl"
    match plant:
        case "link":
            place.symlink_to(victim)
        case "dangling":
            place.symlink_to(folder.parent / "made")
        case "hard link":
            place.hardlink_to(victim)
        case "pipe":
            os.mkfifo(place)
        case "folder":
            place.mkdir()
    with caplog.at_level(logging.WARNING, "thunder"):
        paths = [write("notes", "text"), write("more", "text")]
    assert [path and path.read_text() for path in paths] == ["text", "text"]
    (record,) = caplog.records
    assert "the index" in record.getMessage()
    assert victim.read_text() == "precious"
    assert not (folder.parent / "made").exists()


def test_a_planted_link_in_the_place_of_a_subfolder(folder):
    elsewhere = folder.parent / "elsewhere"
    elsewhere.mkdir()
    folder.mkdir()
    (folder / "torch_rank0").symlink_to(elsewhere)
    assert subfolder("torch") is None


def test_a_planted_link_in_the_place_of_the_default_folder(here, temporary, caplog):
    elsewhere = here.parent / "elsewhere"
    elsewhere.mkdir()
    (here / "thunder_debug").symlink_to(elsewhere)
    path = write("notes", "text")
    assert path is not None
    assert path.parent.parent == temporary
    assert list(elsewhere.iterdir()) == []
    assert "cannot be used" in caplog.text


def test_the_users_own_link_is_followed(folder):
    elsewhere = folder.parent / "elsewhere"
    elsewhere.mkdir()
    folder.symlink_to(elsewhere)
    assert write("notes", "text") == elsewhere / "notes_rank0.py"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can make another user's link")
def test_another_users_link_is_not_followed(folder, temporary):
    elsewhere = folder.parent / "elsewhere"
    elsewhere.mkdir()
    folder.symlink_to(elsewhere)
    os.lchown(folder, 65534, 65534)
    path = write("notes", "text")
    assert path is not None
    assert path.parent.parent == temporary
    assert list(elsewhere.iterdir()) == []


def test_a_folder_that_is_swapped_for_a_link(folder):
    """What was opened stays; a new folder is not made through the link."""
    write("one", "1")
    moved = folder.parent / "moved"
    folder.rename(moved)
    elsewhere = folder.parent / "elsewhere"
    elsewhere.mkdir()
    folder.symlink_to(elsewhere)
    if os.geteuid() == 0:
        os.lchown(folder, 65534, 65534)
        write("two", "2")
        assert list(elsewhere.iterdir()) == []
    assert (moved / "one_rank0.py").read_text() == "1"
