"""A real Prometheus, loaded with hours of simulated nodes, answers every query of every panel."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest

from tests.dashboards.draw import STEP as RESOLUTION
from tests.dashboards.draw import named, page
from tests.dashboards.grafana import Asked, asked, chosen, dashboards, panels, put_in, variables
from tests.dashboards.recording import STEP
from tests.dashboards.site import (
    RESERVED,
    SERVING,
    SPAN,
    TARGETS,
    TRAINING,
    UNREACHABLE,
    Prometheus,
    Series,
    recorded,
)

GIVEN = dashboards()


@pytest.fixture(scope="module")
def prometheus(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Prometheus]:
    """The server with the recorded fleet."""
    with recorded(tmp_path_factory.mktemp("site")) as running:
        yield running


def _choices(name: str) -> list[dict[str, str]]:
    """Everything at once; of a dashboard about one node, each node."""
    if variables(GIVEN[name])["instance"]["multi"]:
        return [{}]
    return [{"instance": target.instance} for target in TARGETS]


def _answers(prometheus: Prometheus, query: Asked, given: dict[str, str]) -> list[Series]:
    """As Grafana would ask: an instant query at the end, or a range query."""
    text = put_in(query.text, chosen(GIVEN[query.dashboard], SPAN, STEP, **given))
    panel = next((p for p in panels(GIVEN[query.dashboard]) if p["title"] == query.panel), None)
    instant = panel is not None and panel["targets"][0]["instant"]
    return prometheus.at_once(text) if instant else prometheus.over_time(text, RESOLUTION)


@pytest.mark.parametrize("name", GIVEN)
def test_every_query_returns_data(name: str, prometheus: Prometheus) -> None:
    """In the fleet that has every fault, no query of a panel or annotation comes back empty."""
    empty = [
        str(query)
        for query in asked(name, GIVEN[name])
        if not any(_answers(prometheus, query, given) for given in _choices(name))
    ]
    assert [] == empty


@pytest.mark.parametrize("name", GIVEN)
def test_no_two_series_of_a_panel_have_the_same_name(name: str, prometheus: Prometheus) -> None:
    """Legends tell series apart, also those of different nodes and partitions."""
    twice = []
    for panel in panels(GIVEN[name]):
        if panel["type"] in ("table", "stat"):
            continue
        for given in _choices(name):
            names: Counter[str] = Counter()
            for target in panel["targets"]:
                query = Asked(name, panel["title"], target["refId"], target["expr"])
                for series in _answers(prometheus, query, given):
                    names[named(target["legendFormat"], series.labels)] += 1
            twice += [(panel["title"], text) for text, count in names.items() if count > 1]
    assert [] == twice


def _shown(
    prometheus: Prometheus, name: str, title: str, letter: str = "A", **given: str
) -> dict[str, float]:
    """The last value of each series of a query that has one at the end, by its labels."""
    query = next(q for q in asked(name, GIVEN[name]) if (q.panel, q.letter) == (title, letter))
    found = {}
    for series in _answers(prometheus, query, given):
        labels = [v for k, v in sorted(series.labels.items()) if k not in ("cluster", "job")]
        found[" ".join(label for label in reversed(labels))] = series.values[-1][1]
    return found


def test_faults_show_where_a_reader_looks(prometheus: Prometheus) -> None:
    """The fleet's first row, head-room, lost links and GPUs, bad pages, leaks, idle GPUs.

    What is expected is the scenarios of `site`, not what the queries gave.
    """
    train, serve, reserve = TRAINING.instance, SERVING.instance, RESERVED.instance
    first = {
        title: _shown(prometheus, "fleet", title)[""]
        for title in ("Nodes blind", "GPUs missing", "GPUs not answering", "Nodes simulated")
    }
    assert {
        "Nodes blind": 1.0,
        "GPUs missing": 1.0,
        "GPUs not answering": 1.0,
        "Nodes simulated": 4.0,
    } == first

    room = _shown(prometheus, "fleet", "Worst 20 by head-room")
    assert f"hbm {train} 2" == min(room, key=lambda key: room[key])
    assert -4 < min(room.values()) < 0

    on = {"instance": train}
    down = _shown(prometheus, "interconnect", "Links that are down", **on)
    assert 2 == len(down)
    matrix = _shown(prometheus, "interconnect", "XGMI matrix", **on)
    assert 56 == len(matrix)
    dark = {key for key, share in matrix.items() if share < 0.5 * max(matrix.values()) + 0.01}
    assert {"GPU 1 GPU 0", "GPU 0 GPU 1"} == {key for key in dark if "GPU 0" in key}
    link = _shown(prometheus, "interconnect", "PCIe links", "E", **on)
    assert {f"{train} 3": 0.25} == {key: share for key, share in link.items() if share < 1}
    replays = _shown(prometheus, "interconnect", "PCIe replays", **on)
    assert {"6": pytest.approx(4 * 3600, rel=0.02)} == {
        key.split()[-1]: rate for key, rate in _by_gpu(replays).items() if rate > 100
    }

    lost = _shown(prometheus, "reliability", "GPUs answering")
    assert {f"{serve} 5": 1.0, f"{serve} 7": 0.0} == lost
    pages = _shown(prometheus, "reliability", "Bad pages", "A")
    assert {f"{train} 1": pytest.approx(0.005 * 3 * 3600, abs=1)} == {
        key: count for key, count in pages.items() if count
    }

    leaks = _shown(prometheus, "memory", "Verdicts of the leak detection")
    assert {f"process {train} 4", f"residue {serve} 6", f"process {reserve} 1"} == {
        key for key, verdict in leaks.items() if verdict
    }

    idle = _shown(prometheus, "capacity", "GPUs held but idle")
    assert {f"{reserve} 1": 0.0} == idle


def _by_gpu(found: dict[str, float]) -> dict[str, float]:
    """Keyed by the GPU alone, which is the last label but for the PCI address."""
    return {next(part for part in key.split() if part.isdigit()): v for key, v in found.items()}


def test_energy_is_what_the_nodes_used(prometheus: Prometheus) -> None:
    """Energy of the fleet by its counters is its mean power over the time; the price multiplies."""
    energy = _shown(prometheus, "capacity", "Energy")[""]
    cost = _shown(prometheus, "capacity", "Cost of energy", price="0.5")[""]
    power = prometheus.at_once(f"sum(avg_over_time(amdgpu_power_watts[{SPAN:.0f}s]))")
    # GPU 7 is gone for a quarter of the time and GPU 5 for an eighth, which a mean leaves out
    assert pytest.approx(energy, rel=0.05) == power[0].values[0][1] * SPAN / 3.6e6
    assert pytest.approx(cost) == energy * 0.5


def test_a_blind_node_is_listed(prometheus: Prometheus) -> None:
    """A node that can't be scraped has its line in the table of nodes, with nothing but that."""
    scraped = _shown(prometheus, "fleet", "Nodes at a glance", "A")
    assert {UNREACHABLE.instance} == {name for name, up in scraped.items() if not up}


