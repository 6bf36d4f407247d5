"""The links between GPUs."""

from __future__ import annotations

from alerts.model import GPU, NODE, WHERE, Alert, Domain, Runbook, held

_MATRIX = ("amdgpu-interconnect", "State of the links")
_ERRORS = ("amdgpu-interconnect", "XGMI errors")
_LINK = "Link {{ $labels.link }} of " + WHERE + " to {{ $labels.peer }}"
_COMMANDS = (
    "```sh\namd-smi xgmi --link-status --metric\namd-smi topology\n"
    "dmesg -T | grep -iE 'xgmi|wafl' | tail -30\n```"
)


def _errors(severity: str) -> str:
    selector = f'amdgpu_xgmi_errors_total{{severity="{severity}"}}'
    return f"sum by ({GPU}) (increase({selector}[@window]))"


DOMAIN = Domain(
    "xgmi",
    "XGMI",
    (
        Alert(
            name="AmdGpuXgmiLinkDown",
            severity="critical",
            scope="gpu",
            expr=f"{held('amdgpu_xgmi_link_up')} == 0\n"
            # that a lost GPU's links are down is told by AmdGpuDown
            f"unless on ({NODE}, peer) label_replace(\n"
            f'  {held("amdgpu_up")} == 0, "peer", "$1", "pci_address", "(.+)"\n)',
            summary="An XGMI link is down",
            description=f"{_LINK} is down.",
            panel=_MATRIX,
            runbook=Runbook(
                meaning="A link between two GPUs that was trained is down. Both ends fire, unless "
                "one of the two GPUs is lost.",
                impact="Collectives of this node hang, fail, or go a much slower way.",
                diagnosis="One link: the link. All links of one GPU: that GPU.\n\n"
                f"```promql\namdgpu_xgmi_link_up == 0\n```\n\n{_COMMANDS}",
                mitigation="Drain the node and power cycle it (a reset of all GPUs of the hive at "
                "once may do). If it is down again, exchange the GPU or the base board.",
            ),
        ),
        Alert(
            name="AmdGpuXgmiUncorrectableErrors",
            severity="critical",
            scope="gpu",
            expr=f"{_errors('uncorrectable')} > 0",
            summary="XGMI had an error that can't be corrected",
            description=f'{WHERE} had {{{{ $value | printf "%.0f" }}}} uncorrectable XGMI errors '
            "in @window.",
            panel=_ERRORS,
            keep="hold",
            runbook=Runbook(
                meaning="The RAS block of the links counted an error that was not corrected.",
                impact="Data between GPUs were lost; the driver may reset the whole hive.",
                diagnosis=_COMMANDS,
                mitigation="Drain the node, restart its jobs from their last checkpoint, power "
                "cycle; exchange at the second time.",
            ),
        ),
        Alert(
            name="AmdGpuXgmiCorrectableErrors",
            severity="warning",
            scope="gpu",
            expr=f"{_errors('correctable')} > @errors",
            summary="XGMI has many corrected errors",
            description=f'{WHERE} had {{{{ $value | printf "%.0f" }}}} correctable XGMI errors in '
            "@window.",
            panel=_ERRORS,
            keep="hold",
            runbook=Runbook(
                meaning="The links corrected more errors than sound ones have.",
                impact="Somewhat slower; a link that will fail often begins so.",
                diagnosis=_COMMANDS,
                mitigation="Watch it; drain and power cycle at the next chance.",
            ),
            inhibited_by=("AmdGpuXgmiLinkDown", "AmdGpuXgmiUncorrectableErrors"),
        ),
        Alert(
            name="AmdGpuXgmiLinkSlow",
            severity="warning",
            scope="gpu",
            expr=f"{held('link:amdgpu_xgmi_link_max:ratio')} < @ratio",
            summary="An XGMI link trained slower than its peers",
            description=f"{_LINK} trained at {{{{ $value | humanizePercentage }}}} of the best of "
            "its node.",
            panel=_MATRIX,
            runbook=Runbook(
                meaning="Width × speed of the link is below that of the best link of the node.",
                impact="Collectives run at the speed of the slowest link.",
                diagnosis=_COMMANDS,
                mitigation="Drain and power cycle the node; then the base board or the GPU.",
            ),
            inhibited_by=("AmdGpuPcieDegraded",),
        ),
        Alert(
            name="AmdGpuXgmiSaturated",
            severity="info",
            scope="gpu",
            expr="link:amdgpu_xgmi_transmit:ratio > @ratio",
            summary="An XGMI link is saturated",
            description=f"{_LINK} sent at {{{{ $value | humanizePercentage }}}} of its rate.",
            panel=("amdgpu-interconnect", "Busiest link of each GPU"),
            keep="hold",
            runbook=Runbook(
                meaning="The link carries about what it can: protocol overhead leaves three "
                "quarters of the rate.",
                impact="The job is bound by communication.",
                diagnosis="Do all links carry the same?\n\n"
                "```promql\nlink:amdgpu_xgmi_transmit:ratio\n```",
                mitigation="None for operators; the owner of the job may overlap, shard or "
                "compress differently.",
            ),
        ),
        Alert(
            name="AmdGpuXgmiImbalance",
            severity="info",
            scope="gpu",
            expr=f"link:amdgpu_xgmi_transmit:ratio\n/ on ({GPU}) group_left ()\n"
            f"(avg by ({GPU}) (link:amdgpu_xgmi_transmit:ratio) > @load) < @ratio\n"
            f"unless on ({GPU}, link) amdgpu_xgmi_link_up == 0",
            summary="An XGMI link idles beside busy peers",
            description=f"{_LINK} sent {{{{ $value | humanizePercentage }}}} of the mean of its "
            "GPU's links.",
            panel=("amdgpu-interconnect", "Quietest link beside its busiest peer"),
            keep="hold",
            runbook=Runbook(
                meaning="One link carries far less than the others of its GPU. Some jobs are so; "
                "on a node where all GPUs talk to all it is a lost path.",
                impact="Bandwidth between these two GPUs is not used.",
                diagnosis=f"Does the peer's end idle too?\n\n{_COMMANDS}",
                mitigation="Run a collective over all GPUs (`rccl-tests`); if the link idles "
                "there as well, drain the node.",
            ),
            inhibited_by=("AmdGpuXgmiLinkDown",),
        ),
    ),
)
