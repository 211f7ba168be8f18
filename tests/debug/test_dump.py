"""Artifacts of graphs: who gets them, and what their files are called."""

from __future__ import annotations

import logging
import os
import threading

import pytest

from thunder.debug import DebugFlag, GraphDump, active, debug_folder, subfolder, write
from thunder.debug.folder import plain


def never() -> str:
    raise AssertionError("made although nobody wants it")


def files(folder) -> list[str]:
    return sorted(path.name for path in folder.iterdir() if not path.name.startswith("."))


def test_nothing_is_made_while_no_flag_is_on(folder, monkeypatch):
    monkeypatch.chdir(folder.parent)
    assert GraphDump("graph0").artifact(DebugFlag.TRACE, never) is None
    with active("fusion_code"):
        assert GraphDump("graph0").artifact(DebugFlag.TRACE, never, direction="forward") is None
    assert not folder.exists()
    assert not (folder.parent / "thunder_debug").exists()


def test_one_file_a_kind_graph_direction_and_part(folder, capfd):
    graph = GraphDump("graph0_thunder_0")
    with active(True):
        paths = [
            graph.artifact(DebugFlag.TRACE, lambda: "forward", direction="forward"),
            graph.artifact(DebugFlag.TRACE, lambda: "backward", direction="backward"),
            graph.artifact(DebugFlag.TRACE, lambda: "prologue", direction="prologue"),
            graph.artifact(
                DebugFlag.FUSION_CODE,
                lambda: "kernel",
                direction="forward",
                part="inductorFusion0",
                kind="kernel",
                extension="cpp",
            ),
        ]
    assert [path and path.relative_to(folder).as_posix() for path in paths] == [
        "graph0_thunder_0_forward_trace_rank0.py",
        "graph0_thunder_0_backward_trace_rank0.py",
        "graph0_thunder_0_prologue_trace_rank0.py",
        "graph0_thunder_0_inductorFusion0_forward_kernel_rank0.cpp",
    ]
    assert [path and path.read_text() for path in paths] == [
        "forward",
        "backward",
        "prologue",
        "kernel",
    ]
    assert capfd.readouterr() == ("", "")


def test_the_environment_turns_it_on(folder, monkeypatch):
    monkeypatch.setenv("THUNDER_DEBUG", "trace")
    path = GraphDump("graph0").artifact(DebugFlag.TRACE, lambda: "text", direction="forward")
    assert path == folder / "graph0_forward_trace_rank0.py"


def test_graphs_of_two_callables_have_files_of_their_own(folder):
    first, second, third = GraphDump("graph0"), GraphDump("graph0"), GraphDump("graph0-2")
    with active("trace"):
        for graph in (first, second, third):
            for direction in ("forward", "backward"):
                graph.artifact(DebugFlag.TRACE, lambda g=graph: g.name, direction=direction)
    assert [first.name, second.name, third.name] == ["graph0", "graph0-2", "graph0-2-2"]
    for graph in (first, second, third):
        for direction in ("forward", "backward"):
            path = folder / f"{graph.name}_{direction}_trace_rank0.py"
            assert path.read_text() == graph.name


def test_a_later_version_replaces_an_earlier_one(folder):
    graph = GraphDump("graph0")
    with active("trace"):
        for text in ("tried first", "used"):
            graph.artifact(DebugFlag.TRACE, lambda t=text: t)
    assert files(folder) == ["graph0_trace_rank0.py", "index.jsonl", "index.txt"]
    assert (folder / "graph0_trace_rank0.py").read_text() == "used"


def test_an_artifact_that_cannot_be_made_does_not_break_the_run(folder, caplog):
    def broken() -> str:
        raise KeyError("node")

    with active("trace"), caplog.at_level(logging.WARNING, "thunder"):
        for _ in range(2):
            assert GraphDump("graph0").artifact(DebugFlag.TRACE, broken) is None
    assert [record.getMessage() for record in caplog.records] == [
        "the artifact graph0_trace could not be made (KeyError: 'node'); the run goes on without it"
    ]


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("../../etc/passwd", "_.._etc_passwd"),
        ("a/b", "a_b"),
        (".hidden", "hidden"),
        ("x\ny\0z", "x_y_z"),
        ("graph 0'\"{}", "graph_0_"),
        ("naïve", "na_ve"),
        ("graph0-2", "graph0-2"),
    ],
)
def test_untrusted_names_become_plain_ones(folder, name, expected):
    assert plain(name) == expected
    path = write("kind", "text", graph=name, direction=name, extension="txt")
    assert path == folder / f"{expected}_{expected}_kind_rank0.txt"


def test_long_names_stay_apart_and_fit(folder):
    names = ["g" * 1000, "g" * 999 + "h"]
    paths = [write("k" * 300, "x", graph=n, direction="d" * 300, extension="e" * 99) for n in names]
    assert None not in paths
    assert paths[0] != paths[1]


def test_any_text_can_be_written(folder):
    path = write("notes", "é \ud800 \0")
    assert path is not None
    assert path.read_bytes() == b"\xc3\xa9 \\ud800 \0"
    path = write("inputs", b"\xff\0", extension="pt")
    assert path is not None
    assert path.read_bytes() == b"\xff\0"


def test_the_umask_is_the_users(folder):
    old = os.umask(0o027)
    try:
        path = write("notes", "text")
        inner = subfolder("torch")
    finally:
        os.umask(old)
    assert path is not None
    assert inner is not None
    assert path.stat().st_mode & 0o777 == 0o640
    assert folder.stat().st_mode & 0o777 == 0o750
    assert inner.stat().st_mode & 0o777 == 0o750


def test_folders(folder):
    assert debug_folder() == folder
    assert subfolder("torch") == subfolder("torch") == folder / "torch_rank0"
    assert (folder / "torch_rank0").is_dir()


def test_threads_write_into_one_folder(folder):
    def work(number: int) -> None:
        for count in range(5):
            write("notes", f"{number} {count}", graph=f"graph{number}", direction=f"step{count}")

    threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(files(folder)) == 8 * 5 + 2
    assert len((folder / "index.jsonl").read_text().splitlines()) == 8 * 5
    assert (folder / "index.txt").read_text().count("notes_rank0.py") == 8 * 5
