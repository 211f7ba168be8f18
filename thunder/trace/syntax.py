"""Names and arguments as parts of Python source.

Graphs and users' objects hold names that are no identifiers: keywords of a call such as `from`,
attributes with spaces, classes that were renamed. What can stand as a name does; anything else is
written as a string, so that no name can become code. Values are `literals.py`'s job.
"""

from __future__ import annotations

import keyword
import unicodedata
from collections.abc import Iterable, Mapping


def is_name(text: str) -> bool:
    """Tells whether Python reads text as a name, and as just this one.

    Args:
        text: Any text. Keywords are no names, nor is what Python would normalize.

    Example:
        >>> is_name("weight"), is_name("from"), is_name("a b")
        (True, False, False)
    """
    return (
        text.isidentifier()
        and not keyword.iskeyword(text)
        and unicodedata.normalize("NFKC", text) == text
    )


def is_dotted_name(text: str) -> bool:
    """Tells whether text is names with dots between them.

    Args:
        text: Any text.

    Example:
        >>> is_dotted_name("torch.nn"), is_dotted_name("torch.<locals>")
        (True, False)
    """
    return all(map(is_name, text.split(".")))


def attribute(owner: str, path: str) -> str:
    """Returns access to an attribute, whatever the parts of its path are called.

    Args:
        owner: An expression.
        path: Names with dots between them.

    Example:
        >>> attribute("self", "layers.0.weight")
        "getattr(self.layers, '0').weight"
    """
    for part in path.split("."):
        owner = f"{owner}.{part}" if is_attribute(part) else f"getattr({owner}, {part!r})"
    return owner


def is_attribute(name: str) -> bool:
    """Tells whether a name can stand behind a dot, in the body of a class too.

    Args:
        name: Any text. In a class, Python changes names such as `__weight`.
    """
    return is_name(name) and (not name.startswith("__") or name.endswith("__"))


def call_arguments(positional: Iterable[str], keywords: Mapping[str, str]) -> str:
    """Returns what stands between the parentheses of a call.

    Args:
        positional: Expressions.
        keywords: Expressions by keyword.

    Example:
        >>> call_arguments(["x"], {"to": "1", "from": "0"})
        "x, to=1, **{'from': 0}"
    """
    named = [f"{name}={written}" for name, written in keywords.items() if is_name(name)]
    others = [f"{name!r}: {written}" for name, written in keywords.items() if not is_name(name)]
    spread = [f"**{{{', '.join(others)}}}"] if others else []
    return ", ".join([*positional, *named, *spread])
