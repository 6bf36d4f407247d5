"""What the log is told is wrong: each cause once, with the device and the reason."""

from typing import Any

from exporter.analysis.faults import FaultFinder, faults
from exporter.analysis.picture import UNREACHED
from exporter.log import FaultInfo
from exporter.log import Faults as Log
from exporter.snapshot import Snapshot
from exporter.sources.supervisor import STARTING, SourceReport
from exporter.values import ERROR, NOT_SUPPORTED, SENTINEL, Absent

from .nodes import ADDRESS, OTHER
from .polls import answer, device, report, snapshot
from .test_support import simulated


def test_nothing_is_wrong() -> None:
    """A lack is no fault, nor is a source that rests or starts."""
    taken = snapshot(
        device(absences={("domain", "level", ""): {"amdsmi": Absent(NOT_SUPPORTED)}}),
        device(address=OTHER, absences={("domain", "level", ""): {"amdsmi": Absent(SENTINEL)}}),
        sources=[
            report("amdsmi"),
            report("rocm_smi", up=False, paused=True),
            report("sysfs", up=False, reason=STARTING),
        ],
    )

    assert {} == faults(taken)


def test_an_integrated_gpu_is_no_fault() -> None:
    """What AMD SMI can't read of it, and never could, is told and counted as its kind."""
    taken = simulated("MI210-iGPU", gpus=1)

    assert ["", ""] == [device.why_down for device in taken.devices]
    assert {} == faults(taken)
    assert {} == {
        key: count for key, count in taken.rejected.items() if count and key[1] != SENTINEL
    }


def test_sources_and_readers() -> None:
    """A source that is down, a device that one source does not reach, a reader that failed."""
    taken = snapshot(
        device(),
        sources=[
            report("amdsmi", up=False, reason="no library"),
            report("rocm_smi", devices=[ADDRESS], unanswered={ADDRESS: "rocm_smi: it hangs"}),
            report("sysfs", {ADDRESS: answer({}, errors={"fan": "KeyError: 1"})}),
        ],
    )

    assert [
        FaultInfo(
            "source is down",
            {"source": "amdsmi", "reason": "no library", "remedy": "do something"},
        ),
        FaultInfo(
            "device does not answer a source",
            {"source": "rocm_smi", "pci_address": ADDRESS, "reason": "rocm_smi: it hangs"},
        ),
        FaultInfo(
            "a reader failed",
            {
                "source": "sysfs",
                "pci_address": ADDRESS,
                "collector": "fan",
                "reason": "KeyError: 1",
            },
        ),
    ] == list(faults(taken).values())


def test_a_device_that_is_down_has_one_fault() -> None:
    """Neither its missing values nor the sources that don't reach it are told as well."""
    absences = {("domain", "level", ""): {"amdsmi": Absent(ERROR, "EIO")}}
    taken = snapshot(
        device(absences=absences, why_down="it hangs"),
        device(absences=absences, why_down="it hangs", partition="0"),
        sources=[report("amdsmi", devices=[ADDRESS], unanswered={ADDRESS: "it hangs"})],
        views={"expected": 2},
    )

    assert [
        FaultInfo("device is down", {"gpu": 0, "pci_address": ADDRESS, "reason": "it hangs"}),
        FaultInfo("fewer GPUs answer than expected", {"answering": 0, "expected": 2}),
    ] == list(faults(taken).values())


def test_missing_values_are_told_together() -> None:
    """All that a device misses for one reason, with the first of it in full."""
    taken = snapshot(
        device(
            absences={
                ("power", "watts", ""): {"amdsmi": Absent(ERROR, "EIO"), "sysfs": Absent(ERROR)},
                ("clocks", "current", "gfx"): {"sysfs": Absent(ERROR, "other")},
            }
        )
    )
    (told,) = faults(taken).values()

    assert "values are missing" == told.event
    assert {
        "gpu": 0,
        "pci_address": ADDRESS,
        "reason": ERROR,
        "collectors": "clocks,power",
        "sources": "amdsmi,sysfs",
        "first_field": "watts",
        "detail": "EIO",
    } == told.fields


