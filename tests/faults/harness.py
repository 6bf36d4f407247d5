"""A reader over a simulated kernel, polled by hand, with its page served and its log kept.

While a poll runs, the page of the poll before is scraped over HTTP, so every test also shows that
no fault delays a scrape.
"""

from __future__ import annotations

import io
import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from urllib.request import urlopen

import psutil
import structlog
from prometheus_client.parser import text_string_to_metric_families

from exporter.analysis.faults import FaultFinder
from exporter.collectors import COLLECTORS
from exporter.config import Config, Invocation, load
from exporter.daemon import Reader
from exporter.exposition.families import Status
from exporter.exposition.page import MetricsPage
from exporter.log import Faults, set_up
from exporter.snapshot import Snapshot
from exporter.sources.supervisor import Launcher, Limits
from exporter.web.app import Page as WebPage
from exporter.web.server import WebServer
from tests.kernel.launch import launcher
from tests.kernel.node import ENERGY_UNITS_PER_JOULE, Node

ALL = ("amdsmi", "rocm_smi", "sysfs")
LIMITS = Limits(1.0, init=10.0, first=10.0)
PATIENCE = 30.0
"""Seconds after which a test that waits for something has failed."""
AT_ONCE = 0.8
"""Seconds within which a scrape counts as answered from memory, on a busy machine of two cores;
every fault that hangs holds up its poll for longer."""

Labels = Mapping[str, str]


@dataclass(frozen=True)
class Page:
    """A metrics page: family to its samples, each with its labels."""

    samples: dict[str, list[tuple[Labels, float]]]

    @classmethod
    def parse(cls, text: str) -> Page:
        samples: dict[str, list[tuple[Labels, float]]] = {}
        for family in text_string_to_metric_families(text):
            for sample in family.samples:
                samples.setdefault(sample.name, []).append((sample.labels, sample.value))
        return cls(samples)

    def all(self, name: str, **labels: object) -> list[float]:
        """The values of the samples with these labels, at least."""
        wanted = {key: str(value) for key, value in labels.items()}
        return [v for of, v in self.samples.get(name, []) if wanted.items() <= of.items()]

    def one(self, name: str, **labels: object) -> float | None:
        """The value of the one sample with these labels; None if there is none."""
        found = self.all(name, **labels)
        assert len(found) <= 1, f"{name}{labels} has {len(found)} samples"
        return found[0] if found else None

    def up(self) -> list[int]:
        """The numbers of the GPUs that are up."""
        return sorted(int(of["gpu"]) for of, v in self.samples.get("amdgpu_up", []) if v)

    def restarts(self, source: str) -> dict[str, int]:
        """How often a worker of a source was replaced, by reason, where it was."""
        name = "amdgpu_exporter_source_restarts_total"
        found = [(of, v) for of, v in self.samples[name] if of["source"] == source]
        return {of["reason"]: int(value) for of, value in found if value}

    def labels(self) -> dict[str, str]:
        """The PCI address of each number `gpu` on the page, which must be unique."""
        found: dict[str, str] = {}
        for samples in self.samples.values():
            for labels, _ in samples:
                if "gpu" in labels:
                    address = found.setdefault(labels["gpu"], labels["pci_address"])
                    assert address == labels["pci_address"]
        return found


def measured(page: Page, gpu: int) -> dict[str, float | None]:
    """What the page says of a GPU, of the values that change."""
    return {
        "junction": page.one("amdgpu_temperature_celsius", gpu=gpu, sensor="junction"),
        "watts": page.one("amdgpu_power_watts", gpu=gpu),
        "joules": page.one("amdgpu_energy_joules_total", gpu=gpu),
        "gfx": page.one("amdgpu_gfx_activity_ratio", gpu=gpu),
        "vram": page.one("amdgpu_vram_used_bytes", gpu=gpu),
    }


def true(node: Node, gpu: int) -> dict[str, float | None]:
    """What `measured` is when everything is read and right."""
    state = node.state[gpu]

    def of(name: str) -> float:
        value = state[name]
        assert isinstance(value, int)
        return value

    old = node.metrics_version == (1, 3)
    return {
        "junction": of("temperature_hotspot"),
        "watts": of("average_socket_power" if old else "curr_socket_power"),
        "joules": of("energy_accumulator") / ENERGY_UNITS_PER_JOULE,
        "gfx": of("average_gfx_activity") / 100,
        "vram": int(node.get(gpu, "mem_info_vram_used")),
    }


SPARED = ("junction", "watts", "gfx", "vram")
"""What of `measured` the kernel's files have, too; energy comes from gpu_metrics alone."""
ALL_GONE = dict.fromkeys(("junction", "watts", "joules", "gfx", "vram"))
"""What `measured` is of a device that does not answer at all."""


class _Site:
    """What the web server serves: one page, from memory."""

    def __init__(self) -> None:
        self.body = b""

    def metrics(
        self, accept: str, accept_gzip: bool, collect: tuple[str, ...], exclude: tuple[str, ...]
    ) -> WebPage:
        return WebPage(200, "text/plain", self.body)

    def landing(self) -> WebPage:
        return WebPage(404, "text/plain", b"")

    def snapshot(self) -> WebPage:
        return WebPage(404, "text/plain", b"")

    def ready(self) -> str | None:
        return None

    def reload(self) -> str | None:
        return None


