"""The pages: metrics in both formats, the landing page, and the snapshot as JSON."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterable
from html.parser import HTMLParser
from typing import Any

import pytest
from prometheus_client.metrics_core import Metric as Family
from prometheus_client.openmetrics import parser as openmetrics
from prometheus_client.parser import text_string_to_metric_families

from exporter import __version__
from exporter.collectors import BY_NAME, COLLECTORS
from exporter.collectors.base import Metric, NodeMetric
from exporter.exposition.document import snapshot_json
from exporter.exposition.families import NODE_METRICS, Status
from exporter.exposition.landing import landing_html
from exporter.exposition.page import KEPT, FilterError, MetricsPage
from exporter.snapshot import CollectorHealth, Snapshot
from exporter.sources.supervisor import Usage
from exporter.values import NO_ANSWER, Absent

from .nodes import ADDRESS, OTHER
from .polls import Reading, device, domain, report, snapshot

OPENMETRICS = "application/openmetrics-text; version=1.0.0"
STATUS = Status(reload_successful=True, reload_timestamp=1.5, rejected_requests=3)
HOSTILE = '<script>alert("x")</script>&\'\\\n'

METRICS: tuple[Metric[Reading], ...] = (
    Metric("amdgpu_level", "gauge", 'A "level"\\.', lambda r: r.level),
    Metric("amdgpu_count_total", "counter", "A count.", lambda r: r.count),
    Metric("amdgpu_levels", "gauge", "Levels.", lambda r: r.levels, ("sensor",)),
    Metric(
        "amdgpu_pairs",
        "gauge",
        "Pairs.",
        lambda r: {(key, "x"): value for key, value in r.levels.items()},
        ("sensor", "limit"),
    ),
    Metric("amdgpu_info", "gauge", "Who.", lambda _: {"name": HOSTILE, "uuid": ""}, info=True),
)
DOMAIN = domain(
    metrics=METRICS,
    node_metrics=(
        NodeMetric("amdgpu_both", "Of all.", lambda rs: {("a", "b"): len(rs)}, ("x", "y")),
    ),
)
READING = Reading(level=0.5, count=1 << 60, levels={"edge": 40.0, HOSTILE: 1.0})


def of_text(body: bytes) -> Iterable[Family]:
    """The families of a page in the text format."""
    read: Any = text_string_to_metric_families  # it has no types
    families: Iterable[Family] = read(body.decode())
    return families


def page(taken: Snapshot, *collectors: Any, process: bool = False) -> MetricsPage:
    """The page of a snapshot."""
    return MetricsPage(taken, collectors or (DOMAIN,), lambda: STATUS, process=process)


def parsed(families: Iterable[Family]) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    """Every series with its value."""
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in families
        for sample in family.samples
    }


def text_series(shown: MetricsPage, **filters: Any) -> dict[Any, float]:
    """Every series of the text format."""
    return parsed(of_text(shown.render(**filters)[1]))


WHOLE = (("gpu", "0"), ("pci_address", ADDRESS))


def test_both_formats_say_the_same() -> None:
    """Prometheus's own parsers read both, hostile labels included, to the same series."""
    shown = page(snapshot(device({"domain": READING}), device({"domain": READING}, partition="1")))
    plain_type, plain = shown.render("text/plain")
    open_type, opened = shown.render(OPENMETRICS)
    series = parsed(of_text(plain))
    read: Any = openmetrics.text_string_to_metric_families  # it has no types
    of_openmetrics = parsed(read(opened.decode()))

    assert plain_type.startswith("text/plain; version=")
    assert open_type.startswith("application/openmetrics-text; version=1")
    assert series == of_openmetrics
    assert opened.endswith(b"# EOF\n")
    assert 0.5 == series["amdgpu_level", WHOLE]
    assert float(1 << 60) == series["amdgpu_count_total", WHOLE]
    assert 1.0 == series["amdgpu_levels", (*WHOLE, ("sensor", HOSTILE))]
    assert 40.0 == series["amdgpu_pairs", (WHOLE[0], ("limit", "x"), WHOLE[1], ("sensor", "edge"))]
    assert 1.0 == series["amdgpu_info", (WHOLE[0], ("name", HOSTILE), WHOLE[1], ("uuid", ""))]
    assert 2.0 == series["amdgpu_both", (("x", "a"), ("y", "b"))]
    assert 0.5 == series["amdgpu_level", (WHOLE[0], ("partition", "1"), WHOLE[1])]


def test_a_value_that_was_not_read_has_no_series() -> None:
    """Neither zero nor NaN; a family without samples is not there at all."""
    body = page(snapshot(device({"domain": Reading()}))).render()[1].decode()

    assert "amdgpu_level" not in body
    assert "amdgpu_count" not in body
    assert "NaN" not in body
    assert "amdgpu_info{" in body


