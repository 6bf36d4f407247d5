"""What the log is told is wrong: each cause once, with the device and the reason."""

from exporter.analysis.faults import faults
from exporter.log import FaultInfo
from exporter.sources.supervisor import STARTING
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
