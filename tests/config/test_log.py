"""The log, and faults in it."""

import io
import json
import logging
import re
from collections.abc import Iterator, Mapping
from typing import Any

import pytest
import structlog
from hypothesis import given, settings
from hypothesis import strategies as st

from exporter.log import FaultInfo, Faults, set_up


@pytest.fixture
def stream() -> Iterator[io.StringIO]:
    """Where the log goes; what was set up before is put back."""
    root = logging.getLogger()
    handlers, level = root.handlers, root.level
    yield io.StringIO()
    root.handlers = handlers
    root.setLevel(level)
    logging.getLogger("exporter").setLevel(logging.NOTSET)
    structlog.reset_defaults()


def own() -> Any:
    """A logger as a module of the exporter has it."""
    return structlog.get_logger("exporter.daemon")


def lines(stream: io.StringIO) -> list[str]:
    """The log without its time."""
    return [re.sub(r"^timestamp=\S+Z ", "", line) for line in stream.getvalue().splitlines()]


def test_logfmt(stream: io.StringIO) -> None:
    """Time, level and event come first, then the fields in their order."""
    set_up("info", "logfmt", stream)
    own().info("poll done", gpus=8, ok=True, seconds=0.5, why=None)

    assert re.fullmatch(
        r"timestamp=\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d+Z level=info "
        r'event="poll done" gpus=8 ok=true seconds=0\.5 why=\n',
        stream.getvalue(),
    )


def test_lists(stream: io.StringIO) -> None:
    """With commas, as one writes them, not as Python does; a list in JSON."""
    set_up("info", "logfmt", stream)
    own().info("started", listen=[":1", "[::1]:2"], sources=("amdsmi", "a\x1bb"), none=[])
    set_up("info", "json", stream)
    own().info("started", listen=[":1", "[::1]:2"])
    text, told = lines(stream)

    assert r"level=info event=started listen=:1,[::1]:2 sources=amdsmi,a\x1bb none=" == text
    assert [":1", "[::1]:2"] == json.loads(told)["listen"]


def test_json(stream: io.StringIO) -> None:
    """The same as one object per line."""
    set_up("info", "json", stream)
    own().warning("poll\nlate", gpu="0000:03:00.0")
    line = stream.getvalue()

    assert ["timestamp", "level", "event", "gpu"] == list(json.loads(line))
    assert "poll\nlate" == json.loads(line)["event"]
    assert 1 == len(line.splitlines())


def test_level_changes(stream: io.StringIO) -> None:
    """Set up again, as by a reload, the new level holds for loggers that exist."""
    log = own()
    set_up("error", "logfmt", stream)
    log.warning("quiet")
    set_up("debug", "logfmt", stream)
    log.debug("loud")

    assert ["level=debug event=loud"] == lines(stream)


def test_libraries(stream: io.StringIO) -> None:
    """Libraries log from warning on, whatever our own level, and in the same form."""
    set_up("debug", "logfmt", stream)
    logging.getLogger("some.server").info("chatter")
    logging.getLogger("some.server").warning("no %s", "luck")

    assert ['level=warning event="no luck" logger=some.server'] == lines(stream)


def test_exceptions(stream: io.StringIO) -> None:
    """A traceback stays on the line of its event, ours and those of libraries."""
    set_up("info", "logfmt", stream)
    try:
        raise OSError("gone")
    except OSError:
        own().error("failed", exc_info=True)
        logging.getLogger("some.server").exception("failed")

    assert 2 == len(lines(stream))
    for line in lines(stream):
        assert line.startswith("level=error event=failed")
        assert line.endswith('OSError: gone"') or "OSError: gone" in line


def test_no_forged_lines(stream: io.StringIO) -> None:
    """Text from outside can neither start a line nor steer a terminal."""
    set_up("info", "logfmt", stream)
    own().info("a\nlevel=error\r\x1b[2J\x85", path="\u2028")

    assert [r'level=info event="a\nlevel=error\\r\\x1b[2J\\x85" path=\u2028'] == lines(stream)


class Recorder:
    """A log that keeps what it is told."""

    def __init__(self) -> None:
        self.told: list[tuple[str, str, dict[str, object]]] = []

    def info(self, event: str, **fields: object) -> None:
        """Keep a line."""
        self.told.append(("info", event, fields))

    def warning(self, event: str, **fields: object) -> None:
        """Keep a line."""
        self.told.append(("warning", event, fields))

    def take(self) -> list[tuple[str, str, dict[str, object]]]:
        """What was told since the last time."""
        told, self.told = self.told, []
        return told

    def states(self) -> list[object]:
        """The field `fault` of what was told since the last time."""
        return [fields.get("fault") for _, _, fields in self.take()]


