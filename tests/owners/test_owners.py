"""Processes that hold memory: counted once, told apart, and said to be what they are."""

from __future__ import annotations

import errno
import threading

import pytest

from exporter.collectors.processes import KEPT, Holder
from exporter.sources.aside import Aside
from exporter.sources.owners import RIGHTS, SHOWN, Kfd
from exporter.sources.sysfs import KFD
from exporter.values import NO_ANSWER, NOT_PERMITTED, NOT_SUPPORTED, Absent
from tests.core.nodes import ADDRESS, entries, node_files, reason
from tests.owners.node import GPU_ID, Files, Watch, info, node, samples, vram

KIB = 1 << 10
C = "0123456789abcdef" * 4
POD = f"0::/kubepods.slice/kubepods-pod{'1' * 32}.slice/cri-containerd-{C}.scope\n"


# ------------------------------------------------------------------------------ counting


def test_kfd_and_drm_count_once() -> None:
    """Of a process that both tell of, the larger counts; each client counts once."""
    files = node()
    files.process(10, 5000 * KIB)  # KFD alone
    files.process(11, 5000 * KIB, [("1", 4000), ("1", 4000)])  # KFD tells more
    files.process(12, 5000 * KIB, [("2", 4000), ("3", 3000), ("2", 4000)])  # DRM tells more
    files.process(13, None, [("4", 100), ("4", 100), ("5", 1)])  # DRM alone

    expected = {"12": 7000, "10": 5000, "11": 5000, "13": 101}
    assert {pid: n * KIB for pid, n in expected.items()} == Watch(files).reading().vram


def test_a_client_that_two_share_counts_once() -> None:
    """A descriptor that was handed on: it counts for the one that computes, else for the older."""
    files = node()
    files.process(10, None, [("1", 100)], started=900)
    files.process(11, 50 * KIB, [("1", 100)])
    files.process(20, None, [("2", 7)], started=800)
    files.process(12, None, [("2", 7)], started=700)

    assert {"11": 100 * KIB, "12": 7 * KIB} == Watch(files).reading().vram


def test_a_client_of_another_device_with_the_same_number() -> None:
    """Numbers of clients may be told apart by their devices only; foreign devices are left out."""
    files = node()
    files.process(10, None, [("1", 100)])
    files.process(11, None, [("1", 100)], address="0000:03:00.0", minor=129)
    files.process(12, None, [("9", 100)], address="", minor=129)

    assert {"10": 100 * KIB} == Watch(files).reading().vram


def test_resident_memory_is_what_counts() -> None:
    """Newer kernels tell what is resident; the older name is its alias."""
    files = node()
    files.process(10, None, [("1", 100)])
    files.files["/proc/10/fdinfo/7"] = (
        f"drm-client-id: 1\ndrm-pdev: {ADDRESS}\ndrm-total-vram: 9 MiB\ndrm-resident-vram: 2 MiB\n"
        "drm-memory-vram: 1 KiB\n"
    )

    assert {"10": 2048 * KIB} == Watch(files).reading().vram


@pytest.mark.parametrize(
    "told",
    ["", "nonsense", "drm-client-id: 1", "drm-client-id: 1\ndrm-memory-vram: x KiB",
     "drm-client-id: 1\ndrm-memory-vram: -5 KiB", "drm-client-id: 1\ndrm-memory-vram: 5 EiB",
     "drm-memory-vram: 5 KiB"],
)  # fmt: skip
def test_fdinfo_that_makes_no_sense(told: str) -> None:
    """Nobody owns anything by it."""
    files = node()
    files.process(10, None, [("1", 100)])
    files.files["/proc/10/fdinfo/7"] = told

    assert (0, {}) == (Watch(files).reading().count, Watch(files).reading().vram)


def test_what_is_no_owner() -> None:
    """Processes without memory, the exporter's daemon, its workers and what these started."""
    files = node()
    files.process(10, 0, [("1", 0)])
    for pid, parent in ((50, 1), (51, 50), (52, 50), (53, 52), (54, 1)):
        files.process(pid, 100, parent=parent)

    assert {"54": 100} == Watch(files, own=(51, 50)).reading().vram


def test_the_exporter_as_the_first_process_of_a_container() -> None:
    """Its parent's number is then 0 or 1, which all others have for an ancestor."""
    files = node()
    files.process(10, 100)

    assert {"10": 100} == Watch(files, own=(1, 0)).reading().vram


