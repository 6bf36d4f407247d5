"""Write the kernel's view of a GPU node as a plain folder, and change it while it is in use.

``Node.create(folder, "MI300X")`` writes ``sys`` and ``dev`` below the folder.  Every number in it
is either a fact of the :class:`Model`, a value of :attr:`Node.state`, or made from the GPU's index
by a rule in this file; each GPU has other values than its neighbours, so that a mix-up shows.
Nothing depends on a clock: time passes by :meth:`Node.advance` only.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import struct
import tempfile
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from tests.kernel import metrics as blob
from tests.kernel.metrics import Value

__all__ = ["MODELS", "Gpu", "MetricsFault", "Model", "Node", "Partition", "scratch"]

GIB = 1 << 30
MIB = 1 << 20
DRIVER_VERSION = "6.10.5"
ENERGY_UNITS_PER_JOULE = 1 << 16
ACCUMULATIONS_PER_SECOND = 1000
"""How often the simulated firmware samples: the pace of ``accumulation_counter``."""
VRAM_USED_AT_REST = 300 * MIB
GTT_TOTAL = 128 * GIB

Other = Literal["intel", "aspeed"]
MetricsFault = Literal[
    "missing", "empty", "garbage", "truncated", "zero", "unknown_revision", "all_ones"
]


# ------------------------------------------------------------------------------------ models


@dataclass(frozen=True, slots=True)
class Model:
    """What is common to all GPUs of a model."""

    name: str
    market_name: str
    codename: str
    device_id: int
    subsystem_id: int
    revision: int
    sku: str
    gfx_version: int
    """``gfx_target_version``: 90402 is gfx942."""
    compute_units: int
    xccs: int
    """Compute dies that work as one device when the GPU is not partitioned."""
    vram_bytes: int
    vram_vendor: str
    vram_bits: int
    metrics: tuple[int, int]
    power_cap_watts: int
    idle_watts: int
    pcie_gts: int
    """PCIe transfer rate: 16 is generation 4, 32 is generation 5."""
    xgmi_gbps: int
    """Rate of one xGMI lane; a link has 16 lanes."""
    xgmi_links: int
    sclk_mhz: tuple[int, ...]
    mclk_mhz: tuple[int, ...]
    buses: tuple[int, ...]
    """PCI bus numbers of the GPUs, in ascending order."""
    edge_sensor: bool = False
    hbm_sensors: int = 0
    power_sensor: Literal["average", "input"] = "input"
    voltage_sensor: bool = False
    memory_bandwidth_gbs: int = 0
    dies_per_package: int = 1
    xcp_devices: int = 1
    """Partitions that the driver keeps DRM nodes for, in use or not."""
    xgmi_counters: int = 0
    """Data-fabric counters of the perf PMU."""
    junction_limits: tuple[int, int] = (100, 105)
    """Critical and emergency temperature, degrees Celsius."""
    memory_limits: tuple[int, int] = (94, 99)
    ras_aca: bool = False
    """RAS counters have deferred errors and ``aca_*`` files."""


_MI3XX_BUSES = (0x05, 0x26, 0x46, 0x65, 0x85, 0xA6, 0xC6, 0xE5)
_MI1XX_BUSES = (0x03, 0x26, 0x43, 0x63, 0x83, 0xA3, 0xC3, 0xE3)

MODELS: Mapping[str, Model] = {
    model.name: model
    for model in (
        Model(
            name="MI100", market_name="Instinct MI100", codename="arcturus",
            device_id=0x738C, subsystem_id=0x0C34, revision=0x01, sku="D3430500",
            gfx_version=90008, compute_units=120, xccs=1,
            vram_bytes=32 * GIB - 16 * MIB, vram_vendor="samsung", vram_bits=4096,
            metrics=(1, 3), power_cap_watts=290, idle_watts=38, pcie_gts=16,
            xgmi_gbps=23, xgmi_links=3,
            sclk_mhz=(300, 700, 1502), mclk_mhz=(167, 500, 1000, 1200),
            buses=_MI1XX_BUSES, edge_sensor=True, hbm_sensors=4, power_sensor="average",
            voltage_sensor=True, xgmi_counters=6,
        ),
        Model(
            name="MI210", market_name="Instinct MI210", codename="aldebaran",
            device_id=0x740F, subsystem_id=0x0C34, revision=0x02, sku="D67301V",
            gfx_version=90010, compute_units=104, xccs=1,
            vram_bytes=64 * GIB - 16 * MIB, vram_vendor="samsung", vram_bits=4096,
            metrics=(1, 3), power_cap_watts=300, idle_watts=42, pcie_gts=16,
            xgmi_gbps=25, xgmi_links=3,
            sclk_mhz=(500, 800, 1700), mclk_mhz=(400, 700, 1200, 1600),
            buses=_MI1XX_BUSES, edge_sensor=True, hbm_sensors=4, power_sensor="average",
            voltage_sensor=True,
        ),
        Model(
            name="MI250X", market_name="Instinct MI250X", codename="aldebaran",
            device_id=0x7408, subsystem_id=0x0B0C, revision=0x01, sku="D65209",
            gfx_version=90010, compute_units=110, xccs=1,
            vram_bytes=64 * GIB - 16 * MIB, vram_vendor="samsung", vram_bits=4096,
            metrics=(1, 3), power_cap_watts=560, idle_watts=90, pcie_gts=16,
            xgmi_gbps=25, xgmi_links=4,
            sclk_mhz=(500, 800, 1700), mclk_mhz=(400, 700, 1200, 1600),
            buses=(0xC1, 0xC6, 0xC9, 0xCE, 0xD1, 0xD6, 0xD9, 0xDE), edge_sensor=True,
            hbm_sensors=4, power_sensor="average", voltage_sensor=True, dies_per_package=2,
        ),
        Model(
            name="MI300X", market_name="Instinct MI300X", codename="ip discovery",
            device_id=0x74A1, subsystem_id=0x74A1, revision=0x00, sku="M3000100",
            gfx_version=90402, compute_units=304, xccs=8,
            vram_bytes=196592 * MIB, vram_vendor="hynix", vram_bits=8192,
            metrics=(1, 7), power_cap_watts=750, idle_watts=140, pcie_gts=32,
            xgmi_gbps=32, xgmi_links=7,
            sclk_mhz=(132, 1285, 2100), mclk_mhz=(900, 1100, 1300),
            buses=_MI3XX_BUSES, memory_bandwidth_gbs=5325, xcp_devices=8, ras_aca=True,
        ),
        Model(
            name="MI325X", market_name="Instinct MI325X", codename="ip discovery",
            device_id=0x74A5, subsystem_id=0x74A5, revision=0x02, sku="M3250100",
            gfx_version=90402, compute_units=304, xccs=8,
            vram_bytes=262128 * MIB, vram_vendor="hynix", vram_bits=8192,
            metrics=(1, 7), power_cap_watts=1000, idle_watts=150, pcie_gts=32,
            xgmi_gbps=32, xgmi_links=7,
            sclk_mhz=(132, 1285, 2100), mclk_mhz=(900, 1200, 1400, 1500),
            buses=_MI3XX_BUSES, memory_bandwidth_gbs=6144, xcp_devices=8, ras_aca=True,
        ),
        Model(
            name="MI355X", market_name="Instinct MI355X", codename="ip discovery",
            device_id=0x75A3, subsystem_id=0x75A3, revision=0x00, sku="M3550100",
            gfx_version=90500, compute_units=256, xccs=8,
            vram_bytes=294896 * MIB, vram_vendor="micron", vram_bits=8192,
            metrics=(1, 8), power_cap_watts=1400, idle_watts=250, pcie_gts=32,
            xgmi_gbps=38, xgmi_links=7,
            sclk_mhz=(100, 1285, 2400), mclk_mhz=(900, 1300, 1700, 2000),
            buses=_MI3XX_BUSES, memory_bandwidth_gbs=8000, xcp_devices=8, ras_aca=True,
        ),
    )
}  # fmt: skip
"""The models by name.  Identities and limits as far as they are published; see README.md."""

_FIRMWARE = {
    "asd": 0x210000E5, "ce": 0, "dmcu": 0, "mc": 0, "me": 0, "mec": 0xA9, "mec2": 0xA9, "pfp": 0,
    "rlc": 0x41, "rlc_srlc": 0, "rlc_srlg": 0, "rlc_srls": 0, "sdma": 0x17, "sdma2": 0x17,
    "smc": 0x00557300, "sos": 0x0036763F, "ta_ras": 0x1B00013C, "ta_xgmi": 0x2000000F, "uvd": 0,
    "vce": 0, "vcn": 0x09118013, "imu": 0, "mes": 0, "mes_kiq": 0,
}  # fmt: skip
# What the driver answers to AMDGPU_INFO_FW_VERSION, by firmware type
_FIRMWARE_QUERY = {
    0x1: 0, 0x2: 0, 0x3: 0, 0x4: 0, 0x5: 0, 0x6: 0, 0x7: 0x41, 0x8: 0xA9, 0xA: 0x00557300,
    0xB: 0x17, 0xC: 0x0036763F, 0xD: 0x210000E5, 0xE: 0x09118013, 0x12: 0, 0x13: 0x1B00013C,
    0x14: 0,
}  # fmt: skip
_RAS_BLOCKS = (
    "umc", "sdma", "gfx", "mmhub", "pcie_bif", "hdp", "xgmi_wafl", "athub", "df", "smn", "sem",
    "mp0", "mp1", "fuse", "mca", "vcn", "jpeg", "ih", "mpio",
)  # fmt: skip
_AER_CORRECTABLE = (
    "RxErr", "BadTLP", "BadDLLP", "Rollover", "Timeout", "NonFatalErr", "CorrIntErr", "HeaderOF",
)  # fmt: skip
_AER_UNCORRECTABLE = (
    "Undefined", "DLP", "SDES", "TLP", "FCP", "CmpltTO", "CmpltAbrt", "UnxCmplt", "RxOF",
    "MalfTLP", "ECRC", "UnsupReq", "ACSViol", "UncorrIntErr", "BlockedTLP", "AtomicOpBlocked",
    "TLPBlockedErr", "PoisonTLPBlocked",
)  # fmt: skip
_TAIL = (
    "gfx_below_host_limit_ppt_acc", "gfx_below_host_limit_thm_acc", "gfx_low_utilization_acc",
    "gfx_below_host_limit_total_acc",
)  # fmt: skip
AER_TOTALS = {"correctable": "COR", "nonfatal": "NONFATAL", "fatal": "FATAL"}


# ------------------------------------------------------------------------------------ facts


@dataclass(frozen=True, slots=True)
class Partition:
    """A compute partition: what KFD and DRM see as one device.  An unpartitioned GPU has one."""

    index: int
    """Its number in the GPU: bits 31 to 28 of KFD's ``location_id``."""
    kfd_node: int
    """KFD's number of it, as long as no GPU was removed."""
    gpu_id: int
    card: int
    render: int
    vram_bytes: int
    """The size of its KFD memory bank."""