class Rig:
    """Everything but the daemon's loop. Between two polls time passes on the node.

    Attributes:
        node: change it, and the next poll meets it.
        still: GPUs whose clocks stand still.
        pace: seconds from the begin of a poll to that of the next, at least.
        page, snapshot: of the latest poll.
        seconds: how long it took.
    """

    def __init__(self, node: Node, config: Config, start: Launcher, limits: Limits) -> None:
        self.node = node
        self.still: set[int] = set()
        self.pace = 0.2
        self.page = Page({})
        self.snapshot: Snapshot
        self.seconds = 0.0
        self._log = io.StringIO()
        set_up("info", "json", self._log)
        self._finder = FaultFinder()
        self._faults = Faults(structlog.get_logger("exporter.daemon"))
        self._reader = Reader(config, start, limits=limits)
        self._limits = limits
        self._site = _Site()
        self._web = WebServer(
            self._site, listen=["127.0.0.1:0"], max_requests=4, enable_lifecycle=False
        )
        self._web.start()
        self._background = ThreadPoolExecutor(1)
        self._begun = time.monotonic()
        self._polls = 0

    def close(self) -> None:
        """End everything."""
        self._background.shutdown()
        self._web.stop(1.0)
        self._reader.stop()

    def poll(self) -> Page:
        """One poll, with a scrape of the page before while it runs."""
        pause = self._begun + self.pace - time.monotonic()
        if pause > 0:
            time.sleep(pause)
        now = time.monotonic()
        if self._polls:
            moving = set(range(len(self.node.gpus))) - self.still
            self.node.advance(round(now - self._begun, 3), sorted(moving))
        self._begun, self._polls = now, self._polls + 1
        polling = self._background.submit(self._reader.poll)
        scraped, seconds = self._scrape()
        self.snapshot = polling.result()
        self.seconds = time.monotonic() - now
        assert self._site.body == scraped
        assert seconds < AT_ONCE, "a scrape was delayed"
        longest = self._limits.first if self._polls == 1 else self._limits.cycle
        assert self.seconds < longest + AT_ONCE, "a poll took too long"
        self._faults.update(self._finder.find(self.snapshot), now)
        status = Status(reload_successful=True, reload_timestamp=0.0)
        collectors = self._reader.picture.collectors
        page = MetricsPage(self.snapshot, collectors, lambda: status, process=False)
        self._site.body = page.render()[1]
        self.page = Page.parse(self._site.body.decode())
        return self.page

    def _scrape(self) -> tuple[bytes, float]:
        begin = time.monotonic()
        address = self._web.addresses[0]
        with urlopen(f"http://{address}/metrics", timeout=PATIENCE) as answer:
            body: bytes = answer.read()
        return body, time.monotonic() - begin

    def all_up(self) -> None:
        """Poll until every GPU is up, and once more; then every value is right."""
        self.until(lambda page: page.up() == list(range(len(self.node.gpus))))
        self.poll()
        self.right()

    def until(self, condition: Callable[[Page], object]) -> Page:
        """Poll until the page is as it shall be."""
        limit = time.monotonic() + PATIENCE
        while not condition(self.poll()):
            assert time.monotonic() < limit, f"waited in vain; log: {self.told()}"
        return self.page

    def lines(self) -> list[dict[str, Any]]:
        """The lines of the log so far."""
        return [json.loads(line) for line in self._log.getvalue().splitlines()]

    def told(self) -> list[tuple[str, str, str]]:
        """What the log says of faults: started or ended, which, and of what device or source."""
        return [
            (
                line.get("fault", line["level"]),
                line["event"],
                line.get("pci_address") or line.get("source", ""),
            )
            for line in self.lines()
        ]

    def measured(self, gpu: int) -> dict[str, float | None]:
        """What the page says of a GPU."""
        return measured(self.page, gpu)

    def right(self, *gpus: int) -> None:
        """The page has every value of these GPUs (all unless given), and they are right."""
        for gpu in gpus or range(len(self.node.gpus)):
            assert true(self.node, gpu) == measured(self.page, gpu), f"GPU {gpu}"

    def spared(self, *gpus: int) -> None:
        """The page has what the kernel's files tell of these GPUs, but not what is lost."""
        for gpu in gpus:
            left = {key: value for key, value in true(self.node, gpu).items() if key in SPARED}
            assert {**ALL_GONE, **left} == measured(self.page, gpu), f"GPU {gpu}"

    def not_wrong(self, *gpus: int) -> None:
        """Each value of these GPUs is right or absent."""
        for gpu in gpus:
            shown = {key: value for key, value in measured(self.page, gpu).items() if value}
            assert {key: true(self.node, gpu)[key] for key in shown} == shown, f"GPU {gpu}"

    def gone(self, *gpus: int) -> None:
        """The page has no value of these GPUs."""
        for gpu in gpus:
            assert measured(self.page, gpu) == ALL_GONE, f"GPU {gpu}"

    def address(self, gpu: int) -> str:
        """The PCI address of a GPU."""
        return self.node.gpus[gpu].bdf


@contextmanager
def rig(
    node: Node,
    suite: str = "sid",
    *,
    sources: Sequence[str] = ALL,
    limits: Limits = LIMITS,
    start: Launcher | None = None,
) -> Iterator[Rig]:
    """A rig over a node; in the end no worker is left behind."""
    flags = {"poll.interval": f"{limits.interval:g}s", "sources": ",".join(sources)}
    config = load(Invocation(flags=flags), COLLECTORS, environment={})
    made = Rig(node, config, start or launcher(suite, node.root), limits)
    try:
        yield made
    finally:
        made.close()
    left = [child.pid for child in psutil.Process().children(recursive=True)]
    assert [] == left


def fault(event: str, about: str) -> list[tuple[str, str, str]]:
    """What `Rig.told` gives of one fault that has passed."""
    return [("started", event, about), ("ended", event, about)]
