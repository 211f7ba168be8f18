"""What the source of one script has gathered so far: imports, definitions, gaps.

Every part of a script that writes a value down does it through one `SourceCollector`, so that a
function or an operator that two parts need is defined once.
"""

from __future__ import annotations

import functools
import site
import sys
import sysconfig
from collections.abc import Iterable
from pathlib import Path

import torch

from thunder.trace.literals import Names
from thunder.trace.printer import inert


class SourceCollector:
    """Imports, definitions and gaps of one script.

    Attributes:
        names: The imports and the objects that expressions refer to.
        definitions: Statements for the top of the script, by what they define, in order.
        gaps: What could not be written down, a phrase each time.
        notes: Sentences for the reader of the script.
        being_defined: Names of objects whose definitions are being written.
    """

    def __init__(self, reserved: Iterable[str] = ()) -> None:
        """Starts empty.

        Args:
            reserved: Names that no definition may take.
        """
        self.reserved = frozenset(reserved)
        self.names = Names(self.reserved)
        self.definitions: dict[str, str] = {}
        self.gaps: list[str] = []
        self.notes: list[str] = []
        self.being_defined: set[str] = set()

    def fork(self) -> SourceCollector:
        """Returns a copy to try something on."""
        fork = SourceCollector(self.reserved)
        fork.names.modules |= self.names.modules
        fork.names.objects |= self.names.objects
        fork.definitions |= self.definitions
        fork.gaps += self.gaps
        fork.notes += self.notes
        fork.being_defined |= self.being_defined
        return fork

    def take(self, fork: SourceCollector) -> None:
        """Becomes what the fork is."""
        self.names, self.definitions = fork.names, fork.definitions
        self.gaps, self.notes = fork.gaps, fork.notes
        self.being_defined = fork.being_defined

    def define(self, name: str, statement: str) -> bool:
        """Adds a definition.

        Args:
            name: What it defines.
            statement: The statement, which may have several lines.

        Returns:
            False when the name is taken by something else, and nothing was added.
        """
        if name in self.reserved or self.definitions.get(name, statement) != statement:
            return False
        self.definitions[name] = statement
        return True

    def miss(self, what: str) -> None:
        """Notes something that could not be written down."""
        self.gaps.append(inert(what))

    @property
    def missing(self) -> tuple[str, ...]:
        """What could not be written down, each phrase once."""
        return tuple(dict.fromkeys(self.gaps))

    def note(self, sentence: str) -> None:
        """Notes something that the reader of the script should know."""
        if (line := inert(sentence)) not in self.notes:
            self.notes.append(line)

    def imports(self) -> tuple[str, ...]:
        """Returns the import statements, sorted; notes those that another place may lack."""
        modules = self.names.imported()
        for module in modules:
            if not is_installed(module):
                self.note(
                    f"imports {module}, which is part of the program and not installed: "
                    "run the script where Python finds it (PYTHONPATH)"
                )
        return tuple(f"import {module}" for module in modules)


@functools.cache
def is_installed(module_name: str) -> bool:
    """Tells whether a module would be found by another program in this environment.

    Args:
        module_name: Dotted name of a module that is loaded.

    Returns:
        False for `__main__` and for modules found only because of where the program was started.
    """
    module = sys.modules.get(module_name)
    if module is None or module_name == "__main__":
        return False
    file = getattr(module, "__file__", None)
    if file is None:
        parent = module_name.rpartition(".")[0]  # built into an extension module, as torch._C._nn
        return is_installed(parent) if parent else module_name in sys.builtin_module_names
    return any(Path(file).is_relative_to(root) for root in _installed_folders())


@functools.cache
def _installed_folders() -> tuple[Path, ...]:
    paths = sysconfig.get_paths()
    folders = [paths[key] for key in ("stdlib", "platstdlib", "purelib", "platlib")]
    folders += [*site.getsitepackages(), site.getusersitepackages()]
    ours = Path(__file__).parent.parent
    return (*map(Path, folders), Path(torch.__file__).parent, ours)
