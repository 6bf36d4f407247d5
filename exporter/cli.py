"""The command `amdgpu-exporter`."""

from __future__ import annotations

import io
import os
import signal
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
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

_WHY = "`amdgpu-exporter support` says why"
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
            if invocation.command != "serve":  # the daemon takes it as soon as it can
                signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGHUP})
            return _COMMANDS[invocation.command](invocation, config, launcher)
        finally:
            _print()  # --help and --version leave that to Python
    except (ConfigError, ListenError) as error:
        _complain(str(error))
        return BAD_USAGE
    except _OutputError as error:
        if not isinstance(error.__cause__, BrokenPipeError):  # `head` has seen enough, say
            _complain(f"standard output: {error}")
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


def _complain(line: str) -> None:
    """Say what is wrong on standard error, if that can be written: the status tells as well."""
    with suppress(OSError):
        sys.stderr.write(f"amdgpu-exporter: {line}\n")


def _serve(invocation: Invocation, config: Config, launcher: Launcher | None) -> int:
    daemon = Daemon(config, lambda: load(invocation, COLLECTORS), launcher)
    return OK if daemon.run() else FAILED


def _once(_: Invocation, config: Config, launcher: Launcher | None) -> int:
    reader = Reader(config, launcher, keep=False)
    try:
        snapshot = reader.poll()
    finally:
        reader.stop()
    status = Status(reload_successful=True, reload_timestamp=snapshot.timestamp)
    page = MetricsPage(snapshot, reader.picture.collectors, lambda: status, process=False)
    _print(page.render()[1].decode())
    down = [report.name for report in snapshot.sources if not report.up and not report.paused]
    if len(down) < len(snapshot.sources):
        if down:
            _complain(f"could not be read: {', '.join(down)}; {_WHY}")
        return OK
    return _status(False, "no source could be read")


def _support(invocation: Invocation, config: Config, launcher: Launcher | None) -> int:
    every = replace(config, collectors=tuple(collector.name for collector in COLLECTORS))
    # Where the collector is off, the kubelet's socket is none of our business.
    reader = Reader(every, launcher, keep=False, kubelet="allocations" in config.collectors)
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
        _complain(f"{problem}; {_WHY}")
    return OK if good else FAILED


_COMMANDS = {
    "serve": _serve,
    "once": _once,
    "support": _support,
    "check-config": _check_config,
    "leak-check": _leak_check,
}
