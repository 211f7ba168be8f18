"""The index says what is in the folder."""

from __future__ import annotations

import json
import shutil

from thunder.debug import DebugFlag, GraphDump, active, remove, subfolder, write
from thunder.debug import folder as folder_module


def dump_some() -> None:
    graph = GraphDump("graph0")
    with active("trace"):
        graph.artifact(DebugFlag.TRACE, lambda: "f", direction="forward")
        graph.artifact(DebugFlag.TRACE, lambda: "b", direction="backward")
    write("reproducer", "pass")
    subfolder("torch")


def test_the_index_lists_every_file(folder):
    dump_some()
    assert (folder / "index.txt").read_text() == (
        "What thunder wrote into this folder. index.jsonl has the same as JSON lines.\n"
        "The .lock files keep processes that write here at the same time apart; they can be "
        "deleted\nwhen none is running.\n"
        "\n"
        "file                            kind        graph   direction  process\n"
        "graph0_backward_trace_rank0.py  trace       graph0  backward   rank0\n"
        "graph0_forward_trace_rank0.py   trace       graph0  forward    rank0\n"
        "reproducer_rank0.py             reproducer                     rank0\n"
        "torch_rank0/                    torch                          rank0\n"
    )
    lines = [json.loads(line) for line in (folder / "index.jsonl").read_text().splitlines()]
    assert lines[0] == {
        "file": "graph0_forward_trace_rank0.py",
        "kind": "trace",
        "graph": "graph0",
        "direction": "forward",
        "process": "rank0",
    }
    listed = {line["file"].rstrip("/") for line in lines}
    assert listed | {"index.txt", "index.jsonl"} == {
        path.name for path in folder.iterdir() if not path.name.startswith(".")
    }


def test_two_runs_leave_equal_folders(folder, monkeypatch):
    other = folder.parent / "again"
    dump_some()
    folder_module.reset()
    monkeypatch.setenv("THUNDER_DEBUG_DIR", str(other))
    dump_some()
    contents = [
        {path.name: path.read_bytes() for path in place.iterdir() if path.is_file()}
        for place in (folder, other)
    ]
    assert contents[0] == contents[1]


def test_a_second_run_in_the_same_folder_replaces_and_keeps(folder):
    dump_some()
    before = {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}
    folder_module.reset()
    dump_some()
    after = {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}
    assert set(after) == set(before)
    assert after["index.txt"] == before["index.txt"]
    write("extra", "x")
    assert "extra_rank0.py" in (folder / "index.txt").read_text()


def test_damaged_and_foreign_lines_are_passed_over(folder):
    folder.mkdir()
    lines = [
        b"\xff\xfe",
        b"[1, 2]",
        b'{"file": "x"}',
        b'{"file": 1, "kind": "", "graph": "", "direction": "", "process": ""}',
        b'{"file": "a\\nb", "kind": "", "graph": "", "direction": "", "process": ""}',
        b'{"file": "cut off by a cr',
    ]
    (folder / "index.jsonl").write_bytes(b"\n".join(lines))
    write("notes", "text")
    table = (folder / "index.txt").read_text().partition("\n\n")[2]
    assert table.splitlines()[1:] == ["notes_rank0.py  notes                    rank0"]
    assert (folder / "index.jsonl").read_bytes().count(b"\n") == len(lines) + 1


def test_an_index_that_somebody_emptied_starts_over(folder):
    write("one", "1")
    write("two", "2")
    (folder / "index.jsonl").write_text("")
    write("three", "3")
    table = (folder / "index.txt").read_text()
    assert "three_rank0.py" in table
    assert "one_rank0.py" not in table


def test_a_folder_that_was_deleted_is_made_again(folder):
    write("one", "1")
    shutil.rmtree(folder)
    assert write("two", "2") == folder / "two_rank0.py"
    assert "two_rank0.py" in (folder / "index.txt").read_text()
    assert "one_rank0.py" not in (folder / "index.txt").read_text()


def test_what_was_removed_is_not_in_the_index(folder):
    kept, gone = write("kept", "x"), write("crash", "x", graph="graph0")
    assert kept is not None and gone is not None
    remove(gone)
    assert not gone.exists()
    table = (folder / "index.txt").read_text()
    assert kept.name in table and gone.name not in table
    remove(gone)  # is gone already
    remove(folder.parent / "elsewhere.py")
    assert write("crash", "x", graph="graph0") == gone
    assert gone.name in (folder / "index.txt").read_text()
