"""Assembly: which source a field comes from, and who is asked at all."""

from collections.abc import Mapping
from copy import deepcopy

from hypothesis import given
from hypothesis import strategies as st

from exporter.analysis.assembly import ASK_AGAIN, KEEP_SOURCE, Assembled, Assembly
from exporter.sources.session import DeviceKey
from exporter.sources.supervisor import SourceReport
from exporter.values import NOT_SUPPORTED, REASONS, SENTINEL, Absent, FieldValue

from .nodes import ADDRESS, OTHER, PATIENT
from .polls import answer, domain, one, report

WHOLE = DeviceKey(ADDRESS)
NONE = Absent(NOT_SUPPORTED, "none")
LEVEL = ("domain", "level", "")
COUNT = ("domain", "count", "")

AMDSMI, ROCM_SMI, SYSFS = "domain/0", "domain/1", "domain/2"
SOURCES = {AMDSMI: "amdsmi", ROCM_SMI: "rocm_smi", SYSFS: "sysfs"}


class Assembling:
    """One assembly, asked poll after poll, five seconds apart."""

    def __init__(self) -> None:
        self.assembly = Assembly([domain()])
        self.now = 0.0
        self.reports: tuple[SourceReport, ...] = ()

    def poll(self, readings: Mapping[str, Mapping[str, FieldValue]]) -> Assembled:
        """A poll in which each of these readers gives these fields; other sources are up."""
        return self.assemble(
            *(
                one(source, {reader: readings[reader]} if reader in readings else {})
                for reader, source in SOURCES.items()
            )
        )

    def assemble(self, *reports: SourceReport, later: float = 5.0) -> Assembled:
        """A poll with these reports; the device that the tests are about."""
        self.now += later
        self.reports = reports
        return self.assembly.assemble(reports, self.now).get(WHOLE, Assembled())

    def demanded(self) -> list[str]:
        """The readers that will be asked at the next poll."""
        return [r for source in SOURCES.values() for r in self.assembly.demand(source)]

    def may_rest(self, source: str = "rocm_smi") -> bool:
        """Whether a source can rest after the latest poll."""
        return self.assembly.may_rest(self.reports, source, self.now)


def test_field_by_field() -> None:
    """Each field, and each key of a field, comes from the first source that reports it."""
    found = Assembling().poll(
        {
            AMDSMI: {"level": NONE, "levels": {"a": 1, "b": NONE}, "ticks": 7},
            ROCM_SMI: {"level": 2, "levels": {"a": 9, "b": NONE}},
            SYSFS: {"level": 3, "levels": {"b": 3, "c": NONE}},
        }
    )

    assert {"domain": {"level": 2, "levels": {"a": 1, "b": 3}, "ticks": 7}} == found.values
    assert {
        LEVEL: "rocm_smi",
        ("domain", "levels", "a"): "amdsmi",
        ("domain", "levels", "b"): "sysfs",
        ("domain", "ticks", ""): "amdsmi",
    } == found.origins
    assert {"amdsmi", "rocm_smi"} == found.absences["domain", "levels", "b"].keys()
    assert {"sysfs": NONE} == found.absences["domain", "levels", "c"]


answers = st.sampled_from([1.0, 2.0, NONE, Absent(SENTINEL)])
fields = st.fixed_dictionaries({}, optional={"level": answers, "ticks": answers, "clock": answers})


@PATIENT
@given(st.fixed_dictionaries({}, optional=dict.fromkeys(SOURCES, fields)))
def test_every_value_has_an_origin(readings: dict[str, dict[str, FieldValue]]) -> None:
    """A value has the first source that gives one as origin; a field without one has reasons."""
    found = Assembling().poll(readings)

    for name in ("level", "ticks", "clock"):
        told = [(SOURCES[r], readings[r][name]) for r in SOURCES if name in readings.get(r, {})]
        values = [(source, value) for source, value in told if not isinstance(value, Absent)]
        place = ("domain", name, "")
        if values:
            assert values[0] == (found.origins[place], found.values["domain"][name])
        else:
            assert place not in found.origins
            assert dict(told) == found.absences.get(place, {})
    assert all(
        absent.reason in REASONS
        for by_source in found.absences.values()
        for absent in by_source.values()
    )


POOL: list[dict[str, FieldValue]] = [
    {},
    {"level": 1, "count": 5},
    {"level": NONE, "counts": {"a": 1, "b": NONE}},
    {"count": NONE, "counts": {"b": 2}, "ticks": 7},
]


@PATIENT
@given(st.lists(st.fixed_dictionaries({}, optional=dict.fromkeys(SOURCES, st.sampled_from(POOL)))))
def test_what_has_not_changed_is_put_together_the_same_way(
    polls: list[dict[str, dict[str, FieldValue]]],
) -> None:
    """Whether the fields are the very same objects as before, or new ones that equal them."""
    same, equal = Assembling(), Assembling()
    for readings in polls:
        assert same.poll(readings) == equal.poll(deepcopy(readings))
        assert same.demanded() == equal.demanded()
        assert same.may_rest() == equal.may_rest()


