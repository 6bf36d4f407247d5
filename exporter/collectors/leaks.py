"""VRAM leaks: who loses memory, since when, how fast.

    amdgpu_vram_leak_suspected{kind="process"} 1
    amdgpu_vram_growth_bytes_per_second 74565.4
    amdgpu_vram_exhaustion_seconds 86400

Nothing is read for it: `exporter.analysis.leaks` judges what `memory`, `processes` and `activity`
read, which must be on. A verdict is absent until it has been reached; 0 means judged and clean.
"""

from __future__ import annotations

from dataclasses import dataclass

from exporter.collectors.base import Collector, Metric


@dataclass(frozen=True, slots=True)
class Leaks:
    """What is thought of a device's memory; amounts in bytes.

    Attributes:
        process, residue: 1 suspected, 0 judged and clean, None not judged yet.
        growth: bytes per second, the slope of the floor of use.
        unattributed: in use, less what owners and the idle baseline account for.
        exhaustion: seconds until the memory is full at that pace; None where it does not grow.
        evidence: one sentence for people.
        since: Unix time at which the suspicion began.
        pace: bytes per second that are lost.
        pid: of the process that loses them.
        confidence: medium or high; empty where nothing is suspected.
    """

    process: int | None = None
    residue: int | None = None
    growth: float | None = None
    unattributed: int | None = None
    exhaustion: float | None = None
    evidence: str = ""
    since: float | None = None
    pace: float | None = None
    pid: int | None = None
    confidence: str = ""


def _verdicts(leaks: Leaks) -> dict[str, int]:
    both = {"process": leaks.process, "residue": leaks.residue}
    return {kind: verdict for kind, verdict in both.items() if verdict is not None}


COLLECTOR = Collector(
    name="leaks",
    summary="VRAM leaks, judged from memory, processes and activity",
    reading=Leaks,
    readers=(),
    metrics=(
        Metric(
            "amdgpu_vram_leak_suspected",
            "gauge",
            "1 if a leak is suspected, 0 if judged clean, absent until judged: of one process, or "
            "a residue that no process owns (from amdgpu_vram_used_bytes and its owners).",
            _verdicts,
            ("kind",),
        ),
        Metric(
            "amdgpu_vram_growth_bytes_per_second",
            "gauge",
            "Slope of the floor of amdgpu_vram_used_bytes; absent until judged.",
            lambda leaks: leaks.growth,
        ),
        Metric(
            "amdgpu_vram_unattributed_bytes",
            "gauge",
            "amdgpu_vram_used_bytes less what owners and the idle baseline account for.",
            lambda leaks: leaks.unattributed,
        ),
        Metric(
            "amdgpu_vram_exhaustion_seconds",
            "gauge",
            "Until amdgpu_vram_used_bytes reaches the total at today's growth; absent when not "
            "growing.",
            lambda leaks: leaks.exhaustion,
        ),
    ),
)
