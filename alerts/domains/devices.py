"""Devices that are lost, missing, or silent."""

from __future__ import annotations

from alerts.model import NODE, WHERE, Alert, Domain, Runbook, held

_DEVICES = ("amdgpu-node", "Devices of the node")
_PCI = 'amdgpu_devices{view="pci"}'
_EXPECTED = 'amdgpu_devices{view="expected"}'
_COUNTED = 'amdgpu_devices{view!="expected"}'

DOMAIN = Domain(
    "devices",
    "Devices",
    (
        Alert(
            name="AmdGpuDown",
            severity="critical",
            scope="gpu",
            expr=f"{held('amdgpu_up')} == 0",
            summary="A GPU does not answer",
            description=f"{WHERE} does not answer any source.",
            panel=("amdgpu-reliability", "GPUs answering"),
            runbook=Runbook(
                meaning="A GPU that was seen since the boot is gone from the bus, hangs, or fails "
                "every call.",
                impact="Jobs on it have failed or hang; a collective over all GPUs of the node "
                "hangs with them.",
                diagnosis="Is it still on the bus, and what does the driver say?\n\n```sh\n"
                "amdgpu-exporter support | sed -n '/^GPUS/,/^FIELDS/p'\n"
                "lspci -vv -s PCI_ADDRESS | grep -E 'LnkSta|Status|Kernel driver'\n"
                "dmesg -T | grep -iE 'amdgpu|pcieport|AER' | tail -50\n```",
                mitigation="Drain the node. `Unknown header type 7f` or no device: power cycle; "
                "if it is gone again, exchange it. `GPU reset` that failed: reboot.",
            ),
        ),
        Alert(
            name="AmdGpuMissing",
            severity="critical",
            scope="node",
            expr=f"(\n  {held(_EXPECTED)}\n  or on ({NODE}) max_over_time({_PCI}[@window])\n)"
            f" - on ({NODE}) {held(_PCI)} > 0",
            summary="A node has fewer GPUs than it should",
            description="{{ $labels.instance }} lacks {{ $value }} GPUs on its PCI bus.",
            panel=_DEVICES,
            runbook=Runbook(
                meaning="The bus shows fewer GPUs than `--expected-gpus` says, or, without it, "
                "than the node had within the window.",
                impact="The scheduler may still count on them; jobs over the whole node fail.",
                diagnosis="```sh\nlspci -d 1002: | grep -E 'Processing|Display|VGA'\n"
                "dmesg -T | grep -iE 'amdgpu|pcieport' | head -50\n```",
                mitigation="Drain the node, power cycle it, then exchange the GPU, riser or tray. "
                "If the GPU was taken out on purpose, change `--expected-gpus`, or wait for the "
                "window to pass.",
            ),
        ),
        Alert(
            name="AmdGpuViewsDisagree",
            severity="warning",
            scope="node",
            expr=f"max by ({NODE}) ({held(_COUNTED)})\n"
            f"- on ({NODE}) min by ({NODE}) ({held(_COUNTED)}) > 0",
            summary="Kernel and libraries count different GPUs",
            description="The views of {{ $labels.instance }} differ by {{ $value }} GPUs.",
            panel=("amdgpu-node", "GPUs by view"),
            runbook=Runbook(
                meaning="The PCI bus, DRM, KFD and the libraries don't count the same GPUs.",
                impact="Programs that use the smaller view don't see all GPUs.",
                diagnosis="```promql\namdgpu_devices\n```\n\n"
                "pci above drm: the driver is not bound. drm above kfd: no compute. kfd above a "
                "library: a right is missing, or two copies of it clash.\n\n```sh\n"
                "lspci -k -d 1002:\nls /sys/class/drm/ | grep -E '^card[0-9]+$'\n"
                "ls /sys/class/kfd/kfd/topology/nodes\nrocminfo | grep -c 'Device Type: *GPU'\n```",
                mitigation="Bind the driver, give the exporter the groups `render` and `video`, or "
                "remove the second copy of the library.",
            ),
            inhibited_by=("AmdGpuMissing", "AmdGpuDown", "AmdGpuSourceDown"),
        ),
        Alert(
            name="AmdGpuTelemetryLost",
            severity="warning",
            scope="gpu",
            expr=f"{held('gpu:amdgpu_telemetry:present')} == 0",
            summary="A GPU answers but tells nothing",
            description=f"{WHERE} answers, and gives no temperature.",
            panel=_DEVICES,
            runbook=Runbook(
                meaning="The device answers, does not sleep, and none of its sensors is read. Most "
                "often its firmware no longer fills gpu_metrics.",
                impact="Alerts on heat, throttling and links can't fire for it.",
                diagnosis="```sh\namdgpu-exporter support | grep temperature\n"
                "dmesg | grep -iE 'SMU|metrics table' | tail\n```",
                mitigation="`Failed to export SMU metrics table`: drain the GPU and reset it or "
                "reboot the node. Otherwise do what the report says.",
            ),
        ),
    ),
)
