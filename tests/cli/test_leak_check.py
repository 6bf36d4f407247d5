"""`leak-check` as a process: recorded memory is judged, and the exit status says how."""

from __future__ import annotations

import json
from pathlib import Path

from .command import run

HEAD = "time_seconds,gpu,vram_total_bytes,vram_used_bytes,gfx_activity_ratio,processes\n"
TOTAL = 64 << 30


def _rows(per_hour: int, *, gpu: int = 0, hours: int = 8) -> str:
    """A sample every 5 minutes of one process that grows at a pace."""
    rows = []
    for minutes in range(0, hours * 60, 5):
        held = (20 << 30) + per_hour * minutes // 60
        rows.append(f"{minutes * 60},{gpu},{TOTAL},{held + (300 << 20)},0.9,4201:77:{held}\n")
    return "".join(rows)


def test_a_leak(tmp_path: Path) -> None:
    """Status 1; the JSON names the GPU, the kind, the process and its pace."""
    path = tmp_path / "recorded.csv"
    path.write_text(HEAD + _rows(1 << 30, gpu=3) + _rows(0, gpu=5))
    done = run("leak-check", str(path), "--format", "json")

    assert (1, "") == (done.status, done.err)
    leaking, clean = json.loads(done.out)
    assert (3, "process", 4201) == (leaking["gpu"], leaking["kind"], leaking["pid"])
    assert abs(leaking["bytes_per_second"] - (1 << 30) / 3600) < 0.05 * (1 << 30) / 3600
    assert (5, "none", None) == (clean["gpu"], clean["kind"], clean["pid"])


def test_no_leak(tmp_path: Path) -> None:
    """Status 0, and a table."""
    path = tmp_path / "recorded.csv"
    path.write_text(HEAD + _rows(0))
    done = run("leak-check", str(path))

    assert (0, "") == (done.status, done.err)
    assert "none" in done.out


def test_what_cannot_be_judged(tmp_path: Path) -> None:
    """Status 2, and one line that names the line of the file."""
    path = tmp_path / "recorded.csv"
    path.write_text(HEAD + _rows(0, hours=1) + "now,0,1,1,0,\n")
    done = run("leak-check", str(path))

    assert (2, "") == (done.status, done.out)
    assert [done.err] == done.err.splitlines(keepends=True)
    assert f"{path}: line 14: time_seconds" in done.err
