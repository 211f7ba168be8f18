"""Renders a page as one HTML file that needs nothing else.

Whatever comes from a program goes through Jinja2's escaping or lies in the file as inert JSON, and
the page's script only ever makes text nodes of it. A content security policy names the one style
and the one script by their hashes and forbids everything else, the network included.
"""

from __future__ import annotations

import base64
import hashlib
import importlib
import os
from pathlib import Path
from types import ModuleType

from thunder.dynamo.report.page import Page
from thunder.errors import UnsupportedEnvironmentError
from thunder.repro import write_text

_TEMPLATES = Path(__file__).parent / "templates"
_SCRIPTS = ("rows.js", "links.js", "search.js", "page.js")
_NEEDED = ("jinja2", "pygments")


def save_page(page: Page, path: str | os.PathLike[str]) -> Path:
    """Writes a page.

    Args:
        page: The page.
        path: The file; it is replaced at once or not at all.

    Returns:
        The path.

    Raises:
        UnsupportedEnvironmentError: Jinja2 or Pygments is not installed.
        ReproducerError: The file cannot be written.
    """
    return write_text(path, render_page(page))


def render_page(page: Page) -> str:
    """Returns a page as the text of an HTML file.

    Args:
        page: The page.

    Raises:
        UnsupportedEnvironmentError: Jinja2 or Pygments is not installed.

    Example:
        >>> page = Page(program="<f>", notes=(), regions=())
        >>> "<title>&lt;f&gt; · thunder report</title>" in render_page(page)
        True
    """
    jinja2 = _optional("jinja2")
    view = _optional("thunder.dynamo.report.page_view")
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(_TEMPLATES),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    data = view.page_view(page)
    style = _read("report.css")
    script = "\n".join(["'use strict';", "{", *map(_read, _SCRIPTS), "}", ""])
    return environment.get_template("report.html").render(
        title=view.visible(page.program),
        counts=view.headline(page),
        environment=[(name, view.visible(value)) for name, value in page.environment],
        data=data,
        timed=any("timing" in row for row in data["rows"]),
        style=jinja2.utils.markupsafe.Markup(style),
        script=jinja2.utils.markupsafe.Markup(script),
        style_hash=_hash(style),
        script_hash=_hash(script),
    )


def _read(name: str) -> str:
    return (_TEMPLATES / name).read_text(encoding="utf-8")


def _hash(text: str) -> str:
    """Returns the hash by which a content security policy allows an inline text."""
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode("utf-8")).digest()).decode()


def _optional(name: str) -> ModuleType:
    """Imports what comes with, or needs, the packages of the extra `report`."""
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name not in _NEEDED:
            raise
        raise UnsupportedEnvironmentError(
            f"the HTML page needs {' and '.join(_NEEDED)}, and {error.name} is not installed: "
            "pip install 'thunderfx[report]'"
        ) from error
