"""Settings: what each means, and how flags and a YAML file become one `Config`.

The fields of `Config` are the one list of settings. Flags, keys of the file, defaults, help and
the reference document all come from it; the registry of collectors adds `collector.NAME`.

A setting's name is its flag, and split at the dots it is its place in the file:
`--web.listen-address :10450` says the same as `web: {listen-address: [":10450"]}`.
A flag wins over the file.
"""

from __future__ import annotations

import difflib
import errno
import os
import re
import stat
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from functools import partial
from pathlib import Path
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

import yaml

from exporter.durations import format_duration, parse_duration
from exporter.leaks import Thresholds
from exporter.web.address import ListenAddress, parse_address

T = TypeVar("T")

PROGRAM = "amdgpu-exporter"
SOURCES = ("amdsmi", "rocm_smi", "sysfs")
SIMULATED = "simulated"
MAX_FILE_BYTES = 256 << 10
MAX_NODES = 10_000
MAX_DEPTH = 20
_TAG = "tag:yaml.org,2002:"


class ConfigError(Exception):
    """The command line or the file is wrong; the text is one line that says where and how."""

    def __init__(self, message: str) -> None:
        line = " ".join(message.split())
        super().__init__(line if len(line) < 1000 else f"{line[:600]} … {line[-300:]}")


class CollectorInfo(Protocol):
    """What the settings need to know of a collector (`exporter.collectors.base.Collector`)."""

    @property
    def name(self) -> str:
        """Of the setting: `collector.NAME`."""

    @property
    def summary(self) -> str:
        """One line for help."""

    @property
    def default(self) -> bool:
        """On without being asked for."""


@dataclass(frozen=True, slots=True)
class Invocation:
    """What the command line says; `exporter.flags.parse` makes it.

    Attributes:
        command: serve, once, support or check-config.
        flags: the given settings by name, as texts (a list where repeatable, a bool for a
            switch). `load` checks them.
        file: of `--config.file`.
        format: of `--format`.
        recording: the file of `leak-check`.
        prometheus: the address of `leak-check --prometheus`.
        since: how many seconds back it asks.
    """

    command: str = "serve"
    flags: Mapping[str, object] = field(default_factory=dict)
    file: Path | None = None
    format: str = "table"
    recording: Path | None = None
    prometheus: str | None = None
    since: float = 86_400.0


# ---- What kinds of values there are ----------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Kind(Generic[T]):
    """How the values of a setting are read and written.

    Attributes:
        type: what the reference document calls it.
        metavar: what `--help` calls it; empty for a switch.
        parse: from a plain YAML value; raises ValueError.
        show: the value as one would write it.
        of_text: from a flag's text to the plain YAML value that it stands for.
        repeatable: the flag may be given several times, and its texts make up a list.
    """

    type: str
    metavar: str
    parse: Callable[[object], T]
    show: Callable[[T], str] = str
    of_text: Callable[[str], object] = str
    repeatable: bool = False


def _wants(what: str, value: object) -> ValueError:
    got = "nothing" if value is None else f"{value!r:.60}"
    return ValueError(f"expected {what}, got {got}")


def unknown(what: str, name: str, names: Iterable[str], also: Iterable[str] = ()) -> str:
    """The message for a name that does not exist: the nearest that does, and what there is.

    Args:
        what: a word for what it should name.
        name: what was given.
        names: what there is.
        also: what may have been meant too, but is too long a list or no such thing.
    """
    names = tuple(names)
    near = difflib.get_close_matches(name[:80], (*names, *also), 1)
    hint = f"; did you mean {near[0]}?" if near else ""
    there_are = f"; there are {', '.join(names)}" if names else ""
    return f"unknown {what} {name!r:.80}{hint}{there_are}"


def _text(what: str, value: object) -> str:
    if not isinstance(value, str) or not value or not value.isprintable():
        raise _wants(what, value)
    return value


