"""The support report: for each field a source or a reason."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import fields
from typing import Any

import pytest

from exporter.analysis.numbering import Numbering
from exporter.analysis.picture import Picture
from exporter.collectors import COLLECTORS
from exporter.exposition.support import rows, support_json, support_table
from exporter.simulation.models import MODELS
from exporter.simulation.source import open_sessions
from exporter.simulation.spec import ScenarioRun, SimulationSpec
from exporter.snapshot import Snapshot
from exporter.sources.worker import Opened, Worker, reader_ids
from exporter.values import NOT_SUPPORTED, SENTINEL, Absent, from_wire

from .nodes import ADDRESS, OTHER
from .polls import answer, device, domain, report, snapshot


class Standing:
    """A clock that does not run."""

    def now(self) -> float:
        """An hour after the start."""
        return 3600.0


def simulated(model: str, *scenarios: str, gpus: int = 4) -> Snapshot:
    """One poll of a simulated node, all in this process."""
    runs = tuple(ScenarioRun(name) for name in ("training", *scenarios))
    amdsmi, sysfs = open_sessions(
        SimulationSpec(model, gpus=gpus, scenarios=runs, started=0.0), Standing()
    )
    told: list[dict[str, Any]] = []
    worker = Worker(
        Opened({"amdsmi": amdsmi, "sysfs": sysfs}, lambda: 3600.0),
        lambda one: told.append(json.loads(json.dumps(one))),
    )
    worker.hello()
    worker.answer({"poll": 1, "readers": list(reader_ids())})
    answers = {
        one["device"]: answer(
            partitions={
                partition: {
                    reader: {name: from_wire(value) for name, value in read.items()}
                    for reader, read in by_reader.items()
                }
                for partition, by_reader in one["readings"].items()
            }
        )
        for one in told
        if "device" in one
    }
    picture = Picture(COLLECTORS, interval=5.0, settings={}, numbering=Numbering(None))
    return picture.take(
        [report("simulated", answers)],
        sequence=1,
        timestamp=0.0,
        now=0.0,
        expected=None,
        on_boot=lambda _: None,
    )


def explained(taken: Snapshot) -> Iterator[tuple[str, bool]]:
    """Each line of the JSON report, and whether it has a source or says why not."""
    for row in json.loads(support_json(taken, COLLECTORS))["fields"]:
        reasons = [why["reason"] for why in row["absent"].values()]
        yield (
            f"{row['pci_address']} {row['partition']} {row['collector']}.{row['field']}",
            bool(row["source"]) != bool(reasons or row["known"]),
        )


@pytest.mark.parametrize("model", sorted(MODELS))
def test_every_field_has_a_source_or_a_reason(model: str) -> None:
    """Of every generation, every device and every partition."""
    taken = simulated(model)
    told = dict(explained(taken))

    assert [] == [line for line, good in told.items() if not good]
    declared = {
        f"{collector.name}.{declared.name}"
        for collector in COLLECTORS
        for declared in fields(collector.reading)
        if collector.readers and declared.name not in {rule.into for rule in collector.derived}
    }
    for address in {d.key.address for d in taken.devices}:
        of_device = {line.split()[2].partition("[")[0] for line in told if line.startswith(address)}
        assert declared == of_device


def test_what_mi200_can_not_tell() -> None:
    """XGMI bandwidth is absent there, and the report says that it lies in the generation."""
    lines = support_table(simulated("MI210"), COLLECTORS).splitlines()
    (received,) = [line for line in lines if " xgmi.received" in line]

    assert received.split()[:3] == ["0-3", "xgmi.received", "-"]
    assert "MI200" in received
    assert not [line for line in lines if " xgmi.received[" in line]


def test_secondary_die() -> None:
    """The second die of each package says why it has no power."""
    lines = support_table(simulated("MI250X"), COLLECTORS).splitlines()
    power = [line.split()[:3] for line in lines if " power.watts" in line]

    assert [["0,2", "power.watts", "simulated"], ["1,3", "power.watts", "-"]] == sorted(power)


def test_identical_gpus_share_a_line() -> None:
    """Eight alike devices make no report eight times as long, and none of them is named."""
    table = support_table(simulated("MI300X", gpus=8), COLLECTORS)
    of_fields = table[table.index("FIELDS") :]

    assert "0000:" not in of_fields
    assert 1 == len(
        [line for line in of_fields.splitlines() if " temperature.sensors[edge]" in line]
    )


def test_a_device_that_differs_has_its_own_line() -> None:
    """Devices are grouped by what holds, not by their place."""
    place = ("domain", "level", "")
    taken = snapshot(
        *(
            device(gpu=gpu, address=f"0000:0{gpu}:00.0", origins={place: "amdsmi"})
            for gpu in (0, 1, 2, 4, 6, 7)
        ),
        device(gpu=3, address=OTHER, absences={place: {"amdsmi": Absent(SENTINEL, f"at {OTHER}")}}),
        device(gpu=5, address=ADDRESS, why_down="it hangs"),
    )
    table = [line.split() for line in support_table(taken, [domain()]).splitlines()]
    levels = {line[0]: line[2:] for line in table if line[1:2] == ["domain.level"]}

    assert {
        "0-2,4,6-7": ["amdsmi"],
        "3": ["-", "amdsmi:", "sentinel", "(at", "DEVICE)"],
        "5": ["-", "the", "device", "is", "down:", "it", "hangs"],
    } == levels


def test_keys_are_in_their_own_order() -> None:
    """Links by number, sensors by name."""
    absences = {
        ("domain", "levels", key): {"amdsmi": Absent(NOT_SUPPORTED)}
        for key in ("10", "b", "9", "a")
    }
    names = [row.field for row in rows(snapshot(device(absences=absences)), [domain()])]

    assert ["levels[a]", "levels[b]", "levels[9]", "levels[10]"] == [
        name for name in names if name.startswith("levels")
    ]


def test_the_head_of_the_table() -> None:
    """Sources with what is wrong and what to do, devices with their state, and SIMULATED."""
    taken = snapshot(
        device(),
        device(address=OTHER, gpu=1, why_down="it hangs"),
        sources=[
            report("amdsmi", up=False, reason="no library"),
            report("rocm_smi", up=False, paused=True),
            report("sysfs", unanswered={OTHER: "sysfs: it hangs"}, node={"driver_version": "6.16"}),
        ],
        simulated=True,
    )
    lines = [" ".join(line.split()) for line in support_table(taken, [domain()]).splitlines()]

    for expected in (
        "SIMULATED: no value here comes from hardware",
        "amdsmi DOWN 0 GPUs",
        "no library",
        "what to do: do something",
        "rocm_smi resting 0 GPUs",
        "sysfs up 0 GPUs",
        "sysfs: it hangs",
        "driver_version: 6.16",
        f"0 {ADDRESS} up",
        f"1 {OTHER} DOWN: it hangs",
    ):
        assert expected in lines


def test_without_devices() -> None:
    """An empty node has a report, too."""
    assert "none was found" in support_table(snapshot(), COLLECTORS)
    assert [] == json.loads(support_json(snapshot(), COLLECTORS))["fields"]


def test_a_device_that_sleeps() -> None:
    """Its fields are missing for that reason."""
    told = dict(explained(snapshot(device(suspended=True))))

    assert told
    assert all(told.values())
    assert f"0   {ADDRESS}  suspended" in support_table(
        snapshot(device(suspended=True)), [domain()]
    )