def test_devices_on_the_page() -> None:
    """`amdgpu_up` once per device, whatever its partitions; down and suspended are told."""
    series = text_series(
        page(
            snapshot(
                device({"domain": READING}),
                device({"domain": READING}, partition="0"),
                device(address=OTHER, gpu=1, why_down="gone"),
                device(address="0000:2d:00.0", gpu=2, suspended=True),
            )
        )
    )
    up = {key: value for key, value in series.items() if key[0] == "amdgpu_up"}

    assert [1.0, 0.0, 1.0] == list(up.values())
    assert 1.0 == series["amdgpu_suspended", (("gpu", "2"), ("pci_address", "0000:2d:00.0"))]


def test_the_exporter_itself() -> None:
    """Sources, workers, collectors, counts and settings; a source that rests is not down."""
    usage = Usage(1.5, 4096, 7)
    amdsmi, resting = report("amdsmi"), report("rocm_smi", up=False, paused=True)
    working = type(amdsmi)(**{**{n: getattr(amdsmi, n) for n in amdsmi.__slots__}, "usage": usage})
    series = text_series(
        page(snapshot(sources=[working, resting, report("sysfs", up=False, reason="x")]))
    )

    def of(name: str, **labels: str) -> float | None:
        return series.get((name, tuple(sorted(labels.items()))))

    assert 1.0 == of("amdgpu_exporter_source_up", source="amdsmi")
    assert 0.0 == of("amdgpu_exporter_source_up", source="sysfs")
    assert of("amdgpu_exporter_source_up", source="rocm_smi") is None
    assert 2.0 == of("amdgpu_exporter_source_restarts_total", source="sysfs", reason="hang")
    assert 0.0 == of("amdgpu_exporter_source_restarts_total", source="sysfs", reason="crash")
    assert 1.5 == of("amdgpu_exporter_worker_cpu_seconds_total", source="amdsmi")
    assert 4096 == of("amdgpu_exporter_worker_resident_bytes", source="amdsmi")
    assert 7 == of("amdgpu_exporter_worker_open_fds", source="amdsmi")
    assert 1.0 == of("amdgpu_exporter_collector_success", collector="domain")
    assert 0.25 == of("amdgpu_exporter_collector_duration_seconds", collector="domain")
    assert 0.0 == of("amdgpu_exporter_rejected_values_total", collector="domain", reason="error")
    assert 3.0 == of("amdgpu_exporter_rejected_requests_total")
    assert 1.0 == of("amdgpu_exporter_config_last_reload_successful")
    assert 1.5 == of("amdgpu_exporter_config_last_reload_success_timestamp_seconds")
    assert 0.0 == of("amdgpu_exporter_simulated")
    assert 5.0 == of("amdgpu_exporter_poll_interval_seconds")
    assert 1_700_000_000.0 == of("amdgpu_exporter_last_poll_timestamp_seconds")


def test_a_collector_that_did_not_run() -> None:
    """It has no duration, rather than a very short one."""
    series = text_series(page(snapshot(collectors={"domain": CollectorHealth(False, None)})))

    assert {"amdgpu_exporter_collector_success": 0.0} == {
        name: value
        for (name, _), value in series.items()
        if name.startswith("amdgpu_exporter_coll")
    }


def test_simulated_is_a_metric() -> None:
    """Nobody takes made-up values for real ones."""
    assert 1.0 == text_series(page(snapshot(simulated=True)))["amdgpu_exporter_simulated", ()]


def test_info_labels_are_always_the_same() -> None:
    """What no source reports is an empty label, so that joins don't break."""
    identity = BY_NAME["identity"]
    labels = [
        {name for name, _ in key[1]}
        for reading in (identity.reading(), identity.reading(name="x", uuid="y"))
        for key in text_series(page(snapshot(device({"identity": reading})), identity))
        if key[0] == "amdgpu_info"
    ]

    assert 2 == len(labels)
    assert labels[0] == labels[1]
    assert {"gpu", "pci_address", "uuid", "name", "serial", "hip_index"} <= labels[0]


def test_process_families() -> None:
    """The daemon's page tells what the process costs; `once` has nothing to tell of it."""
    assert b"process_cpu_seconds_total" in page(snapshot(), process=True).render()[1]
    assert b"process_" not in page(snapshot()).render()[1]


# ---- filters and the cache

OTHER_DOMAIN = domain(
    name="other", metrics=(Metric("amdgpu_other", "gauge", "Other.", lambda r: r.level),)
)
BOTH = snapshot(
    device({"domain": READING, "other": READING}),
    collectors={name: CollectorHealth(True, 0.0) for name in ("domain", "other")},
)


