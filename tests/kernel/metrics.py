"""The ``gpu_metrics`` blob of the amdgpu driver: its field order by version, and a packer.

The order is that of the kernel's ``struct gpu_metrics_v1_N``; the packer uses native alignment, as
the C compiler does.  Version 1.9 is no structure but a list of self-describing attributes, each a
64-bit description (unit, type, number, count) and its values without any alignment.

``xcp_metrics`` is the smaller blob of one partition: a structure (1.0), or a list (1.1).
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

__all__ = ["VERSIONS", "Field", "Value", "fields", "header", "pack", "pack_partition"]

Value = int | Sequence[int]
"""What a metric holds: a number or, for a list of instances, several."""

_ABSENT = {"H": 0xFFFF, "I": 0xFFFFFFFF, "Q": 0xFFFFFFFFFFFFFFFF}  # "not filled in", all ones
_SIZES = {"H": 2, "I": 4, "Q": 8}


@dataclass(frozen=True, slots=True)
class Field:
    """One member of the structure."""

    name: str
    code: str
    """The :mod:`struct` code of one element: H, I or Q."""
    count: int
    aligned: bool = False
    """Starts a nested structure that is aligned to 8 bytes of its own."""


def _parse(text: str) -> list[Field]:
    """Fields from words like ``temperature_hbm:H*4``."""
    result = []
    for word in text.split():
        name, code = word.split(":")
        code, _, count = code.partition("*")
        result.append(Field(name, code, int(count or 1)))
    return result


_V13 = """temperature_edge:H temperature_hotspot:H temperature_mem:H temperature_vrgfx:H
temperature_vrsoc:H temperature_vrmem:H average_gfx_activity:H average_umc_activity:H
average_mm_activity:H average_socket_power:H energy_accumulator:Q system_clock_counter:Q
average_gfxclk_frequency:H average_socclk_frequency:H average_uclk_frequency:H
average_vclk0_frequency:H average_dclk0_frequency:H average_vclk1_frequency:H
average_dclk1_frequency:H current_gfxclk:H current_socclk:H current_uclk:H current_vclk0:H
current_dclk0:H current_vclk1:H current_dclk1:H throttle_status:I current_fan_speed:H
pcie_link_width:H pcie_link_speed:H padding:H gfx_activity_acc:I mem_activity_acc:I
temperature_hbm:H*4 firmware_timestamp:Q voltage_soc:H voltage_gfx:H voltage_mem:H padding1:H
indep_throttle_status:Q"""
_HEAD = """temperature_hotspot:H temperature_mem:H temperature_vrsoc:H curr_socket_power:H
average_gfx_activity:H average_umc_activity:H """
_ENERGY = "energy_accumulator:Q system_clock_counter:Q "
_THROTTLE = "throttle_status:I gfxclk_lock_status:I "
_LINK = """pcie_link_width:H pcie_link_speed:H xgmi_link_width:H xgmi_link_speed:H
gfx_activity_acc:I mem_activity_acc:I pcie_bandwidth_acc:Q pcie_bandwidth_inst:Q
pcie_l0_to_recov_count_acc:Q pcie_replay_count_acc:Q pcie_replay_rover_count_acc:Q """
_NAK = "pcie_nak_sent_count_acc:I pcie_nak_rcvd_count_acc:I "
_XGMI = "xgmi_read_data_acc:Q*8 xgmi_write_data_acc:Q*8 "
_STATUS = "xgmi_link_status:H*8 padding:H "
_CLOCKS = """firmware_timestamp:Q current_gfxclk:H*8 current_socclk:H*4 current_vclk0:H*4
current_dclk0:H*4 current_uclk:H """
_RESIDENCY = """accumulation_counter:I prochot_residency_acc:I ppt_residency_acc:I
socket_thm_residency_acc:I vr_thm_residency_acc:I hbm_thm_residency_acc:I gfxclk_lock_status:I """
_V17_TAIL = ("gfx_below_host_limit_acc",)
_V18_TAIL = (
    "gfx_below_host_limit_ppt_acc",
    "gfx_below_host_limit_thm_acc",
    "gfx_low_utilization_acc",
    "gfx_below_host_limit_total_acc",
)


def _partitions(jpeg: int, tail: Sequence[str]) -> list[Field]:
    """The eight nested partition structures of version 1.6 and later."""
    result = [Field("num_partition", "H", 1)]
    for index in range(8):
        prefix = f"xcp{index}_"
        result.append(Field(prefix + "gfx_busy_inst", "I", 8, aligned=True))
        result.append(Field(prefix + "jpeg_busy", "H", jpeg))
        result.append(Field(prefix + "vcn_busy", "H", 4))
        result.append(Field(prefix + "gfx_busy_acc", "Q", 8))
        result += [Field(prefix + name, "Q", 8) for name in tail]
    result.append(Field("pcie_lc_perf_other_end_recovery", "I", 1))
    return result


_MEDIA = "vcn_activity:H*4 "
_LAYOUTS: dict[tuple[int, int], list[Field]] = {
    (1, 3): _parse(_V13),
    (1, 4): _parse(_HEAD + _MEDIA + _ENERGY + _THROTTLE + _LINK + _XGMI + _CLOCKS + "padding:H"),
    (1, 5): _parse(
        _HEAD + _MEDIA + "jpeg_activity:H*32 " + _ENERGY + _THROTTLE
        + _LINK + _NAK + _XGMI + _CLOCKS + "padding:H"
    ),
    (1, 6): _parse(_HEAD + _ENERGY + _RESIDENCY + _LINK + _NAK + _XGMI + _CLOCKS)
    + _partitions(32, ()),
    (1, 7): _parse(
        _HEAD + "mem_max_bandwidth:Q " + _ENERGY + _RESIDENCY
        + _LINK + _NAK + _XGMI + _STATUS + _CLOCKS
    )
    + _partitions(32, _V17_TAIL),
    (1, 8): _parse(
        _HEAD + "mem_max_bandwidth:Q " + _ENERGY + _RESIDENCY
        + _LINK + _NAK + _XGMI + _STATUS + _CLOCKS
    )
    + _partitions(40, _V18_TAIL),
}  # fmt: skip

# The attributes of version 1.9 in the order of their numbers, from 0; empty: not written
_ATTRIBUTES = _parse(
    """temperature_hotspot:H temperature_mem:H temperature_vrsoc:H curr_socket_power:H
    average_gfx_activity:H average_umc_activity:H mem_max_bandwidth:Q energy_accumulator:Q
    system_clock_counter:Q accumulation_counter:I prochot_residency_acc:I ppt_residency_acc:I
    socket_thm_residency_acc:I vr_thm_residency_acc:I hbm_thm_residency_acc:I gfxclk_lock_status:I
    pcie_link_width:H pcie_link_speed:H xgmi_link_width:H xgmi_link_speed:H gfx_activity_acc:I
    mem_activity_acc:I pcie_bandwidth_acc:Q pcie_bandwidth_inst:Q pcie_l0_to_recov_count_acc:Q
    pcie_replay_count_acc:Q pcie_replay_rover_count_acc:Q pcie_nak_sent_count_acc:I
    pcie_nak_rcvd_count_acc:I xgmi_read_data_acc:Q*8 xgmi_write_data_acc:Q*8 xgmi_link_status:H*8
    firmware_timestamp:Q current_gfxclk:H*8 current_socclk:H*4 current_vclk0:H*4 current_dclk0:H*4
    current_uclk:H num_partition:H*0 pcie_lc_perf_other_end_recovery:I gfx_busy_inst:I*8
    jpeg_busy:H*40 vcn_busy:H*4 gfx_busy_acc:Q*8 gfx_below_host_limit_ppt_acc:Q*8
    gfx_below_host_limit_thm_acc:Q*8 gfx_low_utilization_acc:Q*8 gfx_below_host_limit_total_acc:Q*8
    temperature_hbm:H*8 temperature_mid:H*0 temperature_aid:H*2 temperature_xcd:H*8"""
)
_TYPES = {"H": 2, "I": 4, "Q": 6}  # the kernel's numbers of u16, u32 and u64
_UNITS = (
    ("temperature", 2), ("curr_socket_power", 3), ("system_clock", 4), ("firmware_timestamp", 5),
    ("pcie_link_speed", 7), ("xgmi_link_speed", 6), ("mem_max_bandwidth", 8),
    ("pcie_bandwidth", 8), ("xgmi_read", 9), ("xgmi_write", 9), ("average_", 10),
    ("gfx_busy_inst", 10), ("jpeg_busy", 10), ("vcn_busy", 10), ("current_", 1),
)  # fmt: skip
_PARTITION_NAMES = (
    "current_gfxclk", "current_socclk", "current_vclk0", "current_dclk0", "current_uclk",
    "gfx_busy_inst", "jpeg_busy", "vcn_busy", "gfx_busy_acc", *_V18_TAIL,
)  # fmt: skip
_PARTITION = _parse(
    """current_gfxclk:H*8 current_socclk:H*4 current_vclk0:H*4 current_dclk0:H*4 current_uclk:H
    padding:H gfx_busy_inst:I*8 jpeg_busy:H*40 vcn_busy:H*4 gfx_busy_acc:Q*8
    gfx_below_host_limit_ppt_acc:Q*8 gfx_below_host_limit_thm_acc:Q*8 gfx_low_utilization_acc:Q*8
    gfx_below_host_limit_total_acc:Q*8"""
)
_LIST = (1, 9)

VERSIONS: tuple[tuple[int, int], ...] = (*_LAYOUTS, _LIST)
"""The versions (format revision, content revision) that :func:`pack` can write."""


def fields(version: tuple[int, int]) -> tuple[Field, ...]:
    """The members of a version, in their order."""
    return tuple(_ATTRIBUTES if version == _LIST else _LAYOUTS[version])


def header(size: int, version: tuple[int, int]) -> bytes:
    """The first four bytes of every blob: its size, format revision and content revision."""
    return struct.pack("=HBB", size, *version)


def _numbers(field: Field, values: Mapping[str, Value]) -> list[int]:
    """The elements of a field; what isn't given is all ones, as the driver does it."""
    value = values.get(field.name, ())
    numbers = [value] if isinstance(value, int) else list(value)
    if len(numbers) > field.count:
        raise ValueError(f"{field.name} has {field.count} elements, not {len(numbers)}")
    return numbers + [_ABSENT[field.code]] * (field.count - len(numbers))


