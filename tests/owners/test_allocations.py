"""Who a device was given to: the rules by which memory is an allocation's."""

from __future__ import annotations

import errno
from collections.abc import Mapping

import pytest

from exporter.collectors.allocations import COLLECTOR, Allocations, read_sysfs
from exporter.values import NOT_PERMITTED, NOT_SUPPORTED, Absent, FieldValue
from tests.core.nodes import reason
from tests.owners.node import Files, Watch, node

A, B = "n/p/a", "n/p/b"
INFO, VRAM = (metric.take for metric in COLLECTOR.metrics)


def key(container: str = "", job: str = "", user: str = "") -> tuple[str, ...]:
    """The labels of an allocation."""
    return ("n", "p", container, "", "") if container else ("", "", "", job, user)


@pytest.mark.parametrize(
    ("reading", "expected"),
    [
        pytest.param(
            Allocations(count=1, containers={A: 1}, processes=0), {key("a"): 0}, id="idle"
        ),
        pytest.param(
            Allocations(
                count=1, containers={A: 1}, processes=3, vram={"1": 5, "2": 7, "3": 9},
                in_pod={"1": 1, "2": 1},
            ),
            {key("a"): 12},
            id="a-pod-and-one-container",
        ),
        pytest.param(
            Allocations(
                count=2, containers={A: 1, B: 1}, processes=2, vram={"1": 5, "2": 7},
                in_pod={"1": 1, "2": 1}, container_of={"1": A, "2": B},
            ),
            {key("a"): 5, key("b"): 7},
            id="containers-that-are-known",
        ),
        pytest.param(
            Allocations(
                count=2, containers={A: 1, B: 1}, processes=2, vram={"1": 5, "2": 7},
                in_pod={"1": 1, "2": 1}, container_of={"1": A}, jobs={"9": "u"}, job_of={"2": "9"},
            ),
            {key(job="9", user="u"): 7},
            id="one-that-could-be-of-several",
        ),
        pytest.param(
            Allocations(
                count=1, containers={A: 1}, processes=1, vram={"1": 5}, in_pod={"1": 1},
                container_of={"1": "n/other/x"},
            ),
            {key("a"): 0},
            id="a-pod-that-was-given-nothing",
        ),
        pytest.param(
            Allocations(processes=2, vram={"1": 5, "2": 7}, jobs={"9": "", "8": ""},
                        job_of={"1": "9", "2": "9"}),
            {key(job="9"): 12, key(job="8"): 0},
            id="jobs",
        ),
        pytest.param(Allocations(count=1, containers={A: 1}), {}, id="processes-are-not-known"),
    ],
)  # fmt: skip
def test_whose_memory_it_is(reading: Allocations, expected: Mapping[tuple[str, ...], int]) -> None:
    """A process is a container's if that is known, or if it can be no other's."""
    assert expected == VRAM(reading)
    if expected:
        info = INFO(reading)
        assert isinstance(info, Mapping)
        assert {*expected} <= {*info}


def jobs(files: Files, minor: int = 128) -> dict[str, FieldValue]:
    """What the node's files tell of the only device."""
    return dict(read_sysfs(Watch(files).poll()[0]))


def v1(**lists: str | int) -> Files:
    """A node with control groups v1; each job is told the devices that it may open."""
    base = "/sys/fs/cgroup/devices"
    return node(
        elsewhere={
            f"{base}/{path.replace('__', '/')}/devices.list": told for path, told in lists.items()
        }
    )


def test_idle_jobs_by_lists_of_devices() -> None:
    """Control groups v1: a job that runs nothing is there, one of another device is not."""
    files = v1(
        slurm__uid_1000__job_7="c 1:3 rwm\nc 226:128 rwm\n",
        slurm_n1__uid_4242__job_8="c 226:0 rw\nc 226:128 rw\n",
        slurm__uid_1000__job_9="c 226:129 rw\n",
        slurm__uid_1000__job_10="a *:* rwm\n",
        docker__x="c 226:128 rwm\n",
    )
    fields = jobs(files)

    assert ({"7": "alice", "8": "4242"}, 2) == (fields["jobs"], fields["listed"])


def test_jobs_of_processes_beside_those_of_lists() -> None:
    """Both are told, each once."""
    files = v1(slurm__uid_1000__job_7="c 226:128 rwm\n")
    for pid, job in ((10, 7), (11, 8)):
        files.process(pid, 5, uid=1000, cgroup=f"4:devices:/slurm/uid_1000/job_{job}/step_0\n")
    fields = jobs(files)

    assert {"7": "alice", "8": "alice"} == fields["jobs"]
    assert {"10": "7", "11": "8"} == fields["job_of"]


def test_lists_that_may_not_be_read() -> None:
    """The reason names the file."""
    listed = jobs(v1(slurm__uid_1__job_7=errno.EACCES))["listed"]
    assert isinstance(listed, Absent)
    assert (NOT_PERMITTED, True) == (listed.reason, "devices.list" in listed.detail)


def test_control_groups_v2_have_no_lists() -> None:
    """It is said so, where Slurm is there; a node without Slurm has no jobs."""
    slurm = node(elsewhere={"/sys/fs/cgroup/system.slice/slurmstepd.scope/job_7/x": ""})
    other = node(elsewhere={"/sys/fs/cgroup/system.slice/sshd.service/x": ""})

    assert NOT_SUPPORTED == reason(jobs(slurm)["listed"])
    assert (0, 0) == (jobs(other)["listed"], jobs(node())["listed"])


def test_folders_that_may_not_be_listed() -> None:
    """As for control groups of another's."""
    files = v1(slurm__uid_1__job_7="c 226:128 rwm\n")
    files.refused = {"/sys/fs/cgroup/devices"}

    assert NOT_PERMITTED == reason(jobs(files)["listed"])


def test_nothing_shared() -> None:
    """What the partitions share is told only if somebody holds of it."""
    assert {} == read_sysfs(Watch(node(1, 1)).poll()[2])
