"""Errors of memory and logic, and pages taken out of use."""

from __future__ import annotations

from alerts.model import GPU, WHERE, Alert, Domain, Runbook, held

_ECC = ("amdgpu-reliability", "ECC errors by block")
_PAGES = ("amdgpu-reliability", "Bad pages")
_COMMANDS = (
    "```sh\namd-smi metric --ecc --ecc-blocks --gpu GPU\namd-smi bad-pages --gpu GPU\n"
    "dmesg -T | grep -iE 'ras|uncorrectable|poison|bad page' | tail -30\n```"
)


def _errors(severity: str) -> str:
    # xgmi_wafl is served as amdgpu_xgmi_errors_total too, with alerts of its own
    selector = f'amdgpu_ecc_errors_total{{severity="{severity}", block!="xgmi_wafl"}}'
    return f"sum by ({GPU}, block) (increase({selector}[@window]))"


_BAD = held('amdgpu_bad_pages{state=~"retired|pending"}')
_PENDING = held('amdgpu_bad_pages{state="pending"}')
_SHARE = f"sum by ({GPU}) ({_BAD})\n/ on ({GPU}) ({held('amdgpu_bad_page_threshold')} > 0) > @ratio"


DOMAIN = Domain(
    "ras",
    "Reliability",
    (
        Alert(
            name="AmdGpuEccUncorrectable",
            severity="critical",
            scope="gpu",
            expr=f"{_errors('uncorrectable')} > 0",
            summary="A GPU had an error that can't be corrected",
            description=f'{WHERE} had {{{{ $value | printf "%.0f" }}}} uncorrectable errors in '
            "block {{ $labels.block }} in @window.",
            panel=("amdgpu-reliability", "Uncorrectable errors"),
            keep="hold",
            runbook=Runbook(
                meaning="Memory or logic of the GPU gave wrong data, and it was noticed.",
                impact="The process that used the data is killed, or the driver resets the GPU. "
                "Results of the job since its last checkpoint are suspect.",
                diagnosis="Block `umc` is memory: the page is taken out of use. Any other block is "
                f"logic.\n\n{_COMMANDS}",
                mitigation="Drain the GPU; let the job start again from its checkpoint; reboot, so "
                "that pending pages are retired. Exchange it if it happens again, or at once if "
                "the block is not `umc`.",
            ),
        ),
        Alert(
            name="AmdGpuEccDeferred",
            severity="warning",
            scope="gpu",
            expr=f"{_errors('deferred')} > 0",
            summary="A GPU has damaged data that nobody used yet",
            description=f'{WHERE} had {{{{ $value | printf "%.0f" }}}} deferred errors in block '
            "{{ $labels.block }} in @window.",
            panel=_ECC,
            keep="hold",
            runbook=Runbook(
                meaning="An uncorrectable error was found in data that were not used (poison).",
                impact="None until a process uses them; then it is killed.",
                diagnosis=_COMMANDS,
                mitigation="Drain and reset the GPU at the next chance, so that the page is "
                "retired.",
            ),
            inhibited_by=("AmdGpuEccUncorrectable",),
        ),
        Alert(
            name="AmdGpuEccCorrectable",
            severity="warning",
            scope="gpu",
            # one sample an hour, however often the recording rule is evaluated
            expr=f"sum by ({GPU}) (\n  sum_over_time(last_over_time(\n"
            '    gpu:amdgpu_ecc_errors:increase1h{severity="correctable"}[@hour]\n'
            "  )[@window:@hour])\n) > @errors",
            summary="A GPU corrects many errors",
            description=f'{WHERE} corrected {{{{ $value | printf "%.0f" }}}} errors in @window.',
            panel=_ECC,
            keep="hold",
            runbook=Runbook(
                meaning="ECC corrected more errors than memory in order has.",
                impact="None by itself. Cells that need correction often are those that fail next.",
                diagnosis="Hot HBM makes errors: compare with its temperature.\n\n" + _COMMANDS,
                mitigation="Mend the cooling if it is hot. Otherwise run a memory test (RVS) when "
                "the GPU is free, and exchange it if the errors come back.",
            ),
            inhibited_by=("AmdGpuEccUncorrectable",),
        ),
        Alert(
            name="AmdGpuBadPagesPending",
            severity="warning",
            scope="gpu",
            expr=f"{_PENDING} > 0",
            summary="Bad pages wait to be taken out of use",
            description=f"{{{{ $value }}}} pages of {WHERE} are bad and still in use.",
            panel=_PAGES,
            runbook=Runbook(
                meaning="Pages of VRAM are known as bad and can't be taken out of use while a "
                "process holds them.",
                impact="That process may meet the error again.",
                diagnosis=_COMMANDS,
                mitigation="Let the job end or drain the GPU; the pages are retired when they are "
                "free, or at the next load of the driver.",
            ),
        ),
        Alert(
            name="AmdGpuBadPagesNearThreshold",
            severity="warning",
            scope="gpu",
            expr=_SHARE,
            summary="Many pages of a GPU are bad",
            description=f"{WHERE} has {{{{ $value | humanizePercentage }}}} of the bad pages that "
            "it tolerates.",
            panel=("amdgpu-reliability", "Bad pages of those tolerated"),
            runbook=Runbook(
                meaning="The number of retired and pending pages comes near the threshold at which "
                "the driver no longer accepts the GPU.",
                impact="None yet.",
                diagnosis="How fast do they become more?\n\n```promql\n"
                'delta(amdgpu_bad_pages{state="retired"}[7d])\n```\n\n' + _COMMANDS,
                mitigation="Plan the exchange of the GPU.",
            ),
            inhibited_by=("AmdGpuBadPagesAtThreshold",),
        ),
        Alert(
            name="AmdGpuBadPagesAtThreshold",
            severity="critical",
            scope="gpu",
            expr=_SHARE,
            summary="Almost too many pages of a GPU are bad",
            description=f"{WHERE} has {{{{ $value | humanizePercentage }}}} of the bad pages that "
            "it tolerates.",
            panel=("amdgpu-reliability", "Bad pages of those tolerated"),
            runbook=Runbook(
                meaning="As AmdGpuBadPagesNearThreshold, and all but there.",
                impact="At the threshold the driver does not initialise the GPU at the next boot.",
                diagnosis=_COMMANDS,
                mitigation="Drain the GPU now and exchange it.",
            ),
        ),
    ),
)
