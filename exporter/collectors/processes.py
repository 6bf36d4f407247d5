"""Who holds the memory: processes, what each holds, and who they are.

    amdgpu_processes 1
    amdgpu_process_vram_bytes{pid="4201"} 1610616832
    amdgpu_process_info{pid="4201",command="python3",user="alice",job_id="4711",…} 1

A process counts with the larger of what KFD and DRM tell of it (`exporter.sources.owners`). The 16
that hold most of a device are named, the others summed under pid="other".
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from exporter.collectors.base import Collector, Metric, NodeMetric, Reader
from exporter.values import Absent, Fields, FieldValue, Value

if TYPE_CHECKING:
    from exporter.sources.pod_resources import PodResourcesGpu
    from exporter.sources.sysfs import SysfsGpu

KEPT = 64
"""Processes of a device or partition that a reading holds one by one."""
OTHER = "other"
_ENDED = ("zombie", "gone")
_IDENTITY = ("command", "user", "container_id", "pod", "namespace", "container", "job_id")


class Holder(NamedTuple):
    """One process's part of a device's memory, for whoever follows it over time.

    Attributes:
        started: seconds after boot; with the pid it tells a process from a later one of the same
            number. None where the process can't be seen.
        vram: bytes.
    """

    pid: int
    started: float | None
    vram: int


@dataclass(frozen=True, slots=True)
class Processes:
    """The processes that hold memory of a device or partition; mappings are by pid.

    Attributes:
        count: all of them.
        vram: bytes, of the `KEPT` that hold most.
        rest: bytes, of the others together.
        ended: bytes, of those that have ended all the same.
        started: seconds after boot, of those in `vram`.
        state: running, zombie, gone, hidden, other_namespace; of those that are named.
        command, user, container_id, pod, namespace, container, job_id: who they are.
        in_pod: 1 for those in some Kubernetes pod.
        holder: `namespace/pod/container` of the one container that the device was given to.
        clients: DRM clients that have the device open.
    """

    count: int | None = None
    vram: Mapping[str, int] = field(default_factory=dict)
    rest: int | None = None
    ended: int | None = None
    started: Mapping[str, float] = field(default_factory=dict)
    state: Mapping[str, str] = field(default_factory=dict)
    command: Mapping[str, str] = field(default_factory=dict)
    user: Mapping[str, str] = field(default_factory=dict)
    container_id: Mapping[str, str] = field(default_factory=dict)
    pod: Mapping[str, str] = field(default_factory=dict)
    namespace: Mapping[str, str] = field(default_factory=dict)
    container: Mapping[str, str] = field(default_factory=dict)
    job_id: Mapping[str, str] = field(default_factory=dict)
    in_pod: Mapping[str, int] = field(default_factory=dict)
    holder: str | None = None
    clients: int | None = None

    def identity(self, pid: str) -> dict[str, str]:
        """Who a process is, by label; what is not known is empty.

        A process of some pod on a device that one container alone was given is that container's.
        """
        found = {name: str(getattr(self, name).get(pid, "")) for name in _IDENTITY}
        if self.holder is not None and pid in self.in_pod and not found["pod"]:
            found |= zip(("namespace", "pod", "container"), self.holder.split("/"), strict=True)
        return found

    def holders(self) -> tuple[Holder, ...]:
        """Those in `vram`, with what tells them apart."""
        return tuple(
            Holder(int(pid), self.started.get(pid), vram) for pid, vram in self.vram.items()
        )


def read_sysfs(gpu: SysfsGpu) -> Fields:
    """From KFD and fdinfo; of what the partitions share only if somebody holds of it."""
    key = gpu.key
    owners = gpu.owners.of(key)
    if not owners and gpu.shared:
        return {}
    shown = gpu.owners.shown(key.address)
    mappings: dict[str, dict[str, Value]] = {
        name: {} for name in ("vram", "started", "state", "in_pod", *_IDENTITY)
    }
    for owner in owners[:KEPT]:
        pid = str(owner.pid)
        mappings["vram"][pid] = owner.vram
        if owner.started is not None:
            mappings["started"][pid] = owner.started
        if owner.pid in shown:
            mappings["state"][pid] = owner.state
            identity = gpu.owners.identity(owner)
            if identity.in_pod:
                mappings["in_pod"][pid] = 1
            for name in _IDENTITY:
                told: str | Absent = getattr(identity, name)
                if told != "":
                    mappings[name][pid] = told
    fields: dict[str, FieldValue] = {
        "count": len(owners),
        "rest": sum(owner.vram for owner in owners[KEPT:]),
        "ended": sum(owner.vram for owner in owners if owner.state in _ENDED),
        "clients": gpu.owners.clients(key),
    }
    return fields | {name: mapping for name, mapping in mappings.items() if mapping}


def read_pod_resources(gpu: PodResourcesGpu) -> Fields:
    """The container that the device was given to, if it is one alone."""
    told = gpu.containers()
    return {"holder": told[0]} if not isinstance(told, Absent) and len(told) == 1 else {}


def _vram(reading: Processes) -> Mapping[str, int]:
    """By pid of those that are named, the others under `OTHER` if there are any."""
    named = {pid: vram for pid, vram in reading.vram.items() if pid in reading.state}
    others = sum(reading.vram.values()) - sum(named.values()) + (reading.rest or 0)
    return named | ({OTHER: others} if others else {})


def _infos(readings: Sequence[Processes]) -> dict[tuple[str, ...], float]:
    """One per pid, whichever devices it is on; what one of them does not tell another may."""
    found: dict[str, dict[str, str]] = {}
    for reading in readings:
        for pid in reading.state:
            known = found.setdefault(pid, dict.fromkeys(_IDENTITY, ""))
            known |= {name: text for name, text in reading.identity(pid).items() if text}
    return {(pid, *known.values()): 1.0 for pid, known in found.items()}


def _states(readings: Sequence[Processes]) -> dict[tuple[str, ...], float]:
    return {item: 1.0 for reading in readings for item in reading.state.items()}


COLLECTOR = Collector(
    name="processes",
    summary="processes that hold VRAM, and who they are",
    reading=Processes,
    readers=(
        Reader("sysfs", read_sysfs, per_partition=True),
        Reader("pod_resources", read_pod_resources, per_partition=True),
    ),
    metrics=(
        Metric(
            "amdgpu_processes",
            "gauge",
            "Processes that hold VRAM (KFD proc/*/vram_*, or fdinfo drm-resident-vram).",
            lambda p: p.count,
        ),
        Metric(
            "amdgpu_process_vram_bytes",
            "gauge",
            "VRAM of a process, the larger of what KFD (proc/*/vram_*) and DRM (fdinfo "
            'drm-resident-vram, drm-memory-vram) tell; pid="other" sums those beyond the 16 '
            "largest of the device.",
            _vram,
            ("pid",),
        ),
        Metric(
            "amdgpu_vram_zombie_bytes",
            "gauge",
            "VRAM of processes that have ended, zombies and those that only KFD still knows "
            "(KFD proc/*/vram_*, /proc/PID/stat).",
            lambda p: p.ended,
        ),
    ),
    node_metrics=(
        NodeMetric(
            "amdgpu_process_info",
            "Who a process that holds VRAM is; a label that is not known is empty.",
            _infos,
            ("pid", *_IDENTITY),
        ),
        NodeMetric(
            "amdgpu_process_state",
            "1 for the state of a process that holds VRAM: running, zombie, gone (it has ended, "
            "and KFD keeps its memory), hidden, or other_namespace (/proc/PID/stat).",
            _states,
            ("pid", "state"),
        ),
    ),
    why_absent={
        **dict.fromkeys(
            ("vram", "started", "state", "command", "user"), "no process holds memory of it"
        ),
        "container_id": "no process's control group is a container's",
        "in_pod": "no process's control group is a pod's",
        **dict.fromkeys(
            ("pod", "namespace", "container"),
            "no process's container has a log in /var/log/containers",
        ),
        "job_id": "no process is known to belong to a job of Slurm, Flux or PBS",
        "holder": "the kubelet, asked with --collector.allocations, names no single container",
    },
    keys="pid",
)
