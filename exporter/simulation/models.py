"""Facts of the simulated hardware.

Where a figure is marked "assumption" there is no public primary source for it, or it was taken from
general knowledge; it is good enough to look at and nothing to build on. Unmarked figures come from
AMD's documentation, kernel source or published reports: XGMI, PCIe, temperatures and power caps
as collected in the project's reference on interconnects, gpu_metrics revisions from the kernel's
amdgpu driver. Assumptions everywhere: how warm a model gets, its firmware versions, the bus
numbers, clocks other than the highest, and what it draws at idle.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

MIB = 1 << 20
_DRIVER_RESERVE = 16 * MIB
"""What the driver keeps of the memory; MI300X shows 196592 MiB of 192 GiB."""


@dataclass(frozen=True, slots=True)
class Limits:
    """A sensor's limits in degrees: throttled at `critical`, switched off at `emergency`."""

    critical: int
    emergency: int


@dataclass(frozen=True, slots=True)
class Clock:
    """A clock's steps in MHz, the lowest first."""

    steps: tuple[int, ...]

    @property
    def low(self) -> int:
        """The lowest step."""
        return self.steps[0]

    @property
    def high(self) -> int:
        """The highest step."""
        return self.steps[-1]


@dataclass(frozen=True, slots=True)
class Xgmi:
    """The links to other GPUs.

    Attributes:
        links: per GPU, where the node is full.
        gigabits: per lane and second, one way.
        cube: peers differ in one bit of their number; otherwise groups of `links` + 1 GPUs are
            each wired to all others of the group.
    """

    links: int
    gigabits: int
    width: int = 16
    cube: bool = False

    @property
    def peak(self) -> float:
        """Bytes per second of one link, one way."""
        return self.width * self.gigabits * 1e9 / 8


@dataclass(frozen=True, slots=True)
class Model:
    """One model of GPU, in one mode.

    Attributes:
        name: as AMD markets it.
        device_id, revision, subsystem_id: PCI identity.
        gfx: LLVM's name of the target.
        gfx_version: the same as KFD writes it.
        compute_units, dies_of_compute: of one device; XCCs are `dies_of_compute`.
        vram: bytes.
        vram_type: the library's number (AmdSmiVramType of 10.1).
        bandwidth: of the VRAM in GB/s.
        stacks: HBM stacks of one device.
        power_cap, idle_power: watts, of a whole package.
        gfx_clock, memory_clock, soc_clock: MHz.
        metrics: gpu_metrics revision; None where AMD SMI can't read the table.
        pcie_gen, pcie_width: of the slot.
        limits: by hwmon label.
        sku: part of board and firmware names.
        firmware: by the kernel's names.
        xgmi: None without links.
        dies: devices per package; only the first has a power sensor.
        partitions: that one device is split into, as `compute_mode` says.
        integrated: another GPU in the same node, on card0.
    """

    name: str
    device_id: int
    revision: int
    subsystem_id: int
    gfx: str
    gfx_version: int
    compute_units: int
    vram: int
    vram_type: int
    bandwidth: int
    stacks: int
    power_cap: int
    idle_power: int
    gfx_clock: Clock
    memory_clock: Clock
    limits: Mapping[str, Limits]
    sku: str
    metrics: tuple[int, int] | None
    pcie_gen: int = 4
    pcie_width: int = 16
    soc_clock: Clock = Clock((666, 857, 1000, 1090))
    dies_of_compute: int = 1
    firmware: Mapping[str, int] = field(default_factory=dict)
    xgmi: Xgmi | None = None
    dies: int = 1
    partitions: int = 1
    compute_mode: str | None = None
    memory_mode: str | None = None
    integrated: Model | None = None

    @property
    def market_name(self) -> str:
        """The name, marked so that nobody takes it for hardware."""
        return f"{self.name} (simulated)"

    @property
    def current_power(self) -> bool:
        """Whether power is reported as of now (MI300 on), not as an average."""
        return self.metrics is not None and self.metrics >= (1, 4)

    @property
    def links_reported(self) -> bool:
        """Whether it counts XGMI traffic and tells the state of its links (gpu_metrics 1.7)."""
        return self.xgmi is not None and self.metrics is not None and self.metrics >= (1, 7)


