"""The kernel's own files: what both libraries leave out or round, and the last resort.

Layout: Documentation/gpu/amdgpu in the kernel (sysfs files of the PCI device),
Documentation/hwmon, Documentation/PCI/pcieaer-howto, and
drivers/gpu/drm/amd/amdkfd/kfd_topology.c for `/sys/class/kfd`.
"""

from __future__ import annotations

import errno
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from exporter.sources.files import Files, absent_for, read_text
from exporter.sources.guard import text
from exporter.sources.owners import SHARED, Owners
from exporter.sources.session import POLL, SLOW, STATIC, DeviceKey, Memo
from exporter.values import NOT_SUPPORTED, Absent, Value

PCI_DEVICES = "/sys/bus/pci/devices"
AMDGPU_DRIVER = "/sys/bus/pci/drivers/amdgpu"
KFD = "/sys/class/kfd/kfd"
AMD_VENDOR = "0x1002"
ADDRESS = re.compile(r"[0-9a-f]{4,}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]")
_GPU_CLASSES = ("0x03", "0x12")  # display controllers and processing accelerators


def bound_addresses(files: Files) -> tuple[str, ...]:
    """The PCI addresses that the amdgpu driver is bound to, sorted; none without a driver."""
    try:
        names = files.list(AMDGPU_DRIVER)
    except OSError:
        return ()
    return tuple(name for name in names if ADDRESS.fullmatch(name))


def runtime_suspended(files: Files, address: str) -> bool:
    """Whether the device sleeps; reading this file does not wake it."""
    return read_text(files, f"{PCI_DEVICES}/{address}/power/runtime_status") == "suspended"


@dataclass(frozen=True, slots=True)
class KfdNode:
    """A compute node of the KFD topology: a GPU, or one partition of it.

    Attributes:
        gpu_id: the driver's id, as `/sys/class/kfd/kfd/proc` uses it.
        properties: the file `properties`, name to number.
        memory_bytes: the sum of its memory banks.
    """

    gpu_id: int
    properties: Mapping[str, int]
    memory_bytes: int


def _properties(text_of_file: str) -> dict[str, int]:
    found: dict[str, int] = {}
    for line in text_of_file.splitlines():
        name, _, number = line.partition(" ")
        if number.strip().isdigit():
            found[name] = int(number)
    return found


def kfd_nodes(files: Files) -> dict[str, tuple[KfdNode, ...]]:
    """PCI address to the KFD nodes behind it, in the order of the partitions."""
    base = f"{KFD}/topology/nodes"
    found: dict[str, list[KfdNode]] = {}
    try:
        numbers = sorted((name for name in files.list(base) if name.isdigit()), key=int)
    except OSError:
        return {}
    for number in numbers:
        gpu_id = read_text(files, f"{base}/{number}/gpu_id")
        described = read_text(files, f"{base}/{number}/properties")
        if isinstance(gpu_id, Absent) or isinstance(described, Absent):
            continue  # another cgroup's device: the kernel refuses, and it is not ours to count
        if not gpu_id.isdigit() or gpu_id == "0":
            continue  # a CPU
        properties = _properties(described)
        location = properties.get("location_id", 0)
        address = (
            f"{properties.get('domain', 0):04x}:{location >> 8 & 0xFF:02x}"
            f":{location >> 3 & 0x1F:02x}.0"
        )
        memory = 0
        try:
            banks = files.list(f"{base}/{number}/mem_banks")
        except OSError:
            banks = []
        for bank in banks:
            described = read_text(files, f"{base}/{number}/mem_banks/{bank}/properties")
            if not isinstance(described, Absent):
                memory += _properties(described).get("size_in_bytes", 0)
        found.setdefault(address, []).append(KfdNode(int(gpu_id), properties, memory))
    return {address: tuple(nodes) for address, nodes in found.items()}