def test_partitions() -> None:
    """By KFD's number and by the render node; what no partition is known for is shared."""
    files = node(1 << 40, 1 << 40)
    for number, minor in ((1, 128), (2, 136)):
        path = f"{KFD}/topology/nodes/{number}/properties"
        files.files[path] = f"{files.files[path]}drm_render_minor {minor}\n"
    files.process(10, {GPU_ID: 5, GPU_ID + 1: 7})
    files.process(11, None, [("1", 3)], minor=136, address="")  # as the kernel shows partitions
    files.process(12, None, [("2", 4)], minor=130)  # a render node that KFD does not name
    watch = Watch(files)
    first, second, shared = (watch.reading(0, partition) for partition in range(3))

    assert {"10": 5} == first.vram
    assert {"11": 3 * KIB, "10": 7} == second.vram
    assert {"12": 4 * KIB} == shared.vram


def test_nothing_shared() -> None:
    """What the partitions share has no series where nobody holds of it."""
    assert {} == Watch(node(1, 1)).fields(partition=2)


def test_without_kfd() -> None:
    """A display card: DRM alone."""
    files = Files(*(vars(node_files({"drm/renderD128/dev": ""}))[n] for n in ("files", "links")))
    files.process(10, None, [("1", 3)])

    assert {"10": 3 * KIB} == Watch(files).reading().vram


# ------------------------------------------------------------------------------ time


def test_kfd_is_seen_at_once_and_drm_on_the_slow_clock() -> None:
    """In between, what DRM knew beyond KFD is added to what KFD says now."""
    files = node()
    files.process(10, 100 * KIB, [("1", 130)])
    watch = Watch(files)
    assert {"10": 130 * KIB} == watch.reading().vram
    files.process(10, 200 * KIB, [("1", 500)])
    assert {"10": 230 * KIB} == watch.reading().vram
    assert {"10": 500 * KIB} == watch.reading(31).vram


def test_a_reused_pid_is_another_process() -> None:
    """Another start: another name, another job, and nothing of what DRM knew of the one before."""
    files = node()
    files.process(10, 100, [("1", 1)], name="old", cgroup=POD, environ="SLURM_JOB_ID=1\0")
    watch = Watch(files)
    before = watch.reading()
    files.end(10)
    files.process(10, 100, name="new", started=2000)
    after = watch.reading()

    assert (Holder(10, 10.0, 1024),) == before.holders()
    assert (Holder(10, 20.0, 100),) == after.holders()
    assert {"10": {"command": "old", "user": "root", "container_id": C, "job_id": "1"}} == info(
        before
    )
    assert {"10": {"command": "new", "user": "root"}} == info(after)


def test_a_process_that_ends_is_gone_at_once() -> None:
    """Also one that only DRM knew, before the next look."""
    files = node()
    files.process(10, 100)
    files.process(11, None, [("1", 1)])
    watch = Watch(files)
    assert 2 == watch.reading().count
    files.end(10)
    files.end(11)
    assert (0, {}) == (watch.reading(1).count, watch.reading(1).vram)


def test_who_a_process_is_is_read_once() -> None:
    """After the first poll only its memory and its state are read."""
    files = node()
    files.process(10, 100, environ="SLURM_JOB_ID=1\0")
    watch = Watch(files)
    watch.reading()
    files.touched.clear()
    watch.reading()

    assert ["/proc/10/stat"] == [path for path in files.touched if path.startswith("/proc/")]


def test_one_listing_for_all_partitions() -> None:
    """However many views there are, KFD's processes are listed once, each file read once."""
    files = node(*[1 << 40] * 8)
    files.process(10, {GPU_ID + n: n for n in range(8)})
    watch = Watch(files)
    for number in range(9):
        watch.fields(0, number)
    touched = [path for path in files.touched if path.startswith(f"{KFD}/proc")]

    assert 1 == touched.count(f"{KFD}/proc")
    assert 8 == len([path for path in touched if "vram_" in path])


def test_files_without_memory_are_read_in_turn() -> None:
    """64 processes on 64 partitions: what holds memory at each poll, what does not by turns."""
    files = node(1 << 40)
    ids = range(GPU_ID, GPU_ID + 64)
    for pid in range(100, 164):
        files.process(pid, {i: 5 * (i - GPU_ID == pid - 100) for i in ids}, alive=False)
    kfd = Kfd(files, ids)
    kfd.read()
    files.touched.clear()
    kfd.read()
    assert 64 + 512 == len([path for path in files.touched if "vram_" in path])

    files.process(163, {GPU_ID: 9}, alive=False)
    polls = next(n for n in range(1, 20) if kfd.read()[163][GPU_ID] == 9)
    assert polls <= 8


# ------------------------------------------------------------------------------ states