def _texts(what: str, value: object) -> list[str]:
    items = value if isinstance(value, list) else [value]
    if not items:
        raise _wants(what, value)
    texts = [_text(what, item) for item in items]
    for index, text in enumerate(texts):
        if text in texts[:index]:
            raise ValueError(f"{text!r:.60} is named twice")
    return texts


def _number_of_text(text: str) -> object:
    for number in (int, float):
        try:
            return number(text)
        except ValueError:
            continue
    return text


def _boolean(value: object) -> bool:
    if not isinstance(value, bool):
        raise _wants("true or false", value)
    return value


def _count(value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < 1 << 31:
        raise _wants("a whole number, 0 or more", value)
    return value


def _limit(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 < value <= 150:
        raise _wants("a temperature in celsius, above 0 and at most 150", value)
    return float(value)


def _interval(value: object) -> float:
    seconds = parse_duration(_text("a duration such as 5s", value))
    if seconds < 1:
        raise ValueError(f"expected at least 1s, got {value}")
    return seconds


def _path(value: object) -> str:
    text = _text("a path such as /metrics", value)
    if not re.fullmatch(r"(/[A-Za-z0-9._~-]+)+", text) or {".", ".."} & {*text.split("/")}:
        raise _wants("a path of plain names such as /metrics", value)
    if text.split("/")[1] in ("-", "api"):
        raise ValueError(f"{text:.60} is taken: /-/ and /api/ are the exporter's own")
    return text


def _directory(value: object) -> Path:
    return Path(_text("a directory", value))


def _addresses(value: object) -> tuple[ListenAddress, ...]:
    addresses: dict[ListenAddress, str] = {}
    for text in _texts("addresses such as :10450", value):
        address = parse_address(text)
        if address in addresses:
            raise ValueError(f"{addresses[address]} and {text} are the same address")
        for other, told in addresses.items():
            if address.covers(other) or other.covers(address):
                whole, part = (text, told) if address.covers(other) else (told, text)
                raise ValueError(f"{part} is a part of {whole}: leave one out")
        addresses[address] = text
    return tuple(addresses)


def _sources(value: object) -> tuple[str, ...]:
    if isinstance(value, str):
        value = [part.strip() for part in value.split(",")]
    names = _texts("names of sources", value)
    for name in names:
        if name not in (*SOURCES, SIMULATED):
            raise ValueError(unknown("source", name, (*SOURCES, SIMULATED)))
    if SIMULATED in names and len(names) > 1:
        raise ValueError(f"{SIMULATED} goes alone, not together with this node's devices")
    return tuple(names)


def _simulation(value: object) -> Mapping[str, object]:
    from exporter.simulation.spec import SimulationSpec  # most daemons need none of it

    if not isinstance(value, dict):
        raise _wants("a mapping", value)
    try:
        SimulationSpec.parse(value, duration=parse_duration)
    except ValueError as error:
        raise _inner_error(str(error)) from error
    return value


class _InnerError(ValueError):
    """A value is wrong somewhere inside; the path of keys and indexes leads there."""

    def __init__(self, message: str, path: Sequence[str | int]) -> None:
        super().__init__(message)
        self.path = path


_NAMED = re.compile(r"([a-z_]+)(?:\[([0-9]+)\])?(?:\.([a-z_]+))?: (?:unknown key '([^']*)')?")


def _inner_error(message: str) -> _InnerError:
    """What the message of a specification names: `scenarios[1].start: …`, say."""
    message = message.removeprefix("simulation: ")
    unknown_key = re.match(r"unknown key '([^']*)'", message)
    if unknown_key:
        return _InnerError(message, unknown_key.groups())
    named = _NAMED.match(message)
    if not named:
        return _InnerError(message, ())
    key, index, *inner = named.groups()
    steps = (key, None if index is None else int(index), *inner)
    return _InnerError(message, [step for step in steps if step is not None])


def _thresholds(value: object) -> Thresholds:
    if not isinstance(value, dict):
        raise _wants("a mapping", value)
    names = [each.name for each in fields(Thresholds)]
    for name, number in value.items():
        if name not in names:
            raise _InnerError(unknown("threshold", str(name), names), (name,))
        if isinstance(number, bool) or not isinstance(number, (int, float)):
            raise _inner_error(f"{name}: expected a number, got {number!r:.40}")
    try:
        return Thresholds(**value)
    except ValueError as error:
        raise _inner_error(str(error)) from error


def _choice(*names: str) -> Kind[str]:
    def parse(value: object) -> str:
        if value not in names:
            raise _wants(" or ".join(names), value)
        return str(value)

    return Kind(" or ".join(f"`{name}`" for name in names), "{" + ",".join(names) + "}", parse)


def _optional(kind: Kind[T], unset: str) -> Kind[T | None]:
    """The same, but `null` in the file says that there is none."""

    def parse(value: object) -> T | None:
        return None if value is None else kind.parse(value)

    def show(value: T | None) -> str:
        return unset if value is None else kind.show(value)

    return Kind(kind.type, kind.metavar, parse, show, kind.of_text)


_BOOLEAN = Kind("true or false", "", _boolean, lambda value: str(value).lower())
_COUNT = Kind("whole number", "COUNT", _count, of_text=_number_of_text)
_LIMIT = Kind("celsius", "CELSIUS", _limit, "{:g}".format, _number_of_text)
_INTERVAL = Kind("duration", "DURATION", _interval, format_duration)
_PATH = Kind("path", "PATH", _path)
_DIRECTORY = Kind("directory", "DIRECTORY", _directory)
_SOCKET = Kind("path of a socket", "SOCKET", lambda value: Path(_text("a path", value)))
_ADDRESSES = Kind(
    "list of addresses",
    "ADDRESS",
    _addresses,
    lambda value: ", ".join(map(str, value)),
    repeatable=True,
)
_SOURCES = Kind("list of names", "SOURCES", _sources, ",".join)
_SIMULATION = Kind("mapping", "", _simulation, lambda _: "the model's own")
_THRESHOLDS = Kind("mapping", "", _thresholds, lambda _: "see docs/leaks.md")


# ---- The settings ----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Setting(Generic[T]):
    """One setting.

    Attributes:
        name: its flag, and with the dots as steps its place in the file.
        help: a sentence or two, without the default.
        kind: what values it takes.
        default: its value where nobody sets it.
        live: a reload applies it; else it takes a restart.
        flag: it has a flag too, not only a place in the file.
        environment: the variable that gives the default where it is set.
    """

    name: str
    help: str
    kind: Kind[T]
    default: T
    live: bool = True
    flag: bool = True
    environment: str | None = None

    @property
    def default_text(self) -> str:
        """The default, for people."""
        text = self.kind.show(self.default)
        return f"${self.environment}, else {text}" if self.environment else text


def _setting(
    name: str,
    kind: Kind[T],
    default: T,
    help: str,
    *,
    live: bool = True,
    flag: bool = True,
    environment: str | None = None,
) -> T:
    """A field of `Config`; to a type checker it is its default."""
    setting = Setting(name, help, kind, default, live, flag, environment)
    made: Any = field(default_factory=lambda: default, metadata={"setting": setting})
    return made  # type: ignore[no-any-return]  # `field` says that it gives the default


def _fallback(sensor: str, severity: str, default: float | None) -> float | None:
    return _setting(
        f"temperature.{sensor}.{severity}",
        _optional(_LIMIT, "none"),
        default,
        f"The {severity} limit of the {sensor} temperature where the device gives none.",
        flag=False,
    )


class Limits(NamedTuple):
    """The limits of one temperature sensor in celsius; None where there is none."""

    warning: float | None
    critical: float | None


@dataclass(frozen=True, slots=True)
class Config:
    """All settings, checked. `Config()` holds the defaults, with no collector on."""

    listen_addresses: tuple[ListenAddress, ...] = _setting(
        "web.listen-address",
        _ADDRESSES,
        (ListenAddress("", 10450),),
        "Address to serve on: HOST:PORT, [IPV6]:PORT, or :PORT for all of the node's. Repeatable.",
        live=False,
    )
    telemetry_path: str = _setting(
        "web.telemetry-path", _PATH, "/metrics", "Where the metrics are served.", live=False
    )
    max_requests: int = _setting(
        "web.max-requests",
        _COUNT,
        40,
        "How many requests for the metrics, the landing page and the snapshot are answered at "
        "once, further ones get a 503; 0 is no limit. Health, readiness and reloads don't count.",
        live=False,
    )
    enable_lifecycle: bool = _setting(
        "web.enable-lifecycle",
        _BOOLEAN,
        False,
        "Let POST /-/reload reload the settings, as SIGHUP always does.",
        live=False,
    )
    poll_interval: float = _setting(
        "poll.interval", _INTERVAL, 5.0, "How often the devices are read; at least 1s."
    )
    sources: tuple[str, ...] = _setting(
        "sources",
        _SOURCES,
        SOURCES,
        "Where readings come from, with commas between; of two that give a value the collector "
        "chooses: "
        f"{', '.join(SOURCES)}; or {SIMULATED}, alone, for a node that is made up.",
        live=False,
    )
    expected_gpus: int | None = _setting(
        "expected-gpus",
        _optional(_COUNT, "not checked"),
        None,
        "How many GPUs this node should have; fewer is a fault.",
    )
    state_directory: Path | None = _setting(  # noqa: RUF009 - a default, declared
        "state.directory",
        _optional(_DIRECTORY, "nothing is kept"),
        None,
        "Where what must outlive a restart is kept, by one daemon alone; only its last part is "
        "made. systemd sets $STATE_DIRECTORY.",
        live=False,
        environment="STATE_DIRECTORY",
    )
    pod_resources_socket: Path = _setting(  # noqa: RUF009 - a default, declared
        "kubelet.pod-resources-socket",
        _SOCKET,
        Path("/var/lib/kubelet/pod-resources/kubelet.sock"),
        "Where the kubelet tells which container was given which GPU; asked with "
        "--collector.allocations alone.",
        live=False,
    )
    log_level: str = _setting(
        "log.level",
        _choice("debug", "info", "warning", "error"),
        "info",
        "Log nothing less severe than this.",
    )
    log_format: str = _setting(
        "log.format",
        _choice("logfmt", "json"),
        "logfmt",
        "How a line of the log looks.",
        live=False,
    )
    # The two of the HBM are an assumption: none are published for MI200 and MI300.
    edge_warning: float | None = _fallback("edge", "warning", None)
    edge_critical: float | None = _fallback("edge", "critical", None)
    junction_warning: float | None = _fallback("junction", "warning", None)
    junction_critical: float | None = _fallback("junction", "critical", None)
    hbm_warning: float | None = _fallback("hbm", "warning", 95.0)
    hbm_critical: float | None = _fallback("hbm", "critical", 105.0)
    leaks: Thresholds = _setting(  # noqa: RUF009 - a default, declared
        "leaks",
        _THRESHOLDS,
        Thresholds(),
        "When a VRAM leak is suspected; docs/leaks.md explains each threshold.",
        live=False,
        flag=False,
    )
    simulation: Mapping[str, object] = _setting(
        "simulation",
        _SIMULATION,
        {},
        f"The node that the source {SIMULATED} makes up.",
        live=False,
        flag=False,
    )
    collectors: tuple[str, ...] = ()
    """The names of those that are on, in the registry's order."""

    @property
    def temperature_limits(self) -> Mapping[str, Limits]:
        """The fallback limits by sensor, for where the device gives none."""
        return {
            "edge": Limits(self.edge_warning, self.edge_critical),
            "junction": Limits(self.junction_warning, self.junction_critical),
            "hbm": Limits(self.hbm_warning, self.hbm_critical),
        }


_FIELDS: Mapping[str, Setting[Any]] = {
    item.name: item.metadata["setting"] for item in fields(Config) if "setting" in item.metadata
}
_COLLECTOR = "collector."
_DISABLE_DEFAULTS = Setting(
    f"{_COLLECTOR}disable-defaults",
    "Start with no collector on; those that are asked for by name stay on.",
    _BOOLEAN,
    False,
)


def settings(collectors: Iterable[CollectorInfo]) -> dict[str, Setting[Any]]:
    """Every setting by name: the fields of `Config`, then one per collector."""
    switches = (
        Setting(_COLLECTOR + collector.name, collector.summary, _BOOLEAN, collector.default)
        for collector in collectors
    )
    return {each.name: each for each in (*_FIELDS.values(), _DISABLE_DEFAULTS, *switches)}


def load(
    invocation: Invocation,
    collectors: Sequence[CollectorInfo],
    environment: Mapping[str, str] = os.environ,
) -> Config:
    """The settings that flags, file and environment give; called again for a reload.

    Raises:
        ConfigError: something given is wrong, even where something else wins over it.
    """
    known = settings(collectors)
    values: dict[str, Any] = {}
    places: dict[str, str] = {}
    for given in _given(invocation, known, environment):
        try:
            values[given.name] = known[given.name].kind.parse(given.value)
        except ValueError as error:
            place = given.place
            if isinstance(error, _InnerError) and given.inside is not None:
                place = given.inside(error.path)
            raise ConfigError(f"{place}: {error}") from error
        places[given.name] = given.place
    defaults = not values.get(_DISABLE_DEFAULTS.name, _DISABLE_DEFAULTS.default)
    config = Config(
        **{name: values[each.name] for name, each in _FIELDS.items() if each.name in values},
        collectors=tuple(
            each.name
            for each in collectors
            if values.get(_COLLECTOR + each.name, each.default and defaults)
        ),
    )
    for sensor, (warning, critical) in config.temperature_limits.items():
        if warning is not None and critical is not None and warning > critical:
            place = next(place for name, place in places.items() if f".{sensor}." in name)
            raise ConfigError(
                f"{place}: the warning limit {warning:g} is above the critical limit {critical:g}"
            )
    return config


def changes_needing_restart(old: Config, new: Config) -> tuple[str, ...]:
    """The names of the settings that differ and that a reload can't apply."""
    return tuple(
        setting.name
        for name, setting in _FIELDS.items()
        if not setting.live and getattr(old, name) != getattr(new, name)
    )


# ---- Where values come from ------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Given:
    """A plain value that somebody gave a setting, and where, for messages.

    Attributes:
        inside: the place of what a path inside the value leads to, where there is one.
    """

    name: str
    value: object
    place: str
    inside: Callable[[Sequence[str | int]], str] | None = None


def _given(
    invocation: Invocation, known: Mapping[str, Setting[Any]], environment: Mapping[str, str]
) -> Iterator[_Given]:
    """All that is given, the weakest first."""
    for setting in known.values():
        if setting.environment and environment.get(setting.environment):
            # systemd puts colons between the directories of a unit that has several.
            text = environment[setting.environment].partition(":")[0]
            yield _Given(setting.name, setting.kind.of_text(text), f"${setting.environment}")
    if invocation.file is not None:
        yield from _File(invocation.file).given(known)
    for name, flag in invocation.flags.items():
        of_text = known[name].kind.of_text
        value = of_text(flag) if isinstance(flag, str) else flag
        yield _Given(name, value, f"--{name}")


def _read(path: Path, most: int) -> bytes:
    """The begin of a regular file; of nothing else, since a pipe or a device may keep one waiting.

    Raises:
        OSError: it can't be read.
        ValueError: it is no regular file, or has no name that a file can have.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    try:
        mode = os.fstat(descriptor).st_mode
        if stat.S_ISDIR(mode):
            raise ValueError(os.strerror(errno.EISDIR))
        if not stat.S_ISREG(mode):
            raise ValueError("no regular file")
        with open(descriptor, "rb", closefd=False) as file:
            return file.read(most)
    finally:
        os.close(descriptor)


class _File:
    """A YAML file, read as a graph of nodes, since only these know their line.

    Aliases make a small file stand for a huge one, so the nodes that are looked at are counted.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._nodes_left = MAX_NODES
        self._scalars = yaml.SafeLoader("")

    def given(self, known: Mapping[str, Setting[Any]]) -> Iterator[_Given]:
        """What the file gives, in its order.

        Raises:
            ConfigError: the file can't be read, or holds what is no setting.
        """
        root = self._compose()
        if root is not None:
            yield from self._section(root, "", known)

    def _section(
        self, node: yaml.Node, prefix: str, known: Mapping[str, Setting[Any]]
    ) -> Iterator[_Given]:
        if node.tag == f"{_TAG}null":
            return  # all that was in the section is commented out
        if not isinstance(node, yaml.MappingNode):
            raise self._error(node, f"expected a mapping of settings{prefix and ' in '}{prefix}")
        for key, at, value in self._entries(node):
            name = f"{prefix}.{key}" if prefix else key
            if "." in key:
                raise self._error(at, f"{key!r:.60}: a dot is a step, so nest the keys instead")
            if name in known:
                yield _Given(
                    name,
                    self._plain(value),
                    f"{self._place(at)}: {name}",
                    partial(self._inside, name, at, value),
                )
            elif any(other.startswith(f"{name}.") for other in known):
                yield from self._section(value, name, known)
            else:
                raise self._error(at, unknown_setting(name, known))

    def _inside(self, name: str, at: yaml.Node, node: yaml.Node, path: Sequence[str | int]) -> str:
        """The place of the key or item that a path leads to, or of the last that is there."""
        for step in path:
            found: Mapping[str | int, tuple[yaml.Node, yaml.Node]] = {}
            if isinstance(node, yaml.MappingNode):
                found = {key.value: (key, value) for key, value in node.value}
            elif isinstance(node, yaml.SequenceNode):
                found = {index: (item, item) for index, item in enumerate(node.value)}
            if step not in found:
                break
            at, node = found[step]
        return f"{self._place(at)}: {name}"

    def _entries(self, node: yaml.MappingNode) -> Iterator[tuple[str, yaml.Node, yaml.Node]]:
        seen: set[str] = set()
        for key, value in node.value:
            if not isinstance(key, yaml.ScalarNode) or key.tag != f"{_TAG}str":
                raise self._error(key, "a key must be text; quote it if it looks like a value")
            if key.value in seen:
                raise self._error(key, f"the key {key.value!r:.60} is there twice")
            seen.add(key.value)
            yield key.value, key, value

    def _plain(self, node: yaml.Node, depth: int = 0) -> object:
        """A node as dicts, lists, texts, numbers, truth values and None."""
        self._nodes_left -= 1
        if self._nodes_left < 0:
            raise self._error(node, f"more than {MAX_NODES} values")
        if depth > MAX_DEPTH:
            raise self._error(node, "nested too deeply")
        kind = node.tag.removeprefix(_TAG)
        if isinstance(node, yaml.MappingNode) and kind == "map":
            return {key: self._plain(value, depth + 1) for key, _, value in self._entries(node)}
        if isinstance(node, yaml.SequenceNode) and kind == "seq":
            return [self._plain(item, depth + 1) for item in node.value]
        if isinstance(node, yaml.ScalarNode):
            try:
                match kind:
                    case "str" | "timestamp":
                        return str(node.value)
                    case "int":
                        return self._scalars.construct_yaml_int(node)
                    case "float":
                        return self._scalars.construct_yaml_float(node)
                    case "bool":
                        return self._scalars.construct_yaml_bool(node)
                    case "null":
                        return None
            except (ValueError, LookupError):
                raise self._error(node, f"{node.value!r:.60} is no {kind}") from None
        raise self._error(node, f"the tag {kind!r:.60} means nothing here")

    def _compose(self) -> yaml.Node | None:
        try:
            raw = _read(self._path, MAX_FILE_BYTES + 1)
        except (OSError, ValueError) as error:
            reason = getattr(error, "strerror", None) or error
            raise ConfigError(f"{self._path}: {reason}") from error
        if len(raw) > MAX_FILE_BYTES:
            raise ConfigError(f"{self._path}: longer than {MAX_FILE_BYTES >> 10} KiB")
        try:
            return yaml.compose(raw.decode(), yaml.SafeLoader)
        except UnicodeDecodeError as error:
            line = raw.count(b"\n", 0, error.start) + 1
            raise ConfigError(f"{self._path}:{line}: not UTF-8 text") from error
        except yaml.MarkedYAMLError as error:
            raise self._error(error, error.problem or "no YAML") from error
        except RecursionError as error:
            raise ConfigError(f"{self._path}: nested too deeply") from error
        except (yaml.YAMLError, ValueError, OverflowError) as error:
            raise ConfigError(f"{self._path}: no YAML: {error}") from error

    def _place(self, at: yaml.Node | yaml.MarkedYAMLError) -> str:
        mark = at.start_mark if isinstance(at, yaml.Node) else at.problem_mark or at.context_mark
        return f"{self._path}:{mark.line + 1}:{mark.column + 1}" if mark else f"{self._path}"

    def _error(self, at: yaml.Node | yaml.MarkedYAMLError, message: str) -> ConfigError:
        return ConfigError(f"{self._place(at)}: {message}")


def unknown_setting(name: str, known: Iterable[str]) -> str:
    """The message for a setting that does not exist."""
    if not name.startswith(_COLLECTOR):
        return unknown("setting", name, (), known)
    names = [other.removeprefix(_COLLECTOR) for other in known if other.startswith(_COLLECTOR)]
    disable_defaults, *collectors = names
    return unknown("collector", name.removeprefix(_COLLECTOR), collectors, [disable_defaults])


# ---- The reference document ------------------------------------------------------------------

_REFERENCE = f"""\
# Configuration

<!-- Generated from exporter/config.py and the registry of collectors. -->

Every setting is a flag, and its place in the YAML file that `--config.file` names is its name
split at the dots. A flag wins over the file. No file is needed.

```yaml
web:
  listen-address: ["127.0.0.1:10450", "[::1]:10450"]
poll:
  interval: 10s
collector:
  disable-defaults: false
log:
  level: warning
temperature:
  hbm: {{warning: 90, critical: 100}}
```

`{PROGRAM} check-config` checks flags and file, and names the line of whatever is wrong: a key
that does not exist, a key that is there twice, a value of the wrong type. A duration needs its
unit: `500ms`, `5s`, `1h30m`, `2d`.

SIGHUP, or `POST /-/reload` with `--web.enable-lifecycle`, reads the file again. A file that is
wrong, or can't be read within 10 s, changes nothing. A setting that changes by restart keeps its
value until then. The file must be a regular one: a pipe or a device is refused.
"""


def reference(collectors: Iterable[CollectorInfo]) -> str:
    """`docs/configuration.md`: every setting, its default, and whether a reload applies it."""
    known = settings(collectors).values()
    general = [each for each in known if not each.name.startswith(_COLLECTOR)]
    switches = [each for each in known if each.name.startswith(_COLLECTOR)]
    return "\n".join(
        (
            _REFERENCE,
            "## Settings\n",
            *_table(each for each in general if each.flag),
            "\n## Settings of the file alone\n",
            *_table(each for each in general if not each.flag),
            "\n## Collectors\n",
            "`--collector.NAME` switches one on, `--no-collector.NAME` off.\n",
            *_table(switches),
            "",
        )
    )


def _table(rows: Iterable[Setting[Any]]) -> Iterator[str]:
    yield "| Setting | Type | Default | Changes by | Meaning |"
    yield "|---|---|---|---|---|"
    for each in rows:
        name = f"`--{each.name}`" if each.flag else f"`{each.name}`"
        change = "reload" if each.live else "restart"
        cells = (
            cell.replace("|", r"\|")
            for cell in (name, each.kind.type, each.default_text, change, each.help)
        )
        yield f"| {' | '.join(cells)} |"
