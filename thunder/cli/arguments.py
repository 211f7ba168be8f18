"""The parser of the command line."""

from __future__ import annotations

import argparse

from thunder.cli import comparison_commands, contestant_names, fail_on, script_commands
from thunder.cli.report_command import report
from thunder.environment import package_version

_EXIT = "exit status: 0 nothing found, 1 something found, 2 it could not be done, 130 interrupted"


def make_parser() -> argparse.ArgumentParser:
    """Returns the parser; `run` in what it parses is the command's function."""
    parser = argparse.ArgumentParser(
        prog="thunder",
        description="Shows, checks, times and shrinks what compilers make of PyTorch programs.",
        epilog=_EXIT,
    )
    parser.add_argument("--version", action="version", version=f"thunder {package_version()}")
    commands = parser.add_subparsers(title="commands", required=True, metavar="COMMAND")
    _report(commands)
    _bench(commands)
    _minimize(commands)
    _replay(commands)
    _compare(commands)
    _env(commands)
    return parser


def _report(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    command = _command(commands, "report", report, "a program's graphs, splits, numbers, scripts")
    command.add_argument("program", metavar="SCRIPT_OR_MODULE:FUNCTION", help="what to report on")
    command.add_argument(
        "--inputs",
        metavar="NAME",
        help="in the same file: the arguments (a tuple, a dict, or a tuple of both), or a function "
        "that returns them",
    )
    command.add_argument(
        "--graphs-only", action="store_true", help="only graphs and breaks; compile nothing"
    )
    command.add_argument(
        "--folder", default="thunder_report", help="for scripts; default: %(default)s"
    )
    _json(command, "where the report goes besides FOLDER/report.json")
    _html(command)
    command.add_argument("--replay", metavar="FOLDER", help="write a replay as well")
    command.add_argument("--executors", help="comma-separated; default: thunder's choice")
    command.add_argument("--exclude-ops", help="comma-separated operators to leave to Inductor")
    command.add_argument("--dynamic", action="store_true", help="capture with symbolic sizes")
    command.add_argument("--no-fusions", action="store_true", help="stop at graphs and segments")
    command.add_argument(
        "--no-verify", action="store_true", help="do not run the scripts of failures once"
    )
    _against(command, "torch.compile,eager")
    _seconds(command)
    _fail_on(command)


def _bench(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    command = _command(commands, "bench", script_commands.bench, "check and time a script's graph")
    command.add_argument("script", metavar="REPRO.py")
    _against(command, "eager")
    command.add_argument(
        "--compute",
        choices=("forward", "forward+backward", "backward"),
        help="default: backward too, where a result requires grad",
    )
    command.add_argument("--timer", choices=tuple(script_commands.TIMERS), default="wall")
    _json(command, "where the result goes; a pipe gets it as a last line as well")
    _seconds(command)
    _fail_on(command)


def _minimize(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    command = _command(
        commands, "minimize", script_commands.minimize, "shrink a failing script to what matters"
    )
    command.add_argument("script", metavar="REPRO.py")
    command.add_argument(
        "--check", choices=("error", "accuracy"), help="what is wrong; default: finds out"
    )
    command.add_argument("--folder", help="for the result; default: beside the script")
    command.add_argument(
        "--timeout", type=float, default=120.0, help="seconds for one piece; default: %(default)s"
    )


def _replay(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    command = _command(
        commands, "replay", comparison_commands.replay, "run a saved replay without its model"
    )
    command.add_argument("folder", metavar="FOLDER")
    _json(command, "where the report goes besides FOLDER/report.json")
    _html(command)
    _seconds(command)
    _fail_on(command)


def _compare(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    command = _command(
        commands, "compare", comparison_commands.compare, "what changed between two reports"
    )
    command.add_argument("old", help="a report.json, or a folder with one, as after a replay")
    command.add_argument("new", help="likewise")
    command.add_argument(
        "--threshold",
        type=_threshold,
        default=0.1,
        help="the smallest difference that counts: 0.1 is 10 %%, which a whole confidence interval "
        "has to exceed; default: %(default)s",
    )
    _json(command, "where the comparison goes")


def _env(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    command = _command(commands, "env", comparison_commands.env, "versions and devices")
    command.add_argument("--json", action="store_true", help="as JSON")


def _command(
    commands: argparse._SubParsersAction[argparse.ArgumentParser],
    name: str,
    run: object,
    words: str,
) -> argparse.ArgumentParser:
    command = commands.add_parser(name, help=words, description=f"{words}.", epilog=_EXIT)
    command.set_defaults(run=run)
    return command


def _against(command: argparse.ArgumentParser, default: str) -> None:
    command.add_argument(
        "--against",
        type=contestant_names.parse_against,
        default=default,
        metavar="NAMES",
        help=contestant_names.HELP,
    )


def _fail_on(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "--fail-on",
        type=fail_on.parse_fail_on,
        default="failure,accuracy",
        metavar="WHAT",
        help=fail_on.HELP,
    )


def _json(command: argparse.ArgumentParser, words: str) -> None:
    command.add_argument("--json", metavar="FILE", help=words)


def _html(command: argparse.ArgumentParser) -> None:
    command.add_argument("--html", metavar="FILE", help="write a page for browsers as well")


def _seconds(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "--seconds",
        type=_positive,
        default=2.0,
        help="for timing each region; default: %(default)s",
    )


def _positive(text: str) -> float:
    number = _number(text)
    if not number > 0:
        raise argparse.ArgumentTypeError(f"{text!r} is no positive number")
    return number


def _threshold(text: str) -> float:
    number = _number(text)
    if not 0 < number < 1:
        raise argparse.ArgumentTypeError(f"{text!r} must be between 0 and 1: 0.1 is 10 %")
    return number


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return 0.0