def lacking(*collectors: str, reason: str = ERROR) -> Snapshot:
    """A device that misses a value of each of these collectors, for the same reason."""
    absences = {
        (name, "level", ""): {"sysfs": Absent(reason, f"{name}: EIO")} for name in collectors
    }
    return snapshot(device(absences=absences))


class Told:
    """The log of faults, poll after poll: started or ended, and the collectors."""

    def __init__(self) -> None:
        self._finder = FaultFinder()
        self._log = Log(self)
        self._now = 0.0
        self.lines: list[str] = []

    def info(self, event: str, **fields: Any) -> None:
        """A line of the log."""
        self.lines.append(f"{fields['fault']} {fields.get('collectors', event)}")

    warning = info

    def poll(self, taken: Snapshot) -> list[str]:
        """The lines of one poll."""
        self.lines.clear()
        self._now += 5.0
        self._log.update(self._finder.find(taken), self._now)
        return list(self.lines)


def test_a_second_fault_is_told_beside_the_first() -> None:
    """What began together ends together; a collector that joins later is told by itself, once."""
    told = Told()

    assert ["started clocks,power"] == told.poll(lacking("power", "clocks"))
    assert [] == told.poll(lacking("power", "clocks"))
    assert ["started memory"] == told.poll(lacking("power", "clocks", "memory"))
    assert [] == told.poll(lacking("memory", "power", "clocks"))
    assert [] == told.poll(lacking("power", "memory"))
    assert ["ended clocks,power"] == told.poll(lacking("memory"))
    assert ["started clocks"] == told.poll(lacking("memory", "clocks"))
    assert ["started fan"] == told.poll(lacking("memory", "clocks", "fan"))
    assert ["ended clocks", "ended memory", "ended fan"] == sorted(
        told.poll(lacking()), key=["ended clocks", "ended memory", "ended fan"].index
    )


def test_a_first_collector_that_comes_back() -> None:
    """It gave its fault the name; what is new beside it is told, and it itself is not again."""
    told = Told()

    assert ["started clocks,power"] == told.poll(lacking("power", "clocks"))
    assert [] == told.poll(lacking("power"))
    assert ["started memory"] == told.poll(lacking("power", "clocks", "memory"))
    assert [] == told.poll(lacking("power", "clocks", "memory"))


def test_flapping_collectors_are_no_storm() -> None:
    """However collectors come and go beside a fault that lasts, the log has few lines of it."""
    told = Told()
    names = ("activity", "clocks", "fan", "memory", "power")
    lines = [
        line
        for poll in range(300)
        for line in told.poll(
            lacking("xgmi", *(name for place, name in enumerate(names) if poll >> place & 1))
        )
    ]

    # At most six starts and their ends for each collector, then how often it flapped.
    assert len(lines) <= 14 * (1 + len(names))


def test_a_source_that_restarts_is_one_fault() -> None:
    """Its devices, and that they are too few, are not told as well, until a source is up."""
    down = report("amdsmi", devices=[ADDRESS, OTHER], up=False, reason="its worker died")
    kubelet = report("pod_resources", devices=[ADDRESS, OTHER])
    devices = [device(why_down=UNREACHED), device(address=OTHER, gpu=1, why_down=UNREACHED)]
    views = {"expected": 2}

    def events(*sources: SourceReport) -> list[str]:
        taken = snapshot(*devices, sources=sources, views=views)
        return [fault.event for fault in faults(taken).values()]

    assert ["source is down"] == events(down, kubelet)
    assert [] == events(report("amdsmi", devices=[ADDRESS, OTHER], up=False, reason=STARTING))
    assert ["device is down", "device is down", "fewer GPUs answer than expected"] == events(
        report("amdsmi", devices=[ADDRESS, OTHER])
    )
