"""Settings from flags, file and environment."""

import os
import re
import socket
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import HealthCheck, example, given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from exporter.config import (
    MAX_FILE_BYTES,
    Config,
    ConfigError,
    Invocation,
    Limits,
    changes_needing_restart,
    load,
    reference,
    settings,
)
from exporter.flags import parse
from exporter.web.address import ListenAddress

from .collectors import COLLECTORS

DEFAULT_COLLECTORS = ("temperature", "xgmi")

Write = Callable[[str | bytes], Path]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    """Writes the file of settings."""

    def write(text: str | bytes) -> Path:
        path = tmp_path / "x.yml"
        path.write_bytes(text.encode("utf-8", "surrogatepass") if isinstance(text, str) else text)
        return path

    return write


def of(*argv: str, file: Path | None = None, **environment: str) -> Config:
    """The settings that a command line, a file and an environment give."""
    return load(replace(parse(argv, COLLECTORS), file=file), COLLECTORS, environment)


def error_of(*argv: str, file: Path | None = None, **environment: str) -> str:
    """The message of the error, without the file's directory."""
    with pytest.raises(ConfigError) as caught:
        of(*argv, file=file, **environment)
    message = str(caught.value)
    assert [message] == message.splitlines()
    return message.replace(f"{file and file.parent}/", "")


def test_defaults() -> None:
    """Without flags and file every setting has its default."""
    config = of()

    assert Config(collectors=DEFAULT_COLLECTORS) == config
    assert (ListenAddress("", 10450),) == config.listen_addresses
    assert "/metrics" == config.telemetry_path
    assert 40 == config.max_requests
    assert config.enable_lifecycle is False
    assert 5.0 == config.poll_interval
    assert ("amdsmi", "rocm_smi", "sysfs") == config.sources
    assert config.expected_gpus is None
    assert config.state_directory is None
    assert ("info", "logfmt") == (config.log_level, config.log_format)
    assert {} == config.simulation
    assert {
        "edge": Limits(None, None),
        "junction": Limits(None, None),
        "hbm": Limits(95.0, 105.0),
    } == config.temperature_limits


FLAGS = (
    "--web.listen-address=127.0.0.1:1",
    "--web.listen-address=[::1]:2",
    "--web.telemetry-path=/gpu/metrics",
    "--web.max-requests=0",
    "--web.enable-lifecycle",
    "--poll.interval=1m30s",
    "--sources=sysfs, amdsmi",
    "--expected-gpus=8",
    "--state.directory=/var/lib/x",
    "--no-collector.xgmi",
    "--collector.processes",
    "--log.level=error",
    "--log.format=json",
)
FILE = """
web:
  listen-address: ["127.0.0.1:1", "[::1]:2"]
  telemetry-path: /gpu/metrics
  max-requests: 0
  enable-lifecycle: true
poll: {interval: 1m30s}
sources: [sysfs, amdsmi]
expected-gpus: 8
state: {directory: /var/lib/x}
collector: {xgmi: false, processes: true}
log:
  level: error
  format: json
"""
CHANGED = Config(
    listen_addresses=(ListenAddress("127.0.0.1", 1), ListenAddress("::1", 2)),
    telemetry_path="/gpu/metrics",
    max_requests=0,
    enable_lifecycle=True,
    poll_interval=90.0,
    sources=("sysfs", "amdsmi"),
    expected_gpus=8,
    state_directory=Path("/var/lib/x"),
    log_level="error",
    log_format="json",
    collectors=("temperature", "processes"),
)


def test_flags() -> None:
    """Every flag sets what it names."""
    assert CHANGED == of(*FLAGS)


def test_file(write: Write) -> None:
    """A key of the file means what the flag of that name means."""
    assert CHANGED == of(file=write(FILE))


def test_flags_win(write: Write) -> None:
    """A flag wins over the file, and the file over the environment."""
    path = write("poll: {interval: 9s}\nlog: {level: debug}\nstate: {directory: /file}")
    config = of("--poll.interval=2s", file=path, STATE_DIRECTORY="/environment")

    assert (2.0, "debug", Path("/file")) == (
        config.poll_interval,
        config.log_level,
        config.state_directory,
    )


