"""What torch itself writes: its debug output, and its structured log."""

from __future__ import annotations

import json
import os
import re
from collections import namedtuple

import pytest
import torch
from torch._dynamo import config as dynamo_config
from torch._inductor import config as inductor_config
from torch._logging._internal import trace_log

from thunder.debug import DebugFlag, GraphDump, active, enabled, torch_debug_output
from thunder.debug.structured import StructuredLogFile


def function(x: torch.Tensor) -> torch.Tensor:
    return x.sin() + 1


def compile_it() -> None:
    torch._dynamo.reset()
    x = torch.ones(4)
    torch.testing.assert_close(torch.compile(function)(x), function(x))


def settings() -> tuple[object, ...]:
    return (
        inductor_config.trace.enabled,
        inductor_config.trace.debug_dir,
        inductor_config.fx_graph_cache,
        dynamo_config.debug_dir_root,
        list(trace_log.handlers),
    )


def test_torchs_output_goes_into_the_folder_also_when_caches_are_warm(folder):
    compile_it()
    before = settings()
    with active(DebugFlag.TORCH_COMPILE_DEBUG), torch_debug_output():
        compile_it()
    assert settings() == before
    target = folder / "torch_rank0"
    (graph,) = (target / "torchinductor").iterdir()
    for name in ("fx_graph_readable.py", "fx_graph_runnable.py", "output_code.py"):
        assert "sin" in (graph / name).read_text()
    log = (target / "structured_trace.log").read_text()
    kinds = {kind for line in log.splitlines() for kind in json_keys(line)}
    assert {"dynamo_output_graph", "inductor_output_code"} <= kinds
    assert "torch_rank0/" in (folder / "index.txt").read_text()


def json_keys(line: str) -> set[str]:
    """Returns the keys of a record of the structured log; a payload's line has none."""
    found = re.match(r"V\d{4} .*?\] (\{.*\})$", line)
    return set(json.loads(found[1])) if found else set()


def test_it_is_off_by_itself(folder):
    before = settings()
    with torch_debug_output(), active("trace"):
        assert settings() == before
    assert not folder.exists()


def test_blocks_nest_and_failures_restore(folder):
    before = settings()
    with active("torch_compile_debug"), torch_debug_output():
        inside = settings()
        with torch_debug_output():
            assert settings() == inside
        assert settings() == inside
        with active(False), torch_debug_output():
            pass
    with pytest.raises(ZeroDivisionError), active(True), torch_debug_output():
        raise ZeroDivisionError
    assert settings() == before
    assert inside != before


def test_a_nearly_full_disk_leaves_it_out(folder, monkeypatch, caplog):
    """Inductor does not survive a failure to write, so it is not asked to."""
    status = namedtuple("status", "f_bavail f_frsize")
    monkeypatch.setattr(os, "statvfs", lambda path: status(1000, 4096))
    with active("torch_compile_debug"), torch_debug_output():
        assert not inductor_config.trace.enabled
    assert "too little disk space" in caplog.text


def test_no_folder_leaves_it_out(monkeypatch, temporary):
    monkeypatch.setenv("THUNDER_DEBUG_DIR", "/dev/full")
    temporary.rmdir()
    with active("torch_compile_debug"), torch_debug_output():
        assert enabled(DebugFlag.TORCH_COMPILE_DEBUG)
        assert not inductor_config.trace.enabled


def test_a_log_that_cannot_be_written_is_said_once(folder, caplog, monkeypatch):
    folder.mkdir()
    (folder / "structured_trace.log").symlink_to(folder / "elsewhere")
    log = StructuredLogFile(lambda: folder)
    log.follow()
    try:
        with active("trace"):
            for _ in range(2):
                GraphDump("graph0").artifact(DebugFlag.TRACE, lambda: "text")
    finally:
        log.close()
    assert caplog.text.count("structured log could not be copied") == 1
    assert not (folder / "elsewhere").exists()
    assert log not in trace_log.handlers


DYNAMO = """
import torch
from thunder.debug import DebugFlag, GraphDump, follow_process
follow_process()
def backend(graph_module, inputs):
    graph = GraphDump("graph0")
    graph.artifact(DebugFlag.FUSION_REGION, lambda: "text of the region", direction="forward")
    return graph_module
torch.compile(lambda x: x.sin(), backend=backend)(torch.ones(2))
"""


def test_a_whole_process_is_followed(program, tmp_path):
    """What Dynamo says before and after the backend is called is in the log as well."""
    status, out, err = program.run(
        DYNAMO, cwd=tmp_path, THUNDER_DEBUG="4", THUNDER_DEBUG_DIR="dump"
    )
    assert (status, out) == (0, ""), err
    log = (tmp_path / "dump/torch_rank0/structured_trace.log").read_text()
    kinds = [kind for line in log.splitlines() for kind in json_keys(line)]
    assert {"dynamo_start", "dynamo_output_graph", "artifact", "compilation_metrics"} <= set(kinds)
    assert "text of the region" in log
    assert (tmp_path / "dump/graph0_forward_fusion_region_rank0.py").exists()


def test_tlparse_sees_artifacts_without_any_flag(program, tmp_path):
    status, out, err = program.run(DYNAMO, cwd=tmp_path, TORCH_TRACE=str(tmp_path / "trace"))
    assert (status, out) == (0, ""), err
    (log,) = (tmp_path / "trace").iterdir()
    lines = log.read_text().splitlines()
    (at,) = [n for n, line in enumerate(lines) if "thunder_graph0_forward_fusion_region" in line]
    record = json.loads(lines[at].partition("] ")[2])
    assert record["artifact"] == {
        "name": "thunder_graph0_forward_fusion_region",
        "encoding": "string",
    }
    assert (record["frame_id"], record["frame_compile_id"]) == (0, 0)
    assert lines[at + 1].strip() == "text of the region"
    assert not (tmp_path / "thunder_debug").exists()