def test_states() -> None:
    """A zombie, one that only KFD still knows, and one that runs."""
    files = node()
    files.process(10, 100)
    files.process(11, 30, state="Z", cgroup=POD)
    files.process(12, 4, alive=False)
    found = Watch(files).reading()

    assert {"10": "running", "11": "zombie", "12": "gone"} == found.state
    assert (3, 34) == (found.count, found.ended)
    assert (Holder(10, 10.0, 100), Holder(11, 10.0, 30), Holder(12, None, 4)) == found.holders()
    shown = {name: value for name, labels, value in samples(found) if "pid" not in labels}
    assert (3.0, 34.0) == (shown["amdgpu_processes"], shown["amdgpu_vram_zombie_bytes"])


def test_hidden_processes() -> None:
    """Where /proc is mounted with hidepid, a missing process says nothing."""
    files = node()
    del files.files["/proc/1/stat"]
    files.process(10, 100, alive=False)
    found = Watch(files).reading()

    assert ({"10": "hidden"}, 0) == (found.state, found.ended)


def test_the_exporter_in_a_pid_namespace_of_its_own() -> None:
    """KFD's numbers are the host's: /proc, which has others, is not asked who they are."""
    files = node()
    files.links["/proc/self/ns/pid"] = "pid:[4026532000]"
    files.process(10, 100, [("1", 500)], name="somebody else")
    fields = Watch(files).fields()

    assert {"10": 100} == fields["vram"]
    assert {"10": "other_namespace"} == fields["state"]
    assert "command" not in fields
    assert NOT_SUPPORTED == reason(fields["clients"])
    assert "hostPID" in str(fields["clients"])


def test_a_container_that_has_the_hosts_processes() -> None:
    """Its second process is the kernel's thread, or the namespace is the first one."""
    for path, link in (("/proc/2/comm", "pid:[4026532000]"), ("/x", "pid:[4026531836]")):
        files = node(elsewhere={path: "kthreadd\n"})
        files.links["/proc/self/ns/pid"] = link
        files.process(10, 100)
        assert {"10": "running"} == Watch(files).reading().state


# ------------------------------------------------------------------------------ identity


def test_who_it_is() -> None:
    """The short name, the user by name or number, container, pod and job."""
    files = node(elsewhere={f"/var/log/containers/trainer-0_research_worker-{C}.log": "", "/x": ""})
    files.process(10, 100, name="python3", uid=1000, cgroup=POD)
    files.process(11, 100, uid=4242, environ="SECRET=1\0PBS_JOBID=17.server\0")
    files.process(12, 100, cgroup="0::/system.slice/slurmstepd.scope/job_7/step_0\n")

    assert {
        "10": {
            "command": "python3",
            "user": "alice",
            "container_id": C,
            "pod": "trainer-0",
            "namespace": "research",
            "container": "worker",
        },
        "11": {"command": "python3", "user": "4242", "job_id": "17.server"},
        "12": {"command": "python3", "user": "root", "job_id": "7"},
    } == info(Watch(files).reading())


def test_one_info_per_process() -> None:
    """A process on two devices has one info and two amounts."""
    files = node()
    files.process(10, 100)
    found = Watch(files).reading()

    assert ["10"] == list(info(found, found))
    assert [("10", 100.0), ("10", 100.0)] == vram(found, found)


def test_arguments_are_never_read() -> None:
    """Nor the name of the program's file, nor its working directory."""
    files = node()
    files.process(10, 100)
    files.files |= {"/proc/10/cmdline": "python3\0--password=x\0", "/proc/10/exe": "/home/x"}
    Watch(files).reading()

    assert [] == [path for path in files.touched if path.endswith(("cmdline", "exe", "cwd"))]


HOSTILE = [
    'a"b\\c\nd',
    "x" * 4096,
    "\ufffd\ufffd\udcff".encode("utf-8", "replace").decode(),
    ") Z 1 2 (",
    "# HELP amdgpu_up x\namdgpu_up 1",
    "/proc/4242",
    "//proc/proc/1",
    "\x00\x1b[31m\u202e",
    "{pid}=%s",
]


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_names(name: str) -> None:
    """Newlines, quotes, 4 KiB, brackets, no UTF-8: valid exposition, short, no process's folder."""
    files = node()
    files.process(10, 100, name=name, environ=f"SLURM_JOB_ID={name}\0", uid=1000)
    files.files["/etc/passwd"] = f"{name.replace(':', '')}:x:1000:1000::/:\n".replace("\n\n", "\n")
    found = Watch(files).reading()
    labels = info(found)["10"]

    assert [("10", 100.0)] == vram(found)
    assert {"10": "running"} == found.state
    assert max(map(len, labels.values()), default=0) <= 128
    assert [] == [value for value in labels.values() if "/proc/" in value or "\n" in value]


