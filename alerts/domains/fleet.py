"""What should be the same everywhere."""

from __future__ import annotations

from alerts.model import NODE, Alert, Domain, Runbook, held

_DRIVER = 'amdgpu_node_info{driver_version!=""}'

DOMAIN = Domain(
    "fleet",
    "The same everywhere",
    (
        Alert(
            name="AmdGpuFirmwareMismatch",
            severity="warning",
            scope="node",
            expr=f"count by ({NODE}, block) (\n"
            f"  max by ({NODE}, block, version) ({held('amdgpu_firmware_devices')}) > 0\n) > 1",
            summary="GPUs of a node run different firmware",
            description="{{ $labels.instance }} runs {{ $value }} versions of {{ $labels.block }}.",
            panel=("amdgpu-fleet", "Firmware that differs"),
            runbook=Runbook(
                meaning="The GPUs of one node don't run the same version of a firmware. On a node "
                "with two models of GPU that is as it should be: silence it there.",
                impact="GPUs of one job behave differently; some combinations are not supported.",
                diagnosis="```promql\namdgpu_firmware_devices\n```\n\n```sh\namd-smi firmware\n```",
                mitigation="Update the ones that lag behind, most often after an exchange.",
            ),
        ),
        Alert(
            name="AmdGpuDriverDiffers",
            severity="info",
            scope="fleet",
            expr="count by (cluster) (\n"
            "  count by (cluster, driver_version) (\n"
            f"    {held(_DRIVER)}\n  )\n) > 1",
            summary="Nodes of a cluster run different drivers",
            description="The cluster {{ $labels.cluster }} runs {{ $value }} versions of the "
            "amdgpu driver.",
            panel=("amdgpu-fleet", "Software of the nodes"),
            runbook=Runbook(
                meaning="The amdgpu driver differs from node to node for longer than a rollout.",
                impact="Jobs over many nodes meet different behaviour; faults are harder to "
                "compare.",
                diagnosis="```promql\n"
                "count by (driver_version, kernel_version) (amdgpu_node_info)\n```",
                mitigation="Finish the rollout, or take it back.",
            ),
        ),
    ),
)
