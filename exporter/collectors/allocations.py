"""Who the scheduler gave a device to, also when nothing runs on it; off by default.

    amdgpu_allocation_info{namespace="research",pod="trainer-0",container="worker",…} 1
    amdgpu_allocation_vram_bytes{…} 1610616832

Containers are told by the kubelet, jobs by what the node itself knows: Slurm's lists of devices
(control groups v1), and the jobs that processes on the device belong to. A process is a container's
if the node's log files name its container so, or if it is in some pod and one container alone holds
the device; where it could be one of several, their memory is absent.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from exporter.collectors.base import Collector, Metric, Reader
from exporter.values import Absent, Fields, FieldValue

if TYPE_CHECKING:
    from exporter.sources.pod_resources import PodResourcesGpu
    from exporter.sources.sysfs import SysfsGpu

MOST = 16
"""Containers, and jobs, of a device that are told of."""
Key = tuple[str, str, str, str, str]


@dataclass(frozen=True, slots=True)
class Allocations:
    """What a device or partition was given to.

    Attributes:
        count: containers.
        unmapped: ids of the vendor's devices on the node that lead to no device.
        containers: `namespace/pod/container`, each 1.
        jobs: id to user, empty where that is not known.
        listed: jobs that the kernel's lists of devices name.
        processes: how many hold memory of the device.
        vram: bytes, by pid, of the device's processes.
        container_of: `namespace/pod/container`, by pid, where the node's log files tell.
        in_pod: 1, by pid of those in some pod.
        job_of: job, by pid.
    """

    count: int | None = None
    unmapped: int | None = None
    containers: Mapping[str, int] = field(default_factory=dict)
    jobs: Mapping[str, str] = field(default_factory=dict)
    listed: int | None = None
    processes: int | None = None
    vram: Mapping[str, int] = field(default_factory=dict)
    container_of: Mapping[str, str] = field(default_factory=dict)
    in_pod: Mapping[str, int] = field(default_factory=dict)
    job_of: Mapping[str, str] = field(default_factory=dict)


def read_pod_resources(gpu: PodResourcesGpu) -> Fields:
    """The containers that the kubelet gave the device to."""
    told = gpu.containers()
    if isinstance(told, Absent):
        return {"count": told}
    fields: dict[str, FieldValue] = {"count": len(told), "unmapped": gpu.unmapped()}
    return fields | ({"containers": dict.fromkeys(told[:MOST], 1)} if told else {})


def read_sysfs(gpu: SysfsGpu) -> Fields:
    """The jobs, by the kernel's lists and by processes; and to whom the processes belong."""
    listed = gpu.owners.jobs(gpu.key)
    owners = gpu.owners.of(gpu.key)
    if gpu.shared and not owners and not listed:
        return {}
    jobs = {} if isinstance(listed, Absent) else dict(sorted(listed.items())[:MOST])
    mappings: dict[str, dict[str, int | float | str | Absent]] = {
        name: {} for name in ("vram", "container_of", "in_pod", "job_of")
    }
    for owner in owners:
        pid, identity = str(owner.pid), gpu.owners.identity(owner)
        mappings["vram"][pid] = owner.vram
        if identity.pod:
            name = f"{identity.namespace}/{identity.pod}/{identity.container}"
            mappings["container_of"][pid] = name
        if identity.in_pod:
            mappings["in_pod"][pid] = 1
        if isinstance(identity.job_id, str) and identity.job_id:
            mappings["job_of"][pid] = identity.job_id
            if len(jobs) < MOST:
                jobs.setdefault(identity.job_id, identity.user)
    fields: dict[str, FieldValue] = {
        "processes": len(owners),
        "listed": listed if isinstance(listed, Absent) else len(listed),
        **{name: mapping for name, mapping in mappings.items() if mapping},
    }
    return fields | ({"jobs": jobs} if jobs else {})


def _keys(reading: Allocations) -> dict[str, Key]:
    """The labels of each allocation: of a container by its name, of a job by its id."""
    found: dict[str, Key] = {}
    for name in reading.containers:
        namespace, pod, container = name.split("/")
        found[name] = (namespace, pod, container, "", "")
    for job, user in reading.jobs.items():
        found[f"job {job}"] = ("", "", "", job, user)
    return found


def _infos(reading: Allocations) -> dict[tuple[str, ...], float]:
    return dict.fromkeys(_keys(reading).values(), 1.0)


def _vram(reading: Allocations) -> dict[tuple[str, ...], float]:
    """What the processes of each allocation hold; absent where a process could be of several."""
    if reading.processes is None:
        return {}
    keys = _keys(reading)
    sums = dict.fromkeys(keys, 0)
    unclear = False
    for pid, vram in reading.vram.items():
        name = reading.container_of.get(pid, "")
        if not name and pid in reading.in_pod and reading.count == 1:
            name = next(iter(reading.containers), "")
        if name in sums:
            sums[name] += vram
        elif not name and pid in reading.in_pod and reading.containers:
            unclear = True
        job = f"job {reading.job_of.get(pid, '')}"
        if job in sums:
            sums[job] += vram
    return {
        keys[name]: float(total)
        for name, total in sums.items()
        if not (unclear and name in reading.containers)
    }


_LABELS = ("namespace", "pod", "container", "job_id", "user")

COLLECTOR = Collector(
    name="allocations",
    summary="who the scheduler gave each GPU to: pods by the kubelet's socket, and Slurm's jobs",
    reading=Allocations,
    readers=(
        Reader("pod_resources", read_pod_resources, per_partition=True),
        Reader("sysfs", read_sysfs, per_partition=True),
    ),
    metrics=(
        Metric(
            "amdgpu_allocation_info",
            "gauge",
            "Who the scheduler gave the device to, also when nothing runs (the kubelet's "
            "pod-resources socket; Slurm's devices.list and the jobs of processes).",
            _infos,
            _LABELS,
        ),
        Metric(
            "amdgpu_allocation_vram_bytes",
            "gauge",
            "VRAM that the processes of an allocation hold (amdgpu_process_vram_bytes, by control "
            "group); absent where a process could belong to several.",
            _vram,
            _LABELS,
        ),
    ),
    why_absent={
        **dict.fromkeys(("count", "unmapped"), "the kubelet is not asked"),
        "containers": "no container holds it",
        "jobs": "no job of Slurm, Flux or PBS is known to hold it",
        **dict.fromkeys(("vram", "container_of", "in_pod", "job_of"), "no such process is on it"),
    },
    keys="name",
    default=False,
)
