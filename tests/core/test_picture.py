"""The picture of a poll: which devices there are, whether they are up, and what is counted."""

from dataclasses import fields
from pathlib import Path
from typing import Any

from exporter.analysis.numbering import Numbering
from exporter.analysis.picture import REJECTIONS
from exporter.collectors import COLLECTORS
from exporter.collectors.base import Collector, Integral, Rate
from exporter.snapshot import CollectorHealth
from exporter.sources.supervisor import SourceReport
from exporter.values import (
    BUSY,
    ERROR,
    IMPLAUSIBLE,
    NOT_SUPPORTED,
    SENTINEL,
    STALE,
    Absent,
    FieldValue,
)

from .nodes import ADDRESS, OTHER
from .polls import Polls, answer, domain, one, report

READER = "domain/0"
GOOD = {READER: {"level": 1.0}}


def states(polls_taken: object) -> list[tuple[int, str, bool, str]]:
    """Number, address, up and why not, of every device of a snapshot."""
    devices = getattr(polls_taken, "devices", ())
    return [(d.gpu, d.key.address, d.up, d.why_down) for d in devices]


def test_up() -> None:
    """A device that answered is up, with its reading and where that came from."""
    taken = Polls(domain()).take(one("amdsmi", GOOD))

    assert [(0, ADDRESS, True, "")] == states(taken)
    assert 1.0 == taken.devices[0].readings["domain"].level
    assert {("domain", "level", ""): "amdsmi"} == taken.devices[0].origins
    assert (1, 5.0, False) == (taken.sequence, taken.interval, taken.simulated)


def test_a_lost_device_stays_at_down() -> None:
    """Once seen it is never gone from the picture, and comes back under its number."""
    polls = Polls(domain())
    both = report("amdsmi", {a: answer(GOOD) for a in (ADDRESS, OTHER)})
    only = report("amdsmi", {OTHER: answer(GOOD)})

    assert [True, True] == [up for *_, up, _ in states(polls.take(both))]
    assert [
        (0, ADDRESS, False, "it is no longer listed by any source"),
        (1, OTHER, True, ""),
    ] == states(polls.take(only))
    assert [
        (0, ADDRESS, False, "it is no longer listed by any source"),
        (1, OTHER, False, "it is no longer listed by any source"),
    ] == states(polls.take(report("amdsmi")))
    assert [
        (0, ADDRESS, False, "no source reached it"),
        (1, OTHER, False, "no source reached it"),
    ] == states(polls.take(report("amdsmi", up=False, reason="gone")))
    assert [True, True] == [up for *_, up, _ in states(polls.take(both))]


def test_a_device_lost_before_a_restart(tmp_path: Path) -> None:
    """It is still known, and down."""
    kept = Numbering(tmp_path)
    kept.open("boot")
    kept.see({ADDRESS: 0, OTHER: 1})
    kept.save()
    numbering = Numbering(tmp_path)
    numbering.open("boot")
    taken = Polls(domain(), numbering=numbering).take(report("amdsmi", {OTHER: answer(GOOD)}))

    assert [False, True] == [device.up for device in taken.devices]


def test_a_device_that_hangs_is_down() -> None:
    """A source that is up has no answer of it: that is why, whatever another source says."""
    hanging = report(
        "amdsmi",
        {OTHER: answer(GOOD)},
        devices=[ADDRESS, OTHER],
        unanswered={ADDRESS: "amdsmi: it did not answer in time"},
    )
    taken = Polls(domain()).take(hanging, one("sysfs", {"domain/2": {"level": 2.0}}))

    assert [
        (0, ADDRESS, False, "amdsmi: it did not answer in time"),
        (1, OTHER, True, ""),
    ] == states(taken)
    assert {"domain": CollectorHealth(False, None)} == taken.collectors


def test_a_source_that_is_down_does_not_take_a_device_with_it() -> None:
    """While another answers for the device it is up."""
    down = report("amdsmi", devices=[ADDRESS], up=False, reason="x")
    taken = Polls(domain()).take(down, one("sysfs", {"domain/2": {"level": 2.0}}))

    assert [(0, ADDRESS, True, "")] == states(taken)


def test_a_device_that_no_source_reached() -> None:
    """Listed, but neither answered nor reported as not answering."""
    taken = Polls(domain()).take(report("amdsmi", devices=[ADDRESS], up=False, reason="x"))

    assert [(0, ADDRESS, False, "no source reached it")] == states(taken)


def test_a_device_whose_every_reading_fails_is_down() -> None:
    """With the first failure; what is remembered, such as a name, is no sign of life."""
    for reason in (ERROR, STALE, BUSY):
        failed = {READER: {"level": Absent(reason, "EIO"), "ticks": Absent(NOT_SUPPORTED)}}
        taken = Polls(domain(), domain(name="identity")).take(
            one("amdsmi", {**failed, "identity/0": {"level": 1.0}})
        )

        assert [(0, ADDRESS, False, "every reading failed, the first: EIO")] == states(taken)
    nothing = one("amdsmi", {READER: {"level": Absent(NOT_SUPPORTED, "never")}})

    assert [(0, ADDRESS, False, "every reading failed")] == states(Polls(domain()).take(nothing))