def test_settings_of_the_file_alone(write: Write) -> None:
    """Limits and the simulated node have no flag."""
    path = write(
        "temperature: {hbm: {warning: 90, critical: null}, junction: {critical: 110.5}}\n"
        "simulation: {gpus: 4, seed: 7, scenarios: []}\n"
    )
    config = of(file=path)

    assert Limits(90.0, None) == config.temperature_limits["hbm"]
    assert Limits(None, 110.5) == config.temperature_limits["junction"]
    assert {"gpus": 4, "seed": 7, "scenarios": []} == config.simulation


@pytest.mark.parametrize(
    "text", ["", "# nothing\n", "---\n", "web:\n", "web:\n  # none\nlog: {}\n"]
)
def test_empty_files(write: Write, text: str) -> None:
    """A file may be empty, or have all of a section commented out."""
    assert of() == of(file=write(text))


@pytest.mark.parametrize(
    ("argv", "text", "expected"),
    [
        ((), "", ("temperature", "xgmi")),
        (("--collector.disable-defaults",), "", ()),
        (("--collector.disable-defaults", "--collector.xgmi"), "", ("xgmi",)),
        (("--collector.disable-defaults",), "collector: {processes: on}", ("processes",)),
        (
            ("--no-collector.disable-defaults",),
            "collector: {disable-defaults: true}",
            ("temperature", "xgmi"),
        ),
        (("--no-collector.xgmi",), "collector: {xgmi: true}", ("temperature",)),
        (("--collector.xgmi",), "collector: {xgmi: no}", ("temperature", "xgmi")),
    ],
)
def test_collectors(
    write: Write, argv: tuple[str, ...], text: str, expected: tuple[str, ...]
) -> None:
    """What is asked for by name wins over the defaults, and a flag over the file."""
    assert expected == of(*argv, file=write(text)).collectors


def test_state_directory_of_systemd() -> None:
    """The first directory that systemd made is used; an empty variable is none."""
    assert Path("/var/lib/a") == of(STATE_DIRECTORY="/var/lib/a:/var/lib/b").state_directory
    assert of(STATE_DIRECTORY="").state_directory is None
    assert Path("/b") == of("--state.directory=/b", STATE_DIRECTORY="/a").state_directory


def test_unset_by_null(write: Write) -> None:
    """The file can say that there is none, where a setting may be unset."""
    path = write("state: {directory: null}\nexpected-gpus: ~\n")

    assert of(file=path, STATE_DIRECTORY="/a").state_directory is None


@pytest.mark.parametrize(
    ("flag", "message"),
    [
        ("--web.listen-address=nowhere", "--web.listen-address: "),
        ("--web.telemetry-path=metrics", "expected a path of plain names such as /metrics"),
        ("--web.telemetry-path=/", "expected a path of plain names"),
        ("--web.telemetry-path=/a/", "expected a path of plain names"),
        ("--web.telemetry-path=//a", "expected a path of plain names"),
        ("--web.telemetry-path=/a/../b", "expected a path of plain names"),
        ("--web.telemetry-path=/a?b", "expected a path of plain names"),
        ("--web.telemetry-path=/-/metrics", "/-/metrics is taken"),
        ("--web.telemetry-path=/-", "/- is taken"),
        ("--web.telemetry-path=/api/v1", "/api/v1 is taken"),
        ("--web.max-requests=-1", "expected a whole number, 0 or more, got -1"),
        ("--web.max-requests=1.5", "expected a whole number, 0 or more, got 1.5"),
        ("--web.max-requests=many", "expected a whole number, 0 or more, got 'many'"),
        ("--web.max-requests=" + "9" * 5000, "expected a whole number"),
        ("--poll.interval=999ms", "expected at least 1s, got 999ms"),
        ("--poll.interval=0s", "expected at least 1s, got 0s"),
        (
            "--poll.interval=5",
            "'5' is no duration such as 500ms, 5s, 1h30m or 2d; a unit is missing",
        ),
        ("--poll.interval=", "expected a duration such as 5s, got ''"),
        ("--sources=", "expected names of sources, got ''"),
        ("--sources=amdsmi,,sysfs", "expected names of sources, got ''"),
        (
            "--sources=amdsim",
            "unknown source 'amdsim'; did you mean amdsmi?; there are amdsmi, roc",
        ),
        ("--sources=sysfs,sysfs", "'sysfs' is named twice"),
        ("--sources=simulated,sysfs", "simulated goes alone"),
        ("--expected-gpus=-1", "--expected-gpus: expected a whole number, 0 or more, got -1"),
        ("--expected-gpus=True", "expected a whole number"),
        ("--state.directory=", "--state.directory: expected a directory, got ''"),
        ("--log.level=loud", "expected debug or info or warning or error, got 'loud'"),
        ("--log.format=xml", "--log.format: expected logfmt or json, got 'xml'"),
    ],
)
def test_wrong_flags(flag: str, message: str) -> None:
    """A wrong value is named with its flag and what is expected."""
    error = error_of(flag)

    assert error.startswith(f"{flag.partition('=')[0]}: ")
    assert message in error


