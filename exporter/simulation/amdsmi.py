"""The simulated node as the package `amdsmi` of ROCm 10.1 shows it.

Names, keys, units, 'N/A' marks and status codes were taken from that package and from running AMD's
library over simulated kernel files. Hardware that lacks something answers with status 2, a device
that left the bus with status 6, and an integrated GPU's gpu_metrics with 43.
"""

from __future__ import annotations

from typing import NamedTuple

from exporter.simulation import enumerations as e
from exporter.simulation.metrics import (
    NA,
    energy_count,
    gpu_metrics,
    hbm_celsius,
    megatransfers,
    pcie_link,
)
from exporter.simulation.models import MIB, Limits
from exporter.simulation.node import PAGE, UPTIME, Device, SimulatedNode, State

VERSION = "27.1.0"
"""Of the library; the package and ROCm call it 10.1."""
GTT = 128 << 30
GTT_USED = 20 * MIB
BAD_PAGE_THRESHOLD = 256
"""From MI300 on (assumption)."""
_FIRMWARE = {
    "mec": (e.AmdSmiFwBlock.AMDSMI_FW_ID_CP_MEC1, ""),
    "mec2": (e.AmdSmiFwBlock.AMDSMI_FW_ID_CP_MEC2, ""),
    "rlc": (e.AmdSmiFwBlock.AMDSMI_FW_ID_RLC, ""),
    "sdma": (e.AmdSmiFwBlock.AMDSMI_FW_ID_SDMA0, ""),
    "sdma2": (e.AmdSmiFwBlock.AMDSMI_FW_ID_SDMA1, ""),
    "vcn": (e.AmdSmiFwBlock.AMDSMI_FW_ID_VCN, "02X"),
    "sos": (e.AmdSmiFwBlock.AMDSMI_FW_ID_PSP_SOSDRV, "02X"),
    "asd": (e.AmdSmiFwBlock.AMDSMI_FW_ID_ASD, ""),
    "ta_ras": (e.AmdSmiFwBlock.AMDSMI_FW_ID_TA_RAS, "02X"),
    "ta_xgmi": (e.AmdSmiFwBlock.AMDSMI_FW_ID_TA_XGMI, "02X"),
    "smc": (e.AmdSmiFwBlock.AMDSMI_FW_ID_PM, "02d"),
}
"""The kernel's name to the library's, and how each byte of the version is written."""
_NO_PEER = "ffffffffffff:ff:1f.7"
"""What the wrapper makes of a link without a peer."""
_ALL_ONES = (1 << 64) - 1


class Handle(NamedTuple):
    """What stands for a device, or one partition of it."""

    device: int
    partition: int


def _check(supported: bool, status: int = e.NOT_SUPPORTED) -> None:
    if not supported:
        raise e.AmdSmiLibraryException(status)


def serial(device: Device) -> str:
    """A serial number that no board has."""
    return f"SIM{device.unique_id & 0xFFFFFFFF:010d}"


def bad_pages(state: State) -> list[tuple[int, int]]:
    """Address and status of each bad page; the newest waits for the next start of the driver."""
    last = state.bad_pages - 1
    return [
        (
            (0x1234 + 7919 * i) * PAGE,
            e.AmdSmiMemoryPageStatus.RESERVED if i < last else e.AmdSmiMemoryPageStatus.PENDING,
        )
        for i in range(state.bad_pages)
    ]