def test_what_is_remembered_is_no_sign_of_life() -> None:
    """A device that fell off the bus: its driver still knows its memory, its sensors fail."""
    polls = Polls(domain(vital=("level", "levels")))
    failed = Absent(ERROR, "EIO")
    lost: dict[str, FieldValue] = {"level": failed, "levels": {"a": failed}, "ticks": 1.0}
    signs: tuple[dict[str, FieldValue], ...] = ({"level": 1.0}, {"levels": {"a": failed, "b": 1.0}})

    assert [(0, ADDRESS, False, "every reading failed, the first: EIO")] == states(
        polls.take(one("amdsmi", {READER: lost}))
    )
    for sign in signs:
        assert polls.take(one("amdsmi", {READER: {**lost, **sign}})).devices[0].up


def test_not_down_before_every_source_was_asked() -> None:
    """Another source was left alone: it is asked at the next poll, and then it is known."""
    polls = Polls(domain(vital=("level",)))
    failing = one("amdsmi", {READER: {"level": Absent(ERROR, "EIO"), "ticks": 1.0}})
    silent = report("sysfs", {ADDRESS: answer({})})

    polls.take(one("amdsmi", GOOD), one("sysfs", {"domain/2": {"level": 2.0}}))

    assert polls.take(failing, silent).devices[0].up
    assert "domain/2" in polls.picture.assembly.demand("sysfs")

    also_failing = one("sysfs", {"domain/2": {"level": Absent(ERROR, "EIO")}})

    assert not polls.take(failing, also_failing).devices[0].up
    assert polls.take(failing, one("sysfs", {"domain/2": {"level": 2.0}})).devices[0].up


def test_a_device_without_sensors() -> None:
    """Where vital values don't exist, rather than fail, the others are signs of life."""
    told: dict[str, FieldValue] = {"level": Absent(NOT_SUPPORTED), "ticks": 1.0}

    assert Polls(domain(vital=("level",))).take(one("amdsmi", {READER: told})).devices[0].up


def test_the_vital_signs_are_fields() -> None:
    """Of the collectors that every device has by default."""
    vital = {(c.name, name) for c in COLLECTORS for name in c.vital}

    assert {"temperature", "power", "clocks", "activity"} == {name for name, _ in vital}
    for collector in COLLECTORS:
        assert {f.name for f in fields(collector.reading)} >= set(collector.vital)


def test_only_remembered_collectors() -> None:
    """Where nothing else is asked, what is remembered must do."""
    taken = Polls(domain(name="identity")).take(one("amdsmi", {"identity/0": {"level": 1.0}}))

    assert taken.devices[0].up


def test_a_suspended_device_is_up() -> None:
    """It was not touched, and nothing is wrong with it."""
    sleeping = report("amdsmi", {ADDRESS: answer(suspended=True)})
    taken = Polls(domain()).take(sleeping, report("sysfs", {ADDRESS: answer(suspended=True)}))

    assert [(0, ADDRESS, True, "")] == states(taken)
    assert taken.devices[0].suspended
    assert {} == taken.devices[0].readings


def test_partitions() -> None:
    """One entry for the device and one per partition, in their order, all with its number."""
    parts = {name: {READER: {"level": 1.0}} for name in ("10", "shared", "2", "0")}
    taken = Polls(domain()).take(
        report("amdsmi", {ADDRESS: answer(GOOD, partitions=parts), OTHER: answer(GOOD)})
    )

    assert [
        (0, None), (0, "0"), (0, "2"), (0, "10"), (0, "shared"), (1, None)
    ] == [(d.gpu, d.key.partition) for d in taken.devices]  # fmt: skip
    assert all(device.up for device in taken.devices)


def test_numbers_follow_the_first_source() -> None:
    """Two libraries may list devices in another order."""
    taken = Polls(domain()).take(
        report("amdsmi", {a: answer(GOOD) for a in (OTHER, ADDRESS)}),
        report("sysfs", {a: answer() for a in (ADDRESS, OTHER)}),
    )

    assert [(0, OTHER), (1, ADDRESS)] == [(d.gpu, d.key.address) for d in taken.devices]


def test_the_node() -> None:
    """Texts from the first source that knows them; counts only from sources that are up."""
    polls = Polls(domain(), expected=8)
    taken = polls.take(
        report("amdsmi", node={"amdsmi_version": "26.1", "rocm_version": Absent(SENTINEL)}),
        report("sysfs", node={"rocm_version": "7.0", "boot_id": "b", "devices_pci": 8}),
        report("rocm_smi", node={"devices_rocm_smi": 7}, up=False, reason="x"),
    )

    assert {"amdsmi_version": "26.1", "rocm_version": "7.0", "boot_id": "b"} == taken.node
    assert {"pci": 8, "expected": 8} == taken.views
    assert ["b"] == polls.boots
    assert polls.take(report("simulated")).simulated


