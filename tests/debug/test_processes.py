"""Several processes of one run that write into one folder."""

from __future__ import annotations

import json

import pytest

from thunder.debug import write
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
from thunder.debug import debug_folder, write
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
    print(write("main", "after"))
    pid = os.fork()
    if pid == 0:
        write("main", "child")
        os._exit(0)
    os.waitpid(pid, 0)
    print(write("main", "end"))

main()
"""


def test_dataloader_workers_in_a_named_folder(program, tmp_path):
    status, out, err = program.run(
        WORKERS, cwd=tmp_path, THUNDER_DEBUG_DIR="dump", PYTHONWARNINGS="ignore"
    )
    assert (status, err) == (0, "")
    dump = tmp_path / "dump"
    assert out.splitlines() == [
        f"{dump}/main_rank0.py",
        *(f"{dump}/graph{index}_item_rank0-worker{index % 2}.py" for index in range(4)),
        f"{dump}/main_rank0.py",
        f"{dump}/main_rank0.py",
    ]
    assert (dump / "main_rank0.py").read_text() == "end"
    assert (dump / "main_rank0-2.py").read_text() == "child"
    assert sorted(line["file"] for line in listed(dump)) == sorted(
        path.name for path in dump.glob("*.py")
    )


def test_dataloader_workers_without_a_named_folder(program, tmp_path):
    """Each process has a folder with its own process id."""
    status, out, err = program.run(WORKERS, cwd=tmp_path, PYTHONWARNINGS="ignore")
    assert (status, err) == (0, "")
    folders = {path.rpartition("/")[0] for path in out.split()}
    assert len(folders) == 3
    assert len(list((tmp_path / "thunder_debug").iterdir())) == 4  # and the forked child's
    pids = {folder.rpartition("-")[2] for folder in folders}
    assert len(pids) == 3
    assert out.split()[0].rpartition("/")[0] == out.split()[-1].rpartition("/")[0]


def test_two_programs_of_one_rank(program, tmp_path):
    """The one that comes later gets a name of its own; afterwards the name is free again."""
    waiting = """
import sys
from thunder.debug import write
print(write("notes", "first"), flush=True)
sys.stdin.readline()
"""
    quick = 'from thunder.debug import write; print(write("notes", "second"))'
    first = program.start(waiting, cwd=tmp_path, THUNDER_DEBUG_DIR="dump")
    assert first.stdout is not None
    dump = tmp_path / "dump"
    assert first.stdout.readline() == f"{dump}/notes_rank0.py\n"
    _, out, _ = program.run(quick, cwd=tmp_path, THUNDER_DEBUG_DIR="dump")
    assert out == f"{dump}/notes_rank0-2.py\n"
    first.communicate("done\n", timeout=60)
    _, out, _ = program.run(quick, cwd=tmp_path, THUNDER_DEBUG_DIR="dump")
    assert out == f"{dump}/notes_rank0.py\n"
    assert (dump / "notes_rank0.py").read_text() == "second"
