"""The naive poll: each field of each processor through a library call of its own.

    python -m tests.bench.naive REPLY_FD

It is what the exporter's poll is measured against. Reads one word per line from standard input and
answers each on the descriptor REPLY_FD, since vendor code prints to standard output, with the
number of calls made: `poll`, `unpaired` for a poll without the links between processors, whose
number grows with the square of theirs, or `metrics` for gpu_metrics of the first processor alone.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from typing import Any

from exporter.sources.amdsmi_library import load

SENSORS = ("EDGE", "HOTSPOT", "VRAM", "HBM_0", "HBM_1", "HBM_2", "HBM_3")
CLOCKS = ("GFX", "MEM", "SYS")
BLOCKS = ("UMC", "SDMA", "GFX", "MMHUB", "PCIE_BIF", "HDP", "XGMI_WAFL")
METRICS = "amdsmi_get_gpu_metrics_info"
PLAIN = (
    METRICS,
    "amdsmi_get_gpu_activity",
    "amdsmi_get_power_info",
    "amdsmi_get_power_cap_info",
    "amdsmi_get_energy_count",
    "amdsmi_get_pcie_info",
    "amdsmi_get_gpu_pci_replay_counter",
    "amdsmi_get_gpu_vram_usage",
    "amdsmi_get_gpu_process_list",
    "amdsmi_get_gpu_total_ecc_count",
    "amdsmi_get_gpu_bad_page_info",
    "amdsmi_gpu_xgmi_error_status",
    "amdsmi_get_gpu_compute_partition",
    "amdsmi_get_gpu_memory_partition",
    "amdsmi_get_link_metrics",
    "amdsmi_get_gpu_xgmi_link_status",
)
"""The calls that take nothing but the processor."""


def calls(api: Any, handles: list[Any], *, links: bool) -> Iterator[tuple[str, tuple[Any, ...]]]:
    """Every call of a poll and its arguments."""
    current = api.AmdSmiTemperatureMetric.CURRENT
    for handle in handles:
        for name in PLAIN:
            yield name, (handle,)
        for sensor in SENSORS:
            kind = getattr(api.AmdSmiTemperatureType, sensor)
            yield "amdsmi_get_temp_metric", (handle, kind, current)
        for clock in CLOCKS:
            yield "amdsmi_get_clock_info", (handle, getattr(api.AmdSmiClkType, clock))
        for block in BLOCKS:
            yield "amdsmi_get_gpu_ecc_count", (handle, getattr(api.AmdSmiGpuBlock, block))
        for name in ("amdsmi_get_gpu_memory_total", "amdsmi_get_gpu_memory_usage"):
            yield name, (handle, api.AmdSmiMemoryType.VRAM)
        for other in handles if links else ():
            if other is not handle:
                yield "amdsmi_topo_get_link_type", (handle, other)


def poll(api: Any, handles: list[Any], *, links: bool) -> int:
    """One poll; the number of calls, failed ones included."""
    made = 0
    for name, arguments in calls(api, handles, links=links):
        made += 1
        try:
            getattr(api, name)(*arguments)
        except Exception:  # noqa: S112  # not every device has every value
            continue
    return made


def main(reply_fd: str) -> None:
    """Poll as told until standard input ends."""
    reply = os.fdopen(int(reply_fd), "w", buffering=1)
    api = load().api
    api.amdsmi_init(api.AmdSmiInitFlags.INIT_AMD_GPUS)
    handles = api.amdsmi_get_processor_handles()
    for word in sys.stdin:
        if word == "metrics\n":
            getattr(api, METRICS)(handles[0])
            made = 1
        else:
            made = poll(api, handles, links=word == "poll\n")
        reply.write(f"{made}\n")


if __name__ == "__main__":
    main(sys.argv[1])
