"""The command `amdgpu-exporter`."""

from __future__ import annotations

import io
import os
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from exporter.collectors import COLLECTORS
from exporter.config import Config, ConfigError, Invocation, load
from exporter.daemon import Daemon, Reader
from exporter.exposition.families import Status
from exporter.exposition.page import MetricsPage
from exporter.exposition.support import support_json, support_table
from exporter.flags import parse
from exporter.leaks import check
from exporter.leaks.recorded import Query
from exporter.log import set_up
from exporter.sources.supervisor import Launcher
from exporter.web.server import ListenError

OK, FAILED, BAD_USAGE, INTERRUPTED = 0, 1, 2, 130


def main(arguments: Sequence[str] | None = None, launcher: Launcher | None = None) -> int:
    """Run a command; the exit status is 0, 1 for a failure at run time, 2 for bad usage.

    Args:
        arguments: those of the process by default.
        launcher: how workers are started, where it is not by this interpreter alone.
    """
    try:
        try:
            invocation = parse(sys.argv[1:] if arguments is None else arguments, COLLECTORS)
            config = load(invocation, COLLECTORS)
            set_up(config.log_level, config.log_format)
            return _COMMANDS[invocation.command](invocation, config, launcher)
        finally:
            _print()  # --help and --version leave that to Python
    except (ConfigError, ListenError) as error:
        sys.stderr.write(f"amdgpu-exporter: {error}\n")
        return BAD_USAGE
    except _OutputError as error:
        if not isinstance(error.__cause__, BrokenPipeError):  # `head` has seen enough, say
            sys.stderr.write(f"amdgpu-exporter: standard output: {error}\n")
        return FAILED
    except KeyboardInterrupt:
        return INTERRUPTED


class _OutputError(Exception):
    """What a command prints can't be written; the text says why."""


def _print(text: str = "") -> None:
    """Write out a text, and what was printed before.

    Raises:
        _OutputError: it can't be written; what is left of it is dropped.
    """
    try:
        sys.stdout.write(text)
        sys.stdout.flush()
    except OSError as error:
        # Python would try once more when it ends, and complain.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise _OutputError(error.strerror) from error


def _serve(invocation: Invocation, config: Config, launcher: Launcher | None) -> int:
    Daemon(config, lambda: load(invocation, COLLECTORS), launcher).run()
    return OK


def _once(_: Invocation, config: Config, launcher: Launcher | None) -> int:
    reader = Reader(config, launcher, keep=False)
    try:
        snapshot = reader.poll()
    finally:
        reader.stop()
    status = Status(reload_successful=True, reload_timestamp=snapshot.timestamp)
    page = MetricsPage(snapshot, reader.picture.collectors, lambda: status, process=False)
    _print(page.render()[1].decode())
    return _status(any(report.up for report in snapshot.sources), "no source could be read")


def _support(invocation: Invocation, config: Config, launcher: Launcher | None) -> int:
    every = replace(config, collectors=tuple(collector.name for collector in COLLECTORS))
    reader = Reader(every, launcher, keep=False)
    try:
        snapshot = reader.poll()
    finally:
        reader.stop()
    report = support_json if invocation.format == "json" else support_table
    _print(report(snapshot, COLLECTORS) + "\n")
    return _status(any(source.up for source in snapshot.sources), "no source could be read")


def _check_config(invocation: Invocation, config: Config, _: Launcher | None) -> int:
    where = f" in {invocation.file}" if invocation.file else ""
    _print(
        f"the settings{where} are good: {len(config.collectors)} collectors, "
        f"sources {', '.join(config.sources)}\n"
    )
    return OK


def _leak_check(invocation: Invocation, config: Config, _: Launcher | None) -> int:
    source: Path | Query
    if invocation.recording is not None:
        source = invocation.recording
    else:
        now = time.time()
        source = Query(str(invocation.prometheus), since=invocation.since, until=now)
    out = io.StringIO()
    status = check.run(source, out, sys.stderr, invocation.format, config.leaks)
    _print(out.getvalue())
    return status


def _status(good: bool, problem: str) -> int:
    if not good:
        sys.stderr.write(f"amdgpu-exporter: {problem}; `amdgpu-exporter support` says why\n")
    return OK if good else FAILED


_COMMANDS = {
    "serve": _serve,
    "once": _once,
    "support": _support,
    "check-config": _check_config,
    "leak-check": _leak_check,
}
