"""Debug flags: which exist, and which ones a `debug=` option stands for.

Flags say what to show; they carry no data and do nothing by themselves. Whether a flag is on for
the compile in progress is the question of `activation`, the words of `THUNDER_DEBUG` are in
`levels`.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, ClassVar, final

from thunder.errors import DebugFlagError, nearest

_BUILT_IN = {
    "SAVE_REPRODUCER": "When something fails, write a script that fails the same way by itself.",
    "TRACE": "Write the executed traces: prologue, forward and backward apart.",
    "FUSION_REGION": "Write each fusion region as captured.",
    "FUSION_CODE": "Write the kernels generated for each fusion region.",
    "TORCH_COMPILE_DEBUG": "Write torch's own debug output into the same folder.",
    "CHECK_TRACE": (
        "Run each stage against the one before and name the first pass that changes the result."
    ),
}
_RESERVED = frozenset({"NVFUSER_REGION", "NVFUSER_CODE"})
_registered: dict[str, DebugFlag] = {}


class _FlagType(type):
    """Makes the class list its flags, as an enumeration does."""

    def __iter__(cls) -> Iterator[DebugFlag]:
        return iter(sorted(_registered.values(), key=_order))

    def __len__(cls) -> int:
        return len(_registered)


@final
@dataclass(frozen=True, slots=True, eq=False, repr=False)
class DebugFlag(metaclass=_FlagType):
    """Something the compiler can be asked to show, in the manner of `gc.set_debug`.

    Iterating the class lists all flags: the built-in ones, then those of extensions by name.
    Executors, transforms and extensions add their own with `register`. Pickling and copying give
    back the same object.

    Attributes:
        name: What it is called; upper and lower case are the same.
        doc: One sentence: what it does.
        owner: The module that registered it.

    Example:
        >>> from thunder.debug import DebugFlag, resolve
        >>> resolve("trace") == resolve(DebugFlag.TRACE) == {DebugFlag.TRACE}
        True
        >>> DebugFlag.CHECK_TRACE in resolve(True)
        True
    """

    name: str
    doc: str
    owner: str

    SAVE_REPRODUCER: ClassVar[DebugFlag]
    TRACE: ClassVar[DebugFlag]
    FUSION_REGION: ClassVar[DebugFlag]
    FUSION_CODE: ClassVar[DebugFlag]
    TORCH_COMPILE_DEBUG: ClassVar[DebugFlag]
    CHECK_TRACE: ClassVar[DebugFlag]

    @classmethod
    def register(cls, name: str, doc: str) -> DebugFlag:
        """Adds a flag, also as an attribute of this class in upper case.

        An installed package whose flags are to be usable in `THUNDER_DEBUG`, which is read before
        the package is imported, names them as entry points of the group `thunder.debug_flags`.

        Args:
            name: An identifier that is not taken, such as `"tiling"`.
            doc: One sentence: what it does.

        Returns:
            The new flag.

        Raises:
            DebugFlagError: The name is taken, reserved or no identifier, or `doc` is empty.

        Example:
            >>> from thunder.debug import DebugFlag
            >>> tiling = DebugFlag.register("tiling", "Log the tile sizes of each kernel.")
            >>> tiling
            DebugFlag.TILING
            >>> DebugFlag.deregister(tiling)
        """
        return _register(name, doc, owner=sys._getframe(1).f_globals.get("__name__", "__main__"))

    @classmethod
    def deregister(cls, flag: DebugFlag) -> None:
        """Forgets a flag of an extension; for tests, and for cells that are run again.

        Args:
            flag: The flag; one that is not registered is ignored.

        Raises:
            DebugFlagError: The flag is built in.
        """
        if flag.key in _BUILT_IN:
            raise DebugFlagError(f"{flag!r} is built in and cannot be removed")
        if _registered.get(flag.key) is flag:
            del _registered[flag.key]
            delattr(cls, flag.key)
            _document()

    @property
    def key(self) -> str:
        """The name in the spelling that all comparisons use."""
        return _key(self.name)

    def __repr__(self) -> str:
        """Reads as the attribute of the class."""
        return f"DebugFlag.{self.key}"

    def __str__(self) -> str:
        """The name."""
        return self.name

    def __reduce__(self) -> tuple[Any, ...]:
        return _restore, (self.name, self.doc, self.owner)


DebugLike = bool | DebugFlag | str | Iterable[DebugFlag | str]
"""What a `debug=` option takes."""


def resolve(debug: DebugLike) -> frozenset[DebugFlag]:
    """Returns the flags that a `debug=` option stands for.

    Args:
        debug: False for none; True for every registered flag; one flag; a name, or several
            separated by commas; or an iterable of flags and names.

    Raises:
        DebugFlagError: A name is unknown (the message lists the known ones), or the value is of
            another type.

    Example:
        >>> from thunder.debug import resolve
        >>> sorted(flag.name for flag in resolve("trace, save_reproducer"))
        ['SAVE_REPRODUCER', 'TRACE']
    """
    if isinstance(debug, bool):
        return frozenset(DebugFlag) if debug else frozenset()
    if isinstance(debug, str | DebugFlag):
        return frozenset(_named(debug))
    if isinstance(debug, Iterable):
        return frozenset(flag for element in debug for flag in _named(element))
    raise DebugFlagError(f"debug={debug!r} is not accepted. {_usage()}")


def find_flag(name: str) -> DebugFlag:
    """Returns the flag of that name.

    Args:
        name: A flag's name; case, and `-` for `_`, do not matter.

    Raises:
        DebugFlagError: There is none; the message lists the known ones.
    """
    flag = _registered.get(_key(name))
    if flag is not None:
        return flag
    close = nearest(_key(name), _registered)
    hint = f"; did you mean {close.lower()!r}?" if close else "."
    raise DebugFlagError(f"unknown debug flag {name!r}{hint} {_usage()}")


def known_names() -> list[str]:
    """Returns the names of all flags as a user would type them, in the order of the class."""
    return [flag.key.lower() for flag in DebugFlag]


def _named(element: Any) -> list[DebugFlag]:
    if isinstance(element, str):
        return [find_flag(name) for name in element.split(",") if name.strip()]
    if not isinstance(element, DebugFlag):
        raise DebugFlagError(f"{element!r} is no debug flag. {_usage()}")
    if _registered.get(element.key) is not element:
        raise DebugFlagError(f"{element!r} is not registered (any more). {_usage()}")
    return [element]


def _usage() -> str:
    return (
        f"debug= takes True, False, DebugFlag members, and names out of: "
        f"{', '.join(known_names())}. The levels 0 to 4 belong to THUNDER_DEBUG"
    )


def _register(name: str, doc: str, *, owner: str) -> DebugFlag:
    if not isinstance(name, str) or not re.fullmatch(r"[A-Za-z][A-Za-z0-9_]*", name):
        raise DebugFlagError(
            f"{name!r} cannot name a debug flag: use letters, digits and underscores"
        )
    if not doc.strip():
        raise DebugFlagError(f"the debug flag {name!r} needs a sentence that says what it does")
    key = _key(name)
    taken = _registered.get(key)
    if taken is not None:
        raise DebugFlagError(
            f"the debug flag {name!r} of {owner} is already registered by {taken.owner} "
            f"({taken.doc}); choose another name"
        )
    if key in _RESERVED:
        raise DebugFlagError(f"{name!r} is a word of THUNDER_DEBUG; choose another name")
    flag = _registered[key] = DebugFlag(name, doc, owner)
    setattr(DebugFlag, key, flag)
    _document()
    return flag


def _restore(name: str, doc: str, owner: str) -> DebugFlag:
    """Unpickles a flag: the registered one, which a fresh process may not have yet."""
    return _registered.get(_key(name)) or _register(name, doc, owner=owner)


def _key(name: str) -> str:
    return name.strip().upper().replace("-", "_")


def _order(flag: DebugFlag) -> tuple[int, str]:
    # Built-in flags keep the order of their definition.
    built_in = flag.key in _BUILT_IN
    return (0, "") if built_in else (1, flag.key)


def _document() -> None:
    """Lets `help(DebugFlag)` list the flags."""
    lines = [f"        {flag.key}: {flag.doc}" for flag in DebugFlag]
    DebugFlag.__doc__ = "\n".join([_SUMMARY.rstrip(), "", "    Flags:", *lines, "    "])


_SUMMARY = DebugFlag.__doc__ or ""

for _name, _doc in _BUILT_IN.items():
    _register(_name, _doc, owner=__name__)
