"""The command line. Which flags there are comes from the settings in `exporter.config`."""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NoReturn

from exporter import __version__
from exporter.config import (
    PROGRAM,
    CollectorInfo,
    ConfigError,
    Invocation,
    Setting,
    settings,
    unknown,
    unknown_setting,
)
from exporter.durations import parse_duration

COMMANDS = {
    "serve": "read the devices and serve their metrics (what happens without a command)",
    "once": "read the devices once, print the metrics, and exit",
    "support": "say what each device reports, from which source, and why the rest is absent",
    "check-config": "check the flags and the file, and exit",
    "leak-check": "judge recorded VRAM: leak-check FILE, or --prometheus URL --since 24h",
}
EXIT_STATUSES = {
    0: "all went well; of leak-check: no leak",
    1: "a failure at run time; of leak-check: a leak",
    2: "bad usage, configuration or address",
}
_FILE_ALONE = """\
settings of the file alone (--config.file; docs/configuration.md has them all):
  temperature.SENSOR.warning, temperature.SENSOR.critical
                limits where a device gives none; SENSOR is edge, junction or hbm
  leaks         when a VRAM leak is suspected
  simulation    the node that the source simulated makes up"""
_FORMATS = ("table", "json")
_LEAK_CHECK = "leak-check"
_ASKED = ("prometheus", "since")


_NO_VALUE = re.compile(r"(?:-h/)?(--[^,/\s]+)(.*): ignored explicit argument (.*)", re.DOTALL)


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        message = message.removeprefix("argument ")
        taken = _NO_VALUE.fullmatch(message)
        if taken:
            flag, others, value = taken.groups()
            negation = f"--no-{flag.removeprefix('--')}"
            hint = f"; {flag} switches it on, {negation} off" if negation in others else ""
            message = f"{flag}: takes no value, got {value:.80}{hint}"
        raise ConfigError(message)


def parse(argv: Sequence[str], collectors: Iterable[CollectorInfo]) -> Invocation:
    """What the command line (without the program's name) asks for.

    The values of the settings are checked by `exporter.config.load`, like those of the file.

    Raises:
        ConfigError: there is no such flag or command, or a flag lacks its value.
        SystemExit: after `--help` or `--version`, with status 0.
    """
    known = settings(collectors)
    given, rest = _parser(known.values()).parse_known_intermixed_args(argv)
    for text in rest:
        raise ConfigError(
            _unknown_argument(text, [each.name for each in known.values() if each.flag])
        )
    flags = vars(given)
    command = flags.pop("command")
    file = flags.pop("config.file", None)
    for name, text in (("--config.file", file), *((f"--{a}", flags.get(a)) for a in _ASKED)):
        if text == "":
            raise ConfigError(f"{name}: expected a value, got ''")
    if command not in COMMANDS:
        raise ConfigError(unknown("command", command, COMMANDS))
    if "format" in flags and command not in ("support", _LEAK_CHECK):
        raise ConfigError(f"--format: goes with the commands support and {_LEAK_CHECK} alone")
    output = flags.pop("format", _FORMATS[0])
    asked = {name: flags.pop(name) for name in ("recording", *_ASKED) if name in flags}
    return Invocation(
        command,
        flags,
        None if file is None else Path(file),
        output,
        **_recorded(command, asked),
    )


def _recorded(command: str, given: dict[str, str]) -> dict[str, Any]:
    """What `leak-check` shall judge: a file, or what a Prometheus has."""
    if command != _LEAK_CHECK:
        for name, text in given.items():
            if name == "recording":
                raise ConfigError(f"unexpected argument {text!r:.80}")
            raise ConfigError(f"--{name}: goes with the command {_LEAK_CHECK} alone")
        return {}
    if ("recording" in given) == ("prometheus" in given):
        raise ConfigError(f"{_LEAK_CHECK}: expected either a FILE or --prometheus URL")
    if "recording" in given:
        if "since" in given:
            raise ConfigError("--since: goes with --prometheus alone")
        if not given["recording"]:
            raise ConfigError(f"{_LEAK_CHECK}: expected a FILE, got ''")
        return {"recording": Path(given["recording"])}
    recorded: dict[str, Any] = {"prometheus": given["prometheus"]}
    if "since" in given:
        try:
            recorded["since"] = parse_duration(given["since"])
        except ValueError as error:
            raise ConfigError(f"--since: {error}") from error
    return recorded


def _unknown_argument(text: str, names: list[str]) -> str:
    flag = text.partition("=")[0]
    if not flag.startswith("-"):
        return f"unexpected argument {text!r:.80}"
    name = flag.removeprefix("--").removeprefix("no-")
    if name.startswith("collector."):
        return unknown_setting(name, names)
    own = ("--config.file", "--format", "--help", "--version", *(f"--{a}" for a in _ASKED))
    return unknown("flag", flag, (), (*(f"--{name}" for name in names), *own))


def _parser(known: Iterable[Setting[object]]) -> argparse.ArgumentParser:
    parser = _Parser(
        prog=PROGRAM,
        usage=f"{PROGRAM} [COMMAND] [FLAG ...]",
        description="Health and performance of AMD GPUs, for Prometheus.\n\n"
        + _listing("commands", COMMANDS),
        epilog=_FILE_ALONE + "\n\n" + _listing("exit status", EXIT_STATUSES),
        formatter_class=argparse.RawDescriptionHelpFormatter,
        argument_default=argparse.SUPPRESS,
        allow_abbrev=False,
    )
    parser.add_argument("command", nargs="?", default="serve", help=argparse.SUPPRESS)
    parser.add_argument("recording", nargs="?", help=argparse.SUPPRESS)
    parser.add_argument("--version", action="version", version=f"{PROGRAM} {__version__}")
    parser.add_argument(
        "--config.file", metavar="FILE", help="YAML file with settings; flags win over it"
    )
    parser.add_argument(
        "--format",
        choices=_FORMATS,
        help=f"of what support and {_LEAK_CHECK} print (default: table)",
    )
    parser.add_argument("--prometheus", metavar="URL", help=f"of {_LEAK_CHECK}: whom to ask")
    parser.add_argument(
        "--since", metavar="DURATION", help=f"of {_LEAK_CHECK}: how far back (default: 24h)"
    )
    groups = {
        False: parser.add_argument_group("settings"),
        True: parser.add_argument_group("collectors"),
    }
    for setting in known:
        if setting.flag:
            _add(groups[setting.name.startswith("collector.")], setting)
    return parser


def _add(group: argparse._ArgumentGroup, setting: Setting[object]) -> None:
    text = f"{setting.help} (default: {setting.default_text})".replace("%", "%%")
    flag, kind = f"--{setting.name}", setting.kind
    if not kind.metavar:
        group.add_argument(
            flag, dest=setting.name, action=argparse.BooleanOptionalAction, help=text
        )
    else:
        action = "append" if kind.repeatable else "store"
        group.add_argument(flag, dest=setting.name, action=action, metavar=kind.metavar, help=text)


def _listing(title: str, rows: dict[str, str] | dict[int, str]) -> str:
    lines = (f"  {name!s:14}{text}" for name, text in rows.items())
    return "\n".join((f"{title}:", *lines))
