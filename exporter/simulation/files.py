"""The simulated node as the kernel shows it: sysfs, KFD and a little of procfs.

Formats: Documentation/gpu/amdgpu, Documentation/hwmon and Documentation/PCI/pcieaer-howto of the
kernel, drivers/gpu/drm/amd/amdkfd/kfd_topology.c, drivers/gpu/drm/amd/amdgpu/amdgpu_xgmi.c.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterator

from exporter.simulation.amdsmi import GTT, GTT_USED, bad_pages, hive_id, serial
from exporter.simulation.enumerations import RAS_BLOCKS, AmdSmiMemoryPageStatus
from exporter.simulation.metrics import megatransfers, pcie_link, percent
from exporter.simulation.models import Clock
from exporter.simulation.node import CPU_NODES, PAGE, UPTIME, Device, SimulatedNode, State

_PCI = "/sys/bus/pci/devices"
_DRIVER = "/sys/bus/pci/drivers/amdgpu"
_KFD = "/sys/class/kfd/kfd"
_PROC = f"{_KFD}/proc"
_TOPOLOGY = f"{_KFD}/topology"
_SENSORS = ("edge", "junction", "mem")  # temp1, temp2, temp3
_CORRECTABLE = """
RxErr BadTLP BadDLLP Rollover Timeout NonFatalErr CorrIntErr HeaderOF
"""
_UNCORRECTABLE = """
Undefined DLP SDES TLP FCP CmpltTO CmpltAbrt UnxCmplt RxOF MalfTLP ECRC UnsupReq ACSViol
UncorrIntErr BlockedTLP AtomicOpBlocked TLPBlockedErr PoisonTLPBlocked
"""
_AER = {
    "correctable": ("COR", _CORRECTABLE.split()),
    "nonfatal": ("NONFATAL", _UNCORRECTABLE.split()),
    "fatal": ("FATAL", _UNCORRECTABLE.split()),
}
"""Part of a file's name to that of its last line, and the errors before that."""
_PAGE_LETTERS: dict[int, str] = {
    AmdSmiMemoryPageStatus.RESERVED: "R",
    AmdSmiMemoryPageStatus.PENDING: "P",
}

Content = str | Callable[[State], str]
"""Of a file: text that never changes, or made from what the device shows."""


def _lines(values: dict[str, int]) -> str:
    return "".join(f"{name} {value}\n" for name, value in values.items())


def _speed(generation: int) -> str:
    return f"{megatransfers(generation) / 1000:.1f} GT/s PCIe\n"


def _steps(clock: Clock, now: int) -> str:
    """A pp_dpm file; the step in force has a star."""
    nearest = min(range(len(clock.steps)), key=lambda i: abs(clock.steps[i] - now))
    return "".join(
        f"{i}: {step}Mhz{' *' if i == nearest else ''}\n" for i, step in enumerate(clock.steps)
    )


def _celsius(sensor: str) -> Content:
    return lambda s: f"{int(s.celsius[sensor]) * 1000}\n"


def _aer(kind: str) -> Content:
    def content(state: State) -> str:
        total, names = _AER[kind]
        found = dict.fromkeys(names, 0)
        if kind == "correctable":
            found["BadTLP"], found["Timeout"] = state.replays // 2, state.replays // 4
        return _lines({**found, f"TOTAL_ERR_{total}": sum(found.values())})

    return content


def _bad_pages(state: State) -> str:
    return "".join(
        f"0x{address // PAGE:08x} : 0x{PAGE:08x} : {_PAGE_LETTERS[status]}\n"
        for address, status in bad_pages(state)
    )


