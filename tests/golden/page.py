"""A page from two polls of a simulated node: all that is not the node's own is replaced here.

What belongs to this machine or this moment is injected here and nowhere else:

- `fixed`, between the supervisor and the picture: the time of the readings, so that all that is
  derived from it comes out the same every time; what the workers cost; the boot and the kernel;
- `Picture.take`: the time and the number of the poll;
- `render`: how long collectors took; and the versions of the exporter and of Python, which are
  labels of one series.

The page has no `process_*` families, as that of `amdgpu-exporter once`: they are not ours.
"""

from __future__ import annotations

import platform
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from prometheus_client.parser import text_string_to_metric_families

from exporter import __version__
from exporter.analysis.numbering import Numbering
from exporter.analysis.picture import Picture
from exporter.collectors import BY_NAME, COLLECTORS
from exporter.config import SOURCES, Config, Invocation, load
from exporter.exposition.families import Status
from exporter.exposition.page import MetricsPage
from exporter.snapshot import Snapshot
from exporter.sources.supervisor import Limits, Source, SourceReport, Supervisor, Usage
from tests.golden.told import ELAPSED, Told, step, tell
from tests.kernel.launch import launcher
from tests.kernel.node import Node, Other
from tests.kernel.packages import SuiteRoot, suite_root

PAGES = Path(__file__).parent / "pages"
INTERVAL = 5.0
PATIENCE = 60.0
"""The interval that the supervisor reckons with: its deadlines are no matter of these tests."""
START = 1_700_000_000.0
BOOT = "00000000-1111-2222-3333-444444444444"
KERNEL = "6.8.0-golden"
FALLBACK = {"temperature_warning": {"hbm": 95.0}, "temperature_critical": {"hbm": 105.0}}
"""The configured limits, under the names that the daemon gives them."""


@dataclass(frozen=True, slots=True)
class Case:
    """A page to be read.

    Attributes:
        name: of the file, without its suffix.
        library: amdsmi, rocm_smi, sysfs, or all (the default of `--sources`).
        suite: the Debian suite that brings the library.
        model, count, partitions, metrics, other: of the simulated node.
        every: all collectors are on, not only those that are by default.
    """

    name: str
    library: str
    suite: str
    model: str
    count: int = 2
    partitions: int = 1
    metrics: tuple[int, int] | None = None
    other: Other | None = None
    every: bool = False

    @property
    def sources(self) -> tuple[str, ...]:
        """What `--sources` would say."""
        if self.library == "all":
            return SOURCES
        return tuple(dict.fromkeys((self.library, "sysfs")))

    @property
    def version(self) -> str | None:
        """The exact version of the library, None for the kernel's own files."""
        root: SuiteRoot = suite_root(self.suite)
        return {"amdsmi": root.amd_smi, "rocm_smi": root.rocm_smi}.get(self.library)

    @property
    def path(self) -> Path:
        """Where the page is kept."""
        version = self.version
        folder = self.library if version is None else f"{self.library}-{version}"
        return PAGES / folder / f"{self.name}.prom"


@dataclass(frozen=True, slots=True)
class Page:
    """A page as it was read.

    Attributes:
        text: its bytes, as text.
        snapshot: what it shows.
        told: what the simulated kernel was told.
    """

    case: Case
    text: str
    snapshot: Snapshot
    told: Told

    @property
    def open_metrics(self) -> str:
        """The same page as OpenMetrics."""
        collectors = [BY_NAME[name] for name in self.snapshot.collectors]
        return render(self.snapshot, collectors, "application/openmetrics-text; version=1.0.0")

    def samples(self) -> list[tuple[str, dict[str, str], float]]:
        """Name, labels and value of all samples, in their order."""
        return samples(self.text)


def samples(text: str) -> list[tuple[str, dict[str, str], float]]:
    """Name, labels and value of all samples of a page, in their order."""
    return [
        (sample.name, dict(sample.labels), float(sample.value))
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    ]


def fixed(report: SourceReport, moment: float) -> SourceReport:
    """A report without anything that belongs to this machine or this moment."""
    place = SOURCES.index(report.name) + 1
    node = {**report.node}
    for name, text in (("boot_id", BOOT), ("kernel_version", KERNEL)):
        if name in node:
            node[name] = text
    return replace(
        report,
        node=node,
        usage=Usage(0.25 * place, 1_000_000 * place, 3 + place),
        answers={
            address: replace(answer, time=moment) for address, answer in report.answers.items()
        },
    )


def settings(every: bool = False) -> Config:
    """The defaults, or those with all collectors on."""
    switches: dict[str, object] = {f"collector.{c.name}": True for c in COLLECTORS} if every else {}
    return load(Invocation(flags=switches), COLLECTORS, environment={})


def two_polls(
    told: Told, suite: str, names: Sequence[str], config: Config
) -> tuple[Snapshot, Picture]:
    """Two polls over a real library, five seconds of the node's time apart."""
    start = launcher(suite, told.node.root)
    sources = [Source(name, start, Limits(PATIENCE)) for name in names]
    supervisor = Supervisor(sources)
    picture = Picture(
        [BY_NAME[name] for name in config.collectors],
        interval=INTERVAL,
        settings=FALLBACK,
        numbering=Numbering(None),
    )

    def poll(sequence: int) -> Snapshot:
        for source in sources:
            source.readers = picture.assembly.demand(source.name)
        moment = START + ELAPSED * sequence
        return picture.take(
            [fixed(report, moment) for report in supervisor.poll()],
            sequence=sequence,
            timestamp=moment,
            now=moment,
            expected=None,
            on_boot=lambda _: None,
        )

    try:
        poll(1)
        step(told)
        return poll(2), picture
    finally:
        supervisor.stop()


def render(snapshot: Snapshot, collectors: Sequence[Any], accept: str = "") -> str:
    """The page, in the text format unless asked otherwise, as it would be on any machine."""
    collected = {
        name: replace(health, seconds=0.001 * (number + 1) if health.seconds is not None else None)
        for number, (name, health) in enumerate(snapshot.collectors.items())
    }
    snapshot = replace(snapshot, collectors=collected)
    status = Status(reload_successful=True, reload_timestamp=START)
    page = MetricsPage(snapshot, collectors, lambda: status, process=False)
    text = page.render(accept)[1].decode()
    own = f'python_version="{platform.python_version()}",version="{__version__}"'
    assert text.count(own) == 1
    return text.replace(own, 'python_version="PYTHON",version="EXPORTER"')


def read(case: Case, folder: Path) -> Page:
    """The page of a case; the node is written into the folder."""
    node = Node.create(
        folder / "tree",
        case.model,
        case.count,
        partitions=case.partitions,
        metrics=case.metrics,
        other=case.other,
    )
    told = tell(node)
    snapshot, picture = two_polls(told, case.suite, case.sources, settings(case.every))
    return Page(case, render(snapshot, picture.collectors), snapshot, told)
