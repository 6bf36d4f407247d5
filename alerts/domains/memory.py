"""VRAM: full, leaking, without an owner, or held for nothing."""

from __future__ import annotations

from alerts.model import GPU, PARTITION, WHERE, Alert, Domain, Runbook, held

_USED = ("amdgpu-memory", "VRAM used")
_GROWTH = ("amdgpu-memory", "Growth of the floor")
_OWNED_BY = (
    "```promql\ntopk(5, amdgpu_process_vram_bytes"
    " * on (instance, pid) group_left (command, user, pod, job_id) amdgpu_process_info)\n```"
)


def _exhaustion() -> str:
    """Held, but ended by a device that goes on telling its growth and no longer an end."""
    return (
        f"{held('amdgpu_vram_exhaustion_seconds')} < @left_seconds\n"
        f"unless on ({PARTITION}) (\n"
        "  amdgpu_vram_growth_bytes_per_second\n"
        f"  unless on ({PARTITION}) amdgpu_vram_exhaustion_seconds\n)"
    )


_LEAK_RUNBOOK = Runbook(
    meaning="The floor of a GPU's memory use rises and does not come back. `kind` is `process` if "
    "a running process grows, `residue` if memory stays after processes have ended.",
    impact="When the memory is full, allocations fail and the job ends.",
    diagnosis="Who grows?\n\n" + _OWNED_BY + "\n\nA process whose allocator reserves more and more "
    "while it allocates the same has a fragmented heap, not a leak.",
    mitigation="process: restart it at a good moment and tell its owner. residue: drain the GPU "
    "and load the driver anew, or reboot; report it with driver and ROCm version.",
)

DOMAIN = Domain(
    "memory",
    "Memory",
    (
        Alert(
            name="AmdGpuVramNearlyFull",
            severity="warning",
            scope="gpu",
            expr=f"{held('gpu:amdgpu_vram_used:ratio')} > @ratio",
            summary="A GPU's memory is nearly full",
            description=f"{{{{ $value | humanizePercentage }}}} of the VRAM of {WHERE} is in use.",
            panel=_USED,
            runbook=Runbook(
                meaning="Almost all VRAM is in use. A server that takes its cache of keys and "
                "values at the start may be meant to be so; above the threshold there is no room "
                "for the workspace of libraries.",
                impact="The next allocation may fail.",
                diagnosis=_OWNED_BY,
                mitigation="Lower the share that the server takes (`--gpu-memory-utilization` of "
                "vLLM), or move a process elsewhere.",
            ),
        ),
        Alert(
            name="AmdGpuVramLeakSuspected",
            severity="warning",
            scope="gpu",
            expr=f"{held('amdgpu_vram_leak_suspected')} == 1",
            summary="A GPU's memory leaks",
            description=f"The memory of {WHERE} grows and is not given back: "
            "{{ $labels.kind }}.",
            panel=("amdgpu-memory", "Verdicts of the leak detection"),
            runbook=_LEAK_RUNBOOK,
            inhibited_by=("AmdGpuVramExhaustionSoon",),
        ),
        Alert(
            name="AmdGpuVramExhaustion",
            severity="warning",
            scope="gpu",
            expr=_exhaustion(),
            summary="A GPU's memory will be full within a day",
            description=f"The VRAM of {WHERE} will be full in {{{{ $value | humanizeDuration }}}} "
            "at its present growth.",
            panel=_GROWTH,
            runbook=_LEAK_RUNBOOK,
            inhibited_by=("AmdGpuVramExhaustionSoon",),
        ),
        Alert(
            name="AmdGpuVramExhaustionSoon",
            severity="critical",
            scope="gpu",
            expr=_exhaustion(),
            summary="A GPU's memory will be full within hours",
            description=f"The VRAM of {WHERE} will be full in {{{{ $value | humanizeDuration }}}} "
            "at its present growth.",
            panel=_GROWTH,
            runbook=_LEAK_RUNBOOK,
        ),
        Alert(
            name="AmdGpuVramOrphaned",
            severity="warning",
            scope="gpu",
            expr=f"(\n  {held('amdgpu_vram_unattributed_bytes')} > @bytes\n"
            f"  and on ({PARTITION})\n"
            f"  {held('amdgpu_vram_unattributed_bytes')}\n"
            f"  > on ({PARTITION}) @ratio * {held('amdgpu_vram_total_bytes')}\n)\n"
            f"and on ({GPU}) sum by ({GPU}) ({held('amdgpu_processes')}) == 0",
            summary="Memory of a GPU has no owner",
            description=f"{{{{ $value | humanize1024 }}}}B of the VRAM of {WHERE} belong to no "
            "process.",
            panel=("amdgpu-memory", "Without an owner"),
            runbook=Runbook(
                meaning="No process is on the GPU, and more memory is in use than the driver "
                "needs when idle.",
                impact="The next job has less memory than the scheduler thinks.",
                diagnosis="Is there a process that the exporter can't see?\n\n```sh\n"
                "ls /sys/class/kfd/kfd/proc\nfuser -v /dev/kfd /dev/dri/renderD*\n"
                "dmesg | grep 'VM memory stats'\n```",
                mitigation="Drain the GPU and load the driver anew, or reboot; report it with "
                "driver and ROCm version.",
            ),
            inhibited_by=("AmdGpuVramZombie",),
        ),
        Alert(
            name="AmdGpuVramZombie",
            severity="warning",
            scope="gpu",
            expr=f"{held('amdgpu_vram_zombie_bytes')} > @bytes",
            summary="Processes that have ended hold memory",
            description=f"{{{{ $value | humanize1024 }}}}B of the VRAM of {WHERE} belong to "
            "processes that have ended.",
            panel=("amdgpu-memory", "Processes that have ended"),
            runbook=Runbook(
                meaning="A process has ended, and its memory was not freed: its parent has not "
                "noticed (zombie), or the driver still knows it (gone).",
                impact="The next job has less memory than the scheduler thinks.",
                diagnosis="```promql\namdgpu_process_state == 1\n```\n\n```sh\n"
                "ps -eo pid,ppid,stat,cmd | awk '$3 ~ /^Z/'\n```",
                mitigation="zombie: end its parent, often a container without an init (`--init`, "
                "`shareProcessNamespace`). gone: drain the node and reboot it.",
            ),
        ),
        Alert(
            name="AmdGpuHeldIdle",
            severity="info",
            scope="gpu",
            expr=f"sum by ({PARTITION}) ({held('amdgpu_process_vram_bytes')})\n"
            f"/ on ({PARTITION}) {held('amdgpu_vram_total_bytes')} > @held\n"
            f"and on ({PARTITION})\n"
            "increase(amdgpu_gfx_active_seconds_total[@window]) / @window_seconds < @active",
            summary="Memory is held, and nothing computes",
            description=f"Processes hold {{{{ $value | humanizePercentage }}}} of the VRAM of "
            f"{WHERE}, which computes nothing.",
            panel=("amdgpu-capacity", "GPUs held but idle"),
            keep="hold",
            runbook=Runbook(
                meaning="Processes hold memory for hours, and the compute units are idle: a server "
                "without requests, a notebook, or a job that hangs.",
                impact="The GPU can't be used by others.",
                diagnosis="Whose is it?\n\n" + _OWNED_BY,
                mitigation="Ask the owner. A job of many GPUs that all idle hangs in a collective: "
                "look at AmdGpuXgmiLinkDown and AmdGpuDown first.",
            ),
        ),
    ),
)