@dataclass(frozen=True, slots=True)
class Gpu:
    """Where a GPU is found and what it is called."""

    index: int
    model: Model
    bdf: str
    bus: int
    card: int
    render: int
    hwmon: int
    numa_node: int
    unique_id: int
    serial: str
    secondary: bool
    """The second die of a package: power and energy are measured on the first one only."""
    xcp_platform_first: int
    """N of the first ``amdgpu_xcp_N`` platform device that belongs to it."""
    partitions: tuple[Partition, ...]


@contextlib.contextmanager
def scratch() -> Iterator[Path]:
    """A folder for a tree that is removed afterwards, in memory where the machine has that.

    A partitioned node has some 6,500 small files: on a disk they take seconds.
    """
    memory = Path("/dev/shm")  # noqa: S108  # in memory; tempfile makes the folder
    with tempfile.TemporaryDirectory(
        prefix="node-", dir=memory if os.access(memory, os.W_OK) else None
    ) as name:
        yield Path(name)


@dataclass(slots=True)
class _Removed:
    """Paths that were moved out of the tree, to be moved back: (where it was, where it is)."""

    moved: list[tuple[Path, Path]] = field(default_factory=list)


class Node:
    """A simulated GPU node below :attr:`root`, with everything to change it."""

    def __init__(
        self,
        root: Path,
        model: str | Model = "MI300X",
        count: int = 8,
        *,
        partitions: int = 1,
        metrics: tuple[int, int] | None = None,
        other: Other | None = None,
        xcp_metrics: bool | None = None,
    ) -> None:
        """Describe a node; :meth:`write` puts it into the folder.

        :param partitions: 8 puts every GPU into CPX mode
        :param metrics: version of ``gpu_metrics`` in place of the model's own
        :param other: a GPU of another vendor that is ``card0``
        :param xcp_metrics: whether the driver has that file for each partition; unless given, it
            has if it is so new that ``gpu_metrics`` is of version 1.8 or later
        """
        self.root = Path(root).resolve()
        self.model = MODELS[model] if isinstance(model, str) else model
        if not 1 <= count <= len(self.model.buses):
            raise ValueError(f"1 to {len(self.model.buses)} GPUs, not {count}")
        if partitions not in (1, self.model.xccs):
            raise ValueError(f"{self.model.name} has 1 or {self.model.xccs} partitions")
        self.metrics_version = metrics or self.model.metrics
        if self.metrics_version not in blob.VERSIONS:
            raise ValueError(f"no gpu_metrics version {self.metrics_version}")
        newer = self.model.xcp_devices > 1 and self.metrics_version >= (1, 8)
        self.xcp_metrics = newer if xcp_metrics is None else xcp_metrics
        self.partitions = partitions
        self.other = other
        self.cpu_nodes = 2 if count > 1 else 1
        self.gpus: tuple[Gpu, ...] = tuple(self._gpu(index, count) for index in range(count))
        self.hive_id = 0x51B38AA0C0DE1234 if count > 1 else 0
        self.state: list[dict[str, Value]] = [self._initial(gpu) for gpu in self.gpus]
        """The fields of every GPU's ``gpu_metrics``, as last written."""
        self._removed: dict[int, _Removed] = {}
        self._kfd_order = list(range(count))
        self._fresh = False
        self._rules_written = 0

    @classmethod
    def create(
        cls,
        root: Path,
        model: str | Model = "MI300X",
        count: int = 8,
        *,
        partitions: int = 1,
        metrics: tuple[int, int] | None = None,
        other: Other | None = None,
        xcp_metrics: bool | None = None,
    ) -> Node:
        """Describe a node and write it."""
        node = cls(
            root,
            model,
            count,
            partitions=partitions,
            metrics=metrics,
            other=other,
            xcp_metrics=xcp_metrics,
        )
        node.write()
        return node

    # -------------------------------------------------------------------------- where things are

    def _gpu(self, index: int, count: int) -> Gpu:
        model = self.model
        first_card = 1 if self.other else 0
        first_render = 129 if self.other == "intel" else 128  # ASPEED's has no render node
        minors = model.xcp_devices
        partitions = tuple(
            Partition(
                index=part,
                kfd_node=self.cpu_nodes + index * self.partitions + part,
                gpu_id=20000 + 1111 * index + 37 * part,
                card=first_card + index * minors + part,
                render=first_render + index * minors + part,
                vram_bytes=model.vram_bytes // self.partitions,
            )
            for part in range(self.partitions)
        )
        return Gpu(
            index=index,
            model=model,
            bdf=f"0000:{model.buses[index]:02x}:00.0",
            bus=model.buses[index],
            card=partitions[0].card,
            render=partitions[0].render,
            hwmon=3 + index,
            numa_node=0 if index < (count + 1) // 2 else 1,
            unique_id=0xA1B2C3D400000000 + 0x1111 * (index + 1),
            serial=f"69212400{index:04d}",
            secondary=index % model.dies_per_package > 0,
            xcp_platform_first=index * (minors - 1),
            partitions=partitions,
        )

    def sysfs(self, *parts: str) -> Path:
        """A path below ``/sys`` of the tree."""
        return self.root.joinpath("sys", *parts)

    def port(self, gpu: int) -> Path:
        """The folder of the root port that a GPU is plugged into."""
        root_bus = self.gpus[gpu].bus & 0xE0
        number = sum(1 for other in self.gpus[:gpu] if other.bus & 0xE0 == root_bus) + 1
        return self.sysfs("devices", f"pci0000:{root_bus:02x}", f"0000:{root_bus:02x}:01.{number}")

    def device(self, gpu: int, *parts: str) -> Path:
        """A path in a GPU's PCI folder."""
        return self.port(gpu).joinpath(self.gpus[gpu].bdf, *parts)

    def hwmon(self, gpu: int, *parts: str) -> Path:
        """A path in a GPU's hwmon folder."""
        return self.device(gpu, "hwmon", f"hwmon{self.gpus[gpu].hwmon}", *parts)

    def kfd(self, *parts: str) -> Path:
        """A path in KFD's folder."""
        return self.sysfs("devices/virtual/kfd/kfd", *parts)

    def platform(self, number: int, *parts: str) -> Path:
        """A path in the folder of the platform device ``amdgpu_xcp_<number>``."""
        return self.sysfs("devices/platform", f"amdgpu_xcp_{number}", *parts)

    # -------------------------------------------------------------------------- writing

    def put(self, path: Path, content: str | bytes | int) -> None:
        """Replace a file in one step, so that a reader never sees half of it.

        Text and numbers get the newline that the kernel ends an attribute with.
        """
        data = content if isinstance(content, bytes) else f"{content}\n".encode()
        # While the tree is first written nobody reads it, and the steps cost much on a disk
        name = str(path) if self._fresh else f"{path}.tmp"
        try:
            handle = open(name, "wb")  # noqa: SIM115  # closed below
        except FileNotFoundError:
            path.parent.mkdir(parents=True, exist_ok=True)
            handle = open(name, "wb")  # noqa: SIM115  # closed below
        with handle:
            handle.write(data)
        if not self._fresh:
            os.rename(name, path)

    def link(self, path: Path, target: Path) -> None:
        """Make a relative symbolic link, as sysfs has them."""
        text = os.path.relpath(target, path.parent)
        try:
            path.symlink_to(text)
        except FileNotFoundError:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.symlink_to(text)
        except FileExistsError:
            if os.readlink(path) != text:
                path.unlink()
                path.symlink_to(text)

    def write(self) -> None:
        """Write the whole tree anew, with the driver loaded."""
        for name in ("sys", "dev", "proc", ".ioctl", ".events", ".perf", ".removed"):
            shutil.rmtree(self.root / name, ignore_errors=True)
        self._removed.clear()
        self._kfd_order = list(range(len(self.gpus)))
        for name in (
            "sys/class/drm", "sys/class/hwmon", "sys/class/net", "sys/class/scsi_host",
            "sys/class/infiniband", "sys/kernel/debug/dri", "sys/bus/event_source/devices",
            "sys/bus/pci/devices", "sys/bus/pci/drivers", "sys/bus/platform/devices",
            "sys/dev/char", "proc", "dev/dri", "dev/shm", ".events",
        ):  # fmt: skip
            (self.root / name).mkdir(parents=True, exist_ok=True)
        self._fresh = True
        try:
            self._write_machine()
            for gpu in self.gpus:
                self._write_pci(gpu)
            self._write_driver()
        finally:
            self._fresh = False

    def _write_machine(self) -> None:
        """What is there without any AMD GPU: processors, a hwmon chip, another graphics card."""
        self.put(self.sysfs("devices/system/cpu/present"), "0-127")
        for node in range(self.cpu_nodes):
            cpus = f"{64 * node}-{64 * node + 63}"
            self.put(self.sysfs(f"devices/system/node/node{node}/cpulist"), cpus)
        # By it a program sees that /proc has the host's numbers; in a container they are others
        self.put(self.root / "proc/2/comm", "kthreadd")
        chip = self.sysfs("devices/pci0000:00/0000:00:18.3")
        monitor = chip / "hwmon/hwmon0"
        self.put(monitor / "name", "k10temp")
        self.put(monitor / "temp1_label", "Tctl")
        self.put(monitor / "temp1_input", 51250)
        self.link(monitor / "device", chip)
        self.link(self.sysfs("class/hwmon/hwmon0"), monitor)
        if self.other:
            self._write_other()

    def _write_other(self) -> None:
        """The graphics card of another vendor, which takes the first DRM numbers."""
        vendor, device, bdf, driver = {
            "intel": (0x8086, 0x4680, "0000:00:02.0", "i915"),
            "aspeed": (0x1A03, 0x2000, "0000:00:03.0", "ast"),
        }[self.other or "intel"]
        folder = self.sysfs("devices/pci0000:00", bdf)
        attributes: dict[str, str] = {
            "vendor": f"0x{vendor:04x}",
            "device": f"0x{device:04x}",
            "subsystem_vendor": f"0x{vendor:04x}",
            "subsystem_device": f"0x{device:04x}",
            "revision": "0x0c",
            "class": "0x030000",
            "uevent": f"DRIVER={driver}\nPCI_CLASS=30000\nPCI_ID={vendor:04X}:{device:04X}\n"
            f"PCI_SLOT_NAME={bdf}",
        }
        for name, value in attributes.items():
            self.put(folder / name, value)
        self.link(folder / "subsystem", self.sysfs("bus/pci"))
        self.link(self.sysfs("bus/pci/devices", bdf), folder)
        self.sysfs("bus/pci/drivers", driver).mkdir(parents=True, exist_ok=True)
        self.link(folder / "driver", self.sysfs("bus/pci/drivers", driver))
        self._write_minor(folder, "card0", 0)
        if self.other == "intel":
            self._write_minor(folder, "renderD128", 128)

    def _write_minor(self, folder: Path, name: str, minor: int) -> None:
        """One DRM device file and what sysfs says about it."""
        drm = folder / "drm" / name
        self.put(drm / "dev", f"226:{minor}")
        self.put(drm / "uevent", f"MAJOR=226\nMINOR={minor}\nDEVNAME=dri/{name}\nDEVTYPE=drm_minor")
        self.link(drm / "device", folder)
        self.link(drm / "subsystem", self.sysfs("class/drm"))
        self.link(self.sysfs("class/drm", name), drm)
        self.link(self.sysfs("dev/char", f"226:{minor}"), drm)
        self.put(self.root / "dev/dri" / name, b"")

    def _write_pci(self, gpu: Gpu) -> None:
        """What the PCI core knows of a GPU, whether or not a driver is bound."""
        model, index = self.model, gpu.index
        speed = f"{model.pcie_gts}.0 GT/s PCIe"
        attributes: dict[str, str | int] = {
            "vendor": "0x1002",
            "device": f"0x{model.device_id:04x}",
            "subsystem_vendor": "0x1002",
            "subsystem_device": f"0x{model.subsystem_id:04x}",
            "revision": f"0x{model.revision:02x}",
            "class": "0x038000",
            "numa_node": gpu.numa_node,
            "local_cpulist": f"{64 * gpu.numa_node}-{64 * gpu.numa_node + 63}",
            "current_link_speed": speed,
            "max_link_speed": speed,
            "current_link_width": 16,
            "max_link_width": 16,
            "boot_vga": 0,
            "ari_enabled": 0,
            "power/runtime_status": "active",
            "power/control": "on",
        }
        for name, value in attributes.items():
            self.put(self.device(index, name), value)
        self._write_uevent(gpu, driver=False)
        self.link(self.device(index, "subsystem"), self.sysfs("bus/pci"))
        self.link(self.sysfs("bus/pci/devices", gpu.bdf), self.device(index))
        port = self.port(index)
        for name in ("current_link_speed", "max_link_speed"):
            self.put(port / name, speed)
        for name in ("current_link_width", "max_link_width"):
            self.put(port / name, 16)
        self.put(port / "vendor", "0x1022")
        self.put(port / "device", "0x14ab")
        self.put(port / "class", "0x060400")
        self.link(port / "subsystem", self.sysfs("bus/pci"))
        self.link(self.sysfs("bus/pci/devices", port.name), port)
        for folder in (self.device(index), port):
            for kind in AER_TOTALS:
                self._write_aer(folder, kind, {})

    def _write_uevent(self, gpu: Gpu, *, driver: bool) -> None:
        model = self.model
        self.put(
            self.device(gpu.index, "uevent"),
            ("DRIVER=amdgpu\n" if driver else "")
            + f"PCI_CLASS=38000\nPCI_ID=1002:{model.device_id:04X}\n"
            f"PCI_SUBSYS_ID=1002:{model.subsystem_id:04X}\nPCI_SLOT_NAME={gpu.bdf}",
        )

    def _write_aer(self, folder: Path, kind: str, counts: Mapping[str, int]) -> None:
        """One ``aer_dev_*`` file: a line for every kind of error, and their sum."""
        names = _AER_CORRECTABLE if kind == "correctable" else _AER_UNCORRECTABLE
        unknown = set(counts) - set(names)
        if unknown:
            raise ValueError(f"no {kind} AER error {', '.join(sorted(unknown))}")
        lines = [f"{name} {counts.get(name, 0)}" for name in names]
        lines.append(f"TOTAL_ERR_{AER_TOTALS[kind]} {sum(counts.values())}")
        self.put(folder / f"aer_dev_{kind}", "\n".join(lines))

    def _write_driver(self) -> None:
        """Everything that comes with the loaded driver."""
        module = self.sysfs("module/amdgpu")
        self.put(module / "initstate", "live")
        self.put(module / "version", DRIVER_VERSION)
        for name, value in {"ras_enable": -1, "gpu_recovery": -1, "vm_fragment_size": 9}.items():
            self.put(module / "parameters" / name, value)
        self.link(self.sysfs("class/kfd/kfd"), self.kfd())
        self.put(self.root / "dev/kfd", b"")
        for gpu in self.gpus:
            self._write_gpu(gpu)
        self._write_topology()

    def _write_gpu(self, gpu: Gpu) -> None:
        index = gpu.index
        self._write_uevent(gpu, driver=True)
        for name, value in self._attributes(gpu).items():
            self.put(self.device(index, name), value)
        for name, value in self._sensors(gpu).items():
            self.put(self.hwmon(index, name), value)
        self.link(self.hwmon(index, "device"), self.device(index))
        self.link(self.sysfs("class/hwmon", f"hwmon{gpu.hwmon}"), self.hwmon(index))
        driver = self.sysfs("bus/pci/drivers/amdgpu")
        self.link(driver / gpu.bdf, self.device(index))
        self.link(self.device(index, "driver"), driver)
        self.link(driver / "module", self.sysfs("module/amdgpu"))
        self.link(self.sysfs("module/amdgpu/drivers/pci:amdgpu"), driver)
        self.sysfs("kernel/debug/dri", str(gpu.card)).mkdir(parents=True, exist_ok=True)
        self._write_minor(self.device(index), f"card{gpu.card}", gpu.card)
        self._write_minor(self.device(index), f"renderD{gpu.render}", gpu.render)
        self._write_answers(gpu)
        # The driver makes a platform device for every partition after the first, in use or not
        for part in range(1, self.model.xcp_devices):
            folder = self.platform(gpu.xcp_platform_first + part - 1)
            self.put(folder / "modalias", f"platform:{folder.name}")
            self.put(folder / "uevent", f"MODALIAS=platform:{folder.name}")
            self.link(folder / "subsystem", self.sysfs("bus/platform"))
            self.link(self.sysfs("bus/platform/devices", folder.name), folder)
            for name, minor in (
                (f"card{gpu.card + part}", gpu.card + part),
                (f"renderD{gpu.render + part}", gpu.render + part),
            ):
                self._write_minor(folder, name, minor)
        self._write_hive(gpu)
        self._write_counters(gpu)
        self._write_metrics(index)

    def _write_hive(self, gpu: Gpu) -> None:
        """xGMI: the hive is a folder of its first GPU, every GPU is linked to every other."""
        if not self.hive_id:
            return
        hive = self.device(0, "xgmi_hive_info")
        self.put(hive / "xgmi_hive_id", self.hive_id)
        self.link(hive / f"node{gpu.index + 1}", self.device(gpu.index))
        if gpu.index:
            self.link(self.device(gpu.index, "xgmi_hive_info"), hive)
        peers = [other.index for other in self.gpus if other is not gpu]

        def number(of: int, to: int) -> int:
            return to if to < of else to - 1  # a full mesh: one port for each other GPU

        lines = [
            f"{gpu.index + 1:02x}:{number(gpu.index, peer):02x} ->  "
            f"{peer + 1:02x}:{number(peer, gpu.index):02x}"
            for peer in peers
        ]
        self.put(self.device(gpu.index, "xgmi_port_num"), "\n".join(lines))
        self.put(self.device(gpu.index, "xgmi_num_hops"), " ".join("1" for _ in peers))
        self.put(self.device(gpu.index, "xgmi_num_links"), " ".join("1" for _ in peers))

    def _write_counters(self, gpu: Gpu) -> None:
        """The perf PMU of the data fabric; the shim answers reads of its counters."""
        if not self.model.xgmi_counters:
            return
        pmu = self.sysfs("bus/event_source/devices", f"amdgpu_{gpu.card}")
        kind = 4000 + gpu.index
        self.put(pmu / "type", kind)
        for name, bits in {"event": "0-7", "instance": "8-15", "umask": "16-23"}.items():
            self.put(pmu / "format" / name, f"config:{bits}")
        for link in range(self.model.xgmi_counters):
            event = f"event=0x{0x4B + link:x},instance=0x46,umask=0x2"
            self.put(pmu / f"events/xgmi_link{link}_data_outbound", event)
            self.counter(gpu.index, link, 1000 * (link + 1) + gpu.index)
        self.put(self.device(gpu.index, "df_cntr_avail"), 2)

    # -------------------------------------------------------------------------- values

    def _initial(self, gpu: Gpu) -> dict[str, Value]:
        """The fields of ``gpu_metrics`` at rest; a field the version lacks is not written."""
        model, i = self.model, gpu.index
        links = range(min(model.xgmi_links, len(self.gpus) - 1))
        power = 0 if gpu.secondary else model.idle_watts + i
        values: dict[str, Value] = {
            "temperature_hotspot": 45 + i,
            "temperature_mem": 41 + i,
            "temperature_vrsoc": 39 + i,
            "average_gfx_activity": 10 + i,
            "average_umc_activity": 5 + i,
            "average_socket_power": power,
            "curr_socket_power": power,
            "energy_accumulator": 0 if gpu.secondary else 15_000_000_000 + 1_000_000 * i,
            "system_clock_counter": 1_000_000_000_000 + 1_000 * i,
            "firmware_timestamp": 100_000_000_000 + 100 * i,
            "accumulation_counter": 500_000 + i,
            "prochot_residency_acc": 100 + i,
            "ppt_residency_acc": 200 + i,
            "socket_thm_residency_acc": 300 + i,
            "vr_thm_residency_acc": 400 + i,
            "hbm_thm_residency_acc": 500 + i,
            "throttle_status": 0,
            "indep_throttle_status": 0,
            "gfxclk_lock_status": 0,
            "pcie_link_width": 16,
            "pcie_link_speed": 10 * model.pcie_gts,
            "pcie_bandwidth_acc": 1_000 + i,
            "pcie_bandwidth_inst": 12 + i,
            "pcie_l0_to_recov_count_acc": 20 + i,
            "pcie_replay_count_acc": 30 + i,
            "pcie_replay_rover_count_acc": 40 + i,
            "pcie_nak_sent_count_acc": 50 + i,
            "pcie_nak_rcvd_count_acc": 60 + i,
            "pcie_lc_perf_other_end_recovery": 70 + i,
            "gfx_activity_acc": 123_400 + i,
            "mem_activity_acc": 65_400 + i,
            "xgmi_link_width": 16,
            "xgmi_link_speed": model.xgmi_gbps,
            "xgmi_read_data_acc": [1_000 * (k + 1) + i for k in links],
            "xgmi_write_data_acc": [2_000 * (k + 1) + i for k in links],
            "xgmi_link_status": [1 for _ in links],
            "vcn_activity": [k + i for k in range(4)],
            "jpeg_activity": [0] * 32,
            "mem_max_bandwidth": model.memory_bandwidth_gbs,
            "num_partition": self.partitions,
        }
        if model.edge_sensor:
            values["temperature_edge"] = 38 + i
            values["temperature_vrgfx"] = 36 + i
            values["temperature_vrmem"] = 37 + i
        if model.hbm_sensors:
            values["temperature_hbm"] = [46 + i + 2 * k for k in range(model.hbm_sensors)]
        if self.metrics_version == (1, 3):
            values |= {
                "average_mm_activity": 0,
                "average_gfxclk_frequency": model.sclk_mhz[1] + i,
                "average_socclk_frequency": 1090,
                "average_uclk_frequency": model.mclk_mhz[-1],
                "current_gfxclk": model.sclk_mhz[1] + i,
                "current_socclk": 1090,
                "current_uclk": model.mclk_mhz[-1],
                "current_vclk0": 0,
                "current_dclk0": 0,
                "current_fan_speed": 0,
                "padding": 0,
                "padding1": 0,
            }
        else:
            values |= {
                "current_gfxclk": [model.sclk_mhz[0] + 10 * k + i for k in range(model.xccs)],
                "current_socclk": [28 + k for k in range(4)],
                "current_vclk0": [29 + k for k in range(4)],
                "current_dclk0": [22 + k for k in range(4)],
                "current_uclk": model.mclk_mhz[0] + i,
                "padding": 0,
            }
            parts = [self._partition_values(i, part) for part in range(self.partitions)]
            if self.metrics_version == (1, 9):
                values |= self._flat_values(i, parts)
            else:
                for part, own in enumerate(parts):
                    values |= {f"xcp{part}_{name}": value for name, value in own.items()}
        return values

    def _partition_values(self, gpu: int, part: int) -> dict[str, Value]:
        """What one partition reports: its own compute dies, and its share of the media engines."""
        dies = range(self.model.xccs // self.partitions)
        media = range(4 if self.partitions == 1 else 1)
        jpeg = (40 if self.metrics_version >= (1, 8) else 32) // (4 if self.partitions > 1 else 1)
        return {
            "gfx_busy_inst": [10 + gpu + 5 * part + k for k in dies],
            "jpeg_busy": [0] * jpeg,
            "vcn_busy": [gpu + k for k in media],
            "gfx_busy_acc": [5_000 + 100 * gpu + 10 * part + k for k in dies],
            "gfx_below_host_limit_acc": [600 + 10 * gpu + part for _ in dies],
            "gfx_below_host_limit_ppt_acc": [700 + 10 * gpu + part for _ in dies],
            "gfx_below_host_limit_thm_acc": [800 + 10 * gpu + part for _ in dies],
            "gfx_low_utilization_acc": [900 + 10 * gpu + part for _ in dies],
            "gfx_below_host_limit_total_acc": [1_000 + 10 * gpu + part for _ in dies],
        }

    def _flat_values(self, gpu: int, parts: Sequence[Mapping[str, Value]]) -> dict[str, Value]:
        """Version 1.9 has the dies of all partitions in one row, and temperatures of each chip."""
        values: dict[str, Value] = {
            "temperature_hbm": [46 + gpu + 2 * k for k in range(8)],
            "temperature_aid": [50 + gpu + k for k in range(2)],
            "temperature_xcd": [54 + gpu + k for k in range(8)],
            "vcn_busy": [gpu + k for k in range(4)],
            "jpeg_busy": [0] * 40,
        }
        for name in ("gfx_busy_inst", "gfx_busy_acc", *_TAIL):
            row: list[int] = []
            for part in parts:
                row += _list(part[name])
            values[name] = row
        return values

    def partition_state(self, gpu: int, part: int) -> dict[str, Value]:
        """The values of a partition's ``xcp_metrics``, taken from :attr:`state`."""
        state = self.state[gpu]
        values = {name: state[name] for name in ("current_socclk", "current_vclk0",
                  "current_dclk0", "current_uclk")}  # fmt: skip
        dies = self.model.xccs // self.partitions
        mine = slice(part * dies, (part + 1) * dies)
        values["current_gfxclk"] = _list(state["current_gfxclk"])[mine]
        for name in ("gfx_busy_inst", "jpeg_busy", "vcn_busy", "gfx_busy_acc", *_TAIL):
            if f"xcp{part}_{name}" in state:
                values[name] = state[f"xcp{part}_{name}"]
            elif name in ("jpeg_busy", "vcn_busy"):
                values[name] = state[name]
            else:
                values[name] = _list(state[name])[mine]
        return values

    def _attributes(self, gpu: Gpu) -> dict[str, str | int | bytes]:
        """The driver's attributes in the PCI folder."""
        model, i = self.model, gpu.index
        sclk, mclk = model.sclk_mhz, model.mclk_mhz
        used = VRAM_USED_AT_REST + i * MIB
        plain: dict[str, str | int | bytes] = {
            "mem_info_vram_total": model.vram_bytes,
            "mem_info_vram_used": used,
            "mem_info_vis_vram_total": model.vram_bytes,
            "mem_info_vis_vram_used": used,
            "mem_info_gtt_total": GTT_TOTAL,
            "mem_info_gtt_used": 20 * MIB + i * MIB,
            "mem_info_preempt_used": 0,
            "mem_info_vram_vendor": model.vram_vendor,
            "gpu_busy_percent": 10 + i,
            "mem_busy_percent": 5 + i,
            "pcie_replay_count": 30 + i,
            "pcie_bw": "0 0 256",
            "unique_id": f"{gpu.unique_id:016x}",
            "vbios_version": f"113-{model.sku}-100",
            "product_name": f"AMD {model.market_name}",
            "product_number": f"102-{model.sku}-00",
            "serial_number": gpu.serial,
            "manufacturer": "AMD",
            "fru_id": f"113-AMD{model.sku}",
            "power_dpm_force_performance_level": "auto",
            "power_dpm_state": "performance",
            "thermal_throttling_logging": f"{gpu.bdf}: thermal throttling logging enabled, "
            "with interval 60 seconds",
            "pp_sclk_od": 0,
            "pp_mclk_od": 0,
            "pp_cur_state": 0,
            "pp_features": "features high: 0x00001ffd low: 0xf85a3c7b\n"
            "No. Feature               Bit : State\n00. DPM_GFXCLK           ( 1) : enabled",
            "pp_od_clk_voltage": f"OD_SCLK:\n0: {sclk[0]}Mhz\n1: {sclk[-1]}Mhz\n"
            f"OD_MCLK:\n0: {mclk[-1]}Mhz\nOD_RANGE:\nSCLK: {sclk[0]}Mhz {sclk[-1]}Mhz\n"
            f"MCLK: {mclk[0]}Mhz {mclk[-1]}Mhz",
            "pp_dpm_sclk": _levels(sclk, 1),
            "pp_dpm_mclk": _levels(mclk, 0),
            "pp_dpm_socclk": _levels((666, 857, 1000, 1090), 3),
            "pp_dpm_fclk": _levels((400, 2000), 0),
            "pp_dpm_vclk": _levels((29, 1500), 0),
            "pp_dpm_dclk": _levels((22, 1250), 0),
            "pp_dpm_pcie": f"0: 2.5GT/s, x1 617Mhz\n1: {model.pcie_gts}.0GT/s, x16 617Mhz *",
            "pm_policy/soc_pstate": "soc_pstate\n0 : SOCPSTATE_DEFAULT*\n1 : SOCPSTATE_0",
            "pm_policy/xgmi_plpd": "xgmi_plpd\n0 : plpd_disallow\n1 : plpd_default*",
            "ras/features": "feature mask: 0x1fd",
            "ras/schema": "schema: 0xd",
            "ras/version": "table version: 0x00010000",
            "ras/gpu_vram_bad_pages": b"",
        }
        if self.hive_id:
            plain |= {
                "xgmi_error": 0,
                "xgmi_device_id": gpu.unique_id,
                "xgmi_physical_id": i,
            }
        if model.xcp_devices > 1:
            plain |= {
                "vcn_busy_percent": i,
                "current_compute_partition": "CPX" if self.partitions > 1 else "SPX",
                "available_compute_partition": "SPX, DPX, QPX, CPX",
                "current_memory_partition": "NPS1",
                "available_memory_partition": "NPS1, NPS4",
            }
        for name, version in _FIRMWARE.items():
            plain[f"fw_version/{name}_fw_version"] = f"0x{version:08x}"
        for block in _RAS_BLOCKS:
            plain[f"ras/{block}_err_count"] = self._ras_text({})
            if model.ras_aca:
                plain[f"ras/aca_{block}"] = self._ras_text({})
        return plain

    def _ras_text(self, counts: Mapping[str, int]) -> str:
        kinds = ("ue", "ce", "de") if self.model.ras_aca else ("ue", "ce")
        return "\n".join(f"{kind}: {counts.get(kind, 0)}" for kind in kinds)

    def _sensors(self, gpu: Gpu) -> dict[str, str | int]:
        """The hwmon files."""
        model, i = self.model, gpu.index
        cap = 0 if gpu.secondary else model.power_cap_watts * 10**6
        power = 0 if gpu.secondary else (model.idle_watts + i) * 10**6
        files: dict[str, str | int] = {
            "name": "amdgpu",
            "power1_label": "PPT",
            f"power1_{model.power_sensor}": power,
            "power1_cap": cap,
            "power1_cap_min": 0,
            "power1_cap_max": cap,
            "power1_cap_default": cap,
            "freq1_label": "sclk",
            "freq1_input": model.sclk_mhz[1] * 10**6,
            "freq2_label": "mclk",
            "freq2_input": model.mclk_mhz[0] * 10**6,
        }
        if model.voltage_sensor:
            files |= {"in0_label": "vddgfx", "in0_input": 793 + i}
        sensors = [("temp2", "junction", 45 + i, model.junction_limits)]
        sensors.append(("temp3", "mem", 41 + i, model.memory_limits))
        if model.edge_sensor:
            sensors.append(("temp1", "edge", 38 + i, (100, 105)))
        for sensor, label, degrees, (critical, emergency) in sensors:
            files |= {
                f"{sensor}_label": label,
                f"{sensor}_input": degrees * 1000,
                f"{sensor}_crit": critical * 1000,
                f"{sensor}_crit_hyst": -273150,
                f"{sensor}_emergency": emergency * 1000,
            }
        return files

    def _write_answers(self, gpu: Gpu) -> None:
        """The DRM driver's answers to DRM_IOCTL_AMDGPU_INFO, by query in hexadecimal."""
        model = self.model
        folder = self.root / ".ioctl" / gpu.bdf
        for offset in range(model.xcp_devices):
            for minor in (gpu.card + offset, gpu.render + offset):
                self.link(folder.with_name(str(minor)), folder)
        folder.mkdir(parents=True, exist_ok=True)
        self.link(folder / "device", self.device(gpu.index))
        clocks = (model.sclk_mhz[-1] * 1000, model.mclk_mhz[-1] * 1000)
        units = model.compute_units
        # struct drm_amdgpu_info_device, in its order
        info = struct.pack(
            "=5I3I2Q2I16I4I3Q8I4Q4I8I16I2Q2IQ",
            model.device_id, model.revision, model.revision + 0x3C, model.revision, 141,
            8, 1, 100_000,  # shader engines, arrays in each, counter frequency in kHz
            *clocks,
            units, 0, *([0x3FFF] * 16),
            0, 0, 8, 0,
            0, 0x200000, 0x800000000000,
            4096, 9, 4096, 0x8000, 6, model.vram_bits, 0, 0,  # 6: the memory is HBM
            0, 0, 0, 0,
            0, 0, 0, 0,
            64, 256, units // 8, 16, 32, 1792, 32, 0,
            *([0] * 16),
            0xFFFF800000000000, 0xFFFFFFFF00000000,
            0, 0, 0,
        )  # fmt: skip
        part = f"113-{model.sku}-100".encode()
        vram = model.vram_bytes
        answers: dict[str, bytes] = {
            "00": struct.pack("=I", 1),  # the accelerator works
            "14": struct.pack("=3Q", vram, vram, GTT_TOTAL),
            "15": bytes(4),
            "16": info.ljust(512, b"\0"),
            "1b.3": struct.pack(
                "=64s64s2I32s32s",
                f"AMD {model.market_name}".encode(), part, 22, 0,
                b"022.040.003.042.000001", b"2024/02/06 12:00",
            ),
            "1d.5": struct.pack("=I", model.idle_watts + gpu.index),
            "20": struct.pack("=Q", 0x1FD),
        }  # fmt: skip
        for kind, version in _FIRMWARE_QUERY.items():
            answers[f"0e.{kind:x}"] = struct.pack("=2I", version, version & 0xFF)
        for name, data in answers.items():
            self.put(folder / name, data)

    # -------------------------------------------------------------------------- KFD

    def _write_topology(self) -> None:
        """KFD's nodes: the processors first, then every partition of every GPU."""
        shutil.rmtree(self.kfd("topology"), ignore_errors=True)
        self.put(self.kfd("dev"), "510:0")
        self.put(self.kfd("topology/generation_id"), 2)
        self.put(self.kfd("topology/system_properties"), "platform_oem 0\nplatform_id 0\n"
                 "platform_rev 0")  # fmt: skip
        self.kfd("proc").mkdir(parents=True, exist_ok=True)
        owners: list[tuple[Gpu, Partition] | None] = [None] * self.cpu_nodes
        present = [self.gpus[index] for index in self._kfd_order]
        owners += [(gpu, part) for gpu in present for part in gpu.partitions]
        for node, owner in enumerate(owners):
            folder = self.kfd("topology/nodes", str(node))
            for name in ("io_links", "p2p_links", "mem_banks", "caches", "perf"):
                (folder / name).mkdir(parents=True, exist_ok=True)
            self._write_kfd_node(folder, node, owner, len(owners) - 1)
            peers = [peer for peer in range(len(owners)) if peer != node]
            for number, peer in enumerate(peers):
                text = self._io_link(node, peer, owner, owners[peer])
                self.put(folder / f"io_links/{number}/properties", text)

    def _write_kfd_node(
        self, folder: Path, node: int, owner: tuple[Gpu, Partition] | None, links: int
    ) -> None:
        model = self.model
        common = {"caches_count": 0, "io_links_count": links, "p2p_links_count": 0}
        if owner is None:
            properties = common | {
                "cpu_cores_count": 64, "simd_count": 0, "mem_banks_count": 1,
                "cpu_core_id_base": 64 * node, "simd_id_base": 0, "vendor_id": 0, "device_id": 0,
                "location_id": 0, "domain": 0, "drm_render_minor": 0, "hive_id": 0,
                "unique_id": 0,
            }  # fmt: skip
            gpu_id, name, heap, size, width, clock = 0, "", 0, 512 * GIB, 64, 4800
        else:
            gpu, part = owner
            units = model.compute_units // self.partitions
            properties = common | {
                "cpu_cores_count": 0, "simd_count": 4 * units, "mem_banks_count": 1,
                "cpu_core_id_base": 0, "simd_id_base": 2147487744, "max_waves_per_simd": 8,
                "lds_size_in_kb": 64, "gds_size_in_kb": 0, "num_gws": 64, "wave_front_size": 64,
                "array_count": 8, "simd_arrays_per_engine": 1, "cu_per_simd_array": units // 8,
                "simd_per_cu": 4, "max_slots_scratch_cu": 32,
                "gfx_target_version": model.gfx_version, "vendor_id": 0x1002,
                "device_id": model.device_id, "location_id": part.index << 28 | gpu.bus << 8,
                "domain": 0, "drm_render_minor": part.render, "hive_id": self.hive_id,
                "num_sdma_engines": 2, "num_sdma_xgmi_engines": model.xgmi_links,
                "num_sdma_queues_per_engine": 8, "num_cp_queues": 24,
                "max_engine_clk_fcompute": model.sclk_mhz[-1], "local_mem_size": 0,
                "fw_version": 169, "capability": 745029248, "debug_prop": 1511,
                "sdma_fw_version": 23, "unique_id": gpu.unique_id,
                "num_xcc": model.xccs // self.partitions, "max_engine_clk_ccompute": 3700,
            }  # fmt: skip
            gpu_id, name, heap, size = part.gpu_id, model.codename, 1, part.vram_bytes
            width, clock = model.vram_bits, model.mclk_mhz[-1]
        self.put(folder / "gpu_id", gpu_id)
        self.put(folder / "name", name)
        self.put(folder / "properties", "\n".join(f"{k} {v}" for k, v in properties.items()))
        bank = {"heap_type": heap, "size_in_bytes": size, "flags": 0, "width": width}
        bank["mem_clk_max"] = clock
        text = "\n".join(f"{k} {v}" for k, v in bank.items())
        self.put(folder / "mem_banks/0/properties", text)

    def _io_link(
        self,
        node: int,
        peer: int,
        one: tuple[Gpu, Partition] | None,
        two: tuple[Gpu, Partition] | None,
    ) -> str:
        """One ``io_links/N/properties`` file.  Type 2 is PCIe, 11 is xGMI; bandwidth in MB/s."""
        if one is None or two is None:
            kind, weight = 2, 32 if one is two else 20
            bandwidth = self.model.pcie_gts * 16 // 8 * 1000
        else:
            same_package = one[0].index // self.model.dies_per_package == (
                two[0].index // self.model.dies_per_package
            )
            kind, weight = 11, 13 if same_package else 15
            bandwidth = self.model.xgmi_gbps * 16 // 8 * 1000
        properties = {
            "type": kind, "version_major": 0, "version_minor": 0, "node_from": node,
            "node_to": peer, "weight": weight, "min_latency": 0, "max_latency": 0,
            "min_bandwidth": bandwidth, "max_bandwidth": bandwidth,
            "recommended_transfer_size": 0, "recommended_sdma_engine_id_mask": 0, "flags": 1,
        }  # fmt: skip
        return "\n".join(f"{key} {value}" for key, value in properties.items())

    # -------------------------------------------------------------------------- changes

    def set(self, gpu: int, name: str, value: str | int | bytes) -> None:
        """Set an attribute in a GPU's PCI folder, such as ``mem_info_vram_used``.

        A name that starts with ``hwmon/`` stands for the GPU's own hwmon folder.
        """
        head, _, tail = name.partition("/")
        self.put(self.hwmon(gpu, tail) if head == "hwmon" else self.device(gpu, name), value)

    def get(self, gpu: int, name: str) -> str:
        """The text of an attribute, without the newline at its end."""
        head, _, tail = name.partition("/")
        path = self.hwmon(gpu, tail) if head == "hwmon" else self.device(gpu, name)
        return path.read_text().rstrip("\n")

    def remove_attribute(self, gpu: int, name: str) -> None:
        """Take an attribute away, as on a kernel or a model that lacks it."""
        head, _, tail = name.partition("/")
        (self.hwmon(gpu, tail) if head == "hwmon" else self.device(gpu, name)).unlink()

    def metrics(self, gpu: int, **values: Value) -> None:
        """Change fields of a GPU's ``gpu_metrics``; without any, put a broken blob right again."""
        known = {member.name for member in blob.fields(self.metrics_version)}
        unknown = set(values) - known
        if unknown:
            raise ValueError(f"gpu_metrics {self.metrics_version} has no {sorted(unknown)}")
        self.state[gpu].update(values)
        self._write_metrics(gpu)

    def _write_metrics(self, gpu: int) -> None:
        self.put(self.device(gpu, "gpu_metrics"), blob.pack(self.metrics_version, self.state[gpu]))
        if not self.xcp_metrics:
            return
        for part in range(self.partitions):
            data = blob.pack_partition(self.metrics_version, self.partition_state(gpu, part))
            folder = self.device(gpu)
            if part:
                folder = self.platform(self.gpus[gpu].xcp_platform_first + part - 1)
            self.put(folder / "xcp/xcp_metrics", data)

    def break_metrics(self, gpu: int, fault: MetricsFault) -> None:
        """Make a GPU's ``gpu_metrics`` wrong; :meth:`metrics` without arguments repairs it."""
        path = self.device(gpu, "gpu_metrics")
        good = blob.pack(self.metrics_version, self.state[gpu])
        size = len(good)
        if fault == "missing":
            path.unlink(missing_ok=True)
            return
        self.put(
            path,
            {
                "empty": b"",
                "garbage": bytes((37 * k + 11) % 251 for k in range(size)),
                "truncated": good[: size // 3],
                "zero": bytes(size),
                "unknown_revision": blob.header(size, (9, 99)) + good[4:],
                "all_ones": b"\xff" * size,
            }[fault],
        )

    def vram(self, gpu: int, used: int) -> None:
        """Set how many bytes of a GPU's memory are in use."""
        self.set(gpu, "mem_info_vram_used", used)
        self.set(gpu, "mem_info_vis_vram_used", used)

    def power(self, gpu: int, watts: int) -> None:
        """Set a GPU's power in ``gpu_metrics`` and hwmon alike."""
        old = self.metrics_version == (1, 3)
        self.metrics(gpu, **{"average_socket_power" if old else "curr_socket_power": watts})
        self.set(gpu, f"hwmon/power1_{self.model.power_sensor}", watts * 10**6)

    def temperature(
        self, gpu: int, sensor: Literal["edge", "junction", "mem"], degrees: int
    ) -> None:
        """Set a temperature in ``gpu_metrics`` and hwmon alike."""
        number = {"edge": 1, "junction": 2, "mem": 3}[sensor]
        name = "hotspot" if sensor == "junction" else sensor
        self.metrics(gpu, **{f"temperature_{name}": degrees})
        self.set(gpu, f"hwmon/temp{number}_input", degrees * 1000)

    def ras(self, gpu: int, block: str, *, ue: int = 0, ce: int = 0, de: int = 0) -> None:
        """Set a RAS block's uncorrectable, correctable and deferred error counts."""
        text = self._ras_text({"ue": ue, "ce": ce, "de": de})
        self.set(gpu, f"ras/{block}_err_count", text)
        if self.model.ras_aca:
            self.set(gpu, f"ras/aca_{block}", text)

    def aer(
        self,
        gpu: int,
        kind: Literal["correctable", "nonfatal", "fatal"],
        *,
        port: bool = False,
        **counts: int,
    ) -> None:
        """Set the PCIe error counts of a GPU, or of the port above it; unnamed ones become 0."""
        self._write_aer(self.port(gpu) if port else self.device(gpu), kind, counts)

    def advance(self, seconds: float, gpus: Iterable[int] | None = None) -> None:
        """Let time pass on the given GPUs (all unless given): the clocks and counters move.

        Energy grows by the power shown, the activity counters by the activity shown; a GPU that is
        left out stands still, as one whose firmware hangs.
        """
        for gpu in range(len(self.gpus)) if gpus is None else gpus:
            if gpu in self._removed:
                continue
            state = self.state[gpu]
            samples = round(seconds * ACCUMULATIONS_PER_SECOND)
            field_name = "average_socket_power" if self.metrics_version == (1, 3) else (
                "curr_socket_power"
            )  # fmt: skip
            watts = _number(state[field_name])
            busy, memory = state["average_gfx_activity"], state["average_umc_activity"]
            for name, step, bits in (
                ("system_clock_counter", round(seconds * 10**9), 64),
                ("firmware_timestamp", round(seconds * 10**8), 64),
                ("accumulation_counter", samples, 32),
                ("energy_accumulator", round(watts * seconds * ENERGY_UNITS_PER_JOULE), 64),
                ("gfx_activity_acc", _number(busy) * samples, 32),
                ("mem_activity_acc", _number(memory) * samples, 32),
            ):
                state[name] = (_number(state[name]) + step) % (1 << bits)
            self._write_metrics(gpu)

    # -------------------------------------------------------------------------- processes

    def process(
        self,
        pid: int,
        gpus: Mapping[int, int],
        *,
        name: str = "python3",
        sdma_microseconds: int = 1000,
        cu_occupancy: int = 12,
        partition: int = 0,
        alive: bool = True,
        kfd: bool = True,
        drm: Mapping[int, int] | None = None,
        uid: int = 1000,
        cgroup: str = "0::/user.slice",
        environment: Mapping[str, str] | None = None,
    ) -> None:
        """Let a process use GPUs: ``{gpu: bytes of memory}``.

        KFD and DRM are told, and ``/proc/<pid>`` of the tree hides the machine's own process of
        that number, if there is one.  ``alive=False`` leaves KFD's entry of a process that is gone,
        ``kfd=False`` makes it a client of DRM alone.  ``drm`` has the bytes that DRM tells where
        they are not those of KFD.
        """
        self.end_process(pid)
        folder = self.kfd("proc", str(pid))
        pasid = 0x8000 + pid % 1000
        if kfd:
            self.put(folder / "pasid", pasid)
        for queue, (gpu, used) in enumerate(gpus.items() if kfd else ()):
            gpu_id = self.gpus[gpu].partitions[partition].gpu_id
            self.put(folder / f"vram_{gpu_id}", used)
            self.put(folder / f"sdma_{gpu_id}", sdma_microseconds)
            self.put(folder / f"stats_{gpu_id}/cu_occupancy", cu_occupancy)
            self.put(folder / f"stats_{gpu_id}/evicted_ms", 0)
            self.put(folder / f"queues/{queue}/gpuid", gpu_id)
            self.put(folder / f"queues/{queue}/size", 4096)
            self.put(folder / f"queues/{queue}/type", 0)
        if alive:
            self._write_proc(pid, name, uid, cgroup, environment or {})
            for number, (gpu, used) in enumerate({**gpus, **(drm or {})}.items()):
                self._write_descriptor(pid, 7 + number, gpu, partition, used, pasid)

    def _write_proc(
        self, pid: int, name: str, uid: int, cgroup: str, environment: Mapping[str, str]
    ) -> None:
        """``/proc/<pid>`` as far as monitoring programs read it."""
        folder = self.root / "proc" / str(pid)
        started = 1_000 + pid  # clock ticks after boot
        numbers = "1 1 1 0 -1 4194304 0 0 0 0 0 0 0 0 20 0 1 0"
        self.put(folder / "comm", name)
        self.put(folder / "cmdline", f"{name}\0train.py\0".encode())
        self.put(folder / "stat", f"{pid} ({name}) S {numbers} {started} 0 0" + " 0" * 28)
        self.put(folder / "status", f"Name:\t{name}\nState:\tS (sleeping)\nPid:\t{pid}\nPPid:\t1\n"
                 f"Uid:\t{uid}\t{uid}\t{uid}\t{uid}\nGid:\t{uid}\t{uid}\t{uid}\t{uid}")  # fmt: skip
        self.put(folder / "cgroup", cgroup)
        entries = "".join(f"{name}={value}\0" for name, value in environment.items())
        self.put(folder / "environ", entries.encode())
        for kind in ("fd", "fdinfo"):
            (folder / kind).mkdir(exist_ok=True)
        (folder / "exe").symlink_to(f"/usr/bin/{name}")
        (folder / "fd/3").symlink_to("/dev/kfd")  # AMD SMI 10.1 lists no process without it

    def _write_descriptor(
        self, pid: int, number: int, gpu: int, partition: int, used: int, pasid: int
    ) -> None:
        """An open render node of a process, with the usage that the driver writes into fdinfo."""
        folder = self.root / "proc" / str(pid)
        node = f"/dev/dri/renderD{self.gpus[gpu].partitions[partition].render}"
        link = folder / "fd" / str(number)
        link.unlink(missing_ok=True)
        link.symlink_to(node)
        lines = {
            "pos": "0",
            "flags": "02100002",
            "mnt_id": "26",
            "ino": "519",
            "drm-driver": "amdgpu",
            "drm-client-id": str(100 * (pid % 1000) + number),
            "drm-pdev": self.gpus[gpu].bdf,
            "pasid": str(pasid),
            "drm-memory-vram": f"{used // 1024} KiB",
            "drm-memory-gtt": "20480 KiB",
            "drm-memory-cpu": "100 KiB",
            "drm-engine-gfx": "123456789 ns",
            "drm-engine-compute": "5 ns",
        }
        text = "\n".join(f"{key}:\t{value}" for key, value in lines.items())
        self.put(folder / "fdinfo" / str(number), text)

    def end_process(self, pid: int) -> None:
        """A process ends, and KFD forgets it."""
        shutil.rmtree(self.kfd("proc", str(pid)), ignore_errors=True)
        shutil.rmtree(self.root / "proc" / str(pid), ignore_errors=True)

    # -------------------------------------------------------------------------- coming and going

    def remove(self, gpu: int) -> None:
        """Take a GPU off the bus: its PCI folder, DRM nodes, KFD nodes and links are gone.

        As in the kernel, the other GPUs keep their DRM numbers, while KFD numbers its nodes anew.
        """
        described = self.gpus[gpu]
        store = self.root / ".removed" / described.bdf
        store.mkdir(parents=True, exist_ok=True)
        record = _Removed()

        def take(path: Path) -> None:
            if os.path.lexists(path):
                away = store / str(len(record.moved))
                os.rename(path, away)
                record.moved.append((path, away))

        for offset in range(self.model.xcp_devices):
            for kind, first in (("card", described.card), ("renderD", described.render)):
                minor = first + offset
                take(self.root / "dev/dri" / f"{kind}{minor}")
                take(self.sysfs("class/drm", f"{kind}{minor}"))
                take(self.sysfs("dev/char", f"226:{minor}"))
                take(self.root / ".ioctl" / str(minor))
        take(self.sysfs("class/hwmon", f"hwmon{described.hwmon}"))
        take(self.sysfs("bus/pci/drivers/amdgpu", described.bdf))
        take(self.sysfs("bus/pci/devices", described.bdf))
        for number in range(self.model.xcp_devices - 1):
            folder = self.platform(described.xcp_platform_first + number)
            take(self.sysfs("bus/platform/devices", folder.name))
            take(folder)
        take(self.device(gpu))
        self._removed[gpu] = record
        self._kfd_order.remove(gpu)
        self._write_topology()

    def restore(self, gpu: int) -> None:
        """Bring a removed GPU back as it was; its KFD nodes are now the last ones."""
        for path, away in reversed(self._removed.pop(gpu).moved):
            os.rename(away, path)
        self._kfd_order.append(gpu)
        self._write_topology()
        shutil.rmtree(self.root / ".removed" / self.gpus[gpu].bdf, ignore_errors=True)

    def unload_driver(self) -> None:
        """Unload amdgpu: what the PCI core shows stays, all else is gone."""
        for gpu in range(len(self.gpus)):
            if gpu in self._removed:
                raise ValueError(f"GPU {gpu} is removed: restore it first")
            shutil.rmtree(self.device(gpu))
        for name in ("module/amdgpu", "bus/pci/drivers/amdgpu", "class/kfd", "devices/virtual/kfd"):
            shutil.rmtree(self.sysfs(name), ignore_errors=True)
        shutil.rmtree(self.root / ".ioctl", ignore_errors=True)
        shutil.rmtree(self.root / ".perf", ignore_errors=True)
        for folder in self.sysfs("devices/platform").glob("amdgpu_xcp_*"):
            shutil.rmtree(folder)
        for pattern in ("class/drm/*", "class/hwmon/*", "dev/char/*", "bus/platform/devices/*"):
            for link in self.sysfs().glob(pattern):
                if not link.exists():  # it led into a folder that is gone
                    link.unlink()
        for device in (self.root / "dev/dri").iterdir():
            if not self.sysfs("class/drm", device.name).exists():
                device.unlink()
        (self.root / "dev/kfd").unlink()
        for described in self.gpus:
            self._write_pci(described)

    def load_driver(self) -> None:
        """Load amdgpu again: the counters start over."""
        self.state = [self._initial(gpu) for gpu in self.gpus]
        self._kfd_order = list(range(len(self.gpus)))
        self._write_driver()

    # -------------------------------------------------------------------------- faults and events

    def rules(self, *lines: str) -> None:
        """Replace the fault rules (see README.md); without any line there are none."""
        path = self.root / ".faults"
        if not lines:
            path.unlink(missing_ok=True)
            return
        temporary = self.root / ".faults.tmp"
        temporary.write_text("\n".join(lines) + "\n")
        # The shim goes by the file's time, which the kernel's clock moves in steps of milliseconds
        self._rules_written = max(self._rules_written + 1, time.time_ns())
        os.utime(temporary, ns=(self._rules_written, self._rules_written))
        temporary.rename(path)

    @contextlib.contextmanager
    def faulty(self, *lines: str) -> Iterator[None]:
        """Have these fault rules within a ``with`` block."""
        self.rules(*lines)
        try:
            yield
        finally:
            self.rules()

    def opened(self) -> list[tuple[int, str]]:
        """What ``log`` rules have written: (process, path below the tree) for each open."""
        path = self.root / ".opens"
        lines = path.read_text().splitlines() if path.exists() else []
        return [(int(pid), name) for pid, _, name in (line.partition(" ") for line in lines)]

    def counter(self, gpu: int, link: int, value: int) -> None:
        """Set the perf counter of the data sent over an xGMI link (MI100 alone has them)."""
        config = (0x4B + link) | 0x46 << 8 | 0x2 << 16
        self.put(self.root / f".perf/{4000 + gpu}/{config:x}", value)

    def event(self, gpu: int, text: str) -> None:
        """Send an SMI event, such as ``"2 1000:1"``, to whoever listens on a GPU."""
        path = self.root / ".events" / str(self.gpus[gpu].partitions[0].gpu_id)
        with contextlib.suppress(FileExistsError):
            os.mkfifo(path)
        descriptor = os.open(path, os.O_RDWR | os.O_NONBLOCK)
        try:
            os.write(descriptor, f"{text}\n".encode())
        finally:
            os.close(descriptor)


def _levels(values: Sequence[int], current: int) -> str:
    """A ``pp_dpm_*`` file: the clock levels, the current one with a star."""
    return "\n".join(
        f"{number}: {value}Mhz{' *' if number == current else ''}"
        for number, value in enumerate(values)
    )


def _list(value: Value) -> list[int]:
    return [value] if isinstance(value, int) else list(value)


def _number(value: Value) -> int:
    if not isinstance(value, int):
        raise TypeError(f"{value!r} is a list, not a number")
    return value
