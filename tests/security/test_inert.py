"""What is written holds text of the user's program: names, strings, messages, paths.

All of it must come out as text: scripts, traces and pages run or show nothing of it.
"""

from __future__ import annotations

import ast
import html.parser
import json
import subprocess
import sys

import pytest
import torch
from torch import nn

import thunder
from thunder import thunderfx
from thunder.dynamo import save_reproducer
from thunder.dynamo.report import fx_report, thunderfx_benchmark_report
from thunder.errors import FallbackWarning
from thunder.executors import OperatorExecutor

CODE = "__import__('pathlib').Path('CANARY').touch()"
TEXTS = {
    "newline": f"x\n{CODE}\n",
    "carriage return": f"x\r{CODE}\r",
    "separators": f"x\u2028{CODE}\u2029\x85\x0c\x0b{CODE}",
    "quotes": f"'''\"\"\"\n{CODE}\n'''\"\"\"",
    "backslash": "\\" + f"\n{CODE}\n\\",
    "braces": "{0} {{ }} {" + CODE + "} %s ${x}",
    "tag": f"</script><img src=x onerror=alert(1)><!-- {CODE}",
    "escape": "\\N{DIGIT ONE} \\x00 \\u0041",
    "comment": f"# noqa\n{CODE} #",
}


def run(path, *arguments):
    return subprocess.run(
        [sys.executable, path, *arguments],
        capture_output=True,
        text=True,
        check=False,
        cwd=path.parent,
    )


class Named(nn.Module):
    """Has a parameter, a buffer and a child whose names are not identifiers."""

    def __init__(self, text):
        super().__init__()
        name = text.replace(".", "")
        self.register_parameter(f"weight {name}", nn.Parameter(torch.ones(3)))
        self.register_buffer(f"buffer {name}", torch.ones(3))
        self.add_module(f"child {name}", nn.Linear(3, 3))

    def forward(self, x):
        (weight,) = self._parameters.values()
        (buffer,) = self._buffers.values()
        (child,) = self._modules.values()
        return child(x * weight + buffer)


QUICK = ("newline", "quotes", "tag")
EACH = [
    pytest.param(text, id=name, marks=() if name in QUICK else pytest.mark.slow)
    for name, text in TEXTS.items()
]


@pytest.mark.parametrize("text", EACH)
def test_names_in_modules(text, tmp_path):
    f = thunderfx(Named(text), executors=["aten"])
    f(torch.ones(2, 3)).sum().backward()
    for trace in [*thunder.last_traces(f), *thunder.last_backward_traces(f)]:
        ast.parse(trace.python())
        exec(compile(trace.python(), "trace", "exec"), {})
    (path,) = save_reproducer(f, tmp_path)
    ast.parse(path.read_text(encoding="utf-8"))
    done = run(path, "--check_consistency")
    assert done.returncode == 0, done.stderr
    assert not list(tmp_path.rglob("CANARY"))


@pytest.mark.parametrize("text", EACH)
def test_messages_of_failures(text, tmp_path, monkeypatch):
    """The message of a failure stands in the header of its script, and in the warning."""
    monkeypatch.setenv("THUNDER_DEBUG_DIR", str(tmp_path))
    monkeypatch.chdir(tmp_path)

    def bad(x):
        raise ValueError(text)

    executor = OperatorExecutor("bad", {"aten.sin": bad})
    f = thunderfx(lambda x: x.sin(), executors=[executor, "aten"])
    with pytest.warns(FallbackWarning):
        f(torch.ones(3))
    (path,) = tmp_path.glob("*reproducer*.py")
    ast.parse(path.read_text(encoding="utf-8"))
    assert not list(tmp_path.rglob("CANARY"))


class Tags(html.parser.HTMLParser):
    """Collects the tags of a page, and the attributes that run code."""

    def __init__(self):
        super().__init__()
        self.found = set()
        self.handlers = []

    def handle_starttag(self, tag, attributes):
        self.found.add(tag)
        self.handlers += [name for name, _ in attributes if name.startswith("on")]


@pytest.mark.parametrize("kind", ["tag", "quotes", "braces"])
def test_pages_and_json(kind, tmp_path):
    model = Named(TEXTS[kind])
    report = thunderfx_benchmark_report(
        model,
        tmp_path,
        torch.ones(2, 3),
        thunder_options={"executors": ["aten"]},
        settings=thunder.benchmark.Settings(seconds=0.1),
        verify=False,
        show=False,
    )
    page = tmp_path / "page.html"
    report.save_html(page)
    tags = Tags()
    tags.feed(page.read_text(encoding="utf-8"))
    assert "img" not in tags.found and tags.handlers == []
    json.loads((tmp_path / "report.json").read_text(encoding="utf-8"))
    for path in tmp_path.rglob("*.py"):
        ast.parse(path.read_text(encoding="utf-8"))
    assert not list(tmp_path.rglob("CANARY"))


def test_break_reasons_and_source_lines(tmp_path):
    """A source file and its name are the user's text as well."""
    folder = tmp_path / "a'b\"c<script>"
    folder.mkdir()
    source = folder / "pro gram.py"
    source.write_text(
        "import torch\n"
        "def f(x):\n"
        f"    y = x.sin() + len({TEXTS['tag']!r})\n"
        f"    torch._dynamo.graph_break(msg={TEXTS['newline']!r})\n"
        "    return y.cos()\n"
    )
    namespace = {}
    exec(compile(source.read_text(), str(source), "exec"), namespace)
    report = fx_report(namespace["f"], torch.ones(3))
    assert len(report.fx_graph_reports) == 2
    for graph in report.fx_graph_reports:
        path = graph.write_eager_repro(tmp_path / "scripts")
        ast.parse(path.read_text(encoding="utf-8"))
        assert run(path).returncode == 0
    assert not list(tmp_path.rglob("CANARY"))
