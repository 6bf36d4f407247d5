"""The leak detector over snapshots: what it is given, what it says, and what it keeps."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from exporter.analysis.faults import faults
from exporter.analysis.leaks import FILE, SAVE_EVERY, LeakWatch
from exporter.analysis.state import StateError
from exporter.collectors import BY_NAME
from exporter.exposition.landing import landing_html
from exporter.snapshot import Device, Snapshot
from exporter.sources.session import DeviceKey
from exporter.sources.supervisor import SourceReport

ADDRESS = "0000:05:00.0"
GIB = 1 << 30
STEP = 300.0


def _device(held: int, *, state: str = "running", partition: str | None = None) -> Device:
    """A device on which one process holds so many bytes."""
    readings = {
        "memory": BY_NAME["memory"].reading(total=64 * GIB, used=held + GIB // 4),
        "processes": BY_NAME["processes"].reading(
            count=1, vram={"42": held}, rest=0, started={"42": 7.0}, state={"42": state}
        ),
        "activity": BY_NAME["activity"].reading(gfx=0.9 if state == "running" else 0.0),
    }
    key = DeviceKey(ADDRESS, partition)
    return Device(key, 0, True, False, "", readings, {}, {})


def _snapshot(*devices: Device, listed: bool = True) -> Snapshot:
    """A poll of those devices; its Unix time is a million seconds ahead of the clock."""
    report = SourceReport(
        "sysfs", True, False, "", "", {}, {ADDRESS: 0} if listed else {"0000:ff:00.0": 1},
        {}, {}, {}, None, 0, "",
    )  # fmt: skip
    health: dict[str, Any] = {}
    return Snapshot(1, 0.0, 5.0, False, devices, (report,), {}, {}, health, {}, {})


def _run(watch: LeakWatch, hours: float, begin: float = 0.0, pace: int = GIB) -> Snapshot:
    """Polls over some hours in which the process grows by `pace` bytes per hour."""
    shown = _snapshot()
    for step in range(int(hours * 3600 / STEP)):
        now = begin + step * STEP
        taken = replace(_snapshot(_device(20 * GIB + int(pace * now / 3600))), timestamp=now + 1e6)
        shown = watch.judge(taken, now)
    return shown


def _leaks(snapshot: Snapshot) -> Any:
    return snapshot.devices[0].readings["leaks"]


def test_a_leak_is_named_logged_and_shown() -> None:
    """The process, the pace and the Unix time; one fault for the log; a row on the page."""
    shown = _run(LeakWatch(None), 8)
    leaks = _leaks(shown)

    assert (1, 42) == (leaks.process, leaks.pid)
    assert leaks.pace == pytest.approx(GIB / 3600, rel=0.05)
    assert 1e6 <= leaks.since <= 1e6 + 4 * 3600
    told = [fault for fault in faults(shown).values() if fault.event == "VRAM leak suspected"]
    assert ["process"] == [fault.fields["kind"] for fault in told]
    page = landing_html(shown, "/metrics").decode()
    assert "<h2>VRAM leaks</h2>" in page
    assert leaks.evidence in page


def test_no_verdict_before_it_is_reached() -> None:
    """A short history gives no verdict, neither 1 nor 0."""
    leaks = _leaks(_run(LeakWatch(None), 0.5))

    assert (None, None) == (leaks.process, leaks.residue)


def test_a_device_without_memory_has_no_reading() -> None:
    """What was not read is not judged."""
    bare = replace(_device(0), readings={})

    assert "leaks" not in LeakWatch(None).judge(_snapshot(bare), 0.0).devices[0].readings


def test_memory_of_a_zombie_is_nobodys() -> None:
    """What a process holds that has ended, on a GPU that is idle now, is a residue."""
    watch, shown = LeakWatch(None), _snapshot()
    for step in range(60):
        now = step * STEP
        device = _device(20 * GIB, state="running" if step < 20 else "zombie")
        shown = watch.judge(_snapshot(device), now)

    assert 1 == _leaks(shown).residue


def test_history_survives_a_restart(tmp_path: Path) -> None:
    """What one daemon saw, the next one of this boot goes on with."""
    first = LeakWatch(tmp_path)
    first.open("boot")
    _run(first, 5)
    first.save(0.0, at_once=True)
    second = LeakWatch(tmp_path)
    second.open("boot")

    assert 1 == _leaks(_run(second, STEP / 3600, begin=5 * 3600)).process


@pytest.mark.parametrize("why", ["reboot", "driver", "partitions"])
def test_history_starts_afresh(tmp_path: Path, why: str) -> None:
    """After a reboot, when the device had left the driver, and when it is split anew."""
    watch = LeakWatch(tmp_path)
    watch.open("boot")
    _run(watch, 5)
    after = [_device(25 * GIB)]
    if why == "reboot":
        watch.save(0.0, at_once=True)
        watch = LeakWatch(tmp_path)
        watch.open("next boot")
    elif why == "driver":
        watch.judge(_snapshot(replace(_device(0), up=False, readings={}), listed=False), 18_100.0)
    else:
        after.append(_device(25 * GIB, partition="1"))

    assert None is _leaks(watch.judge(_snapshot(*after), 18_300.0)).process


def test_a_damaged_file_is_set_aside(tmp_path: Path) -> None:
    """One message that says what is lost, and the watch goes on."""
    (tmp_path / FILE).write_text('{"boot_id": "boot", "devices": 3}')
    watch = LeakWatch(tmp_path)
    with pytest.raises(StateError, match=r"is damaged .* start afresh"):
        watch.open("boot")

    assert ["leaks.damaged"] == [path.name for path in tmp_path.iterdir()]
    assert 1 == _leaks(_run(watch, 5)).process


def test_the_file_is_written_now_and_then(tmp_path: Path) -> None:
    """Not at every poll, and at once when the daemon ends."""
    watch = LeakWatch(tmp_path)
    watch.open("boot")
    watch.save(SAVE_EVERY)
    written = (tmp_path / FILE).read_text()
    _run(watch, 1)
    watch.save(SAVE_EVERY + 1.0)
    assert written == (tmp_path / FILE).read_text()
    watch.save(SAVE_EVERY + 2.0, at_once=True)

    assert written != (tmp_path / FILE).read_text()
