"""The log: one line per event on stderr, and faults that are told once, not once per poll."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol, TextIO, TypeVar

import structlog
from structlog.typing import EventDict, Processor, WrappedLogger

Key = TypeVar("Key", bound=Hashable)

_OWN = "exporter"


def set_up(level: str, format: str, stream: TextIO | None = None) -> None:
    """Send every line of the log to `stream`; called again, it changes level and format.

    `structlog.get_logger()` in a module of the exporter logs from `level` on. What libraries log
    by `logging` comes along from warning on.

    Args:
        level: debug, info, warning or error.
        format: logfmt or json.
        stream: stderr where None.
    """
    common: tuple[Processor, ...] = (
        structlog.stdlib.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        structlog.processors.format_exc_info,
    )
    render: tuple[Processor, ...]
    if format == "json":
        render = (_in_order, structlog.processors.JSONRenderer(default=str))
    else:
        render = (_in_order, _printable, structlog.processors.LogfmtRenderer(bool_as_flag=False))
    handler = logging.StreamHandler(stream)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=(*common, structlog.stdlib.add_logger_name),
            processors=(structlog.stdlib.ProcessorFormatter.remove_processors_meta, *render),
        )
    )
    root = logging.getLogger()
    root.handlers = [handler]
    root.setLevel(logging.WARNING)
    logging.getLogger(_OWN).setLevel(level.upper())
    structlog.configure(
        processors=(
            structlog.stdlib.filter_by_level,
            *common,
            structlog.stdlib.ProcessorFormatter.wrap_for_formatter,
        ),
        wrapper_class=structlog.stdlib.BoundLogger,
        logger_factory=structlog.stdlib.LoggerFactory(),
    )


def _in_order(_: WrappedLogger, __: str, event: EventDict) -> EventDict:
    first = {key: event[key] for key in ("timestamp", "level", "event") if key in event}
    return {**first, **event}


def _printable(_: WrappedLogger, __: str, event: EventDict) -> EventDict:
    """Lists with commas, and escaped what a terminal would obey (line feeds: the renderer)."""
    return {key: _escaped(value) for key, value in event.items()}


def _escaped(value: object) -> object:
    if value is None or isinstance(value, (bool, int, float)):
        return value
    if isinstance(value, (list, tuple)):
        value = ",".join(map(str, value))
    return "".join(c if c.isprintable() or c == "\n" else repr(c)[1:-1] for c in str(value))


class Log(Protocol):
    """What `Faults` needs of a logger."""

    def info(self, event: str, **fields: Any) -> Any:
        """Log what is good to know."""

    def warning(self, event: str, **fields: Any) -> Any:
        """Log what a person should look at."""


@dataclass(frozen=True, slots=True)
class FaultInfo:
    """What is logged of a fault.

    Attributes:
        event: what is wrong, the same text for all faults of its sort.
        fields: with which device, and the reason.
    """

    event: str
    fields: Mapping[str, object] = field(default_factory=dict)


@dataclass(slots=True)
class _Course:
    """How one fault went so far.

    Attributes:
        starts: the latest starts, one more than may be logged within the window.
        since: of the spell that lasts, None between spells.
        told: since when the log says that it lasts or flaps.
        flapping_told: when the log last said that it flaps; None while it does not.
        untold: starts since then.
    """

    info: FaultInfo
    starts: deque[float]
    since: float | None = None
    ended: float = 0.0
    told: float = 0.0
    flapping_told: float | None = None
    untold: int = 0


class Faults:
    """Logs a fault once when it starts and once when it ends.

    A fault that starts more than `max_starts` times within `window` seconds is flapping. It is
    then told as one fault: when it begins to flap, at most once per `pause` seconds how often it
    started since, and when it has calmed down, whether it lasts or is over.

    The field `fault` says which of these a line is: started, ended or flapping. A fault is known
    by its key alone, so what makes it another fault (a new reason) belongs into the key.
    """

    def __init__(
        self,
        log: Log,
        *,
        max_starts: int = 5,
        window: float = 3600,
        pause: float = 600,
        max_faults: int = 1000,
    ) -> None:
        self._log = log
        self._max_starts = max_starts
        self._window = window
        self._pause = pause
        self._max_faults = max_faults
        self._courses: dict[Hashable, _Course] = {}
        self._full = False

    def update(self, current: Mapping[Key, FaultInfo], now: float) -> None:
        """Log what changed since the last call.

        Args:
            current: all faults there are now, by what tells them apart.
            now: monotonic time in seconds.
        """
        for key, info in current.items():
            course = self._courses.get(key) or self._follow(key, info)
            if course is not None and course.since is None:
                self._start(course, info, now)
        for followed, course in list(self._courses.items()):
            if course.since is not None and followed not in current:
                self._end(course, now)
            self._flap(course, now)
            if course.since is None and course.starts[-1] <= now - self._window:
                del self._courses[followed]
                self._full = False

    def _follow(self, key: Hashable, info: FaultInfo) -> _Course | None:
        if len(self._courses) >= self._max_faults:
            if not self._full:
                self._log.warning("too many faults to log them all", followed=self._max_faults)
            self._full = True
            return None
        course = _Course(info, deque(maxlen=self._max_starts + 1))
        self._courses[key] = course
        return course

    def _start(self, course: _Course, info: FaultInfo, now: float) -> None:
        course.info = info
        course.since = now
        course.starts.append(now)
        course.untold += 1
        if course.flapping_told is not None:
            return
        if self._flaps(course, now):
            course.told = course.starts[0]
            course.untold = len(course.starts)
            self._tell_flapping(course, now, now - course.starts[0])
        else:
            course.told = now
            self._log.warning(info.event, **info.fields, fault="started")

    def _end(self, course: _Course, now: float) -> None:
        course.ended = now
        if course.flapping_told is None:
            self._tell_end(course)
        course.since = None

    def _flap(self, course: _Course, now: float) -> None:
        told = course.flapping_told
        if told is None:
            return
        if not self._flaps(course, now):
            course.flapping_told = None
            if course.since is None:
                self._tell_end(course)
            else:
                course.told = course.since
                self._log.warning(course.info.event, **course.info.fields, fault="started")
        elif course.untold and now - told >= self._pause:
            self._tell_flapping(course, now, now - told)

    def _flaps(self, course: _Course, now: float) -> bool:
        enough = len(course.starts) > self._max_starts
        return enough and course.starts[0] > now - self._window

    def _tell_flapping(self, course: _Course, now: float, within: float) -> None:
        self._log.warning(
            course.info.event,
            **course.info.fields,
            fault="flapping",
            starts=course.untold,
            within_seconds=round(within, 3),
        )
        course.flapping_told = now
        course.untold = 0

    def _tell_end(self, course: _Course) -> None:
        self._log.info(
            course.info.event,
            **course.info.fields,
            fault="ended",
            duration_seconds=round(course.ended - course.told, 3),
        )
