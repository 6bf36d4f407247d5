"""A lint of our own over every family that is declared."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass

import pytest

from exporter.collectors import COLLECTORS
from exporter.exposition.families import NODE_METRICS
from tests.golden.page import PAGES, samples
from tests.naming.contract import CONTRACT, DEVICE

NOT_BASE_UNITS = """
    milliwatts microwatts mw uw kw kilowatts w c degrees millidegrees fahrenheit kelvin mb mib kb
    kib gb gib megabytes kilobytes gigabytes kilobytes megabits bits mhz khz ghz megahertz percent
    percentage pct ms us ns milliseconds microseconds nanoseconds minutes hours mv millivolts gts
    mts gtps kwh wh
"""
RESERVED = frozenset({"le", "quantile", "job", "instance"})
UNITS = ("celsius", "watts", "joules", "hertz", "ratio", "seconds", "bytes", "lanes", "info")
"""Base units and such, that end a name; `_total` may follow, and `_per_second` comes last."""
COUNTS = """
    amdgpu_up amdgpu_suspended amdgpu_devices amdgpu_firmware_devices amdgpu_partitions
    amdgpu_processes amdgpu_process_state amdgpu_vram_leak_suspected
    amdgpu_bad_pages amdgpu_bad_page_threshold amdgpu_xgmi_link_up amdgpu_pcie_traffic_instant_raw
    amdgpu_exporter_simulated amdgpu_exporter_collector_success amdgpu_exporter_source_up
    amdgpu_exporter_source_abandoned_workers amdgpu_exporter_worker_open_fds
    amdgpu_exporter_config_last_reload_successful
"""
"""Gauges without a unit: states and numbers of things."""


@dataclass(frozen=True, slots=True)
class Declared:
    """A family as it is declared, whoever declares it."""

    name: str
    kind: str
    help: str
    labels: tuple[str, ...]
    info: bool


def declared() -> list[Declared]:
    """Every family, those of collectors that are off by default included."""
    found = [
        Declared(m.name, m.kind, m.help, m.labels, m.name.endswith("_info")) for m in NODE_METRICS
    ]
    for collector in COLLECTORS:
        for metric in collector.metrics:
            own = metric.labels
            if metric.info:
                taken = metric.take(collector.reading())
                assert isinstance(taken, dict)
                own = tuple(str(name) for name in taken)
            info = metric.info or (metric.name.endswith("_info") and bool(own))
            found.append(Declared(metric.name, metric.kind, metric.help, (*DEVICE, *own), info))
        for of_node in collector.node_metrics:
            info = of_node.name.endswith("_info")
            found.append(Declared(of_node.name, "gauge", of_node.help, of_node.labels, info))
    return found


DECLARED = declared()
each = pytest.mark.parametrize("family", DECLARED, ids=[f.name for f in DECLARED])


def test_every_family_is_declared_once() -> None:
    """Two never share a name, nor, as OpenMetrics has it, one that differs by `_total` alone."""
    counted = Counter(family.name.removesuffix("_total") for family in DECLARED)
    assert {} == {name: count for name, count in counted.items() if count > 1}


@each
def test_names_are_snake_case_under_one_prefix(family: Declared) -> None:
    """Lower case, words between underscores, `amdgpu_` first."""
    assert re.fullmatch(r"amdgpu(_[a-z][a-z0-9]*)+", family.name)


@each
def test_units_are_base_units(family: Declared) -> None:
    """No milli, no mega, no percent; and a unit ends the name unless it is a count or a state."""
    assert set() == {*NOT_BASE_UNITS.split()} & {*family.name.split("_")}
    if family.kind == "gauge" and family.name not in COUNTS.split():
        ending = family.name.removesuffix("_per_second").rpartition("_")[2]
        assert ending in UNITS or family.name.endswith("s_per_second")


@each
def test_total_marks_counters_and_only_them(family: Declared) -> None:
    """`_total` ends the name of every counter and of nothing else."""
    assert (family.kind == "counter") == family.name.endswith("_total")


@each
def test_info_marks_metadata(family: Declared) -> None:
    """`_info` ends the name of metadata, a gauge, and of nothing else."""
    assert family.info == family.name.endswith("_info")
    assert not family.info or family.kind == "gauge"


@each
def test_help_is_a_sentence(family: Declared) -> None:
    """It begins with a capital or a number, ends with a full stop and stays on one line."""
    assert re.fullmatch(r"[A-Z0-9a][^\n]*\.", family.help)
    assert family.help == " ".join(family.help.split())


@each
def test_help_of_the_hardware_names_its_source(family: Declared) -> None:
    """A file, a field or a call of the vendor in brackets, or the family that it comes from."""
    if family.name.startswith("amdgpu_exporter_") or family.info:
        return
    assert re.search(r"\(.*\w.*\)|amdgpu_\w+|answered|view", family.help)


@each
def test_labels_are_snake_case_and_free(family: Declared) -> None:
    """Lower case words, none that Prometheus gives itself, none twice."""
    for label in family.labels:
        assert re.fullmatch(r"[a-z]+(_[a-z]+)*", label)
        assert label not in RESERVED
        assert not label.startswith(("exported_", "__"))
    assert len(family.labels) == len({*family.labels})


@pytest.mark.parametrize("name", CONTRACT)
def test_the_contract_is_kept(name: str) -> None:
    """A name of the contract is declared with its type and its labels."""
    families = [family for family in DECLARED if family.name == name]
    assert [(CONTRACT[name].kind, {*CONTRACT[name].labels})] == [
        (family.kind, {*family.labels}) for family in families
    ]


@pytest.mark.parametrize("path", sorted(PAGES.rglob("*.prom")), ids=lambda p: f"{p.parts[-2:]}")
def test_values_on_the_pages_keep_the_contract(path: object) -> None:
    """Ratios lie between 0 and 1, infos are 1, and listed label values are the only ones."""
    for name, labels, value in samples(PAGES.joinpath(str(path)).read_text()):
        if name.endswith("_ratio"):
            assert 0 <= value <= 1, (name, labels)
        if name.endswith("_info"):
            assert 1 == value, (name, labels)
        if name not in CONTRACT:
            continue
        assert {*labels} - {"partition"} == {*CONTRACT[name].labels}, name
        for label, listed in CONTRACT[name].values.items():
            assert labels[label] in listed, (name, labels)