@pytest.mark.parametrize(
    ("filters", "shown"),
    [
        ({}, ["amdgpu_level", "amdgpu_other"]),
        ({"collect": ("other",)}, ["amdgpu_other"]),
        ({"collect": ("other", "domain", "other")}, ["amdgpu_level", "amdgpu_other"]),
        ({"exclude": ("other",)}, ["amdgpu_level"]),
        ({"exclude": ("other", "domain")}, []),
    ],
)
def test_filters(filters: dict[str, tuple[str, ...]], shown: list[str]) -> None:
    """Only these collectors, or all but these; what is of the node and exporter always stays."""
    names = {name for name, _ in text_series(page(BOTH, DOMAIN, OTHER_DOMAIN), **filters)}

    assert shown == sorted(names & {"amdgpu_level", "amdgpu_other"})
    assert {"amdgpu_up", "amdgpu_exporter_build_info"} <= names


@pytest.mark.parametrize(
    ("filters", "message"),
    [
        ({"collect": ("nonsense",)}, "there is no collector 'nonsense'; there are: domain, other"),
        ({"exclude": ("",)}, "there is no collector ''"),
        ({"collect": ("x" * 900,)}, f"there is no collector '{'x' * 40}';"),
        ({"collect": ("domain",), "exclude": ("other",)}, "can't be combined"),
    ],
)
def test_filters_that_make_no_sense(filters: dict[str, Any], message: str) -> None:
    """The message says why, and repeats no more of the request than fits on a line."""
    with pytest.raises(FilterError) as caught:
        page(BOTH, DOMAIN, OTHER_DOMAIN).render(**filters)

    assert message in str(caught.value)


def test_rendered_once_per_poll() -> None:
    """The same request gets the same bytes without any work; the formats are kept apart."""
    shown = page(BOTH, DOMAIN, OTHER_DOMAIN)
    variants: list[dict[str, Any]] = [
        {},
        {"accept": OPENMETRICS},
        {"compress": True},
        {"collect": ("other",)},
    ]
    first = [shown.render(**variant)[1] for variant in variants]
    again = [shown.render(**variant)[1] for variant in variants]

    assert all(one is other for one, other in zip(first, again, strict=True))
    assert len(variants) == len(set(first))
    assert first[0] == gzip.decompress(first[2])


def test_a_reload_is_shown_at_once() -> None:
    """It does not wait for the next poll; other counts do, since they change with every request."""
    told = [STATUS, Status(True, 1.5, 9), Status(False, 1.5, 9)]
    shown = MetricsPage(BOTH, (DOMAIN,), lambda: told.pop(0), process=False)
    first, second, third = (shown.render()[1] for _ in range(3))

    assert first is second
    assert b"config_last_reload_successful 1.0" in first
    assert b"config_last_reload_successful 0.0" in third


def test_the_cache_is_bounded() -> None:
    """However many filters clients think of."""
    names = [f"c{n}" for n in range(KEPT + 8)]
    shown = page(snapshot(), *(domain(name=name) for name in names))
    first, again = ([shown.render(collect=(name,))[1] for name in names] for _ in range(2))

    assert KEPT == sum(one is other for one, other in zip(first, again, strict=True))


def test_names_and_kinds_of_all_metrics() -> None:
    """No name is declared twice; counters end in `_total`, nothing else does; each has a help."""
    declared = [
        *((m.name, m.kind, m.help) for m in NODE_METRICS),
        *((m.name, m.kind, m.help) for c in COLLECTORS for m in c.metrics),
        *((m.name, "gauge", m.help) for c in COLLECTORS for m in c.node_metrics),
    ]

    assert len(declared) == len({name for name, *_ in declared})
    for name, kind, text in declared:
        assert (kind == "counter") == name.endswith("_total")
        assert text.endswith(".")
        assert name.startswith("amdgpu_")


# ---- the landing page


class Page(HTMLParser):
    """What a browser makes of the page: its text and its tags, checked for being closed."""

    def __init__(self, body: bytes) -> None:
        super().__init__()
        self.text: list[str] = []
        self.tags: list[str] = []
        self.links: list[str] = []
        self._open: list[str] = []
        self.feed(body.decode())
        assert [] == self._open

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.links += [value or "" for name, value in attrs if name == "href"]
        if tag not in ("meta",):
            self._open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert tag == self._open.pop()

    def handle_data(self, data: str) -> None:
        self.text.append(data)


def test_landing_before_the_first_poll() -> None:
    """Nothing has been read yet, and the page says so."""
    shown = Page(landing_html(None, "/metrics"))

    assert any("first poll has not ended" in text for text in shown.text)
    assert f"version {__version__}" in shown.text
    assert {"/metrics", "/api/v1/snapshot", "/-/healthy", "/-/ready"} == set(shown.links)