class SimulatedAmdSmi:
    """Stands in for the module `amdsmi`.

    A function of a device raises `AmdSmiLibraryException` where the hardware can't answer. The
    other functions of the package don't exist here.
    """

    AmdSmiLibraryException = e.AmdSmiLibraryException
    AmdSmiInitFlags = e.AmdSmiInitFlags
    AmdSmiClkType = e.AmdSmiClkType
    AmdSmiTemperatureType = e.AmdSmiTemperatureType
    AmdSmiTemperatureMetric = e.AmdSmiTemperatureMetric
    AmdSmiMemoryType = e.AmdSmiMemoryType
    AmdSmiMemoryPageStatus = e.AmdSmiMemoryPageStatus
    AmdSmiLinkType = e.AmdSmiLinkType
    AmdSmiGpuBlock = e.AmdSmiGpuBlock
    AmdSmiFwBlock = e.AmdSmiFwBlock

    def __init__(self, node: SimulatedNode) -> None:
        self._node = node

    def _device(self, handle: Handle) -> Device:
        """The device, if it is on the bus."""
        _check(self._node.present(handle.device), e.DRM_ERROR)
        return self._node.devices[handle.device]

    def _read(self, handle: Handle) -> tuple[Device, State]:
        """The device and what it shows; what belongs to the socket is asked of partition 0."""
        device = self._device(handle)
        _check(handle.partition == 0)
        return device, self._node.state(handle.device)

    def amdsmi_init(self, flag: e.AmdSmiInitFlags = e.AmdSmiInitFlags.INIT_AMD_GPUS) -> None:
        pass  # nothing to load

    def amdsmi_get_lib_version(self) -> dict[str, object]:
        major, minor, release = map(int, VERSION.split("."))
        return {"major": major, "minor": minor, "release": release, "build": "simulated"}

    def amdsmi_get_rocm_version(self) -> tuple[bool, str]:
        return True, "simulated"

    def amdsmi_get_processor_handles(self) -> list[Handle]:
        return [
            Handle(device.number, partition)
            for device in self._node.devices
            if self._node.present(device.number)
            for partition in range(len(device.partitions))
        ]

    # -- who it is

    def amdsmi_get_gpu_device_bdf(self, handle: Handle) -> str:
        return f"{self._device(handle).address[:-1]}{handle.partition}"

    def amdsmi_get_gpu_device_uuid(self, handle: Handle) -> str:
        device = self._device(handle)
        digits = f"{device.unique_id:016x}"
        return (
            f"{digits[:2]}{handle.partition:02x}{device.model.device_id:04x}-0000-1000-"
            f"80{digits[2:4]}-{digits[4:]}"
        )

    def amdsmi_get_gpu_kfd_info(self, handle: Handle) -> dict[str, object]:
        partition = self._device(handle).partitions[handle.partition]
        return {
            "kfd_id": partition.gpu_id,
            "node_id": partition.node,
            "current_partition_id": handle.partition,
        }

    def amdsmi_get_gpu_enumeration_info(self, handle: Handle) -> dict[str, object]:
        device = self._device(handle)
        partition = device.partitions[handle.partition]
        return {
            "drm_render": partition.render,
            "drm_card": device.card,
            "hsa_id": partition.node,
            "hip_id": self.amdsmi_get_processor_handles().index(handle),
            "hip_uuid": f"GPU-{device.unique_id:016x}",
            "oam_id": NA if device.gpu is None else device.gpu,
            "physical_acc_id": NA,
        }

    def amdsmi_get_gpu_asic_info(self, handle: Handle) -> dict[str, object]:
        device = self._device(handle)
        model = device.model
        return {
            "market_name": model.market_name,
            "vendor_id": "0x1002",
            "vendor_name": "Advanced Micro Devices Inc. [AMD/ATI]",
            "subvendor_id": "0x1002",
            "device_id": f"0x{model.device_id:04x}",
            "rev_id": f"0x{model.revision:02x}",
            "chip_rev_id": f"0x{model.revision:02x}",
            "external_rev_id": f"0x{model.revision + 0x3C:02x}",
            "asic_serial": f"0x{device.unique_id:016X}",
            "oam_id": NA if device.gpu is None else device.gpu,
            "physical_acc_id": NA,
            "num_compute_units": model.compute_units // model.partitions,
            "target_graphics_version": model.gfx,
            "subsystem_id": f"0x{model.subsystem_id:04x}",
            "flags": 0,
        }

    def amdsmi_get_gpu_board_info(self, handle: Handle) -> dict[str, object]:
        device = self._device(handle)
        return {
            "model_number": f"102-{device.model.sku}-00",
            "product_serial": serial(device),
            "fru_id": f"113-AMD{device.model.sku}",
            "product_name": device.model.market_name,
            "manufacturer_name": "AMD",
        }

    def amdsmi_get_gpu_vbios_info(self, handle: Handle) -> dict[str, object]:
        model = self._device(handle).model
        return {
            "name": model.market_name,
            "build_date": "2024/02/06 12:00",
            "part_number": f"113-{model.sku}-100",
            "version": "022.040.003.042.000001",
            "boot_firmware": NA,
        }

    def amdsmi_get_gpu_driver_info(self, handle: Handle) -> dict[str, object]:
        self._device(handle)
        return {
            "driver_name": "amdgpu",
            "driver_version": "simulated",
            "driver_date": "2015/01/01 00:00",
        }

    def amdsmi_get_fw_info(self, handle: Handle) -> dict[str, object]:
        firmware = self._device(handle).model.firmware
        listed = []
        for name, (block, style) in _FIRMWARE.items():
            if name in firmware:
                version = str(firmware[name])
                if style:
                    version = ".".join(
                        f"{byte:{style}}" for byte in firmware[name].to_bytes(4, "big")
                    )
                listed.append({"fw_name": block, "fw_version": version})
        return {"fw_list": listed}

    def amdsmi_get_gpu_compute_partition(self, handle: Handle) -> str:
        mode = self._device(handle).model.compute_mode
        _check(mode is not None)
        return str(mode)

    def amdsmi_get_gpu_memory_partition(self, handle: Handle) -> str:
        mode = self._device(handle).model.memory_mode
        _check(mode is not None)
        return str(mode)

    # -- what it does

    def amdsmi_get_gpu_metrics_info(self, handle: Handle) -> dict[str, object]:
        device, state = self._read(handle)
        _check(device.model.metrics is not None, e.UNEXPECTED_DATA)
        return gpu_metrics(device, state)

    def amdsmi_get_power_cap_info(self, handle: Handle, sensor_ind: int = 0) -> dict[str, object]:
        device, _ = self._read(handle)
        _check(device.model.power_cap > 0 and sensor_ind == 0)
        cap = 0 if device.secondary else device.model.power_cap * 1_000_000
        return {
            "power_cap": cap,
            "default_power_cap": cap,
            "dpm_cap": 2,
            "min_power_cap": 0,
            "max_power_cap": cap,
        }

    def amdsmi_get_power_info(self, handle: Handle) -> dict[str, object]:
        device, state = self._read(handle)
        _check(not device.secondary)
        watts, current = int(state.power), device.model.current_power
        return {
            "socket_power": watts,
            "current_socket_power": watts if current else NA,
            "average_socket_power": NA if current else watts,
            "gfx_voltage": NA,
            "soc_voltage": NA,
            "mem_voltage": NA,
            "power_limit": device.model.power_cap * 1_000_000,
            "ubb_power": NA,
        }

    def amdsmi_get_energy_count(self, handle: Handle) -> dict[str, object]:
        device, state = self._read(handle)
        _check(device.model.metrics is not None)
        return {
            "energy_accumulator": energy_count(state),
            "counter_resolution": 15.300000190734863,
            "timestamp": int((UPTIME + state.time) * 1e9),
        }

    def amdsmi_get_clock_info(self, handle: Handle, clock: e.AmdSmiClkType) -> dict[str, object]:
        device, state = self._read(handle)
        model = device.model
        kind = e.AmdSmiClkType
        _check(clock not in (kind.DCEF, kind.PCIE), e.INVAL)
        clocks: dict[int, tuple[object, int, int]] = {
            kind.GFX: (state.gfx_clock, model.gfx_clock.low, model.gfx_clock.high),
            kind.MEM: (state.memory_clock, model.memory_clock.low, model.memory_clock.high),
            kind.SOC: (model.soc_clock.high, model.soc_clock.low, model.soc_clock.high),
            kind.DF: (NA, 400, 2000),
            kind.VCLK0: (29, 29, 1500),
            kind.DCLK0: (22, 22, 1250),
        }
        _check(clock in clocks)
        now, low, high = clocks[clock]
        return {
            "clk": now,
            "min_clk": low,
            "max_clk": high,
            "clk_locked": False,
            "clk_deep_sleep": NA,
        }

    def amdsmi_get_temp_metric(
        self, handle: Handle, sensor: e.AmdSmiTemperatureType, metric: e.AmdSmiTemperatureMetric
    ) -> int:
        device, state = self._read(handle)
        kind = e.AmdSmiTemperatureType
        if metric == e.AmdSmiTemperatureMetric.CURRENT and sensor >= kind.HBM_0:
            stacks = hbm_celsius(device.model, state)
            stack = sensor - kind.HBM_0
            _check(not device.model.current_power and stack < len(stacks))
            return stacks[stack]
        names = {kind.EDGE: "edge", kind.JUNCTION: "junction", kind.VRAM: "mem"}
        name = names.get(sensor, "")
        _check(name in device.model.limits)
        if metric == e.AmdSmiTemperatureMetric.CURRENT:
            return int(state.celsius[name])
        limits: Limits = device.model.limits[name]
        values = {
            e.AmdSmiTemperatureMetric.CRITICAL: limits.critical,
            e.AmdSmiTemperatureMetric.EMERGENCY: limits.emergency,
        }
        _check(bool(values.get(metric)))
        return values[metric]

    def amdsmi_get_gpu_fan_speed(self, handle: Handle, sensor_idx: int) -> int:
        self._device(handle)
        raise e.AmdSmiLibraryException(e.NOT_SUPPORTED)  # all of them are cooled from outside

    def amdsmi_get_gpu_fan_speed_max(self, handle: Handle, sensor_idx: int) -> int:
        return self.amdsmi_get_gpu_fan_speed(handle, sensor_idx)

    # -- its memory

    def amdsmi_get_gpu_vram_info(self, handle: Handle) -> dict[str, object]:
        model = self._device(handle).model
        return {
            "vram_type": model.vram_type,
            "vram_vendor": "HYNIX" if model.current_power else "SAMSUNG",
            "vram_size": model.vram // MIB,
            "vram_bit_width": 1024 * model.stacks or 128,
            "vram_max_bandwidth": model.bandwidth if model.current_power else NA,
        }

    def amdsmi_get_gpu_vram_usage(self, handle: Handle) -> dict[str, int]:
        """Of the whole device, also for a partition of it (ROCm issue 4750)."""
        device = self._device(handle)
        used = self._node.state(device.number).vram_used
        return {"vram_total": device.model.vram // MIB, "vram_used": used // MIB}

    def amdsmi_get_gpu_memory_total(self, handle: Handle, mem_type: e.AmdSmiMemoryType) -> int:
        device = self._device(handle)
        return GTT if mem_type == e.AmdSmiMemoryType.GTT else device.model.vram

    def amdsmi_get_gpu_memory_usage(self, handle: Handle, mem_type: e.AmdSmiMemoryType) -> int:
        device = self._device(handle)
        if mem_type == e.AmdSmiMemoryType.GTT:
            return GTT_USED
        return self._node.state(device.number).vram_used

    # -- its links

    def amdsmi_get_pcie_info(self, handle: Handle) -> dict[str, object]:
        device, state = self._read(handle)
        _check(device.model.metrics is not None, e.UNEXPECTED_DATA)
        model = device.model
        table = gpu_metrics(device, state)
        generation, lanes = pcie_link(model, state)
        return {
            "pcie_static": {
                "max_pcie_width": model.pcie_width,
                "max_pcie_speed": megatransfers(model.pcie_gen),
                "pcie_interface_version": model.pcie_gen,
                "slot_type": "OAM" if model.compute_mode or model.dies > 1 else "PCIE",
            },
            "pcie_metric": {
                "pcie_width": lanes,
                "pcie_speed": megatransfers(generation),
                "pcie_bandwidth": table["pcie_bandwidth_inst"],
                "pcie_replay_count": table["pcie_replay_count_acc"],
                "pcie_l0_to_recovery_count": table["pcie_l0_to_recov_count_acc"],
                "pcie_replay_roll_over_count": table["pcie_replay_rover_count_acc"],
                "pcie_nak_sent_count": table["pcie_nak_sent_count_acc"],
                "pcie_nak_received_count": table["pcie_nak_rcvd_count_acc"],
                "pcie_lc_perf_other_end_recovery_count": table["pcie_lc_perf_other_end_recovery"],
            },
        }

    def amdsmi_get_gpu_pci_replay_counter(self, handle: Handle) -> int:
        _, state = self._read(handle)
        return state.replays

    def amdsmi_get_xgmi_info(self, handle: Handle) -> dict[str, object]:
        device, _ = self._read(handle)
        return {
            "xgmi_lanes": 0,
            "xgmi_hive_id": hive_id(self._node, device),
            "xgmi_node_id": 0,
            "index": device.number,
        }

    def amdsmi_get_link_metrics(self, handle: Handle) -> dict[str, object]:
        device, state = self._read(handle)
        _check(bool(device.peers))
        xgmi, counted = device.model.xgmi, device.model.links_reported
        links = []
        for link in range(8):
            wired = link < len(device.peers)
            silent = 0 if counted else _ALL_ONES
            links.append(
                {
                    "bdf": self._node.devices[device.peers[link]].address if wired else _NO_PEER,
                    "bit_rate": xgmi.gigabits if counted and xgmi else NA,
                    "max_bandwidth": xgmi.gigabits * xgmi.width if counted and xgmi else NA,
                    "link_type": e.AmdSmiLinkType.AMDSMI_LINK_TYPE_XGMI.value,
                    "read": int(state.read[link] / 1024) if counted and wired else silent,
                    "write": int(state.written[link] / 1024) if counted and wired else silent,
                }
            )
        return {"num_links": len(device.peers), "links": links}

    def amdsmi_get_gpu_xgmi_link_status(self, handle: Handle) -> dict[str, object]:
        device, state = self._read(handle)
        _check(device.model.links_reported)
        status = ["U" if up else "D" for up in state.links_up]
        return {"status": [*status, *["X"] * (8 - len(status))], "total_links": 8}

    # -- its errors

    def amdsmi_get_gpu_ras_block_features_enabled(self, handle: Handle) -> list[dict[str, str]]:
        device, _ = self._read(handle)
        _check(device.gpu is not None)
        return [
            {
                "block": block.name,
                "status": "ENABLED" if block.name in e.RAS_BLOCKS else "DISABLED",
            }
            for block in e.AmdSmiGpuBlock
            if block.name not in ("INVALID", "RESERVED")
        ]

    def amdsmi_get_gpu_ecc_enabled(self, handle: Handle) -> int:
        device, _ = self._read(handle)
        _check(device.gpu is not None)
        return sum(e.AmdSmiGpuBlock[name] for name in e.RAS_BLOCKS)

    def amdsmi_get_gpu_ecc_count(self, handle: Handle, block: e.AmdSmiGpuBlock) -> dict[str, int]:
        device, state = self._read(handle)
        _check(device.gpu is not None and block.name != "INVALID")
        hbm = block.name == "UMC"
        return {
            "correctable_count": state.correctable if hbm else 0,
            "uncorrectable_count": state.uncorrectable if hbm else 0,
            "deferred_count": state.deferred if hbm and device.model.current_power else 0,
        }

    def amdsmi_get_gpu_total_ecc_count(self, handle: Handle) -> dict[str, int]:
        return self.amdsmi_get_gpu_ecc_count(handle, e.AmdSmiGpuBlock["UMC"])

    def amdsmi_get_gpu_bad_page_info(self, handle: Handle) -> list[dict[str, int]]:
        device, state = self._read(handle)
        _check(device.gpu is not None)
        return [
            {"value": i, "page_address": address, "page_size": PAGE, "status": int(status)}
            for i, (address, status) in enumerate(bad_pages(state))
        ]

    def amdsmi_get_gpu_bad_page_threshold(self, handle: Handle) -> int:
        device, _ = self._read(handle)
        _check(device.model.current_power)
        return BAD_PAGE_THRESHOLD


def hive_id(node: SimulatedNode, device: Device) -> int:
    """What all devices that reach each other over XGMI share; 0 without links."""
    if not device.peers:
        return 0
    members, new = {device.number}, {device.number}
    while new:
        new = {peer for number in new for peer in node.devices[number].peers} - members
        members |= new
    return node.devices[min(members)].unique_id ^ 0x51B3
