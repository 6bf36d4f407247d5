"""Containers, pods and jobs by the paths of control groups, and jobs by environments."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exporter.sources.cgroup import Membership, job_of_environment, membership

C = "0123456789abcdef" * 4
"""The id of a container."""
UID = "11111111-2222-3333-4444-555555555555"
SLICED = UID.replace("-", "_")
STATIC = "0123456789abcdef" * 2
"""The uid of a pod that the node itself runs, from a file."""


def v1(path: str) -> str:
    """A process's groups of version 1, which is in several hierarchies; one holds it apart."""
    return f"12:pids:{path}\n5:devices:{path}\n1:name=systemd:{path}\n0::/\n"


@pytest.mark.parametrize(
    ("told", "expected"),
    [
        # Docker
        pytest.param(v1(f"/docker/{C}"), Membership(C), id="docker-v1"),
        pytest.param(v1(f"/system.slice/docker-{C}.scope"), Membership(C), id="docker-v1-systemd"),
        pytest.param(f"0::/system.slice/docker-{C}.scope", Membership(C), id="docker-v2"),
        pytest.param(f"0::/docker/{C}", Membership(C), id="docker-v2-cgroupfs"),
        pytest.param(f"0::/docker/{'9' * 64}/docker/{C}", Membership(C), id="docker-in-docker"),
        # containerd
        pytest.param(
            f"0::/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod{SLICED}.slice/"
            f"cri-containerd-{C}.scope",
            Membership(C, UID),
            id="containerd-v2",
        ),
        pytest.param(
            v1(f"/kubepods/burstable/pod{UID}/{C}"), Membership(C, UID), id="containerd-v1"
        ),
        pytest.param(
            v1(f"/kubepods/pod{UID}/{C}"), Membership(C, UID), id="containerd-v1-guaranteed"
        ),
        pytest.param(
            v1(
                "/system.slice/containerd.service/"
                f"kubepods-besteffort-pod{SLICED}.slice:cri-containerd:{C}"
            ),
            Membership(C, UID),
            id="containerd-v1-mixed-drivers",
        ),
        pytest.param(
            f"0::/kubepods.slice/kubepods-pod{STATIC}.slice/cri-containerd-{C}.scope",
            Membership(C, STATIC),
            id="containerd-v2-static-pod",
        ),
        pytest.param(
            f"0::/kubelet.slice/kubelet-kubepods.slice/kubelet-kubepods-pod{SLICED}.slice/"
            f"cri-containerd-{C}.scope/init",
            Membership(C, UID),
            id="containerd-v2-kind-systemd-inside",
        ),
        pytest.param(f"0::/system.slice/nerdctl-{C}.scope", Membership(C), id="nerdctl-v2"),
        # CRI-O
        pytest.param(
            f"0::/kubepods.slice/kubepods-pod{SLICED}.slice/crio-{C}.scope/container",
            Membership(C, UID),
            id="crio-v2",
        ),
        pytest.param(
            v1(f"/kubepods/besteffort/pod{UID}/crio-{C}"), Membership(C, UID), id="crio-v1"
        ),
        pytest.param(
            f"0::/kubepods.slice/kubepods-pod{SLICED}.slice/crio-conmon-{C}.scope",
            Membership("", UID),
            id="crio-monitor-is-no-container",
        ),
        # Podman
        pytest.param(f"0::/machine.slice/libpod-{C}.scope", Membership(C), id="podman-v2"),
        pytest.param(
            f"0::/user.slice/user-1000.slice/user@1000.service/user.slice/libpod-{C}.scope/container",
            Membership(C),
            id="podman-v2-rootless",
        ),
        pytest.param(v1(f"/machine.slice/libpod-{C}.scope"), Membership(C), id="podman-v1"),
        pytest.param(v1(f"/libpod_parent/libpod-{C}"), Membership(C), id="podman-v1-cgroupfs"),
        pytest.param(
            f"0::/machine.slice/libpod-conmon-{C}.scope", Membership(), id="podman-monitor"
        ),
        # systemd
        pytest.param(
            "0::/user.slice/user-1000.slice/session-3.scope", Membership(), id="systemd-session"
        ),
        pytest.param("0::/system.slice/train.service", Membership(), id="systemd-service"),
        pytest.param(v1("/system.slice/train.service"), Membership(), id="systemd-service-v1"),
        pytest.param("0::/system.slice/run-u42.scope", Membership(), id="systemd-run"),
        pytest.param("0::/machine.slice/machine-x.scope", Membership(), id="systemd-nspawn"),
        # Slurm
        pytest.param(
            "0::/system.slice/slurmstepd.scope/job_4711/step_0/user/task_0",
            Membership(job_id="4711"),
            id="slurm-v2",
        ),
        pytest.param(
            "0::/system.slice/n1_slurmstepd.scope/job_4711/step_batch/user/task_special",
            Membership(job_id="4711"),
            id="slurm-v2-several-daemons",
        ),
        pytest.param("0::/system.slice/slurmstepd.scope/system", Membership(), id="slurm-itself"),
        pytest.param(
            v1("/slurm/uid_1000/job_4711/step_0/task_0"), Membership(job_id="4711"), id="slurm-v1"
        ),
        pytest.param(
            v1("/slurm_n1/uid_1000/job_4711/step_extern"),
            Membership(job_id="4711"),
            id="slurm-v1-several-daemons",
        ),
        pytest.param(
            "12:pids:/system.slice/slurmd.service\n5:devices:/slurm/uid_1000/job_4711/step_0\n",
            Membership(job_id="4711"),
            id="slurm-v1-one-hierarchy",
        ),
        pytest.param(
            f"0::/system.slice/slurmstepd.scope/job_7/step_0/user/task_0/libpod-{C}.scope",
            Membership(C, job_id="7"),
            id="podman-in-slurm",
        ),
        # Flux
        pytest.param(
            "0::/user.slice/user-500.slice/user@500.service/app.slice/imp-shell-0-f2ATmG8uR.service",
            Membership(job_id="f2ATmG8uR"),
            id="flux-v2",
        ),
        pytest.param(
            "0::/user.slice/user-500.slice/user@500.service/app.slice/shell-12-f2ATmG8uR.service",
            Membership(job_id="f2ATmG8uR"),
            id="flux-v2-one-user",
        ),
        pytest.param("0::/system.slice/flux.service", Membership(), id="flux-itself"),
        # PBS
        pytest.param(
            v1("/pbs_jobs.service/jobid/17.server"), Membership(job_id="17.server"), id="pbs-v1"
        ),
        pytest.param(
            "0::/pbs_jobs.service/jobs/17[3].server", Membership(job_id="17[3].server"), id="pbs-v2"
        ),
        # nothing to be seen
        pytest.param("", Membership(), id="empty"),
        pytest.param("0::/", Membership(), id="root"),
        pytest.param("nonsense\n::\n:\n0::", Membership(), id="nonsense"),
        pytest.param(f"0::/docker/{C}0", Membership(), id="a-digit-too-many"),
        pytest.param(f"0::/../../docker/{C}", Membership(C), id="from-another-namespace"),
    ],
)
def test_layouts(told: str, expected: Membership) -> None:
    """Each runtime's and scheduler's way to name a group, in both versions."""
    assert expected == membership(told)


@given(st.text())
def test_any_text_is_taken(told: str) -> None:
    """Whatever stands in the file: no exception, and never a container without its 64 digits."""
    found = membership(told)
    assert len(found.container_id) in (0, 64)


@pytest.mark.parametrize(
    ("told", "expected"),
    [
        ("PATH=/bin\0SLURM_JOB_ID=4711\0HOME=/\0", "4711"),
        ("SLURM_JOBID=12\0", "12"),
        ("FLUX_JOB_ID=ƒ2ATmG8uR\0", "ƒ2ATmG8uR"),
        ("PBS_JOBID=17.server\0", "17.server"),
        ("PBS_JOBID=17.server\0SLURM_JOB_ID=4711", "4711"),
        ("SLURM_JOB_ID=\0PBS_JOBID=1.s\0", "1.s"),
        ("MY_SLURM_JOB_ID=1\0SLURM_JOB_ID_X=2\0TEXT=a SLURM_JOB_ID=3\0", ""),
        ("", ""),
    ],
)
def test_environments(told: str, expected: str) -> None:
    """The known variables alone, whole names, the first that has a value."""
    assert expected == job_of_environment(told)
