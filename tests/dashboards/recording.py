"""Hours of a simulated node, as Prometheus would have scraped them.

The real pipeline in one process: sessions over the simulated node, every collector's readers,
`Picture`, `LeakWatch`, `MetricsPage`. Time is set by hand, so hours pass in seconds. Only the
worker and its pipes are left out, and what it costs is made up; tests/faults proves those.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial

from exporter.analysis.leaks import LeakWatch
from exporter.analysis.numbering import Numbering
from exporter.analysis.picture import Picture
from exporter.collectors import COLLECTORS
from exporter.collectors.base import Reader
from exporter.exposition.families import Status
from exporter.exposition.page import MetricsPage
from exporter.simulation.source import open_sessions
from exporter.simulation.spec import SimulationSpec
from exporter.sources.session import Memo, Session
from exporter.sources.supervisor import RESTART_REASONS, Answer, SourceReport, Usage
from exporter.values import FieldValue
from tests.simulation import HandClock

STEP = 60.0
"""Seconds between two scrapes."""
START = 1_700_000_000.0
_OPENMETRICS = "application/openmetrics-text; version=1.0.0"
_SAMPLE = re.compile(r"^([a-z0-9_]+)(?:\{(.*)\})? (\S+)$", re.MULTILINE)
_SHOWN = tuple(c for c in COLLECTORS if c.name not in ("xcc", "host_limit", "pcie_traffic"))
"""The collectors, without those that no dashboard shows."""
_READERS = {
    f"{collector.name}/{number}": (collector.name, reader)
    for collector in _SHOWN
    for number, reader in enumerate(collector.readers)
    if reader.source in ("amdsmi", "sysfs")
}
"""By the ids under which the picture knows them."""


@dataclass(frozen=True, slots=True)
class Target:
    """One node that is scraped.

    Attributes:
        instance: the label.
        spec: what happens on it.
        allocated: GPU to `namespace/pod/container`, as the kubelet would tell.
        expected: `expected_gpus` of its configuration.
        cluster: the label.
        versions: what it has in place of the versions that all simulated nodes have.
    """

    instance: str
    spec: SimulationSpec
    allocated: Mapping[int, str]
    expected: int
    cluster: str
    versions: Mapping[str, str] = field(default_factory=dict)

    @property
    def labels(self) -> str:
        """Those that Prometheus adds."""
        return f'instance="{self.instance}",job="amdgpu",cluster="{self.cluster}"'


class _Source:
    """The simulated source, asked as its worker does; opened anew when devices come or go."""

    def __init__(self, target: Target, clock: HandClock) -> None:
        self._spec, self._clock = target.spec, clock
        self._restarts = dict.fromkeys(RESTART_REASONS, 0)
        self._open()
        addresses = [address for address, _ in self._sessions["sysfs"].devices()]
        self._allocated = {addresses[gpu]: name for gpu, name in target.allocated.items()}

    def _open(self) -> None:
        amdsmi, sysfs = open_sessions(self._spec, self._clock)
        self._sessions: dict[str, Session] = {"amdsmi": amdsmi, "sysfs": sysfs}
        self._memo = Memo()

    def poll(self, number: int) -> SourceReport:
        """What the supervisor would report of it."""
        now = self._clock.now()
        self._begin(now)
        if any(session.changed() for session in self._sessions.values()):
            self._restarts["devices_changed"] += 1
            self._open()
            self._begin(now)
        node: dict[str, FieldValue] = {}
        devices: dict[str, int] = {}
        for session in self._sessions.values():
            node.update(session.node())
            for address, index in session.devices():
                devices.setdefault(address, index)
        return SourceReport(
            name="simulated",
            up=True,
            paused=False,
            reason="",
            remedy="",
            node=node,
            devices=devices,
            answers={address: self._answer(address) for address in devices},
            unanswered={},
            restarts=dict(self._restarts),
            usage=Usage(0.05 * number, 40_000_000, 12),
            abandoned=0,
        )

    def _begin(self, now: float) -> None:
        self._memo.now = now
        for session in self._sessions.values():
            session.begin(now)

    def _answer(self, address: str) -> Answer:
        readings: dict[str, dict[str, Mapping[str, FieldValue]]] = {}
        for name, (_, reader) in _READERS.items():
            read = partial(self._read, address, reader)
            for partition, fields in self._memo.get((address, name), reader.every, read):
                readings.setdefault(partition, {})[name] = fields
        if address in self._allocated:
            # as the kubelet would tell, which the simulated node has not
            told: Mapping[str, FieldValue] = {
                "count": 1,
                "containers": {self._allocated[address]: 1},
            }
            readings[""]["allocations/0"] = told
        durations = {collector: 0.0005 for collector, _ in _READERS.values()}
        return Answer(self._clock.now(), False, readings, durations, {})

    def _read(self, address: str, reader: Reader) -> list[tuple[str, Mapping[str, FieldValue]]]:
        session = self._sessions[reader.source]
        if address not in dict(session.devices()):
            return []
        views = session.views(address, per_partition=reader.per_partition)
        return [(view.partition or "", reader.read(view)) for view in views]


def _status() -> Status:
    return Status(reload_successful=True, reload_timestamp=START)


def pages(target: Target, seconds: float) -> Iterator[tuple[float, str]]:
    """Unix time and page of every scrape."""
    clock = HandClock()
    source, leaks = _Source(target, clock), LeakWatch(None)
    picture = Picture(
        _SHOWN,
        interval=STEP,
        settings={},
        numbering=Numbering(None),
    )
    for number in range(1, int(seconds / STEP) + 1):
        clock.time = number * STEP
        moment = START + clock.time
        report = source.poll(number)
        taken = picture.take(
            [report],
            sequence=number,
            timestamp=moment,
            now=clock.time,
            expected=target.expected,
            on_boot=leaks.open,
        )
        snapshot = leaks.judge(taken, clock.time)
        page = MetricsPage(snapshot, picture.collectors, _status, process=False)
        yield moment, page.render(_OPENMETRICS)[1].decode()


def samples(target: Target, seconds: float) -> Iterator[str]:
    """Lines of OpenMetrics with the target's labels and a time, as `promtool tsdb` reads them."""
    own = target.labels
    for moment, page in pages(target, seconds):
        yield f"up{{{own}}} 1 {moment:.0f}\n"
        for version, other in target.versions.items():
            page = page.replace(version, other)
        for name, more, value in _SAMPLE.findall(page):
            yield f"{name}{{{own}{more and ','}{more}}} {value} {moment:.0f}\n"
