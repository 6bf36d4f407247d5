"""The kernel's files: reasons for errors, what is remembered, and what belongs to a device."""

import errno
from pathlib import Path

import pytest

from exporter.sources.files import KernelFiles, read_text
from exporter.sources.session import ASK_AGAIN, POLL, SLOW, STATIC, Memo
from exporter.sources.sysfs import KFD, PCI_DEVICES, SysfsSession, bound_addresses, kfd_nodes
from exporter.values import BUSY, ERROR, NOT_PERMITTED, NOT_SUPPORTED, Absent

from .nodes import ADDRESS, OTHER, MemoryFiles, kfd_files, node_files, reason, sysfs_gpu

DEVICE = f"{PCI_DEVICES}/{ADDRESS}"


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (errno.ENOENT, NOT_SUPPORTED),
        (errno.ENOTDIR, NOT_SUPPORTED),
        (errno.ENODATA, NOT_SUPPORTED),
        (errno.EOPNOTSUPP, NOT_SUPPORTED),
        (errno.EINVAL, NOT_SUPPORTED),
        (errno.EACCES, NOT_PERMITTED),
        (errno.EPERM, NOT_PERMITTED),
        (errno.EBUSY, BUSY),
        (errno.EAGAIN, BUSY),
        (errno.EIO, ERROR),
        (errno.ELOOP, ERROR),
    ],
)
def test_errors_become_reasons(error: int, expected: str) -> None:
    """Each error of the kernel is an absence that names the file."""
    absent = read_text(MemoryFiles({"/sys/x": error}), "/sys/x")

    assert isinstance(absent, Absent)
    assert expected == absent.reason
    assert absent.detail.startswith("/sys/x: ")


def test_real_files(tmp_path: Path) -> None:
    """The real thing: text, names in order, the target of a link, and bytes that are no text."""
    files = KernelFiles()
    (tmp_path / "b").write_bytes(b" 7\xff\n")
    (tmp_path / "a").symlink_to("b")

    assert "7�" == read_text(files, f"{tmp_path}/b")
    assert ["a", "b"] == files.list(f"{tmp_path}")
    assert "b" == files.link(f"{tmp_path}/a")
    assert NOT_SUPPORTED == reason(read_text(files, f"{tmp_path}/none"))
    assert ERROR == reason(read_text(files, f"{tmp_path}"))


def memo_asked(every: float, answer: object, moments: list[float]) -> list[float]:
    """At which of these moments the memo asks."""
    memo = Memo()
    asked: list[float] = []

    def ask() -> object:
        asked.append(memo.now)
        return answer

    for memo.now in moments:
        memo.get("key", every, ask)
    return asked


def test_static_is_asked_once() -> None:
    """A fact that is there never changes."""
    assert [0.0] == memo_asked(STATIC, "gfx942", [0.0, 5.0, 1e6, 1e12])


def test_absent_facts_are_asked_again() -> None:
    """A fact that was absent is asked for again, but not at every poll."""
    moments = [0.0, 5.0, ASK_AGAIN, ASK_AGAIN + 5, 2 * ASK_AGAIN + 10]

    assert [0.0, ASK_AGAIN + 5] == memo_asked(STATIC, Absent(ERROR), moments)[:2]
    assert 3 == len(memo_asked(STATIC, Absent(ERROR), moments))


def test_slow_facts() -> None:
    """What changes seldom is asked for every 30 s, absent or not."""
    moments = [float(second) for second in range(0, 100, 5)]

    assert [0.0, 35.0, 70.0] == memo_asked(SLOW, "0", moments)
    assert [0.0, 35.0, 70.0] == memo_asked(SLOW, Absent(ERROR), moments)


def test_poll_facts_are_shared_within_a_poll() -> None:
    """Within a poll one answer serves all; the next poll asks anew."""
    assert [0.0, 5.0] == memo_asked(POLL, "1", [0.0, 0.0, 5.0, 5.0])


def test_bound_addresses() -> None:
    """The driver's folder has other files too; without a driver there is no device."""
    files = node_files(addresses=(OTHER, ADDRESS))
    files.files["/sys/bus/pci/drivers/amdgpu/bind"] = ""

    assert (ADDRESS, OTHER) == bound_addresses(files)
    assert () == bound_addresses(MemoryFiles())


def test_hwmon_by_label() -> None:
    """Channels are found by label, whatever their numbers; without one they go by their name."""
    gpu = sysfs_gpu(
        {
            "hwmon/hwmon7/temp2_label": "junction\n",
            "hwmon/hwmon7/temp2_input": "43000\n",
            "hwmon/hwmon7/temp3_label": "mem\n",
            "hwmon/hwmon7/temp3_input": "37000\n",
            "hwmon/hwmon7/power1_cap": "750000000\n",
            "hwmon/hwmon7/name": "amdgpu\n",
        }
    )

    assert {"junction": "hwmon/hwmon7/temp2", "mem": "hwmon/hwmon7/temp3"} == gpu.hwmon("temp")
    assert {"power1": "hwmon/hwmon7/power1"} == gpu.hwmon("power")
    assert {} == gpu.hwmon("fan")