def _structure(
    layout: Sequence[Field], version: tuple[int, int], values: Mapping[str, Value]
) -> bytes:
    body = bytearray(4)
    for field in layout:
        boundary = 8 if field.aligned else _SIZES[field.code]
        body += bytes(-len(body) % boundary)
        body += struct.pack(f"={field.count}{field.code}", *_numbers(field, values))
    body += bytes(-len(body) % 8)
    body[:4] = header(len(body), version)
    return bytes(body)


def _list(names: Sequence[str], version: tuple[int, int], values: Mapping[str, Value]) -> bytes:
    body = bytearray(8)
    count = 0
    for number, field in enumerate(_ATTRIBUTES):
        if field.name not in names or field.name not in values or not field.count:
            continue
        unit = next((unit for prefix, unit in _UNITS if field.name.startswith(prefix)), 0)
        encoding = unit << 24 | _TYPES[field.code] << 20 | number << 10 | field.count
        body += struct.pack(f"=Q{field.count}{field.code}", encoding, *_numbers(field, values))
        count += 1
    body[:8] = header(len(body), version) + struct.pack("=I", count)
    return bytes(body)


def pack(version: tuple[int, int], values: Mapping[str, Value]) -> bytes:
    """The ``gpu_metrics`` of these values.  A field that isn't named is all ones, or left out."""
    if version == _LIST:
        return _list([field.name for field in _ATTRIBUTES], version, values)
    return _structure(_LAYOUTS[version], version, values)


def pack_partition(version: tuple[int, int], values: Mapping[str, Value]) -> bytes:
    """The ``xcp_metrics`` of a partition of a GPU whose ``gpu_metrics`` has this version."""
    if version == _LIST:
        return _list(_PARTITION_NAMES, (1, 1), values)
    return _structure(_PARTITION, (1, 0), values)
