"""The commands that end by themselves."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from exporter import __version__
from exporter.collectors import COLLECTORS
from exporter.config import settings
from exporter.flags import COMMANDS

from .command import PATIENCE, ROOT, command, document, environment, families, run

SIMULATED = ("--sources", "simulated")


def test_version() -> None:
    """On standard output."""
    done = run("--version")

    assert (0, f"amdgpu-exporter {__version__}\n", "") == (done.status, done.out, done.err)


def test_help_is_complete() -> None:
    """Every command, every flag of a setting, and every collector of the registry is in it."""
    done = run("--help", COLUMNS="400")

    assert (0, "") == (done.status, done.err)
    for name in COMMANDS:
        assert f"  {name} " in done.out
    for setting in settings(COLLECTORS).values():
        assert setting.flag == (f"--{setting.name}" in done.out), setting.name
    for collector in COLLECTORS:
        assert f"--collector.{collector.name}, --no-collector.{collector.name}" in done.out
        assert collector.summary in done.out
    for flag in ("--config.file", "--format", "--version", "--help"):
        assert flag in done.out


def test_once() -> None:
    """One poll on standard output, in the text format, and that it is simulated."""
    done = run("once", *SIMULATED)
    samples = {
        (sample.name, sample.labels.get("gpu"))
        for family in families(done.out)
        for sample in family.samples
    }

    assert (0, "") == (done.status, done.err)
    assert {("amdgpu_up", str(gpu)) for gpu in range(8)} <= samples
    assert ("amdgpu_hbm_temperature_celsius", "7") in samples
    assert "\namdgpu_exporter_simulated 1.0\n" in done.out
    assert "process_cpu_seconds" not in done.out


def test_once_with_a_choice_of_collectors() -> None:
    """Flags and file choose what is read."""
    flags = ("--collector.disable-defaults", "--collector.temperature", "--collector.xcc")
    done = run("once", *SIMULATED, *flags)

    assert "amdgpu_temperature_celsius{" in done.out
    assert "amdgpu_xcc_activity_ratio{" in done.out
    assert "amdgpu_power_watts" not in done.out
    assert 'collector_success{collector="xcc"}' in done.out
    assert 'collector_success{collector="power"}' not in done.out


def test_once_with_a_source_that_is_down() -> None:
    """What could be read is printed and the status is good, but standard error names the rest."""
    done = run("once", ROCM_PATH="/nonexistent", PATH="/nonexistent")

    assert 0 == done.status
    assert "amdgpu-exporter: could not be read: amdsmi, rocm_smi; " in done.err
    assert 1 == len(done.err.splitlines())
    assert 'amdgpu_exporter_source_up{source="sysfs"} 1.0' in done.out


def test_support_table() -> None:
    """For people: sources, GPUs, and every field of every collector, also of those that are off."""
    done = run("support", *SIMULATED)

    assert (0, "") == (done.status, done.err)
    assert "SIMULATED" in done.out
    for part in ("SOURCES", "GPUS", "FIELDS", "0-7  temperature.sensors[hbm]", "xcc.activity"):
        assert part in done.out


@pytest.mark.parametrize(("flags", "state"), [((), "off"), (("--collector.allocations",), "DOWN")])
def test_support_of_a_collector_that_is_off(flags: tuple[str, ...], state: str) -> None:
    """The kubelet is not asked, nor called down, unless its collector is on."""
    done = run("support", "--sources=sysfs", *flags)
    lines = [line.split() for line in done.out.splitlines()]

    assert [state] == [line[1] for line in lines if line[:1] == ["pod_resources"]]
    assert ("switch off --collector.allocations" in done.out) == (state == "DOWN")
    assert ("asked with --collector.allocations" in done.out) == (state == "off")


def test_support_json() -> None:
    """For programs."""
    done = run("support", "--format=json", *SIMULATED)
    told = document(done.out)

    assert (0, "") == (done.status, done.err)
    assert told["simulated"] is True
    read = {collector.name for collector in COLLECTORS if collector.readers}
    assert read == {field["collector"] for field in told["fields"]}
    assert all(f["source"] or f["absent"] or f["known"] for f in told["fields"])


@pytest.mark.parametrize("name", ["once", "support"])
def test_nothing_can_be_read(name: str) -> None:
    """No library, no driver: what there is to say is said, and the status tells."""
    done = run(name, "--sources=amdsmi,rocm_smi", ROCM_PATH="/nonexistent", PATH="/nonexistent")

    assert 1 == done.status
    assert "amdgpu-exporter: no source could be read" in done.err
    assert "Traceback" not in done.err
    assert ("what to do" if name == "support" else "amdgpu_exporter_source_up") in done.out
    assert "amdgpu_exporter_simulated 1.0" not in done.out


def test_check_config(tmp_path: Path) -> None:
    """Good settings are said to be good, and where they come from."""
    path = tmp_path / "x.yml"
    path.write_text("poll: {interval: 10s}\n")

    assert "the settings are good: " in run("check-config").out
    done = run("check-config", f"--config.file={path}")
    assert (0, "") == (done.status, done.err)
    assert f"the settings in {path} are good: " in done.out


@pytest.mark.parametrize(
    "arguments",
    [
        ("once", *SIMULATED),
        ("support", *SIMULATED),
        ("support", "--format=json", *SIMULATED),
        ("check-config",),
        ("--help",),
    ],
)
@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_a_closed_pipe(arguments: tuple[str, ...], unbuffered: str) -> None:
    """The reader has gone, as `head` does: nothing is said, and there is no traceback."""
    process = subprocess.Popen(
        command(*arguments),
        cwd=ROOT,
        env=environment(PYTHONUNBUFFERED=unbuffered),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert process.stdout is not None
    assert process.stderr is not None
    process.stdout.close()
    with process.stderr:
        error = process.stderr.read()

    assert process.wait(PATIENCE) in (0, 1)
    assert b"" == error


def test_a_full_disk() -> None:
    """Output that can't be written: one line, and the status tells."""
    with Path("/dev/full").open("wb") as full:
        done = subprocess.run(
            command("check-config"),
            cwd=ROOT,
            env=environment(),
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            timeout=PATIENCE,
            check=False,
        )

    assert 1 == done.returncode
    assert "amdgpu-exporter: standard output: No space left on device\n" == done.stderr


@pytest.mark.parametrize(
    ("line", "status", "out", "err"),
    [
        ("--version >&-", 0, "", ""),
        ("--help >&- 2>&- <&-", 0, "", ""),
        ("--bogus 2>&-", 2, "", ""),
        ("--bogus 2>/dev/full", 2, "", ""),
        ("check-config <&- >&-", 0, "", ""),
        ("once --sources=simulated >&-", 0, "", ""),
        ("--bogus >&- <&-", 2, "", "amdgpu-exporter: unknown flag '--bogus'\n"),
    ],
)
def test_closed_streams(line: str, status: int, out: str, err: str) -> None:
    """Standard streams that are closed are as good as `/dev/null`."""
    done = subprocess.run(
        ["sh", "-c", f'exec "$0" -m exporter {line}', sys.executable],
        cwd=ROOT,
        env=environment(),
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )

    assert (status, out, err) == (done.returncode, done.stdout, done.stderr)