def test_rejected_values_are_counted() -> None:
    """By collector and reason, there from the start at 0; what hardware lacks is not rejected."""
    polls = Polls(domain())
    fields: dict[str, FieldValue] = {
        "level": Absent(SENTINEL),
        "levels": {"a": Absent(IMPLAUSIBLE), "b": Absent(IMPLAUSIBLE), "c": 1.0},
        "ticks": Absent(NOT_SUPPORTED),
    }
    taken = polls.take(one("amdsmi", {READER: fields}))

    assert {("domain", reason) for reason in REJECTIONS} == taken.rejected.keys()
    assert {SENTINEL: 1, IMPLAUSIBLE: 2} == {
        reason: count for (_, reason), count in taken.rejected.items() if count
    }

    taken = polls.take(one("amdsmi", {READER: fields}))

    assert 4 == taken.rejected["domain", IMPLAUSIBLE]


def test_health_of_collectors() -> None:
    """The time of all readers together, and whether one failed."""
    reports = (
        report("amdsmi", {ADDRESS: answer(GOOD, durations={"domain": 0.5, "other": 9.0})}),
        report("sysfs", {ADDRESS: answer({}, durations={"domain": 0.25})}),
    )
    polls = Polls(domain(), domain(name="other"))

    assert CollectorHealth(True, 0.75) == polls.take(*reports).collectors["domain"]

    failing = report("amdsmi", {ADDRESS: answer(GOOD, errors={"domain": "KeyError: 'x'"})})
    taken = polls.take(failing)

    assert [False, True] == [taken.collectors[name].success for name in ("domain", "other")]


def test_a_collector_that_its_source_fails() -> None:
    """It fails, without a duration, unless others gave its values, or one before says: none."""
    down = report("amdsmi", up=False, reason="no library")
    gives = {"domain": 0.5}
    nothing: dict[str, FieldValue] = {"level": Absent(NOT_SUPPORTED)}
    without = report("sysfs", {ADDRESS: answer({"domain/2": nothing}, durations=gives)})
    with_value = report("sysfs", {ADDRESS: answer({"domain/2": {"level": 1.0}}, durations=gives)})
    silent = report("sysfs", {ADDRESS: answer({})})
    library = report("amdsmi", {ADDRESS: answer({READER: nothing}, durations=gives)})

    def health(*reports: SourceReport, of: Collector[Any] | None = None) -> tuple[bool, object]:
        found = Polls(of or domain()).take(*reports).collectors["domain"]
        return found.success, found.seconds

    assert (False, None) == health(down, silent)
    assert (False, 0.5) == health(down, without)
    assert (True, 0.5) == health(down, with_value)
    assert (True, 0.5) == health(library, report("rocm_smi", up=False, reason="no library"))
    assert (True, 0.5) == health(report("amdsmi", up=False, paused=True), without)
    assert (True, None) == health(down, silent, of=domain(sources=["sysfs"]))
    assert (True, None) == health(down, of=domain(sources=[]))
    assert (False, None) == health(report("simulated", up=False, reason="it died"))
    assert (True, None) == health(report("simulated", up=False, reason="x"), of=domain(sources=[]))


def test_changed_settings_lose_nothing() -> None:
    """Another choice of collectors, interval and limits: counts and sums go on."""
    summing = domain(Integral("total", of="level"), Rate("rate", of="count"))
    polls = Polls(summing)

    def at(time: float, count: float) -> dict[str, float]:
        fields: dict[str, FieldValue] = {"level": 1.0, "count": count, "ticks": Absent(SENTINEL)}
        taken = polls.take(
            report(
                "amdsmi", {ADDRESS: answer({READER: fields, "other/0": {"level": 1.0}}, time=time)}
            )
        )
        reading = taken.devices[0].readings["domain"]
        return {
            "total": reading.total,
            "rate": reading.rate,
            "rejected": taken.rejected["domain", SENTINEL],
            "resets": taken.resets["domain"],
        }

    at(0, 100)

    assert {"total": 5.0, "rate": None, "rejected": 2, "resets": 1} == at(5, 50)

    polls.picture.apply([summing, domain(name="other")], interval=10.0, settings={"x": {}})

    assert {"total": 15.0, "rate": 1.0, "rejected": 3, "resets": 1} == at(15, 60)

    polls.picture.apply([summing], interval=5.0, settings={})

    assert {"total": 20.0, "rate": 2.0, "rejected": 4, "resets": 1} == at(20, 70)


def test_a_collector_that_was_off_meanwhile() -> None:
    """Its series are gone while it is off; then its counters go on, and no time is made up."""
    summing = domain(Integral("total", of="level"))
    other = domain(name="other")
    polls = Polls(summing)

    def poll(time: float) -> object:
        taken = polls.take(report("amdsmi", {ADDRESS: answer(GOOD, time=time)}))
        assert {name for name, _ in taken.rejected} == taken.collectors.keys()
        reading = taken.devices[0].readings.get("domain")
        return reading and reading.total

    assert [0.0, 5.0] == [poll(0), poll(5)]

    polls.picture.apply([other], interval=5.0, settings={})

    assert [None] * 10 == [poll(time) for time in range(10, 60, 5)]

    polls.picture.apply([summing], interval=5.0, settings={})

    assert [5.0, 10.0] == [poll(60), poll(65)]
