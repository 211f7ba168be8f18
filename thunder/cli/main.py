"""Runs a command; what goes wrong becomes one line and an exit status."""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Sequence

from thunder.cli.arguments import make_parser
from thunder.cli.exit_status import ExitStatus
from thunder.errors import ThunderError


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs `thunder ARGUMENTS`.

    Args:
        arguments: The arguments; those of the process when None.

    Returns:
        The exit status, one of `ExitStatus`.

    Raises:
        SystemExit: The arguments are wrong (2), or help was asked for (0).
    """
    options = make_parser().parse_args(arguments)
    try:
        return int(options.run(options))
    except KeyboardInterrupt:
        print("thunder: interrupted", file=sys.stderr)
        return int(ExitStatus.INTERRUPTED)
    except BrokenPipeError:  # the reader, such as `head`, has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return int(ExitStatus.OK)
    except ThunderError as error:
        print(f"thunder: {error}", file=sys.stderr)
    except Exception as error:  # noqa: BLE001 - the user's program may raise anything
        traceback.print_exc()
        print(f"thunder: stopped by {type(error).__name__}: {error}", file=sys.stderr)
    return int(ExitStatus.USAGE)