@pytest.mark.parametrize("name", GIVEN)
def test_variables_offer_what_is_there(name: str, prometheus: Prometheus) -> None:
    """Lists of clusters, jobs, nodes and GPUs are those of the fleet; a blind node has no GPUs."""
    fleet = {
        "cluster": {"east", "west"},
        "job": {"amdgpu"},
        "instance": {target.instance for target in TARGETS},
        "gpu": {str(gpu) for gpu in range(8)},
    }
    values = chosen(GIVEN[name], SPAN, STEP)
    for variable, offered in variables(GIVEN[name]).items():
        found = re.fullmatch(r"label_values\((.+), (\w+)\)", offered["query"])
        if found:
            listed = prometheus.at_once(f"count by ({found[2]}) ({put_in(found[1], values)})")
            assert fleet[variable] == {series.labels[variable] for series in listed}


@pytest.mark.parametrize("name", GIVEN)
def test_dashboard_can_be_drawn(name: str, prometheus: Prometheus) -> None:
    """The renderer of `make screenshots` draws every panel of it."""
    dashboard: dict[str, Any] = GIVEN[name]
    html, height = page(dashboard, prometheus, chosen(dashboard, SPAN, STEP, **_choices(name)[0]))
    assert len(panels(dashboard)) == html.count("<div class=panel")
    assert height > 800
