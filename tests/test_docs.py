"""README and docs say what is so: links lead somewhere, examples run, generated parts are fresh."""

from __future__ import annotations

import itertools
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch

ROOT = Path(__file__).resolve().parent.parent
PAGES = [*sorted(ROOT.glob("*.md")), *sorted(ROOT.glob("docs/*.md"))]
FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
LINK = re.compile(r"\]\(([^)\s]+)\)")


def relative(path: Path) -> str:
    return str(path.relative_to(ROOT))


def prose(page: Path) -> str:
    return FENCE.sub("", page.read_text())


def anchors(page: Path) -> set[str]:
    headings = re.findall(r"^#+ (.*)$", prose(page), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def session(page: Path) -> tuple[str, str]:
    """Returns a page's python blocks as one program, and the text blocks right after them."""
    blocks = FENCE.findall(page.read_text())
    program = "\n".join(text for kind, text in blocks if kind == "python")
    shown = [
        text
        for (before, _), (kind, text) in itertools.pairwise(blocks)
        if (before, kind) == ("python", "text")
    ]
    return program, "".join(shown)


def run(*command: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    environment = os.environ | {"PYTHONPATH": str(ROOT), "PYTHONWARNINGS": "default"}
    return subprocess.run(command, cwd=cwd, env=environment, capture_output=True, text=True)


def test_generated_parts_are_up_to_date():
    done = run(sys.executable, "docs/generate.py", "--check", cwd=ROOT)
    assert done.returncode == 0, f"run `make docs`: {done.stdout}{done.stderr}"


@pytest.mark.parametrize("page", PAGES, ids=relative)
def test_links_lead_somewhere(page):
    dead = []
    for link in LINK.findall(prose(page)):
        if re.match(r"\w+:", link):
            continue
        file, _, anchor = link.partition("#")
        target = (page.parent / file).resolve() if file else page
        if not target.exists() or (anchor and anchor not in anchors(target)):
            dead.append(link)
    assert not dead


def test_every_page_can_be_reached():
    linked = {
        (page.parent / link.partition("#")[0]).resolve()
        for page in PAGES
        for link in LINK.findall(prose(page))
    }
    assert set(ROOT.glob("docs/*.md")) <= linked


@pytest.mark.parametrize("page", PAGES, ids=relative)
def test_make_targets_exist(page):
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    assert set(re.findall(r"(?:`|^)make ([a-z-]+)", page.read_text(), re.MULTILINE)) <= targets


@pytest.mark.skipif(torch.cuda.is_available(), reason="the pages show what a CPU prints")
@pytest.mark.parametrize("page", [page for page in PAGES if session(page)[0]], ids=relative)
def test_examples_run_and_print_what_is_shown(page, tmp_path):
    program, shown = session(page)
    (tmp_path / "example.py").write_text(program)
    done = run(sys.executable, "example.py", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout == shown


def test_tests_that_pages_name_exist():
    defined: dict[str, set[str]] = {}
    for path in ROOT.glob("tests/**/test_*.py"):
        found = re.findall(r"^def (test_\w+)", path.read_text(), re.MULTILINE)
        defined.setdefault(path.name, set()).update(found)
    missing = []
    for page in PAGES:
        file = ""
        for named, test in re.findall(r"`(test_\w+\.py)?(?:::)?(test_\w+)?`", prose(page)):
            file = named or file
            known = defined.get(file, set())
            if (named and not known) or (test and test not in known):
                missing.append(f"{file}::{test}")
    assert not missing
