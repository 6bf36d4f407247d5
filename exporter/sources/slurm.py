"""Which jobs Slurm gave devices to, as far as the node's own files tell; also idle ones.

With control groups v1 the kernel lists the devices that a job may open
(`/sys/fs/cgroup/devices/slurm/uid_1000/job_7/devices.list`, where ConstrainDevices is on). With v2
that is a program in the kernel and can't be read: a job is then known by its processes alone.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from exporter.sources.files import Files, absent_for
from exporter.sources.session import DeviceKey
from exporter.values import NOT_PERMITTED, NOT_SUPPORTED, Absent

_V1 = "/sys/fs/cgroup/devices"
_V2 = "/sys/fs/cgroup/system.slice"
_MOST_JOBS = 256
_ALLOWED = re.compile(r"^c 226:(\d+) ", re.M)

Jobs = Mapping[DeviceKey, Mapping[str, str]]
"""By device or partition: the job, and the number of its user."""


def jobs(files: Files, minors: Mapping[int, DeviceKey]) -> Jobs | Absent:
    """The jobs that hold devices, or why that is not known.

    Args:
        minors: the render nodes, and the device or partition behind each.
    """
    try:
        groups = [f"{_V1}/{name}" for name in files.list(_V1) if name.startswith("slurm")]
    except OSError as error:
        absent = absent_for(error, _V1)
        return absent if absent.reason == NOT_PERMITTED else _of_v2(files)
    found: dict[DeviceKey, dict[str, str]] = {}
    left = _MOST_JOBS
    for group in groups:
        for user in _names(files, group, "uid_"):
            for job in _names(files, f"{group}/uid_{user}", "job_"):
                if left == 0:
                    return found
                left -= 1
                try:
                    told = files.read(f"{group}/uid_{user}/job_{job}/devices.list")
                except OSError as error:
                    absent = absent_for(error, f"{group}/uid_UID/job_ID/devices.list")
                    if absent.reason == NOT_PERMITTED:
                        return absent
                    continue  # it ended meanwhile
                for minor in map(int, _ALLOWED.findall(told)):  # `a *:*` allows all: none is given
                    if minor in minors:
                        found.setdefault(minors[minor], {})[job] = user
    return found


def _of_v2(files: Files) -> Jobs | Absent:
    try:
        scopes = [name for name in files.list(_V2) if name.endswith("slurmstepd.scope")]
    except OSError:
        return {}
    if not scopes:
        return {}
    return Absent(
        NOT_SUPPORTED,
        "control groups v2 have no list of a job's devices that can be read: a job of Slurm is "
        "known by its processes alone",
    )


def _names(files: Files, folder: str, prefix: str) -> list[str]:
    try:
        names = files.list(folder)
    except OSError:
        return []
    found = (name.removeprefix(prefix) for name in names if name.startswith(prefix))
    return [name for name in found if name.isdigit()]
