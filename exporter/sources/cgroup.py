"""What the path of a control group tells of a process: its container, its pod, its batch job.

Layouts: the OCI runtimes' systemd and cgroupfs drivers, kubelet's `kubepods`, Slurm's cgroup/v1 and
cgroup/v2 plugins, the units of Flux's sdexec, and the cgroups hook of OpenPBS.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

_CONTAINER = re.compile(r"(?:^|[-:.])([0-9a-f]{64})(?:\.scope)?$")
_MONITORS = ("conmon",)
"""Scopes that carry a container's id, but hold what watches over it."""
_POD = re.compile(
    r"(?:^|[-/])pod([0-9a-f]{8}(?:[-_][0-9a-f]{4}){3}[-_][0-9a-f]{12}|[0-9a-f]{32})\b"
)
_JOBS = (
    # /slurm/uid_1000/job_7/step_0, and with several daemons per node slurm_NODE
    re.compile(r"/slurm(?:_[^/]+)?/uid_\d+/job_(\d+)(?:/|$)"),
    # /system.slice/slurmstepd.scope/job_7/step_0, and NODE_slurmstepd.scope
    re.compile(r"/(?:[^/]+_)?slurmstepd\.scope/job_(\d+)(?:/|$)"),
    # shell-0-f2Abc.service: rank, then the id in F58
    re.compile(r"/(?:imp-)?shell-\d+-([fƒ][1-9A-HJ-NP-Za-km-z]+)\.service(?:/|$)"),
    # /pbs_jobs.service/jobid/7.server (v1) and /pbs_jobs.service/jobs/7.server (v2)
    re.compile(r"/pbs[a-z_]*\.(?:service|slice)/job(?:id|s)/([^/]+)(?:/|$)"),
)
JOB_VARIABLES = ("SLURM_JOB_ID", "SLURM_JOBID", "FLUX_JOB_ID", "PBS_JOBID")
"""The variables that name a process's job, the most telling first."""


@dataclass(frozen=True, slots=True)
class Membership:
    """What a process belongs to; empty where its control groups don't tell.

    Attributes:
        container_id: of the innermost container, 64 hexadecimal digits.
        pod_uid: as Kubernetes writes it, with dashes.
        job_id: as the scheduler writes it.
    """

    container_id: str = ""
    pod_uid: str = ""
    job_id: str = ""


def membership(text: str) -> Membership:
    """From the text of `/proc/PID/cgroup`, of either version of control groups."""
    container = pod = job = ""
    for line in text.splitlines():
        path = line.split(":", 2)[-1]
        container = container or _container(path)
        if not pod and (found := _POD.search(path)):
            pod = found.group(1).replace("_", "-")
        job = job or next((m.group(1) for pattern in _JOBS if (m := pattern.search(path))), "")
    return Membership(container, pod, job)


def _container(path: str) -> str:
    for part in reversed(path.split("/")):
        found = _CONTAINER.search(part)
        if found and not any(word in part for word in _MONITORS):
            return found.group(1)
    return ""


def job_of_environment(text: str) -> str:
    """The job that the text of `/proc/PID/environ` names; nothing else of it is looked at."""
    for name in JOB_VARIABLES:
        start = f"{name}="
        for entry in text.split("\0"):
            if entry.startswith(start) and len(entry) > len(start):
                return entry[len(start) :]
    return ""