def test_kfd_nodes() -> None:
    """Nodes belong to a device by their location; processors and foreign cgroups' are left out."""
    files = MemoryFiles(kfd_files(10, 20))
    files.files[f"{KFD}/topology/nodes/7/gpu_id"] = errno.EPERM
    files.files[f"{KFD}/topology/nodes/7/properties"] = errno.EPERM
    files.files[f"{KFD}/topology/nodes/8/gpu_id"] = "77"
    files.files[f"{KFD}/topology/nodes/8/properties"] = "location_id 6400\nname \ndomain x\n"
    nodes = kfd_nodes(files)

    assert [(1001, 10), (1002, 20)] == [(n.gpu_id, n.memory_bytes) for n in nodes[ADDRESS]]
    assert [(77, 0)] == [(n.gpu_id, n.memory_bytes) for n in nodes[OTHER]]
    assert {ADDRESS, OTHER} == set(nodes)
    assert {} == kfd_nodes(MemoryFiles())


def test_partitions_come_from_kfd() -> None:
    """A device with several KFD nodes has a view per partition, and one of what they share."""
    session = SysfsSession(node_files(elsewhere=kfd_files(10, 20)))

    assert ["0", "1", "shared"] == [
        view.partition for view in session.views(ADDRESS, per_partition=True)
    ]
    assert [None] == [view.partition for view in session.views(ADDRESS, per_partition=False)]
    assert session.views(ADDRESS, per_partition=False)[0].partitioned


def test_a_whole_device_has_one_view() -> None:
    """Not partitioned, or without KFD, it is the same in both cases."""
    for elsewhere in ({}, kfd_files(10)):
        session = SysfsSession(node_files(elsewhere=elsewhere))
        for per_partition in (True, False):
            views = session.views(ADDRESS, per_partition=per_partition)
            assert [(None, False)] == [(view.partition, view.partitioned) for view in views]


def test_links_are_followed() -> None:
    """Relative and absolute links, and a device that is a link itself."""
    hive = "/sys/devices/pci/05/xgmi_hive_info"
    gpu = sysfs_gpu(
        links={
            DEVICE: "../../../devices/pci/05",
            f"{hive}/node2": "../../19",
            "/sys/devices/pci/19": f"./{OTHER}",
            f"{hive}/node3": f"/sys/devices/{ADDRESS}",
            f"{hive}/loop": "loop",
        }
    )

    assert OTHER == gpu.target("xgmi_hive_info/node2")
    assert ADDRESS == gpu.target("xgmi_hive_info/node3")
    assert ERROR == reason(gpu.target("xgmi_hive_info/loop"))


def test_a_link_to_no_device() -> None:
    """Where a link is missing, or leads elsewhere, there is no peer rather than a wrong one."""
    gpu = sysfs_gpu(links={f"{DEVICE}/xgmi_hive_info/node2": "/sys/somewhere"})

    assert NOT_SUPPORTED == reason(gpu.target("xgmi_hive_info/node2"))
    assert NOT_SUPPORTED == reason(gpu.target("xgmi_hive_info/node9"))


def test_suspended_without_touching_it() -> None:
    """Whether a device sleeps is read from the one file that does not wake it."""
    files = node_files({"power/runtime_status": "suspended\n"})
    session = SysfsSession(files)
    files.touched.clear()

    assert session.suspended(ADDRESS)
    assert [f"{DEVICE}/power/runtime_status"] == files.touched

    files.files[f"{DEVICE}/power/runtime_status"] = "active\n"

    assert not session.suspended(ADDRESS)
    assert not SysfsSession(node_files()).suspended(ADDRESS)


def test_changes_are_noticed() -> None:
    """A device that comes or goes, and a new KFD topology, mean that the session is out of date."""
    files = node_files(elsewhere=kfd_files(10))
    session = SysfsSession(files)

    assert not session.changed()

    files.files[f"{KFD}/topology/generation_id"] = "3"

    assert session.changed()

    session = SysfsSession(files)
    files.links["/sys/bus/pci/drivers/amdgpu/" + OTHER] = ""

    assert session.changed()


def test_views_of_the_node() -> None:
    """AMD's GPUs are counted on the bus, with a driver, and with compute; versions are texts."""
    files = node_files(
        {"vendor": "0x1002\n", "class": "0x120000\n", "drm/renderD128/dev": "226:128"},
        elsewhere={
            **kfd_files(10),
            f"{PCI_DEVICES}/{OTHER}/vendor": "0x1002\n",
            f"{PCI_DEVICES}/{OTHER}/class": "0x038000\n",
            f"{PCI_DEVICES}/0000:01:00.0/vendor": "0x1002\n",
            f"{PCI_DEVICES}/0000:01:00.0/class": "0x060400\n",
            f"{PCI_DEVICES}/0000:02:00.0/vendor": "0x10de\n",
            f"{PCI_DEVICES}/0000:03:00.0/vendor": "0x1002\n",
            "/proc/sys/kernel/random/boot_id": "b1\n",
            "/proc/sys/kernel/osrelease": "6.8.0\n",
        },
    )
    node = SysfsSession(files).node()

    assert {"devices_pci": 2, "devices_drm": 1, "devices_kfd": 1} == {
        name: value for name, value in node.items() if name.startswith("devices_")
    }
    assert "b1" == node["boot_id"]
    assert "6.8.0" == node["kernel_version"]
    assert NOT_SUPPORTED == reason(node["driver_version"])
    assert 0 == SysfsSession(MemoryFiles()).node()["devices_pci"]
