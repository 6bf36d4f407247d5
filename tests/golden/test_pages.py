"""Whole pages byte for byte, and every number on them traced back to the simulated kernel."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
from prometheus_client.openmetrics.parser import (
    text_string_to_metric_families as open_metrics_families,
)

from exporter.collectors import COLLECTORS
from exporter.exposition.families import NODE_METRICS
from tests.golden.cases import CASES
from tests.golden.conftest import NO_PAGE
from tests.golden.page import PAGES, Case, Page
from tests.golden.trace import TRACES, NeverToldError, expected

Read = Callable[[Case], Page]
OWN = "amdgpu_exporter_"
"""The families about the exporter itself tell nothing of the hardware."""
ON_NO_PAGE = {
    "amdgpu_bad_page_threshold",
    "amdgpu_vram_leak_suspected",
    "amdgpu_vram_growth_bytes_per_second",
    "amdgpu_vram_unattributed_bytes",
    "amdgpu_vram_exhaustion_seconds",
}
"""Families that no simulated node gives, or that hours of it are judged for: they have no trace."""

ALIKE = {
    "amdgpu_up", "amdgpu_suspended", "amdgpu_devices", "amdgpu_node_info", "amdgpu_info",
    "amdgpu_firmware_devices", "amdgpu_partitions", "amdgpu_clock_max_hertz",
    "amdgpu_vram_total_bytes", "amdgpu_vram_used_bytes",
    "amdgpu_processes", "amdgpu_process_info", "amdgpu_process_state", "amdgpu_vram_zombie_bytes",
    "amdgpu_allocation_info",
    "amdgpu_xgmi_link_up", "amdgpu_xgmi_link_max_bytes_per_second",
    "amdgpu_pcie_link_transfers_per_second", "amdgpu_pcie_link_max_transfers_per_second",
    "amdgpu_pcie_link_width_lanes", "amdgpu_pcie_link_max_width_lanes",
}  # fmt: skip
"""Families in which the GPUs of a model are alike, or differ between two values only; states."""
MANIFOLD = [c for c in CASES if c.suite == "sid" and c.library == "amdsmi" and c.partitions == 1]
each_case = pytest.mark.parametrize(
    "case", CASES, ids=[f"{c.library}-{c.suite}-{c.name}" for c in CASES]
)


@each_case
def test_the_page_is_the_golden_one(case: Case, page: Read, regenerate: bool) -> None:
    """Names, help, types, labels, values and their order are as they were reviewed."""
    if regenerate:
        case.path.parent.mkdir(parents=True, exist_ok=True)
        case.path.write_text(page(case).text)
    if not case.path.exists():
        pytest.skip(f"{NO_PAGE} {case.path.relative_to(PAGES)}: `make golden` writes it")
    assert case.path.read_text().splitlines() == page(case).text.splitlines()
    assert case.path.read_bytes() == page(case).text.encode()


@each_case
def test_no_number_stands_there_that_the_kernel_was_not_told(case: Case, page: Read) -> None:
    """Each sample about the hardware is what its GPU, link, die, block or sensor was told."""
    wrong: list[str] = []
    for name, labels, value in page(case).samples():
        if name.startswith(OWN):
            continue
        try:
            told = expected(page(case).told, name, labels)
        except NeverToldError as error:
            wrong.append(f"{name}{labels} is {value}, but the kernel told no such thing: {error}")
            continue
        if not math.isclose(told, value, rel_tol=1e-12):
            wrong.append(f"{name}{labels} is {value}, but the kernel told {told}")
    assert [] == wrong


@each_case
def test_openmetrics_shows_the_same(case: Case, page: Read) -> None:
    """A strict parser reads the page in the newer format and finds the same samples."""
    found = [
        (sample.name, dict(sample.labels), float(sample.value))
        for family in open_metrics_families(page(case).open_metrics)  # type: ignore[no-untyped-call]  # the library's
        for sample in family.samples
    ]
    assert page(case).samples() == found


@pytest.mark.parametrize("case", MANIFOLD, ids=lambda case: case.name)
def test_a_mix_up_would_show(case: Case, page: Read) -> None:
    """The kernel is told another number for every series of a family, and never zero."""
    told: dict[str, list[float]] = {name: [] for name in {*TRACES} - ALIKE}
    for name, labels, value in page(case).samples():
        if name in told and not labels.get("limit", "").startswith("configured"):
            told[name].append(value)
    assert [] == [name for name, values in told.items() if 0 in values]
    assert [] == [name for name, values in told.items() if len(values) != len({*values})]


def test_every_family_of_the_hardware_is_traced() -> None:
    """A new family needs a trace, and one that is gone leaves none behind."""
    declared = {metric.name for c in COLLECTORS for metric in c.metrics}
    declared |= {metric.name for c in COLLECTORS for metric in c.node_metrics}
    declared |= {m.name for m in NODE_METRICS if not m.name.startswith(OWN)}
    assert declared == {*TRACES} | ON_NO_PAGE


def test_every_family_stands_on_a_page() -> None:
    """No family is traced in vain: each is on at least one of the golden pages."""
    shown: set[str] = set()
    for path in sorted(PAGES.rglob("*.prom")):
        lines = path.read_text().splitlines()
        shown |= {line.split()[2] for line in lines if line.startswith("# TYPE")}
    assert {*TRACES} == {name for name in shown if not name.startswith(OWN)}


def test_no_golden_page_is_left_over() -> None:
    """Every page is that of a case, or of another version of a case's library."""
    names = {(case.library, case.name) for case in CASES}
    found = {
        (path.parent.name.partition("-")[0], path.stem) for path in sorted(PAGES.rglob("*.prom"))
    }
    assert set() == found - names


def test_rocm_smi_beside_amdsmi_changes_no_number(page: Read) -> None:
    """With all sources on, as by default, the hardware's numbers are those of AMD SMI alone."""

    def hardware(case: Case) -> list[tuple[str, dict[str, str], float]]:
        views = ("amdgpu_devices", "amdgpu_node_info")
        found = [s for s in page(case).samples() if not s[0].startswith((OWN, *views))]
        return sorted(found, key=lambda sample: (sample[0], sorted(sample[1].items())))

    for model, partitions in (("MI300X", 1), ("MI250X", 1), ("MI300X", 8)):
        alone = Case(f"{model}-alone", "amdsmi", "sid", model, 2, partitions)
        together = Case(f"{model}-together", "all", "sid", model, 2, partitions)
        assert hardware(alone) == hardware(together)
