"""Highlighted source as runs: for each line, letters that say what is how long.

`"k3p1f7"` is a keyword of three characters, one plain one, and a function's name; what follows is
plain. Text and runs apart cost a fraction of what HTML would, and can be drawn line by line.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence

from pygments.lexer import Lexer, inherit
from pygments.lexers import CppLexer, PythonLexer
from pygments.token import Comment, Keyword, Name, Number, Operator, String, Token, _TokenType

from thunder.dynamo.report.kernel_code import Language

_PLAIN = "p"
_LETTERS = {
    Keyword: "k",
    Operator.Word: "k",
    Comment: "c",
    Comment.Preproc: "k",
    Comment.PreprocFile: "s",
    String: "s",
    Number: "n",
    Name.Function: "f",
    Name.Class: "f",
    Name.Builtin: "b",
    Keyword.Type: "b",
    Token: _PLAIN,
}
_OPTIONS = {"ensurenl": False, "stripnl": False}
_NAMES = r"\b(?:torch|[a-z]\w*[\d_]\w*)(?:\.(?!__)\w+)*"
_BETWEEN = r"(?<=\S)[ ,()\[\]{}=:]+"


class _PythonLexer(PythonLexer):
    """Takes in one step what most of a trace consists of: names of values, `torch.ops...`, commas.

    Pygments tries some forty rules at each of them. None is a keyword or builtin: those have
    neither digits nor underscores inside.
    """

    tokens = {"root": [(f"(?:{_NAMES}|{_BETWEEN})+", Token), inherit]}  # noqa: RUF012 - Pygments'


def highlight(lines: Sequence[str], languages: Sequence[Language]) -> list[str]:
    """Returns the runs of each line.

    Args:
        lines: The lines, of one-byte characters only.
        languages: What each is written in.

    Example:
        >>> highlight(["def f(): pass  # why"], [Language.PYTHON])
        ['k3p1f1p4k4p2c5']
    """
    lexers: dict[Language, Lexer] = {
        Language.PYTHON: _PythonLexer(**_OPTIONS),
        Language.TRITON: _PythonLexer(**_OPTIONS),
        Language.CPP: CppLexer(**_OPTIONS),
    }
    runs: list[str] = []
    for language, pairs in itertools.groupby(zip(languages, lines, strict=True), lambda p: p[0]):
        runs += _runs(lexers[language], [line for _, line in pairs])
    return runs


def _runs(lexer: Lexer, lines: list[str]) -> list[str]:
    pieces: list[list[tuple[str, int]]] = [[]]
    for letter, text in _tokens(lexer, "\n".join(lines)):
        for index, part in enumerate(text.split("\n")):
            if index:
                pieces.append([])
            if part:
                pieces[-1].append((letter, len(part)))
    return ["".join(_merged(line)) for line in pieces]


def _tokens(lexer: Lexer, text: str) -> Iterator[tuple[str, str]]:
    known: dict[_TokenType, str] = {}
    for kind, part in lexer.get_tokens(text):
        if kind not in known:
            known[kind] = next(_LETTERS[k] for k in reversed(kind.split()) if k in _LETTERS)
        yield known[kind], part


def _merged(pieces: list[tuple[str, int]]) -> Iterator[str]:
    groups = [
        (letter, sum(length for _, length in group))
        for letter, group in itertools.groupby(pieces, lambda piece: piece[0])
    ]
    if groups and groups[-1][0] == _PLAIN:
        groups.pop()
    yield from (f"{letter}{length}" for letter, length in groups)