_FIRMWARE = {
    "asd": 0x210000E5,
    "mec": 0xA9,
    "mec2": 0xA9,
    "rlc": 0x41,
    "sdma": 0x17,
    "sdma2": 0x17,
    "smc": 0x00557300,
    "sos": 0x0036763F,
    "ta_ras": 0x1B00013C,
    "ta_xgmi": 0x2000000F,
    "vcn": 0x09118013,
}
_HBM2_LIMITS = {"edge": Limits(100, 105), "junction": Limits(100, 105), "mem": Limits(94, 99)}
"""Of the MI100 (ROCm issue 1468); for the MI200 an assumption, its own are not published."""
_HBM3_LIMITS = {"junction": Limits(100, 110), "mem": Limits(105, 115)}
"""Assumption: the firmware of a device tells its own."""

MI100 = Model(
    name="AMD Instinct MI100",
    device_id=0x738C,
    revision=0x01,
    subsystem_id=0x0C34,
    gfx="gfx908",
    gfx_version=90008,
    compute_units=120,
    vram=32768 * MIB - _DRIVER_RESERVE,
    vram_type=2,
    bandwidth=1229,
    stacks=4,
    power_cap=290,
    idle_power=38,
    gfx_clock=Clock((300, 1000, 1502)),
    memory_clock=Clock((350, 700, 1200)),
    limits=_HBM2_LIMITS,
    sku="D34303",
    metrics=(1, 3),
    firmware={**_FIRMWARE, "smc": 0x00361D00},
    xgmi=Xgmi(links=3, gigabits=23),
)
"""Power cap and limits: ROCm issue 1468. Links: 23 GT/s, three, each 16 lanes."""

MI210 = Model(
    name="AMD Instinct MI210",
    device_id=0x740F,
    revision=0x02,
    subsystem_id=0x0C34,
    gfx="gfx90a",
    gfx_version=90010,
    compute_units=104,
    vram=65536 * MIB - _DRIVER_RESERVE,
    vram_type=3,
    bandwidth=1638,
    stacks=4,
    power_cap=300,
    idle_power=41,
    gfx_clock=Clock((500, 800, 1700)),
    memory_clock=Clock((400, 700, 1200, 1600)),
    limits=_HBM2_LIMITS,
    sku="D67301V",
    metrics=(1, 3),
    firmware=_FIRMWARE,
    xgmi=Xgmi(links=3, gigabits=25),
)
"""Links: 25 GT/s (AMD's page on the MI250 architecture); power cap and three links: assumption."""

MI250X = Model(
    name="AMD Instinct MI250X",
    device_id=0x7408,
    revision=0x01,
    subsystem_id=0x0B0C,
    gfx="gfx90a",
    gfx_version=90010,
    compute_units=110,
    vram=65536 * MIB - _DRIVER_RESERVE,
    vram_type=3,
    bandwidth=1638,
    stacks=4,
    power_cap=560,
    idle_power=90,
    gfx_clock=Clock((500, 800, 1700)),
    memory_clock=Clock((400, 700, 1200, 1600)),
    limits=_HBM2_LIMITS,
    sku="D65209",
    metrics=(1, 3),
    firmware=_FIRMWARE,
    xgmi=Xgmi(links=4, gigabits=25, cube=True),
    dies=2,
)
"""One die of a package. Power cap 560 W and idle 90 W of the package, on the first die only; the
second shows no power, cap 0 and energy 0 (rocm_smi_lib issues 149 and 160). Wiring as a cube:
assumption; the real one differs from board to board."""