class SimulatedFiles:
    """The files of the node, with the interface of `exporter.sources.files.Files`.

    The files of a device that left the bus are gone.
    """

    def __init__(self, node: SimulatedNode) -> None:
        self._node = node
        self._changed_at = -1.0
        self._changing_files: dict[str, str] = {}
        self._changing_folders: dict[str, set[str]] = {}
        self._files: dict[str, tuple[int | None, Content]] = {}
        self._links: dict[str, tuple[int | None, str]] = {}
        self._folders: dict[str, dict[str, set[int | None]]] = {}
        for path, text in self._host():
            self._add(path, None, text)
        for device in node.devices:
            for path, content in self._pci(device):
                self._add(f"{_PCI}/{device.address}/{path}", device.number, content)
            for path, content in self._kfd(device):
                self._add(f"{_TOPOLOGY}/nodes/{path}", device.number, content)
            self._link(f"{_DRIVER}/{device.address}", device.number, f"{_PCI}/{device.address}")
            self._link(f"{_PCI}/{device.address}/driver", device.number, _DRIVER)
            for other in node.devices:
                if device.peers and hive_id(node, other) == hive_id(node, device):
                    self._link(
                        f"{_PCI}/{device.address}/xgmi_hive_info/node{other.number + 1}",
                        device.number,
                        f"../../{other.address}",
                    )

    def read(self, path: str) -> str:
        entry = self._files.get(path)
        if entry is None:
            changing = self._changing().get(path)
            if changing is None:
                raise _missing(path)
            return changing
        owner, content = entry
        if owner is None:
            assert isinstance(content, str)  # noqa: S101  # only devices have changing files
            return content
        if not self._node.present(owner):
            raise _missing(path)
        return content if isinstance(content, str) else content(self._node.state(owner))

    def list(self, path: str) -> list[str]:
        names = {
            name
            for name, owners in self._folders.get(path, {}).items()
            if any(owner is None or self._node.present(owner) for owner in owners)
        }
        if path.startswith(("/proc", _KFD)):
            self._changing()
            names |= self._changing_folders.get(path, set())
        if not names and path != _PROC:
            raise _missing(path)
        return sorted(names)

    def link(self, path: str) -> str:
        owner, target = self._links.get(path, (None, ""))
        if not target or (owner is not None and not self._node.present(owner)):
            raise _missing(path)
        return target

    def _add(self, path: str, owner: int | None, content: Content) -> None:
        self._files[path] = owner, content
        self._enter(path, owner)

    def _link(self, path: str, owner: int, target: str) -> None:
        self._links[path] = owner, target
        self._enter(path, owner)

    def _enter(self, path: str, owner: int | None) -> None:
        """Name a path in the folders above it."""
        while path != "/":
            path, _, name = path.rpartition("/")
            path = path or "/"
            self._folders.setdefault(path, {}).setdefault(name, set()).add(owner)

    def _host(self) -> Iterator[tuple[str, str]]:
        """Files that belong to no GPU."""
        yield "/sys/module/amdgpu/version", "simulated\n"
        yield "/sys/module/amdgpu/initstate", "live\n"
        yield "/opt/rocm/.info/version", "simulated\n"
        yield "/etc/passwd", "root:x:0:0:root:/root:/bin/sh\n"
        yield "/proc/sys/kernel/osrelease", "6.8.0-simulated\n"
        yield "/proc/sys/kernel/random/boot_id", f"{self._node.boot_id}\n"
        yield f"{_DRIVER}/module/version", "simulated\n"
        for number in range(CPU_NODES):
            base = f"{_TOPOLOGY}/nodes/{number}"
            yield f"{base}/gpu_id", "0\n"
            yield f"{base}/name", "\n"
            yield f"{base}/properties", _lines({"cpu_cores_count": 64, "simd_count": 0})
            yield (
                f"{base}/mem_banks/0/properties",
                _lines({"heap_type": 0, "size_in_bytes": 1 << 39}),
            )

    def _pci(self, device: Device) -> Iterator[tuple[str, Content]]:
        """The files of the PCI device."""
        model = device.model
        yield "vendor", "0x1002\n"
        yield "device", f"0x{model.device_id:04x}\n"
        yield "subsystem_vendor", "0x1002\n"
        yield "subsystem_device", f"0x{model.subsystem_id:04x}\n"
        yield "revision", f"0x{model.revision:02x}\n"
        yield "class", "0x030000\n" if device.gpu is None else "0x120000\n"
        yield "numa_node", f"{device.numa}\n"
        yield "power/runtime_status", "active\n"
        yield f"drm/card{device.card}/dev", f"226:{device.card}\n"
        render = device.partitions[0].render
        yield f"drm/renderD{render}/dev", f"226:{render}\n"
        yield "max_link_speed", _speed(model.pcie_gen)
        yield "max_link_width", f"{model.pcie_width}\n"
        yield "current_link_speed", lambda s: _speed(pcie_link(model, s)[0])
        yield "current_link_width", lambda s: f"{pcie_link(model, s)[1]}\n"
        yield "vbios_version", f"113-{model.sku}-100\n"
        yield "gpu_busy_percent", lambda s: f"{percent(s.gfx)}\n"
        yield "mem_busy_percent", lambda s: f"{percent(s.memory)}\n"
        for part in ("vram", "vis_vram"):
            yield f"mem_info_{part}_total", f"{model.vram}\n"
            yield f"mem_info_{part}_used", lambda s: f"{s.vram_used}\n"
        yield "mem_info_gtt_total", f"{GTT}\n"
        yield "mem_info_gtt_used", f"{GTT_USED}\n"
        yield "pp_dpm_sclk", lambda s: _steps(model.gfx_clock, s.gfx_clock)
        yield "pp_dpm_mclk", lambda s: _steps(model.memory_clock, s.memory_clock)
        yield "pp_dpm_socclk", _steps(model.soc_clock, model.soc_clock.high)
        for name, version in model.firmware.items():
            yield f"fw_version/{name}_fw_version", f"0x{version:08x}\n"
        yield from self._hwmon(device)
        if device.gpu is not None:
            yield from self._instinct(device)

    def _instinct(self, device: Device) -> Iterator[tuple[str, Content]]:
        """What only the accelerators have."""
        model = device.model
        yield "unique_id", f"{device.unique_id:016x}\n"
        yield "serial_number", f"{serial(device)}\n"
        yield "product_name", f"{model.market_name}\n"
        yield "product_number", f"102-{model.sku}-00\n"
        yield "pcie_replay_count", lambda s: f"{s.replays}\n"
        for kind in _AER:
            yield f"aer_dev_{kind}", _aer(kind)
        if model.current_power:
            yield "vcn_busy_percent", "0\n"
        if model.compute_mode is not None:
            yield "current_compute_partition", f"{model.compute_mode}\n"
            yield "available_compute_partition", "SPX, DPX, QPX, CPX\n"
            yield "current_memory_partition", f"{model.memory_mode}\n"
            yield "available_memory_partition", "NPS1, NPS4\n"
        mask = sum(1 << i for i in (0, 2, 3, 4, 5, 6, 7, 8))
        yield "ras/features", f"feature mask: {mask:#x}\n"
        yield "ras/gpu_vram_bad_pages", _bad_pages
        for block in RAS_BLOCKS:
            yield f"ras/{block.lower()}_err_count", self._errors(device, block)
        if device.peers:
            yield "xgmi_physical_id", f"{device.gpu}\n"
            yield "xgmi_device_id", f"{device.unique_id}\n"
            yield "xgmi_hive_info/xgmi_hive_id", f"{hive_id(self._node, device)}\n"
            yield (
                "xgmi_port_num",
                "".join(
                    f"{device.number + 1:02x}:{link:02x} ->  {peer + 1:02x}:"
                    f"{self._node.devices[peer].peers.index(device.number):02x}\n"
                    for link, peer in enumerate(device.peers)
                ),
            )

    def _errors(self, device: Device, block: str) -> Content:
        """A RAS count; newer kernels tell of deferred errors too."""
        deferring = device.model.current_power
        if block != "UMC":
            return "ue: 0\nce: 0\n" + ("de: 0\n" if deferring else "")
        return lambda s: (
            f"ue: {s.uncorrectable}\nce: {s.correctable}\n"
            + (f"de: {s.deferred}\n" if deferring else "")
        )

    def _hwmon(self, device: Device) -> Iterator[tuple[str, Content]]:
        model = device.model
        base = f"hwmon/hwmon{device.number}"
        yield f"{base}/name", "amdgpu\n"
        for number, sensor in enumerate(_SENSORS, 1):
            if sensor in model.limits:
                limits = model.limits[sensor]
                yield f"{base}/temp{number}_label", f"{sensor}\n"
                yield f"{base}/temp{number}_input", _celsius(sensor)
                if limits.critical:
                    yield f"{base}/temp{number}_crit", f"{limits.critical * 1000}\n"
                    yield f"{base}/temp{number}_crit_hyst", "-273150\n"
                    yield f"{base}/temp{number}_emergency", f"{limits.emergency * 1000}\n"
        for number, name in enumerate(("sclk", "mclk"), 1):
            yield f"{base}/freq{number}_label", f"{name}\n"
        yield f"{base}/freq1_input", lambda s: f"{s.gfx_clock * 1_000_000}\n"
        yield f"{base}/freq2_input", lambda s: f"{s.memory_clock * 1_000_000}\n"
        if device.gpu is not None:
            cap = 0 if device.secondary else model.power_cap * 1_000_000
            yield f"{base}/power1_label", "PPT\n"
            for name in ("cap", "cap_max", "cap_default"):
                yield f"{base}/power1_{name}", f"{cap}\n"
            yield f"{base}/power1_cap_min", "0\n"
        if not device.secondary:
            measured = "input" if model.current_power else "average"
            yield f"{base}/power1_{measured}", lambda s: f"{int(s.power) * 1_000_000}\n"

    def _kfd(self, device: Device) -> Iterator[tuple[str, str]]:
        """The topology's nodes, one per partition."""
        model = device.model
        share = len(device.partitions)
        bus = int(device.address[5:7], 16)
        for number, partition in enumerate(device.partitions):
            base = f"{partition.node}"
            yield f"{base}/gpu_id", f"{partition.gpu_id}\n"
            yield f"{base}/name", f"{model.gfx}\n"
            yield (
                f"{base}/properties",
                _lines(
                    {
                        "cpu_cores_count": 0,
                        "simd_count": model.compute_units * 4 // share,
                        "mem_banks_count": 1,
                        "io_links_count": len(device.peers),
                        "gfx_target_version": model.gfx_version,
                        "vendor_id": 0x1002,
                        "device_id": model.device_id,
                        "location_id": bus << 8 | number,
                        "domain": 0,
                        "drm_render_minor": partition.render,
                        "hive_id": hive_id(self._node, device),
                        "num_xcc": model.dies_of_compute // share,
                        "max_engine_clk_fcompute": model.gfx_clock.high,
                        "unique_id": device.unique_id,
                    }
                ),
            )
            yield (
                f"{base}/mem_banks/0/properties",
                _lines(
                    {
                        "heap_type": 1,
                        "size_in_bytes": model.vram // share // PAGE * PAGE,
                        "flags": 0,
                        "width": 1024 * model.stacks or 128,
                        "mem_clk_max": model.memory_clock.high,
                    }
                ),
            )
            for link, peer in enumerate(device.peers):
                megabytes = int(model.xgmi.peak / 1e6) if model.xgmi else 0
                yield (
                    f"{base}/io_links/{link}/properties",
                    _lines(
                        {
                            "type": 11,
                            "node_from": partition.node,
                            "node_to": self._node.devices[peer].partitions[0].node,
                            "weight": 15,
                            "min_bandwidth": megabytes,
                            "max_bandwidth": megabytes,
                        }
                    ),
                )

    # -- what comes and goes: the topology's generation, and processes

    def _changing(self) -> dict[str, str]:
        """The files that depend on more than one device, made once per moment."""
        now = self._node.clock.now()
        if self._changed_at == now:
            return self._changing_files
        files = {f"{_TOPOLOGY}/generation_id": f"{2 + self._node.changes()}\n"}
        for p in self._node.processes():
            files[f"{_PROC}/{p.pid}/vram_{p.gpu_id}"] = f"{p.vram}\n"
            files[f"{_PROC}/{p.pid}/pasid"] = f"{0x8000 + p.pid % 0x8000}\n"
            files[f"/proc/{p.pid}/comm"] = f"{p.program}\n"
            files[f"/proc/{p.pid}/cgroup"] = "0::/\n"
            files[f"/proc/{p.pid}/status"] = (
                f"Name:\t{p.program}\nState:\tR (running)\nPid:\t{p.pid}\nUid:\t0\t0\t0\t0\n"
            )
            ticks = int(100 * (UPTIME + p.started))
            files[f"/proc/{p.pid}/stat"] = f"{p.pid} ({p.program}) R 1 {'0 ' * 17}{ticks} 0\n"
        folders: dict[str, set[str]] = {}
        for path in files:
            while path != "/":
                folder, _, name = path.rpartition("/")
                path = folder or "/"
                folders.setdefault(path, set()).add(name)
        self._changed_at, self._changing_files, self._changing_folders = now, files, folders
        return files


def _missing(path: str) -> FileNotFoundError:
    return FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
