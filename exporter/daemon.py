"""The daemon: builds the parts, runs the poll loop, starts and stops everything.

The one module that knows all layers. Polling happens in the main thread, serving in the web
server's own; between them stands one reference to the latest snapshot and its rendered pages.
"""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable, Hashable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, fields, replace
from types import FrameType

import structlog

from exporter import __version__
from exporter.analysis.faults import FaultFinder
from exporter.analysis.leaks import LeakWatch
from exporter.analysis.numbering import Numbering
from exporter.analysis.picture import Picture
from exporter.analysis.state import StateError, StateLock
from exporter.collectors import BY_NAME
from exporter.config import Config, ConfigError, changes_needing_restart
from exporter.durations import parse_duration
from exporter.exposition.document import snapshot_json
from exporter.exposition.families import Status
from exporter.exposition.landing import landing_html
from exporter.exposition.page import FilterError, MetricsPage
from exporter.log import FaultInfo, Faults, set_up
from exporter.reading import SettingsReader
from exporter.simulation.spec import SimulationSpec
from exporter.snapshot import Snapshot
from exporter.sources.session import POD_RESOURCES
from exporter.sources.supervisor import Launcher, Limits, PythonLauncher, Source, Supervisor
from exporter.wake import Waker
from exporter.web.app import Page
from exporter.web.server import WebServer

log = structlog.get_logger(__name__)

STOP_TIMEOUT = 5.0
"""Seconds that requests under way get when the daemon stops."""
LEAST_PAUSE = 1.0
"""Seconds from the begin of a poll to that of the next, however often the settings are reloaded."""
SIMULATED = "simulated"
LEAKS = "leaks"


class Reader:
    """Supervisor and picture together: one call, one snapshot. What `once` and `support` use.

    Args:
        config: the settings in force.
        launcher: how workers are started.
        stopping: asked while a poll waits; true ends the wait.
        limits: what workers may take; the interval is the settings'.
        keep: whether the state directory is written, which is the daemon's alone.
        kubelet: whether the kubelet is asked where a collector wants it.
    """

    def __init__(
        self,
        config: Config,
        launcher: Launcher | None = None,
        stopping: Callable[[], bool] = lambda: False,
        limits: Limits | None = None,
        *,
        keep: bool = True,
        kubelet: bool = True,
    ) -> None:
        self._may_ask_kubelet = kubelet
        kept = config.state_directory
        self._lock = StateLock(kept) if keep and kept is not None else None
        self._unkept: dict[str, StateError] = {}
        self._numbering = Numbering(config.state_directory)
        self._leaks = LeakWatch(config.state_directory, config.leaks)
        self._pace = 1.0
        argument = ""
        if config.sources == (SIMULATED,):
            spec = SimulationSpec.parse(config.simulation, duration=parse_duration)
            self._pace, argument = spec.speed, spec.to_json()
        interval = config.poll_interval
        limits = Limits(interval) if limits is None else replace(limits, interval=interval)
        self._sources = [
            Source(name, launcher or PythonLauncher(), limits, argument=argument)
            for name in config.sources
        ]
        self._kubelet = Source(
            POD_RESOURCES,
            launcher or PythonLauncher(),
            limits,
            argument=str(config.pod_resources_socket),
        )
        self._supervisor = Supervisor(self._sources, stopping)
        self._choose_sources(config)
        self._sequence = 0
        self._seen: frozenset[str] = frozenset()
        self._expected = config.expected_gpus
        self.picture = Picture(
            [BY_NAME[name] for name in config.collectors],
            interval=config.poll_interval,
            pace=self._pace,
            settings=_fallback_limits(config),
            numbering=self._numbering,
        )

    def _choose_sources(self, config: Config) -> None:
        """Ask the kubelet beside the devices' sources if a collector wants it."""
        wanted = (
            self._may_ask_kubelet
            and "allocations" in config.collectors
            and config.sources != (SIMULATED,)
        )
        if wanted and self._kubelet.paused:
            self._kubelet.resume()
        elif not wanted:
            self._kubelet.pause()
        self._supervisor.sources = (*self._sources, *([self._kubelet] if wanted else []))

    def apply(self, config: Config) -> None:
        """Take over the settings that can change while running."""
        self._choose_sources(config)
        self._expected = config.expected_gpus
        self.picture.apply(
            [BY_NAME[name] for name in config.collectors],
            interval=config.poll_interval,
            settings=_fallback_limits(config),
        )
        for source in (*self._sources, self._kubelet):
            source.limits = replace(source.limits, interval=config.poll_interval)

    def poll(self) -> Snapshot:
        """One poll of every source."""
        self._sequence += 1
        for source in self._supervisor.sources:
            source.readers = self.picture.assembly.demand(source.name)
        reports = self._supervisor.poll()
        now = time.monotonic()
        snapshot = self.picture.take(
            reports,
            sequence=self._sequence,
            timestamp=time.time(),
            now=now,
            expected=self._expected,
            on_boot=self._open_state,
        )
        saves = {"numbers": self._numbering.save}
        if LEAKS in (collector.name for collector in self.picture.collectors):
            snapshot = self._leaks.judge(snapshot, now * self._pace)
            saves["leaks"] = lambda: self._leaks.save(now)
        self._keep(saves)
        of_devices = reports[: len(self._sources)]  # the kubelet, if it is asked, comes last
        for source, report in zip(self._sources, of_devices, strict=True):
            rest = len(self._sources) > 1 and self.picture.assembly.may_rest(
                of_devices, source.name, now
            )
            if rest and report.up:
                source.pause()
            elif source.paused and not rest:
                source.resume()
        listed = frozenset(address for report in of_devices for address in report.devices)
        if not listed <= self._seen:
            for source in self._sources:
                source.hurry()  # a driver was loaded, or a device came: others may work now
        self._seen = listed
        return snapshot

    @property
    def faults(self) -> dict[Hashable, FaultInfo]:
        """What keeps the state from being kept: what has one cause is one fault."""
        return {
            ("state", error.cause): FaultInfo("state can't be kept", {"reason": str(error)})
            for error in reversed(self._unkept.values())
        }

    def _open_state(self, boot_id: str | None) -> None:
        mend = self._locked()
        for opened in (self._numbering.open, self._leaks.open):
            try:
                opened(boot_id, mend=mend)
            except StateError as error:
                log.warning("what was kept can't be used", reason=str(error))

    def _locked(self) -> bool:
        """Whether this is the one daemon that writes in the state directory."""
        if self._lock is None:
            return False
        try:
            self._lock.take()
        except StateError as error:
            self._unkept = {"directory": error}
            return False
        self._unkept.pop("directory", None)
        return True

    def _keep(self, saves: Mapping[str, Callable[[], bool]]) -> None:
        """Have everything write what it must; an error lasts until the same was written."""
        if not self._locked():
            return
        for name, save in saves.items():
            try:
                if save():
                    self._unkept.pop(name, None)
            except StateError as error:
                self._unkept[name] = error

    def stop(self) -> None:
        """End the workers, and keep what must outlive a restart."""
        self._supervisor.stop()
        told = self.faults
        self._keep({"leaks": lambda: self._leaks.save(time.monotonic(), at_once=True)})
        for key, fault in self.faults.items():
            if key not in told:
                log.warning(fault.event, **fault.fields)
        if self._lock is not None:
            self._lock.release()


