"""Files appear whole or not at all, never elsewhere, and errors say what to do."""

from __future__ import annotations

import builtins
import errno
import os
import sys

import pytest
import torch

from thunder.errors import ReproducerError
from thunder.repro import make_folder, write_file, write_text
from thunder.repro.header import Header, command_line, verdict_line, with_verdict
from thunder.repro.linking import link, support_names, used_names
from thunder.repro.surroundings import record_surroundings


def test_folders_are_made_and_files_replaced(tmp_path):
    path = tmp_path / "a" / "b" / "file.txt"
    assert write_text(path, "one ü") == path
    write_text(path, "two")
    assert path.read_text() == "two"
    assert [p.name for p in path.parent.iterdir()] == ["file.txt"]


def test_umask_is_respected(tmp_path):
    old = os.umask(0o027)
    try:
        assert write_text(tmp_path / "x", "").stat().st_mode & 0o777 == 0o640
    finally:
        os.umask(old)


def test_planted_link_is_replaced_not_followed(tmp_path):
    target = tmp_path / "precious"
    target.write_text("precious")
    link_ = tmp_path / "script.py"
    link_.symlink_to(target)
    write_text(link_, "new")
    assert target.read_text() == "precious"
    assert not link_.is_symlink() and link_.read_text() == "new"


def test_failure_leaves_the_old_file_and_no_other(tmp_path):
    path = write_text(tmp_path / "x", "old")

    def fail(file):
        file.write(b"half")
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with pytest.raises(ReproducerError, match=r"cannot write .*x: No space left.*free some space"):
        write_file(path, fail)
    with pytest.raises(KeyboardInterrupt):
        write_file(path, lambda file: exec("raise KeyboardInterrupt"))
    assert path.read_text() == "old"
    assert [p.name for p in tmp_path.iterdir()] == ["x"]


class FullDisk:
    """A file that takes nothing more."""

    def write(self, data):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def flush(self):
        """Nothing to do."""


def test_full_disk_while_tensors_are_saved(tmp_path):
    tensors = {"x": torch.zeros(1 << 16)}
    with pytest.raises(ReproducerError, match=r"No space left.*free some space"):
        write_file(tmp_path / "x.pt", lambda file: torch.save(tensors, FullDisk()))
    assert not list(tmp_path.iterdir())


def test_file_where_a_folder_should_be(tmp_path):
    write_text(tmp_path / "file", "")
    for attempt in (
        lambda: write_text(tmp_path / "file" / "x", ""),
        lambda: make_folder(tmp_path / "file"),
    ):
        with pytest.raises(ReproducerError, match=r"file: .*What to do: .*another folder"):
            attempt()


def test_folder_where_a_file_should_be(tmp_path):
    with pytest.raises(ReproducerError, match="Is a directory"):
        write_text(tmp_path, "")


def test_read_only_folder(tmp_path, monkeypatch):
    def refuse(*args, **kwargs):
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr(os, "open", refuse)
    with pytest.raises(ReproducerError, match=r"Permission denied.*that you may write to"):
        write_text(tmp_path / "x", "")


def header(**fields):
    return Header(
        **{
            "title": "t",
            "command": None,
            "environment": "e",
            "verdict": "v",
            "expected": "x",
            **fields,
        }
    )


def test_header_is_comments_of_one_line_each():
    text = "a\nimport os\r\x0b\x0c\x85\u2028b'''" + "z" * 1000
    lines = list(header(title=text, notes=[text], missing=[text], split_reasons=[text]).lines())
    assert all(line.startswith("#") and len(line.splitlines()) == 1 for line in lines)
    assert max(map(len, lines)) < 450


def test_verdict_is_replaced_in_the_header_only():
    text = "# t\n# Verdict: not run\n\n# Verdict: not run\n"
    assert with_verdict(text, "fine\nx") == "# t\n# Verdict: fine x\n\n# Verdict: not run\n"
    assert with_verdict("x = 1\n# Verdict: a\n", "b") == "x = 1\n# Verdict: a\n"
    assert verdict_line("a" * 1000).endswith("a" * 50)


def test_command_names_neither_machine_nor_secret(monkeypatch, tmp_path):
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(
        sys,
        "orig_argv",
        [
            "/usr/bin/python3.11",
            str(tmp_path / "train.py"),
            "--hf-token",
            "abc",
            "--password=x",
            f"--out={tmp_path}/out",
            "-n",
            "3",
            "a\nb",
        ],
    )
    command = command_line()
    assert command == ("python train.py --hf-token ... --password=... --out=out -n 3 'a b'")
    monkeypatch.setitem(sys.modules, "ipykernel", os)
    assert command_line() is None


def test_only_used_support_code_is_linked():
    names = support_names()
    assert {"floats", "run", "main", "Draws", "time_forward"} <= names
    linked = link(["slope"])
    assert "def slope" in linked.text and linked.text.count("\ndef ") == 0
    assert linked.imports == ("import torch",)
    assert "class Float64" in link(["check_consistency"]).text
    assert "class Draws" not in link(["main"]).text
    assert link(["nothing of that name"]).text == ""


def test_local_variables_do_not_count_as_used():
    source = "def f(steps):\n    choices = 1\n    return [slope for slope in steps], choices, run"
    assert used_names(source) == {"run"}


def test_linked_code_is_complete():
    for name in sorted(support_names()):
        linked = link([name])
        namespace: dict = {"__name__": "x"}
        exec("\n".join([*linked.imports, linked.text]), namespace)
        unknown = used_names(linked.text) - namespace.keys() - vars(builtins).keys()
        assert unknown <= {"__file__"}, name


def test_surroundings():
    plain = record_surroundings()
    assert (plain.contexts, plain.settings, plain.gradients) == ((), (), True)
    with torch.inference_mode():
        inference = record_surroundings()
    assert inference.contexts == ("torch.inference_mode()",) and not inference.gradients
    torch.use_deterministic_algorithms(True, warn_only=True)
    torch.set_float32_matmul_precision("high")
    try:
        with torch._inductor.config.patch({"max_autotune": True, "cpp.cxx": (None, "/bin/g++")}):
            changed = record_surroundings()
    finally:
        torch.use_deterministic_algorithms(False)
        torch.set_float32_matmul_precision("highest")
    assert changed.settings == (
        'torch.set_float32_matmul_precision("high")',
        "torch.use_deterministic_algorithms(True, warn_only=True)",
        "torch._inductor.config.max_autotune = True",
    )
    assert changed.imports == ("import torch._inductor.config",)