def test_duplicate_addresses() -> None:
    """An address is served on once, however it is written."""
    same = error_of("--web.listen-address=:1", "--web.listen-address=:1")
    equal = error_of("--web.listen-address=[::1]:1", "--web.listen-address=[0::1]:1")

    assert "--web.listen-address: ':1' is named twice" == same
    assert "--web.listen-address: [::1]:1 and [0::1]:1 are the same address" == equal


def test_long_errors(write: Write) -> None:
    """The message stays short and keeps its place, however long the text that is wrong."""
    error = error_of(file=write(f"web: {{listen-address: {'x' * 100_000}}}"))

    assert len(error) < 1000
    assert error.startswith("x.yml:1:7: web.listen-address: ")


def test_wrong_environment() -> None:
    """The environment is named where it is wrong."""
    assert error_of(STATE_DIRECTORY="\x1b").startswith("$STATE_DIRECTORY: expected a directory")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("web:\n  port: 1", "x.yml:2:3: unknown setting 'web.port'"),
        ("pol:\n  interval: 5s", "x.yml:1:1: unknown setting 'pol'"),
        ("web.max-requests: 1", "x.yml:1:1: 'web.max-requests': a dot is a step"),
        (
            "poll: {intervall: 5s}",
            "x.yml:1:8: unknown setting 'poll.intervall'; did you mean poll.int",
        ),
        (
            "collector:\n  xgmii: true",
            "x.yml:2:3: unknown collector 'xgmii'; did you mean xgmi?; there",
        ),
        ("collector: {xgmi: 1}", "x.yml:1:13: collector.xgmi: expected true or false, got 1"),
        ("collector: {xgmi: 'on'}", "expected true or false, got 'on'"),
        ("collector: xgmi", "x.yml:1:12: expected a mapping of settings in collector"),
        ("poll:\n  interval: 5", "x.yml:2:3: poll.interval: expected a duration such as 5s, got 5"),
        ("poll: {interval: }", "poll.interval: expected a duration such as 5s, got nothing"),
        (
            "expected-gpus: true",
            "x.yml:1:1: expected-gpus: expected a whole number, 0 or more, got T",
        ),
        ("expected-gpus: '8'", "expected a whole number, 0 or more, got '8'"),
        ("expected-gpus: 8.0", "expected a whole number, 0 or more, got 8.0"),
        ("expected-gpus: 0x" + "f" * 5000, "x.yml:1:1: expected-gpus: "),
        ("expected-gpus: " + "9" * 5000, "x.yml:1:16: '999"),
        ("log: {level: off}", "log.level: expected debug or info or warning or error, got False"),
        ("sources: []", "x.yml:1:1: sources: expected names of sources, got []"),
        ("sources: [amdsmi, 1]", "sources: expected names of sources, got 1"),
        ("sources: [simulated, sysfs]", "sources: simulated goes alone"),
        ("web: {listen-address: [':1', ':1']}", "web.listen-address: ':1' is named twice"),
        (
            "web: {listen-address: {a: b}}",
            "web.listen-address: expected addresses such as :10450, got",
        ),
        ("log: {level: info}\nlog: {level: info}", "x.yml:2:1: the key 'log' is there twice"),
        ("poll: {interval: 5s, interval: 5s}", "x.yml:1:22: the key 'interval' is there twice"),
        ("simulation: {gpus: 1, gpus: 2}", "x.yml:1:23: the key 'gpus' is there twice"),
        ("simulation: [1]", "x.yml:1:1: simulation: expected a mapping, got [1]"),
        ("simulation: {gpus: 99}", "x.yml:1:14: simulation: gpus: 99"),
        ("simulation:\n  gpus: 2\n  gpu: 1", "x.yml:3:3: simulation: unknown key 'gpu'"),
        (
            "simulation:\n  scenarios:\n    - idle\n    - name: idle\n      strt: 3s",
            "x.yml:5:7: simulation: scenarios[1]: unknown key 'strt'",
        ),
        (
            "simulation:\n  scenarios:\n    - idle\n    - {name: idle, start: 3}",
            "x.yml:4:20: simulation: scenarios[1].start: ",
        ),
        ("simulation:\n  scenarios:\n  - idle\n  - fire", "x.yml:4:5: simulation: scenarios[1]"),
        ("simulation:\n  gpus: 2\n  scenarios: idle", "x.yml:3:3: simulation: scenarios: not"),
        ("simulation:\n  gpus: 2\n  speed: .nan", "x.yml:3:3: simulation: speed: nan"),
        ("simulation:\n  gpus: 2\n  'sp\u00e4t': 1", "x.yml:3:3: simulation: unknown key 'sp"),
        ("leaks:\n  growth_ratio: x", "x.yml:2:3: leaks: growth_ratio: expected a number"),
        ("leaks:\n  growth_ratio: -1", "x.yml:2:3: leaks: growth_ratio: expected "),
        ("leaks:\n  # a remark\n  windo: 1", "x.yml:3:3: leaks: unknown threshold 'windo'"),
        (
            "web:\n  listen-address: [':1', '0.0.0.0:1']",
            "x.yml:2:3: web.listen-address: 0.0.0.0:1 is a part of :1: leave one out",
        ),
        (
            "temperature: {hbm: {warning: 120}}",
            "x.yml:1:21: temperature.hbm.warning: the warning",
        ),
        (
            "temperature: {edge: {warning: .nan}}",
            "temperature.edge.warning: expected a temperature",
        ),
        (
            "temperature: {edge: {warning: 151}}",
            "expected a temperature in celsius, above 0 and at m",
        ),
        ("temperature: {edge: {high: 1}}", "x.yml:1:22: unknown setting 'temperature.edge.high'"),
        ("temperature: {memory: {warning: 1}}", "unknown setting 'temperature.memory'"),
        ("- web", "x.yml:1:1: expected a mapping of settings"),
        ("5", "x.yml:1:1: expected a mapping of settings"),
        ("1: 2", "x.yml:1:1: a key must be text"),
        ("? [a]\n: 1", "a key must be text"),
        ("a: &a {<<: *a}", "unknown setting 'a'"),
        ("web: &w {web: *w}", "unknown setting 'web.web'"),
        ("log: &a {level: info}\npoll: {<<: *a}", "x.yml:2:8: a key must be text"),
        ("web: {", "x.yml:1:7: "),
        ("web:\n\tport: 1", "x.yml:2:1: found character '\\t' that cannot start any token"),
        ("a: 1\n---\nb: 2", "x.yml:2:1: but found another document"),
        ("log: {level: *none}", "x.yml:1:14: found undefined alias 'none'"),
        (
            "log: {level: !!python/name:os.system x}",
            "the tag 'python/name:os.system' means nothing",
        ),
        ("log: {level: !!int x}", "x.yml:1:14: 'x' is no int"),
        ("log: {level: !!bool x}", "'x' is no bool"),
        ("log: {level: !!int ''}", "'' is no int"),
        ('log: {level: "\\ud800"}', "log.level: expected debug or"),
        ('state: {directory: "a\\0b"}', "state.directory: expected a directory, got 'a\\x00b'"),
        ("\0", "x.yml: no YAML: "),
        ("[" * 5000, "x.yml: nested too deeply"),
        ("simulation: {seed: " + "[" * 30 + "]" * 30 + "}", "nested too deeply"),
        ("simulation: &a {seed: *a}", "nested too deeply"),
        (b"log: {level: info}\n# \xff", "x.yml:2: not UTF-8 text"),
        (b"#" * (MAX_FILE_BYTES + 1), "x.yml: longer than 256 KiB"),
    ],
)
def test_wrong_files(write: Write, text: str | bytes, message: str) -> None:
    """What is wrong in the file is named with line and column."""
    assert message in error_of(file=write(text))