def test_the_reading_is_the_same_object_where_nothing_has_changed() -> None:
    """What is worked out from it can stay."""
    assembling = Assembling()
    told = {AMDSMI: {"level": 1}}
    reading = assembling.poll(told).readings["domain"]

    assert reading is assembling.poll(told).readings["domain"]
    assert reading is not assembling.poll({AMDSMI: {"level": 2}}).readings["domain"]


def test_partitions_are_apart() -> None:
    """A partition has its own fields; what is of the whole device stands once."""
    partitions = {"0": {AMDSMI: {"level": 1}}, "1": {AMDSMI: {"level": 2}}}
    reports = [report("amdsmi", {ADDRESS: answer({AMDSMI: {"ticks": 3}}, partitions=partitions)})]
    found = Assembly([domain()]).assemble(reports, 0.0)

    assert {
        WHOLE: {"domain": {"ticks": 3}},
        DeviceKey(ADDRESS, "0"): {"domain": {"level": 1}},
        DeviceKey(ADDRESS, "1"): {"domain": {"level": 2}},
    } == {key: assembled.values for key, assembled in found.items()}


def test_simulated_stands_for_every_source() -> None:
    """Its worker has a session for each, and all readers are asked of it."""
    assembling = Assembling()
    found = assembling.assemble(one("simulated", {AMDSMI: {"level": NONE}, SYSFS: {"level": 3}}))

    assert {LEVEL: "simulated"} == found.origins
    assert (AMDSMI, ROCM_SMI, SYSFS) == assembling.assembly.demand("simulated")


def test_a_source_that_rests_gives_nothing() -> None:
    """What its worker said last is not taken again."""
    resting = report("amdsmi", {ADDRESS: answer({AMDSMI: {"level": 1}})}, paused=True)
    found = Assembling().assemble(resting, one("sysfs", {SYSFS: {"level": 3}}))

    assert {LEVEL: "sysfs"} == found.origins


# ---- counters


def test_a_counter_stays_with_its_source() -> None:
    """Two sources may count from different moments, so another must wait."""
    assembling = Assembling()
    assembling.poll({AMDSMI: {"count": NONE}, SYSFS: {"count": 100}})
    found = assembling.poll({AMDSMI: {"count": 5}, SYSFS: {"count": 101}})

    assert (101, "sysfs") == (found.values["domain"]["count"], found.origins[COUNT])

    found = assembling.poll({AMDSMI: {"count": 6}, SYSFS: {"count": NONE}})

    assert COUNT not in found.origins


def test_a_counter_takes_another_source_in_the_end() -> None:
    """After a while; its first value is left out, so that the difference is no rate."""
    assembling = Assembling()
    assembling.poll({SYSFS: {"count": 100}})
    seen = []
    for _ in range(int(KEEP_SOURCE / 5) + 2):
        found = assembling.poll({AMDSMI: {"count": 5}})
        seen.append(found.values.get("domain", {}).get("count"))

    assert [None] * int(KEEP_SOURCE / 5) + [5, 5] == seen


def test_long_intervals_mix_no_sources() -> None:
    """Where two polls are further apart than the patience, the sources still are no one counter."""
    assembling = Assembling()
    assembling.assemble(one("sysfs", {SYSFS: {"count": 100}}))
    found = assembling.assemble(one("amdsmi", {AMDSMI: {"count": 900}}), later=600.0)

    assert {} == found.origins


# ---- who is asked


def test_shadowed_readers_are_not_asked() -> None:
    """A reader whose every value another gives is left alone; one that wins something is not."""
    assembling = Assembling()

    assert [AMDSMI, ROCM_SMI, SYSFS] == assembling.demanded()

    assembling.poll({AMDSMI: {"level": 1}, ROCM_SMI: {"level": 1}, SYSFS: {"level": 1, "ticks": 1}})

    assert [AMDSMI, SYSFS] == assembling.demanded()


def test_a_reader_without_any_value_is_asked_on() -> None:
    """Nobody can take its place, and it may answer some day."""
    assembling = Assembling()
    assembling.poll({AMDSMI: {"level": 1}, ROCM_SMI: {"level": NONE}, SYSFS: {}})

    assert [AMDSMI, ROCM_SMI, SYSFS] == assembling.demanded()


def test_shadowed_readers_are_asked_when_the_winner_is_lost() -> None:
    """At the very next poll, and left alone again when it is back."""
    assembling = Assembling()
    assembling.poll({AMDSMI: {"level": 1}, SYSFS: {"level": 3}})

    assert SYSFS not in assembling.demanded()

    found = assembling.poll({AMDSMI: {"level": NONE}})

    assert {} == found.origins
    assert SYSFS in assembling.demanded()

    assert {LEVEL: "sysfs"} == assembling.poll(
        {AMDSMI: {"level": NONE}, SYSFS: {"level": 3}}
    ).origins
    assert {LEVEL: "amdsmi"} == assembling.poll({AMDSMI: {"level": 1}, SYSFS: {"level": 3}}).origins
    assert SYSFS not in assembling.demanded()