def test_landing_escapes() -> None:
    """Text from devices, libraries, and settings is text, wherever it stands."""
    identity = BY_NAME["identity"]
    hostile = snapshot(
        device({"identity": identity.reading(name=HOSTILE)}, partition=HOSTILE),
        device(address=HOSTILE, gpu=1, why_down=HOSTILE),
        sources=[report(HOSTILE), report("sysfs", up=False, reason=HOSTILE)],
        node={HOSTILE: HOSTILE},
        views={HOSTILE: 1},
        collectors={HOSTILE: CollectorHealth(False, 0.0)},
        simulated=True,
    )
    shown = Page(landing_html(hostile, "/metrics"))

    assert "script" not in shown.tags
    assert 9 <= "".join(shown.text).count(HOSTILE.strip())


def test_landing_says_simulated() -> None:
    """Loudly, and only then."""
    banner = "none comes from hardware"

    assert banner in "".join(Page(landing_html(snapshot(simulated=True), "/metrics")).text)
    assert banner not in "".join(Page(landing_html(snapshot(), "/metrics")).text)


def test_landing_of_devices() -> None:
    """What a person looks for; what is not known is a dash, not a zero."""
    readings = {
        "identity": BY_NAME["identity"].reading(name="AMD Instinct MI300X"),
        "temperature": BY_NAME["temperature"].reading(
            sensors={"junction": 45.4, "hbm": 99.0}, critical={"hbm": 94.0}
        ),
        "power": BY_NAME["power"].reading(watts=140.6),
        "activity": BY_NAME["activity"].reading(gfx=0.934),
        "memory": BY_NAME["memory"].reading(total=192 << 30, used=3 << 29),
        "xgmi": BY_NAME["xgmi"].reading(up={"0": 1, "1": 0}),
        "pcie": BY_NAME["pcie"].reading(
            transfers=16e9, max_transfers=32e9, width=16, max_width=16, replays=2
        ),
    }
    shown = Page(
        landing_html(
            snapshot(
                device(readings),
                device(address=OTHER, gpu=1, suspended=True),
                device(address="0000:2d:00.0", gpu=2, why_down="no answer"),
            ),
            "/gpu",
        )
    )
    text = " ".join(shown.text)

    for expected in (
        "AMD Instinct MI300X", "45 °C", "99 °C", "141 W", "93 %", "1.5 GiB of 192.0 GiB",
        "1 of 2", "16 GT/s x16", "suspended", "down: no answer", "–",
    ):  # fmt: skip
        assert expected in text
    assert "/gpu" in shown.links


def test_landing_without_devices() -> None:
    """A node without GPUs has a page all the same."""
    text = " ".join(Page(landing_html(snapshot(views={}), "/metrics")).text)

    assert "No GPU was found on this node." in text
    assert "Counted by: no source" in text


# ---- the snapshot as JSON


def strict(body: bytes) -> Any:
    """JSON as the standard has it: without NaN and Infinity."""

    def refuse(constant: str) -> None:
        raise AssertionError(f"{constant} is no JSON")

    return json.loads(body, parse_constant=refuse)


def test_snapshot_json() -> None:
    """The same picture; a value that was not read is null or missing."""
    unanswered = report("amdsmi", devices=[ADDRESS], unanswered={ADDRESS: "hangs"}, reason="x")
    document = strict(
        snapshot_json(
            snapshot(
                device({"domain": READING}),
                device({"domain": Reading()}, partition="0"),
                device(address=OTHER, gpu=1, why_down="gone"),
                sources=[unanswered],
                node={"boot_id": "b"},
            )
        )
    )

    assert [0.5, None] == [d["readings"]["domain"]["level"] for d in document["devices"][:2]]
    assert [None, "0", None] == [d["partition"] for d in document["devices"]]
    assert [None, None, "gone"] == [d["why_down"] for d in document["devices"]]
    assert [True, True, False] == [d["up"] for d in document["devices"]]
    assert {"boot_id": "b"} == document["node"]
    assert {"hang": 2} == document["sources"][0]["restarts"]
    assert {ADDRESS: "hangs"} == document["sources"][0]["unanswered"]
    assert (1, 5.0, __version__) == tuple(
        document[key] for key in ("poll", "poll_interval_seconds", "version")
    )


def test_snapshot_json_has_no_nan() -> None:
    """Should one ever get that far, there is no document rather than a broken one."""
    with pytest.raises(ValueError, match="not JSON compliant"):
        snapshot_json(snapshot(device({"domain": Reading(level=float("nan"))})))


def test_absences_are_not_values() -> None:
    """What is absent for a reason is not among the readings."""
    down = device(absences={("domain", "level", ""): {"amdsmi": Absent(NO_ANSWER)}}, why_down="x")

    assert {} == strict(snapshot_json(snapshot(down)))["devices"][0]["readings"]