def test_alias_bomb(write: Write) -> None:
    """A small file that stands for a huge one is refused before it takes memory."""
    lines = ["simulation:", "  a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"  a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 10)]

    assert "more than 10000 values" in error_of(file=write("\n".join(lines)))


def test_unreadable_files(tmp_path: Path) -> None:
    """A file that is not there, or is a directory, is named."""
    (tmp_path / "folder").mkdir()

    assert "none: No such file or directory" == error_of(file=tmp_path / "none")
    assert "folder: Is a directory" == error_of(file=tmp_path / "folder")
    assert "embedded null byte" in error_of(file=tmp_path / "a\0b")


def test_no_regular_files(tmp_path: Path) -> None:
    """A pipe, on which reading would wait, a device and a socket are refused at once."""
    pipe, path = tmp_path / "pipe", tmp_path / "socket"
    os.mkfifo(pipe)
    with socket.socket(socket.AF_UNIX) as bound:
        bound.bind(str(path))

        assert "pipe: no regular file" == error_of(file=pipe)
        assert "zero: no regular file" == error_of(file=Path("/dev/zero"))
        assert "socket: No such device or address" == error_of(file=path)


def test_wrong_file_behind_a_flag(write: Write) -> None:
    """A wrong value is an error even where a flag wins over it."""
    assert "x.yml:1:8: poll.interval" in error_of(
        "--poll.interval=5s", file=write("poll: {interval: 5}")
    )