def test_shadowed_readers_are_asked_from_time_to_time() -> None:
    """They may have learned to give what nobody gives."""
    assembling = Assembling()
    assembling.poll({AMDSMI: {"level": 1}, SYSFS: {"level": 3}})
    assembling.assemble(one("amdsmi", {AMDSMI: {"level": 1}}), later=ASK_AGAIN)

    assert SYSFS in assembling.demanded()

    assembling.poll({AMDSMI: {"level": 1}, SYSFS: {"level": 3}})

    assert SYSFS not in assembling.demanded()


def test_a_new_device_is_asked_everything() -> None:
    """A reader that is of no use for one device may be the only one for another."""
    assembling = Assembling()
    assembling.poll({AMDSMI: {"level": 1}, SYSFS: {"level": 3}})
    both = report("amdsmi", {a: answer({AMDSMI: {"level": 1}}) for a in (ADDRESS, OTHER)})
    assembling.assemble(both)

    assert SYSFS in assembling.demanded()


# ---- resting


def shadowed() -> Assembling:
    """After a poll in which ROCm SMI gave nothing that AMD SMI did not give."""
    assembling = Assembling()
    assembling.poll({AMDSMI: {"level": 1}, ROCM_SMI: {"level": 2}, SYSFS: {"ticks": 1}})
    return assembling


def test_a_source_that_won_nothing_may_rest() -> None:
    """The others are up and give all that it could; those that won something go on."""
    assert shadowed().may_rest("rocm_smi")
    assert not shadowed().may_rest("amdsmi")
    assert not shadowed().may_rest("sysfs")


def test_a_source_that_was_not_asked_may_not_rest() -> None:
    """It is not known yet what it can give."""
    assembling = Assembling()
    assembling.assemble(one("amdsmi", {AMDSMI: {"level": 1}}), report("rocm_smi", {}))

    assert not assembling.may_rest()


def test_a_source_whose_reader_failed_may_rest() -> None:
    """It was asked, and gave nothing."""
    assembling = Assembling()
    failing = report("rocm_smi", {ADDRESS: answer({}, errors={"domain": "KeyError"})})
    assembling.assemble(one("amdsmi", {AMDSMI: {"level": 1}}), failing)

    assert assembling.may_rest()


def test_no_rest_while_another_is_down() -> None:
    """It may be needed any moment; another that rests is no reason."""
    assembling = shadowed()
    amdsmi = one("amdsmi", {AMDSMI: {"level": 1}})
    assembling.assemble(amdsmi, report("rocm_smi", paused=True), report("sysfs", up=False))

    assert not assembling.may_rest()

    assembling.assemble(amdsmi, report("rocm_smi", paused=True), report("sysfs", paused=True))

    assert assembling.may_rest()


def test_a_source_that_rests_is_woken_for_a_lost_value() -> None:
    """Where the winner of a value that it could give is lost."""
    assembling = shadowed()
    resting = report("rocm_smi", paused=True)
    assembling.assemble(one("amdsmi", {AMDSMI: {"level": NONE}}), resting)

    assert not assembling.may_rest()


def test_a_source_that_rests_is_woken_for_a_new_device() -> None:
    """It may be the only one that knows it."""
    assembling = shadowed()
    both = report("amdsmi", {a: answer({AMDSMI: {"level": 1}}) for a in (ADDRESS, OTHER)})
    assembling.assemble(both, report("rocm_smi", paused=True))

    assert not assembling.may_rest()


def test_a_source_that_rests_is_woken_from_time_to_time() -> None:
    """Once, and then it may rest again."""
    assembling = shadowed()
    rests = []
    for _ in range(4):
        rests.append(assembling.may_rest())
        assembling.assemble(
            one("amdsmi", {AMDSMI: {"level": 1}}), report("rocm_smi", paused=True), later=1801.0
        )

    assert [True, True, False, True] == rests


def test_another_choice_of_collectors() -> None:
    """What is known of a collector that stays on stays; a new one's readers are asked first."""
    assembling = shadowed()
    assembling.poll({AMDSMI: {"level": 1, "count": NONE}, SYSFS: {"ticks": 1, "count": 100}})
    assembling.assembly.apply([domain(), domain(name="new")])

    assert ROCM_SMI not in assembling.demanded()
    assert "new/1" in assembling.demanded()
    assert not assembling.may_rest()

    found = assembling.poll({AMDSMI: {"count": 5}, SYSFS: {"count": 101}})

    assert {COUNT: "sysfs"} == found.origins
