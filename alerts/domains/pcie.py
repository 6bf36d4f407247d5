"""The link to the host: degraded, or full of errors."""

from __future__ import annotations

from alerts.model import GPU, WHERE, Alert, Domain, Runbook, Severity, held

_DASHBOARD = "amdgpu-interconnect"
_COMMANDS = (
    "```sh\nlspci -vv -s PCI_ADDRESS | grep -E 'LnkCap|LnkSta|DevSta|CESta|UESta'\n"
    "cat /sys/bus/pci/devices/PCI_ADDRESS/aer_dev_*\n"
    "dmesg -T | grep -E 'AER|PCIe Bus Error|BadTLP|BadDLLP|Replay' | tail -30\n```"
)


def _errors(
    name: str,
    severity: Severity,
    selector: str,
    what: str,
    panel: str,
    runbook: Runbook,
    *causes: str,
) -> Alert:
    """An alert on errors per bit that the link could carry, whatever its width and speed."""
    happened = f"sum by ({GPU}) (increase({selector}[@window]))"
    return Alert(
        name=name,
        severity=severity,
        scope="gpu",
        expr=f"{happened}\n> on ({GPU}) (\n"
        f"  @per_bit * @window_seconds * {held('gpu:amdgpu_pcie_link:transfers_per_second')}\n"
        f"  or on ({GPU}) 0 * {happened} + @fallback\n)",
        summary=f"A PCIe link has many {what}",
        description=f'The link of {WHERE} had {{{{ $value | printf "%.0f" }}}} {what} in @window, '
        "too many for its width and speed.",
        panel=(_DASHBOARD, panel),
        keep="hold",
        runbook=runbook,
        inhibited_by=causes,
    )


DOMAIN = Domain(
    "pcie",
    "PCIe",
    (
        Alert(
            name="AmdGpuPcieDegraded",
            severity="warning",
            scope="gpu",
            expr=f"{held('gpu:amdgpu_pcie_link:ratio')} < 1",
            summary="A PCIe link works below its best",
            description=f"The link of {WHERE} has {{{{ $value | humanizePercentage }}}} of its "
            "highest bandwidth under load.",
            panel=(_DASHBOARD, "PCIe links"),
            runbook=Runbook(
                meaning="Under load, the link to the host has fewer lanes or a lower speed than "
                "device and slot can do. An idle GPU that lowers its link to save power does not "
                "count; the last verdict under load does.",
                impact="Loading data, checkpoints and traffic to network cards are slower; in a "
                "job over many GPUs all wait for this one.",
                diagnosis="Fewer lanes: a contact. Lower speed: signal quality, or a setting of "
                f"the firmware.\n\n{_COMMANDS}",
                mitigation="At the next chance drain the node and power cycle it; then reseat the "
                "GPU or its riser, then exchange it. The alert ends once the link is seen at its "
                "best.",
            ),
        ),
        _errors(
            "AmdGpuPcieReplays",
            "warning",
            "amdgpu_pcie_replays_total",
            "replays",
            "PCIe replays",
            Runbook(
                meaning="Packets had to be sent again, more often than a sound link of this width "
                "and speed does.",
                impact="The data are right, the link is slower. Many replays come before a "
                "retrained or lost link.",
                diagnosis=_COMMANDS,
                mitigation="Reseat the GPU, riser or cable at the next chance; exchange it if the "
                "errors follow the part.",
            ),
        ),
        _errors(
            "AmdGpuPcieNaks",
            "warning",
            "amdgpu_pcie_naks_total",
            "NAKs",
            "NAKs",
            Runbook(
                meaning="One end told the other that a packet arrived damaged. `sent` are the "
                "GPU's about what it received, `received` the host's about the GPU's packets.",
                impact="As with replays, which are their consequence.",
                diagnosis="Which direction?\n\n```promql\n"
                "sum by (instance, gpu, direction) (increase(amdgpu_pcie_naks_total[1h]))\n```\n\n"
                + _COMMANDS,
                mitigation="As with replays.",
            ),
            "AmdGpuPcieReplays",
        ),
        _errors(
            "AmdGpuPcieCorrectableErrors",
            "info",
            'amdgpu_pcie_aer_errors_total{severity="correctable"}',
            "correctable errors",
            "PCIe errors by AER",
            Runbook(
                meaning="Advanced Error Reporting counts errors that the link corrected.",
                impact="None by itself.",
                diagnosis=_COMMANDS,
                mitigation="None while no other alert on the link fires.",
            ),
            "AmdGpuPcieReplays",
        ),
        Alert(
            name="AmdGpuPcieRetrains",
            severity="warning",
            scope="gpu",
            expr="increase(amdgpu_pcie_replay_rollovers_total[@window]) > @rollovers",
            summary="A PCIe link keeps being retrained",
            description=f'The link of {WHERE} was retrained {{{{ $value | printf "%.0f" }}}} times '
            "in @window.",
            panel=(_DASHBOARD, "Recoveries and retrained links"),
            keep="hold",
            runbook=Runbook(
                meaning="So many replays in a row failed that the link was trained anew.",
                impact="Transfers stall for milliseconds each time; the link may come back "
                "narrower or slower, or not at all.",
                diagnosis=_COMMANDS,
                mitigation="Drain the GPU and reseat it soon.",
            ),
        ),
        Alert(
            name="AmdGpuPcieUncorrectableErrors",
            severity="critical",
            scope="gpu",
            expr=f"sum by ({GPU}) (\n"
            '  increase(amdgpu_pcie_aer_errors_total{severity=~"nonfatal|fatal"}[@window])\n'
            ") > 0",
            summary="A PCIe link had an error that can't be corrected",
            description=f'The link of {WHERE} had {{{{ $value | printf "%.0f" }}}} '
            "nonfatal or fatal errors in @window.",
            panel=(_DASHBOARD, "PCIe errors by AER"),
            keep="hold",
            runbook=Runbook(
                meaning="Advanced Error Reporting counted a nonfatal (a transaction was lost) or "
                "fatal error (the link is unreliable).",
                impact="A job may have got wrong data or hang; after a fatal error the GPU is "
                "often lost.",
                diagnosis=_COMMANDS,
                mitigation="Drain the node, let the jobs on this GPU start again from their last "
                "checkpoint, power cycle, and watch; exchange at the second time.",
            ),
        ),
    ),
)