NAMES = st.sampled_from([part for name in settings(COLLECTORS) for part in name.split(".")])
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text() | NAMES,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=3),
)
YAML = (
    st.text()
    | st.text(alphabet="{}[]:,-&*!|>?%@`\"'#\\ \n\tax0<=.~", max_size=60)
    | st.dictionaries(NAMES, VALUES).map(repr)
    | VALUES.map(repr)
)


def said(file: Path) -> str | None:
    """What is wrong with the file; None where it can be used."""
    try:
        load(Invocation(file=file), COLLECTORS, {})
    except ConfigError as error:
        return str(error)
    return None


@given(YAML.map(lambda text: text.encode("utf-8", "surrogatepass")) | st.binary())
@example(b"%YAML 1." + b"9" * 5000 + b"\n---\n")
@example(b'"\\UFFFFFFFF"')
@hypothesis_settings(
    suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=500, deadline=None
)
def test_any_file(write: Write, data: bytes) -> None:
    """Any text, and any bytes, either give settings or one line of what is wrong."""
    file = write(data)
    error = said(file)

    assert error is None or ([error] == error.splitlines() and error.startswith(str(file)))


def test_reload(write: Write) -> None:
    """A reload reads the file again; what takes a restart is named."""
    invocation = Invocation(file=write("poll: {interval: 5s}"))
    old = load(invocation, COLLECTORS, {})
    write(FILE)
    new = load(invocation, COLLECTORS, {})
    expected = (
        "web.listen-address",
        "web.telemetry-path",
        "web.max-requests",
        "web.enable-lifecycle",
        "sources",
        "state.directory",
        "log.format",
    )

    assert expected == changes_needing_restart(old, new)
    assert () == changes_needing_restart(new, new)
    assert ("simulation",) == changes_needing_restart(old, replace(old, simulation={"gpus": 1}))


def test_live_changes() -> None:
    """What a reload applies is not named."""
    live = replace(
        Config(),
        poll_interval=9.0,
        collectors=("xgmi",),
        log_level="debug",
        expected_gpus=1,
        hbm_warning=1.0,
    )

    assert () == changes_needing_restart(Config(), live)


def test_reference_is_complete() -> None:
    """The document has a row for every setting, with its default."""
    text = reference(COLLECTORS)
    rows = [line.split(" | ") for line in text.splitlines() if line.startswith("| `")]
    expected = [
        (f"`--{each.name}`" if each.flag else f"`{each.name}`", each.default_text)
        for each in settings(COLLECTORS).values()
    ]

    assert sorted(expected) == sorted((row[0][2:], row[2]) for row in rows)
    assert r"XGMI links \| between GPUs" in text


def test_example_in_the_reference(write: Write) -> None:
    """The file that the document shows can be used."""
    shown = re.search(r"```yaml\n(.*?)```", reference(COLLECTORS), re.DOTALL)
    assert shown is not None
    config = of(file=write(shown[1]))

    assert ["127.0.0.1:10450", "[::1]:10450"] == [*map(str, config.listen_addresses)]
    assert Limits(90.0, 100.0) == config.temperature_limits["hbm"]