def test_bytes_that_are_no_text() -> None:
    """As the kernel's files are read: what is no UTF-8 is replaced."""
    files = node()
    files.process(10, 100, name=b"\xff\xfe\x80".decode("utf-8", "replace"))

    assert {"10": {"command": "\ufffd\ufffd\ufffd", "user": "root"}} == info(Watch(files).reading())


# ------------------------------------------------------------------------------ rights


def test_other_users_descriptors_and_environments() -> None:
    """What may not be seen is absent, and the reason names the rights; KFD tells all the same."""
    files = node()
    files.process(10, 100, [("1", 500)])
    files.process(11, 70, [("2", 1)], cgroup="0::/system.slice/slurmstepd.scope/job_7/step_0\n")
    files.refused = {"/proc/10/fd", "/proc/10/environ"}
    fields = Watch(files).fields()

    assert {"10": 100, "11": 1024} == fields["vram"]
    assert Absent(NOT_PERMITTED, f"/proc/PID/fd of other users: {RIGHTS}") == fields["clients"]
    assert {
        "10": Absent(NOT_PERMITTED, f"/proc/PID/environ of other users: {RIGHTS}"),
        "11": "7",
    } == fields["job_id"]


def test_links_that_may_not_be_followed() -> None:
    """As for the first process in a container without CAP_SYS_PTRACE."""
    files = node()
    files.process(10, 100, [("1", 500)])
    files.refused = {"/proc/10/fd/"}

    assert NOT_PERMITTED == reason(Watch(files).fields()["clients"])


def test_accounts_of_kfd_that_may_not_be_read() -> None:
    """The process is not counted, and the sum of its device is not known."""
    files = node(1 << 40, 1 << 40)
    files.process(10, {GPU_ID: 5, GPU_ID + 1: 6})
    files.files[f"{KFD}/proc/10/vram_{GPU_ID}"] = errno.EACCES
    watch = Watch(files)
    first, second, _ = watch.poll()

    assert NOT_PERMITTED == reason(first.owners.held(GPU_ID))
    assert 6 == second.owners.held(GPU_ID + 1)
    assert {} == watch.reading(0, 0).vram


# ------------------------------------------------------------------------------ what hangs


def test_an_environment_that_hangs() -> None:
    """The poll goes on without it, and says so; later it is there."""
    files = node()
    files.process(10, 100, environ="SLURM_JOB_ID=1\0")
    free = threading.Event()
    files.before = lambda path: (free.wait(20), None)[1] if path.endswith("environ") else None
    watch = Watch(files)
    fields = watch.fields()
    free.set()

    assert {"10": 100} == fields["vram"]
    assert NO_ANSWER == reason(entries(fields["job_id"])["10"])
    for _ in range(100):
        if "job_id" in (fields := watch.fields(0.01)) and {"10": "1"} == fields["job_id"]:
            return
        threading.Event().wait(0.05)
    pytest.fail("it never came")


def test_descriptors_that_hang() -> None:
    """The same for a driver that does not let go of its lock."""
    files = node()
    files.process(10, 100, [("1", 500)])
    free = threading.Event()
    files.before = lambda path: (free.wait(20), None)[1] if "fdinfo" in path else None
    fields = Watch(files).fields()
    free.set()

    assert {"10": 100} == fields["vram"]
    assert NO_ANSWER == reason(fields["clients"])


def test_work_that_fails() -> None:
    """Whoever takes the answer gets the error; then new work can be begun."""
    aside: Aside[float] = Aside(patience=10)
    aside.start(lambda: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        aside.take()
    aside.start(lambda: 1.0)
    assert (1.0, None, False) == (aside.take(), aside.take(), aside.busy)


# ------------------------------------------------------------------------------ budget


def test_sixteen_are_named() -> None:
    """The others are summed under "other", also beyond what a reading holds one by one."""
    files = node()
    for pid in range(100, 200):
        files.process(pid, 1000 + pid)
    found = Watch(files).reading()
    shown = dict(vram(found))
    held = [1000 + pid for pid in range(100, 200)]

    assert [*map(str, range(199, 199 - SHOWN, -1)), "other"] == list(shown)
    assert float(sum(held[:-SHOWN])) == shown["other"]
    assert (100, KEPT) == (found.count, len(found.holders()))
    assert SHOWN == len(info(found))


def test_sixteen_of_a_device_with_partitions() -> None:
    """Not of each partition: those that hold most of the whole device."""
    files = node(*[1 << 40] * 4)
    for pid in range(100, 180):
        files.process(pid, {GPU_ID + pid % 4: pid})
    watch = Watch(files)
    named = [pid for part in range(4) for pid, _ in vram(watch.reading(0, part))]

    assert SHOWN == len([pid for pid in named if pid != "other"])
    assert 4 == named.count("other")