HANG = {"a": FaultInfo("device does not answer", {"gpu": "a", "reason": "no_answer"})}
NONE: Mapping[str, FaultInfo] = {}


def test_told_once() -> None:
    """A fault is told when it starts and when it ends, not at every poll."""
    log = Recorder()
    faults = Faults(log)
    for now in range(0, 100, 5):
        faults.update(HANG, now)

    assert [
        (
            "warning",
            "device does not answer",
            {"gpu": "a", "reason": "no_answer", "fault": "started"},
        )
    ] == log.take()

    faults.update(NONE, 100.5)
    faults.update(NONE, 105)

    assert [
        (
            "info",
            "device does not answer",
            {"gpu": "a", "reason": "no_answer", "fault": "ended", "duration_seconds": 100.5},
        )
    ] == log.take()


def test_faults_are_apart() -> None:
    """Each key has its own course."""
    log = Recorder()
    faults = Faults(log)
    faults.update({"a": FaultInfo("x"), "b": FaultInfo("y")}, 0)
    faults.update({"b": FaultInfo("y"), "c": FaultInfo("z")}, 1)

    assert [
        ("warning", "x"),
        ("warning", "y"),
        ("warning", "z"),
        ("info", "x"),
    ] == [line[:2] for line in log.take()]


def test_flapping() -> None:
    """A fault that comes and goes is told as flapping, with the count, now and then."""
    log = Recorder()
    faults = Faults(log, max_starts=2, window=100, pause=30)
    for now in range(0, 80, 2):
        faults.update(HANG if now % 4 == 0 else NONE, now)
    told = log.take()

    assert ["started", "ended"] * 2 + ["flapping"] * 3 == [fields["fault"] for *_, fields in told]
    assert [(3, 8), (7, 30), (8, 30)] == [
        (fields["starts"], fields["within_seconds"]) for *_, fields in told[4:]
    ]
    assert {"warning"} == {level for level, *_ in told[4:]}


def test_flapping_then_over() -> None:
    """When a flapping fault has calmed down, its end is told, once."""
    log = Recorder()
    faults = Faults(log, max_starts=2, window=100, pause=30)
    for now in range(6):
        faults.update(NONE if now % 2 else HANG, now)
    log.take()
    for now in range(6, 300):
        faults.update(NONE, now)

    assert [("info", "ended", 5.0)] == [
        (level, fields["fault"], fields["duration_seconds"]) for level, _, fields in log.take()
    ]


def test_flapping_then_lasting() -> None:
    """When a flapping fault stays, that is told too, and later its end."""
    log = Recorder()
    faults = Faults(log, max_starts=2, window=100, pause=30)
    for now in range(5):
        faults.update(NONE if now % 2 else HANG, now)
    log.take()
    for now in range(5, 300):
        faults.update(HANG, now)

    assert ["started"] == log.states()

    faults.update(NONE, 304)

    assert [300.0] == [fields["duration_seconds"] for *_, fields in log.take()]


def test_rare_faults_do_not_flap() -> None:
    """A fault once in a while is always told."""
    log = Recorder()
    faults = Faults(log, max_starts=2, window=100)
    for now in range(0, 2000, 60):
        faults.update(HANG, now)
        faults.update(NONE, now + 1)

    assert ["started", "ended"] * 34 == log.states()


def test_too_many() -> None:
    """Past the ceiling faults are not followed, which is told once; memory stays bounded."""
    log = Recorder()
    faults = Faults(log, max_faults=2, window=10)
    many = {key: FaultInfo("x") for key in range(50)}
    for now in range(5):
        faults.update(many, now)

    assert ["started", "started", None] == log.states()

    faults.update(NONE, 5)
    faults.update(NONE, 20)
    faults.update({99: FaultInfo("x")}, 21)

    assert ["ended", "ended", "started"] == log.states()


@given(st.lists(st.booleans(), max_size=400), st.sampled_from([1, 7, 60]))
@settings(deadline=None)
def test_never_a_flood(course: list[bool], step: int) -> None:
    """However a fault comes and goes, an hour has few lines, and the last told state is right."""
    log = Recorder()
    faults = Faults(log)
    times: list[float] = []
    now = 0
    for present in course:
        faults.update(HANG if present else NONE, now)
        times += [now] * len(log.take())
        now += step

    assert all(sum(t <= at < t + 3600 for at in times) <= 24 for t in times)

    present = bool(course) and course[-1]
    told: list[object] = []
    for later in range(now, now + 8000, 50):
        faults.update(HANG if present else NONE, later)
        told += log.states()

    assert not told or ("started" if present else "ended") == told[-1]
