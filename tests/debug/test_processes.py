"""Several processes of one run that write into one folder."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from thunder.debug import write
from thunder.debug.folder import reset
from thunder.debug.process import process_label, rank


def listed(folder) -> list[dict[str, str]]:
    return [json.loads(line) for line in (folder / "index.jsonl").read_text().splitlines()]


@pytest.mark.parametrize(("text", "expected"), [("3", 3), ("", 0), ("x", 0), ("-1", 0), ("٣", 0)])
def test_the_launchers_rank(monkeypatch, text, expected):
    monkeypatch.setenv("RANK", text)
    assert rank() == expected
    assert process_label() == f"rank{expected}"


def test_the_rank_is_in_the_file_name(folder, monkeypatch):
    monkeypatch.setenv("RANK", "5")
    assert write("notes", "text", graph="graph0") == folder / "graph0_notes_rank5.py"


RANKS = """
import os, torch.distributed as dist
from thunder.debug import DebugFlag, GraphDump, write
number = os.environ["NUMBER"]
dist.init_process_group("gloo", init_method="file://" + os.path.abspath("store"),
                        rank=int(number), world_size=2)
dist.barrier()
for count in range(15):
    graph = GraphDump(f"graph{count}")
    for direction in ("forward", "backward"):
        graph.artifact(DebugFlag.TRACE, lambda: f"rank {number}", direction=direction)
dist.barrier()
dist.destroy_process_group()
"""


def test_two_gloo_ranks(program, tmp_path):
    """Both write at the same time; RANK of the launcher is not needed."""
    processes = [
        program.start(
            RANKS, cwd=tmp_path, NUMBER=number, THUNDER_DEBUG="trace", THUNDER_DEBUG_DIR="dump"
        )
        for number in "01"
    ]
    for process in processes:
        out, err = process.communicate(timeout=180)
        assert (process.returncode, out) == (0, ""), err
    dump = tmp_path / "dump"
    traces = sorted(path.name for path in dump.glob("*.py"))
    assert traces == sorted(
        f"graph{count}_{direction}_trace_rank{number}.py"
        for count in range(15)
        for direction in ("forward", "backward")
        for number in (0, 1)
    )
    for name in traces:
        assert (dump / name).read_text() == f"rank {name.removesuffix('.py')[-1]}"
    assert sorted(line["file"] for line in listed(dump)) == traces
    table = (dump / "index.txt").read_text()
    assert all(name in table for name in traces)


WORKERS = """
import os, threading, time
from torch.utils.data import DataLoader, Dataset
from thunder.debug import write
from thunder.debug.folder import attempt

class Data(Dataset):
    def __len__(self):
        return 4
    def __getitem__(self, index):
        return str(write("item", f"{index}", graph=f"graph{index}"))

def main():
    print(write("main", "before"))
    # The workers are forked while a thread is busy with the folder.
    busy = threading.Thread(target=lambda: attempt(lambda folder: time.sleep(2)))
    busy.start()
    for batch in DataLoader(Data(), num_workers=2, batch_size=1):
        print(*batch)
    busy.join()
    pid = os.fork()
    if pid == 0:
        write("main", "child")
        os._exit(0)
    os.waitpid(pid, 0)
    print(write("main", "end"))

main()
os.environ["THUNDER_DEBUG_DIR"] = "dump"
main()
"""


def test_dataloader_workers_and_forks(program, tmp_path):
    status, out, err = program.run(WORKERS, cwd=tmp_path, PYTHONWARNINGS="ignore")
    assert (status, err) == (0, "")
    lines = out.splitlines()
    check_own_folders(tmp_path / "thunder_debug", [Path(line) for line in lines[:6]])
    check_shared_folder(tmp_path / "dump", [Path(line) for line in lines[6:]])


def check_own_folders(root: Path, paths: list[Path]) -> None:
    """Without a named folder, each process has one with its own process id."""
    folders = [path.parent for path in paths]
    assert {folder.parent for folder in folders} == {root}
    assert folders[0] == folders[-1]
    assert len(set(folders)) == 3
    assert len({folder.name.rpartition("-")[2] for folder in root.iterdir()}) == 4
    assert len(list(root.glob("*/main_rank0.py"))) == 2  # the forked child's too


def check_shared_folder(dump: Path, paths: list[Path]) -> None:
    """In a named folder, each process has names of its own."""
    assert paths == [
        dump / "main_rank0.py",
        *(dump / f"graph{index}_item_rank0-worker{index % 2}.py" for index in range(4)),
        dump / "main_rank0.py",
    ]
    assert (dump / "main_rank0.py").read_text() == "end"
    assert (dump / "main_rank0-2.py").read_text() == "child"
    assert sorted(line["file"] for line in listed(dump)) == sorted(
        path.name for path in dump.glob("*.py")
    )


def test_two_programs_of_one_rank(program, folder):
    """The one that comes later gets a name of its own; afterwards the name is free again."""
    code = """
import sys
from thunder.debug import write
print(write("notes", "first"), flush=True)
sys.stdin.readline()
"""
    other = program.start(code, cwd=folder.parent, THUNDER_DEBUG_DIR=str(folder))
    assert other.stdout is not None
    assert other.stdout.readline() == f"{folder}/notes_rank0.py\n"
    assert write("notes", "second") == folder / "notes_rank0-2.py"
    other.communicate("done\n", timeout=60)
    reset()
    assert write("notes", "third") == folder / "notes_rank0.py"
    assert (folder / "notes_rank0.py").read_text() == "third"
    assert (folder / "notes_rank0-2.py").read_text() == "second"