def places(
    files: Files, addresses: Sequence[str], nodes: Mapping[str, Sequence[KfdNode]]
) -> tuple[dict[int, DeviceKey], dict[int, DeviceKey]]:
    """The device or partition behind each of KFD's ids, and behind each render node."""
    kfd: dict[int, DeviceKey] = {}
    minors: dict[int, DeviceKey] = {}
    for address in addresses:
        of_device = nodes.get(address, ())
        partitioned = len(of_device) > 1
        for number, node in enumerate(of_device):
            key = DeviceKey(address, str(number) if partitioned else None)
            kfd[node.gpu_id] = key
            minors[node.properties.get("drm_render_minor", -1)] = key
        try:
            names = files.list(f"{PCI_DEVICES}/{address}/drm")
        except OSError:
            continue
        for name in names:
            if (minor := name.removeprefix("renderD")).isdigit():
                minors.setdefault(int(minor), DeviceKey(address, SHARED if partitioned else None))
    return kfd, minors


def _resolve(files: Files, path: str) -> str:
    """The path with every symbolic link followed.

    Raises:
        OSError: a loop of links.
    """
    done = ""
    left = path.split("/")[1:]
    for _ in range(256):
        if not left:
            return done
        part = left.pop(0)
        if part == "..":
            done = done.rpartition("/")[0]
            continue
        try:
            link = files.link(f"{done}/{part}")
        except OSError:  # no link, as most parts
            done += f"/{part}"
            continue
        if link.startswith("/"):
            done = ""
        left = [piece for piece in link.split("/") if piece not in ("", ".")] + left
    raise OSError(errno.ELOOP, "too many links", path)


class SysfsGpu:
    """One device, or one partition of it, as the collectors read it from files.

    Attributes:
        address: the PCI address.
        partition: "0" … for a partition, "shared" for what belongs to none of them, else None.
        partitioned: whether the device is split into partitions.
        nodes: its KFD nodes, one per partition.
        owners: who holds VRAM, on this device and on all others of the node.
    """

    def __init__(
        self,
        files: Files,
        memo: Memo,
        address: str,
        partition: str | None,
        nodes: tuple[KfdNode, ...],
        owners: Owners,
    ) -> None:
        self.address = address
        self.partition = partition
        self.nodes = nodes
        self.owners = owners
        self.partitioned = len(nodes) > 1
        self._files = files
        self._memo = memo
        self._base = f"{PCI_DEVICES}/{address}/"

    @property
    def key(self) -> DeviceKey:
        """The device or partition, as `owners` knows it."""
        return DeviceKey(self.address, self.partition)

    @property
    def shared(self) -> bool:
        """Whether this is what belongs to none of the partitions."""
        return self.partition == SHARED

    def text(self, path: str, every: float = POLL) -> str | Absent:
        """A file of the PCI device, such as `mem_info_vram_used`, or why it can't be read."""
        full = self._base + path
        if every == POLL:
            return read_text(self._files, full)
        return self._memo.get(full, every, lambda: read_text(self._files, full))

    def names(self, path: str, every: float = SLOW) -> tuple[str, ...]:
        """The names in a directory of the PCI device; none where it does not exist."""
        return self._memo.get((self._base, path), every, lambda: self._list(self._base + path))

    def target(self, path: str) -> str | Absent:
        """The PCI device that a path of this one leads to, its links followed; read once."""

        def ask() -> str | Absent:
            try:
                name = _resolve(self._files, self._base + path).rsplit("/", 1)[-1]
            except OSError as error:
                return absent_for(error, path)
            if ADDRESS.fullmatch(name):
                return name
            return Absent(NOT_SUPPORTED, f"{path}: leads to no PCI device")

        return self._memo.get(("target", self._base, path), STATIC, ask)

    def hwmon(self, kind: str) -> Mapping[str, str]:
        """The hwmon channels of a kind (`temp`, `power`, `fan`): label to path without suffix.

        Found by their labels, never by number: temp1 is the edge on one GPU and missing on
        another. A channel without a label goes by its own name, `power1`.
        """
        return self._memo.get(("hwmon", self._base, kind), STATIC, lambda: self._channels(kind))

    def _channels(self, kind: str) -> dict[str, str]:
        found: dict[str, str] = {}
        for folder in self._list(self._base + "hwmon"):
            inside = self._list(f"{self._base}hwmon/{folder}")
            numbers = {m.group(1) for name in inside if (m := re.match(rf"{kind}(\d+)_", name))}
            for number in sorted(numbers, key=int):
                path = f"hwmon/{folder}/{kind}{number}"
                label = self.text(f"{path}_label")
                found[label if isinstance(label, str) else f"{kind}{number}"] = path
        return found

    def _list(self, path: str) -> tuple[str, ...]:
        try:
            return tuple(self._files.list(path))
        except OSError:
            return ()