MI300X = Model(
    name="AMD Instinct MI300X",
    device_id=0x74A1,
    revision=0x00,
    subsystem_id=0x74A1,
    gfx="gfx942",
    gfx_version=90402,
    compute_units=304,
    vram=196592 * MIB,
    vram_type=4,
    bandwidth=5325,
    stacks=8,
    power_cap=750,
    idle_power=140,
    gfx_clock=Clock((132, 1285, 2100)),
    memory_clock=Clock((900, 1100, 1200, 1300)),
    limits=_HBM3_LIMITS,
    sku="M3000100",
    metrics=(1, 7),
    pcie_gen=5,
    dies_of_compute=8,
    firmware=_FIRMWARE,
    xgmi=Xgmi(links=7, gigabits=32),
    compute_mode="SPX",
    memory_mode="NPS1",
)
"""Power cap 750 W (ROCm issue 5231), VRAM 196592 MiB (nvtop pull 513), seven links of 16 lanes at
32 Gb/s, no edge sensor, no temperature per stack."""

MI300X_CPX = replace(MI300X, partitions=8, compute_mode="CPX")
"""The MI300X split into its eight compute dies."""

MI325X = Model(
    name="AMD Instinct MI325X",
    device_id=0x74A5,
    revision=0x00,
    subsystem_id=0x74A5,
    gfx="gfx942",
    gfx_version=90402,
    compute_units=304,
    vram=262128 * MIB,
    vram_type=5,
    bandwidth=6000,
    stacks=8,
    power_cap=1000,
    idle_power=150,
    gfx_clock=Clock((132, 1285, 2100)),
    memory_clock=Clock((900, 1100, 1300, 1500)),
    limits=_HBM3_LIMITS,
    sku="M3250101",
    metrics=(1, 7),
    pcie_gen=5,
    dies_of_compute=8,
    firmware=_FIRMWARE,
    xgmi=Xgmi(links=7, gigabits=32),
    compute_mode="SPX",
    memory_mode="NPS1",
)
"""VRAM 262128 MiB (rocm-systems issue 8263). Power cap: assumption."""

MI355X = Model(
    name="AMD Instinct MI355X",
    device_id=0x75A3,
    revision=0x00,
    subsystem_id=0x75A3,
    gfx="gfx950",
    gfx_version=90500,
    compute_units=256,
    vram=294896 * MIB,
    vram_type=5,
    bandwidth=8000,
    stacks=8,
    power_cap=1400,
    idle_power=200,
    gfx_clock=Clock((132, 1285, 2400)),
    memory_clock=Clock((900, 1500, 2000)),
    limits=_HBM3_LIMITS,
    sku="M3550101",
    metrics=(1, 9),
    pcie_gen=5,
    dies_of_compute=8,
    firmware=_FIRMWARE,
    xgmi=Xgmi(links=7, gigabits=38),
    compute_mode="SPX",
    memory_mode="NPS1",
)
"""Power cap 1400 W (The Register, 12 June 2025), VRAM 287.98 GiB (pytorch issue 175431). Links of
38.4 Gb/s and temperatures per stack, which 10.1 has names for: assumption."""

RAPHAEL = Model(
    name="AMD Radeon Graphics",
    device_id=0x164E,
    revision=0xC1,
    subsystem_id=0x8877,
    gfx="gfx1036",
    gfx_version=100306,
    compute_units=2,
    vram=512 * MIB,
    vram_type=13,
    bandwidth=83,
    stacks=0,
    power_cap=0,
    idle_power=10,
    gfx_clock=Clock((400, 2200)),
    memory_clock=Clock((1000, 2400)),
    limits={"edge": Limits(0, 0)},
    sku="RAPHAEL",
    metrics=None,
    firmware={"smc": 0x00544FDF, "vcn": 0x03118002},
)
"""The graphics part of a Ryzen 7000 processor. AMD SMI can't read its gpu_metrics (v2.1, status 43:
rocm-systems issues 11075 and 11104). All figures: assumption."""

MI210_IGPU = replace(MI210, integrated=RAPHAEL)
"""MI210 in a workstation whose card0 is the processor's graphics."""

MODELS: Mapping[str, Model] = {
    "MI100": MI100,
    "MI210": MI210,
    "MI210-iGPU": MI210_IGPU,
    "MI250X": MI250X,
    "MI300X": MI300X,
    "MI300X-CPX": MI300X_CPX,
    "MI325X": MI325X,
    "MI355X": MI355X,
}
"""By the name that a specification gives."""
