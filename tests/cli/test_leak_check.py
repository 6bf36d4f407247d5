"""`leak-check` as a process: recorded memory is judged, and the exit status says how."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

from .command import PATIENCE, ROOT, command, environment, run

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


def _one_line(path: Path) -> str:
    done = run("leak-check", str(path))

    assert (2, "") == (done.status, done.out)
    assert [done.err] == done.err.splitlines(keepends=True)
    return done.err.removeprefix(f"amdgpu-exporter: {path}: ")


def test_no_recording_at_all(tmp_path: Path) -> None:
    """No file, a directory, nothing in it, no UTF-8, a NUL, endless lines: one line, status 2."""
    texts = {
        "none": None,
        "empty": b"",
        "header alone": HEAD.encode(),
        "latin": HEAD.encode() + b"1,\xff,1,1,0,\n",
        "nul": HEAD.encode() + b"1,\0,1,1,0,\n",
        "bytes": bytes(range(256)) * 100,
        "long field": HEAD.encode() + b"1," + b"x" * 8_000_000 + b",1,1,0,\n",
        "long line": HEAD.encode() + b"1," * 4_000_000 + b"\n",
        "long header": b"x" * 8_000_000,
        "quote": HEAD.encode() + b'1,"0,1,1,0,\n' * 3,
    }
    said = {}
    for name, text in texts.items():
        path = tmp_path / name
        if text is not None:
            path.write_bytes(text)
        said[name] = _one_line(path)[:60]
    said["directory"] = _one_line(tmp_path)

    assert "No such file or directory\n" == said["none"]
    assert "Is a directory\n" == said["directory"]
    assert {"line 1"} == {said[name].partition(":")[0] for name in ("empty", "header alone")}
    assert {"line 2"} == {
        said[name].partition(":")[0] for name in ("nul", "long field", "long line")
    }
    assert said["latin"].startswith("no UTF-8 text")


def test_a_closed_pipe(tmp_path: Path) -> None:
    """The reader of the table has gone: nothing is said."""
    path = tmp_path / "recorded.csv"
    path.write_text(HEAD + _rows(0))
    process = subprocess.Popen(
        command("leak-check", str(path)),
        cwd=ROOT,
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert process.stdout is not None
    process.stdout.close()
    process.stdout = None
    error = process.communicate(timeout=PATIENCE)[1]

    assert (1, b"") == (process.returncode, error)