class SysfsSession:
    """The kernel's files as a source; see `exporter.sources.session.Session`.

    Args:
        own: the exporter's own processes.
    """

    def __init__(self, files: Files, own: Collection[int] = ()) -> None:
        self._files = files
        self._memo = Memo()
        self._addresses = bound_addresses(files)
        self._nodes = kfd_nodes(files)
        self._generation = self._kfd_generation()
        self._views: dict[tuple[str, bool], tuple[SysfsGpu, ...]] = {}
        kfd, minors = places(files, self._addresses, self._nodes)
        self._owners = Owners(
            files,
            self._memo,
            kfd=kfd,
            minors=minors,
            addresses={a: len(self._nodes.get(a, ())) > 1 for a in self._addresses},
            own=own,
        )

    def _kfd_generation(self) -> str | Absent:
        return read_text(self._files, f"{KFD}/topology/generation_id")

    def node(self) -> Mapping[str, Value]:
        pci = drm = 0
        try:
            present = self._files.list(PCI_DEVICES)
        except OSError:
            present = []
        for address in present:
            base = f"{PCI_DEVICES}/{address}"
            if read_text(self._files, f"{base}/vendor") != AMD_VENDOR:
                continue
            kind = read_text(self._files, f"{base}/class")
            if isinstance(kind, Absent) or not kind.startswith(_GPU_CLASSES):
                continue
            pci += 1
            try:
                drm += any(name.startswith("renderD") for name in self._files.list(f"{base}/drm"))
            except OSError:
                continue  # not bound to a driver: it has no DRM node, and is not counted as one
        return {
            "devices_pci": pci,
            "devices_drm": drm,
            "devices_kfd": len(self._nodes),
            "driver_version": text(read_text(self._files, "/sys/module/amdgpu/version")),
            "rocm_version": text(read_text(self._files, "/opt/rocm/.info/version")),
            "kernel_version": text(read_text(self._files, "/proc/sys/kernel/osrelease")),
            "boot_id": text(read_text(self._files, "/proc/sys/kernel/random/boot_id")),
        }

    def begin(self, now: float) -> None:
        self._memo.now = now

    def changed(self) -> bool:
        return (
            bound_addresses(self._files) != self._addresses
            or self._kfd_generation() != self._generation
        )

    def devices(self) -> Sequence[tuple[str, int]]:
        return [(address, index) for index, address in enumerate(self._addresses)]

    def suspended(self, address: str) -> bool:
        return runtime_suspended(self._files, address)

    def views(self, address: str, *, per_partition: bool) -> Sequence[SysfsGpu]:
        key = (address, per_partition)
        if key not in self._views:
            nodes = self._nodes.get(address, ())
            names: list[str | None] = [None]
            if per_partition and len(nodes) > 1:
                names = [*(str(number) for number in range(len(nodes))), SHARED]
            self._views[key] = tuple(
                SysfsGpu(self._files, self._memo, address, name, nodes, self._owners)
                for name in names
            )
        return self._views[key]
