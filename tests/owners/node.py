"""Nodes with processes, written by hand."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from prometheus_client.openmetrics.parser import text_string_to_metric_families

from exporter.collectors import BY_NAME
from exporter.collectors.processes import COLLECTOR, Processes
from exporter.exposition.families import Status
from exporter.exposition.page import MetricsPage
from exporter.sources.sysfs import KFD, SysfsGpu, SysfsSession
from exporter.values import Absent, FieldValue
from tests.core.nodes import ADDRESS, MemoryFiles, kfd_files, node_files
from tests.core.polls import device, snapshot

GPU_ID = 1001
"""KFD's number of the first device or partition that `kfd_files` makes."""
RENDER = 128
Labels = dict[str, str]


@dataclass
class Files(MemoryFiles):
    """Files in memory; what lies below a path in `refused` may not be seen."""

    refused: set[str] = field(default_factory=set)
    before: Callable[[str], None] = lambda _: None

    def read(self, path: str) -> str:
        self._check(path)
        return super().read(path)

    def list(self, path: str) -> list[str]:
        self._check(path)
        self.touched.append(path)
        return super().list(path)

    def link(self, path: str) -> str:
        self._check(path)
        return super().link(path)

    def _check(self, path: str) -> None:
        self.before(path)
        if any(path.startswith(prefix) for prefix in self.refused):
            raise OSError(errno.EACCES, os.strerror(errno.EACCES), path)

    def end(self, pid: int, *, kfd: bool = True, proc: bool = True) -> None:
        """A process ends: KFD forgets it, and /proc."""
        gone = [f"{KFD}/proc/{pid}/"] * kfd + [f"/proc/{pid}/"] * proc
        for known in (self.files, self.links):
            for path in [path for path in known if path.startswith(tuple(gone))]:
                del known[path]

    def process(
        self,
        pid: int,
        vram: int | Mapping[int, int] | None = None,
        drm: Sequence[tuple[str, int]] = (),
        *,
        name: str = "python3",
        state: str = "S",
        parent: int = 1,
        started: int = 1000,
        uid: int = 0,
        cgroup: str = "0::/\n",
        environ: str = "",
        minor: int = RENDER,
        address: str = ADDRESS,
        alive: bool = True,
    ) -> None:
        """A process.

        Args:
            vram: bytes that KFD tells, of the first device or by KFD's number.
            drm: client and KiB, for each descriptor of the render node `minor`.
        """
        by_device = {GPU_ID: vram} if isinstance(vram, int) else vram or {}
        for gpu_id, amount in by_device.items():
            self.files[f"{KFD}/proc/{pid}/vram_{gpu_id}"] = f"{amount}\n"
        if not alive:
            return
        base = f"/proc/{pid}"
        numbers = " ".join(["0"] * 17)
        self.files[f"{base}/stat"] = f"{pid} ({name}) {state} {parent} {numbers} {started} 0 0\n"
        self.files[f"{base}/status"] = f"Name:\t{name}\nUid:\t{uid}\t{uid}\t{uid}\t{uid}\n"
        self.files[f"{base}/cgroup"] = cgroup
        self.files[f"{base}/environ"] = environ
        self.links[f"{base}/fd/0"] = "/dev/null"
        for number, (client, kibibytes) in enumerate(drm, 7):
            self.links[f"{base}/fd/{number}"] = f"/dev/dri/renderD{minor}"
            self.files[f"{base}/fdinfo/{number}"] = (
                f"pos:\t0\ndrm-driver:\tamdgpu\ndrm-client-id:\t{client}\n"
                f"drm-pdev:\t{address}\ndrm-memory-vram:\t{kibibytes} KiB\n"
            )


def node(*memory: int, elsewhere: Mapping[str, str | int] | None = None) -> Files:
    """A node with one GPU, with one partition for each entry of `memory`."""
    made = node_files(
        {f"drm/renderD{RENDER}/dev": "226:128"},
        elsewhere={
            **kfd_files(*(memory or (1 << 40,))),
            "/proc/1/stat": f"1 (init) S 0 {'0 ' * 17}1 0\n",
            "/etc/passwd": "root:x:0:0::/root:/bin/sh\nalice:x:1000:1000::/home/alice:/bin/sh\n",
            **(elsewhere or {}),
        },
    )
    return Files(made.files, made.links)


@dataclass
class Watch:
    """Poll after poll of such a node."""

    files: MemoryFiles
    own: Collection[int] = ()

    def __post_init__(self) -> None:
        self.session = SysfsSession(self.files, own=self.own)
        self._now = 0.0

    def poll(self, seconds: float = 5.0) -> tuple[SysfsGpu, ...]:
        """The views after so many seconds."""
        self._now += seconds
        self.session.begin(self._now)
        return tuple(self.session.views(ADDRESS, per_partition=True))

    def fields(self, seconds: float = 5.0, partition: int = 0) -> dict[str, FieldValue]:
        """What the reader gives of a view after so many seconds."""
        return dict(COLLECTOR.readers[0].read(self.poll(seconds)[partition]))

    def reading(self, seconds: float = 5.0, partition: int = 0) -> Processes:
        """The reading of a view, absences left out, as the assembly makes it."""
        return reading(self.fields(seconds, partition))


def reading(fields: Mapping[str, FieldValue]) -> Processes:
    """A reading from fields, as the assembly makes it."""
    values: dict[str, object] = {}
    for name, value in fields.items():
        if isinstance(value, Mapping):
            values[name] = {k: v for k, v in value.items() if not isinstance(v, Absent)}
        elif not isinstance(value, Absent):
            values[name] = value
    made: Processes = BY_NAME["processes"].reading(**values)
    return made


def samples(*readings: Processes) -> Iterator[tuple[str, Labels, float]]:
    """The page of such readings, one device for each, as a strict parser reads it."""
    devices = [
        device({"processes": each}, gpu=gpu, address=f"0000:{gpu + 5:02x}:00.0")
        for gpu, each in enumerate(readings)
    ]
    page = MetricsPage(snapshot(*devices), [COLLECTOR], lambda: Status(True, 0.0), process=False)
    text = page.render("application/openmetrics-text; version=1.0.0")[1].decode()
    for family in text_string_to_metric_families(text):  # type: ignore[no-untyped-call]  # the library's
        for sample in family.samples:
            if not sample.name.startswith("amdgpu_exporter_"):
                yield sample.name, dict(sample.labels), float(sample.value)


def info(*readings: Processes) -> dict[str, Labels]:
    """The labels of amdgpu_process_info that are not empty, by pid."""
    return {
        labels["pid"]: {k: v for k, v in labels.items() if v and k != "pid"}
        for name, labels, _ in samples(*readings)
        if name == "amdgpu_process_info"
    }


def vram(*readings: Processes) -> list[tuple[str, float]]:
    """Pid and bytes of amdgpu_process_vram_bytes."""
    return [
        (labels["pid"], value)
        for name, labels, value in samples(*readings)
        if name == "amdgpu_process_vram_bytes"
    ]