def _fallback_limits(config: Config) -> dict[str, dict[str, float]]:
    """The configured temperature limits under the names that collectors ask for."""
    return {
        f"temperature_{severity}": {
            sensor: limit
            for sensor, limits in config.temperature_limits.items()
            if (limit := getattr(limits, severity)) is not None
        }
        for severity in ("warning", "critical")
    }


@dataclass(frozen=True, slots=True)
class _Shown:
    """What the web shows: a snapshot and its pages, replaced together at every poll."""

    snapshot: Snapshot
    metrics: MetricsPage


class Daemon:
    """`amdgpu-exporter serve`.

    Args:
        config: the settings to start with.
        reload: reads the settings again; raises `ConfigError`.
        launcher: how workers are started.
    """

    def __init__(
        self, config: Config, reload: Callable[[], Config], launcher: Launcher | None = None
    ) -> None:
        self._config = config
        self._settings = SettingsReader(reload)
        self._stopping = False
        self._waker = Waker()
        self._reload_lock = threading.Lock()
        self._reload_requested = False
        self._hang_up = False
        self._reloading = False
        self._shown: _Shown | None = None
        self._reload_ok = True
        self._reloaded_at = time.time()
        self._reader = Reader(config, launcher, lambda: self._stopping)
        self._finder = FaultFinder()
        self._faults = Faults(log)
        self.web = WebServer(
            self,
            listen=[str(address) for address in config.listen_addresses],
            telemetry_path=config.telemetry_path,
            max_requests=config.max_requests,
            enable_lifecycle=config.enable_lifecycle,
            on_failure=self.stop,
        )

    # ------------------------------------------------------------------ the site

    def metrics(
        self, accept: str, accept_gzip: bool, collect: tuple[str, ...], exclude: tuple[str, ...]
    ) -> Page:
        """The metrics page of the latest poll."""
        shown = self._shown
        if shown is None:
            return _text(503, "the first poll has not ended yet")
        try:
            content_type, body = shown.metrics.render(
                accept, compress=accept_gzip, collect=collect, exclude=exclude
            )
        except FilterError as error:
            return _text(400, str(error))
        return Page(200, content_type, body, "gzip" if accept_gzip else None)

    def landing(self) -> Page:
        """The page for people."""
        shown = self._shown
        return Page(
            200,
            "text/html; charset=utf-8",
            landing_html(shown.snapshot if shown else None, self._config.telemetry_path),
        )

    def snapshot(self) -> Page:
        """The latest poll as JSON."""
        shown = self._shown
        if shown is None:
            return _text(503, "the first poll has not ended yet")
        return Page(200, "application/json", snapshot_json(shown.snapshot))

    def ready(self) -> str | None:
        """None once the first poll has ended, whatever it found."""
        return None if self._shown is not None else "the first poll has not ended yet"

    def reload(self) -> str | None:
        """Read the settings again; the error in one line, and the old ones stay, if that fails."""
        with self._reload_lock:
            try:
                config = self._settings.read()
            except ConfigError as error:
                self._reload_ok = False
                log.error(
                    "configuration not reloaded, the running settings stay", reason=str(error)
                )
                return str(error)
            for name in changes_needing_restart(self._config, config):
                log.warning("a changed setting needs a restart to take effect", setting=name)
            self._config = _in_force(self._config, config)
            self._reload_ok = True
            self._reloaded_at = time.time()
            set_up(self._config.log_level, self._config.log_format)
            log.info("configuration reloaded")
            self._reload_requested = True
            self._waker.wake()
            return None

    # ------------------------------------------------------------------ the loop

    def run(self) -> bool:
        """Serve until SIGTERM or SIGINT; false if it ended since it could serve no longer.

        Called in the main thread.

        Raises:
            ListenError: an address can't be listened on; nothing has been started then.
        """
        with self._signals():
            self.web.start()
            log.info(
                "amdgpu-exporter started",
                version=__version__,
                listen=[str(address) for address in self.web.addresses],
                sources=list(self._config.sources),
            )
            if self._config.sources == (SIMULATED,):
                log.warning("SIMULATED: every value is made up, none comes from hardware")
            try:
                self._loop()
            finally:
                self._settings.close()
                self.web.stop(STOP_TIMEOUT)
                self._reader.stop()
                if self.web.failure:
                    log.critical(
                        "the web server has failed, so the daemon ends: start it again",
                        reason=self.web.failure,
                    )
                else:
                    log.info("amdgpu-exporter stopped")
        return not self.web.failure

    def stop(self) -> None:
        """End `run`, from any thread."""
        self._stopping = True
        self._waker.wake()

    def _loop(self) -> None:
        due = time.monotonic()
        while not self._stopping:
            began = time.monotonic()
            self._poll()
            # Where a poll took longer than the interval, the missed ones are left out.
            due = max(due + self._config.poll_interval, time.monotonic())
            self._sleep(due)
            while self._reload_requested and not self._stopping:
                self._reload_requested = False
                self._reader.apply(self._config)
                due = max(began + LEAST_PAUSE, time.monotonic())
                self._sleep(due)

    def _sleep(self, until: float) -> None:
        while not self._stopping:
            if self._hang_up and not self._reloading:
                self._hang_up = False
                self._reload_aside()
            if self._reload_requested or (left := until - time.monotonic()) <= 0:
                return
            self._waker.wait(left)

    def _reload_aside(self) -> None:
        """Reload while the polls go on."""

        def reload() -> None:
            try:
                self.reload()
            finally:
                self._reloading = False
                self._waker.wake()  # there may have been another SIGHUP

        self._reloading = True
        try:
            threading.Thread(target=reload, name="reload", daemon=True).start()
        except RuntimeError as error:  # no memory, or too many threads
            self._reloading = False
            log.error("configuration not reloaded, the running settings stay", reason=str(error))

    def _poll(self) -> None:
        snapshot = self._reader.poll()
        if self._stopping:
            return  # it was cut short
        self._shown = _Shown(
            snapshot, MetricsPage(snapshot, self._reader.picture.collectors, self._status)
        )
        found = self._finder.find(snapshot)
        self._faults.update({**found, **self._reader.faults}, time.monotonic())

    def _status(self) -> Status:
        return Status(self._reload_ok, self._reloaded_at, self.web.rejected)

    @contextmanager
    def _signals(self) -> Iterator[None]:

        def end(_: int, __: FrameType | None) -> None:
            self._stopping = True

        def hang_up(_: int, __: FrameType | None) -> None:
            self._hang_up = True

        handlers = {signal.SIGTERM: end, signal.SIGINT: end, signal.SIGHUP: hang_up}
        before = {number: signal.signal(number, act) for number, act in handlers.items()}
        # Held back since the process began, so that none is lost and none ends it.
        held = signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGHUP})
        try:
            with self._waker.by_signals():
                yield
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, held)
            for number, handler in before.items():
                signal.signal(number, handler)


def _in_force(running: Config, loaded: Config) -> Config:
    """The loaded settings, but the running values of those that only a restart changes."""
    settings = {field.name: field.metadata.get("setting") for field in fields(Config)}
    kept = {
        name: getattr(running, name)
        for name, setting in settings.items()
        if setting is not None and not setting.live
    }
    return replace(loaded, **kept)


def _text(status: int, line: str) -> Page:
    return Page(status, "text/plain; charset=utf-8", line.encode() + b"\n")
