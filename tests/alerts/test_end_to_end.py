"""Simulated faults, real Prometheus and Alertmanager: what arrives at a webhook, and what does not.

A simulated hour is a real minute, and the rules' durations are divided likewise. Eight GPUs train
on a node, and every fault strikes one of them; another node loses a GPU; a third serves requests
and must stay silent.
"""

from __future__ import annotations

from pathlib import Path

from tests.alerts.stack import Node, Told, stack

START, END = 15, 65
"""Minutes, of all faults."""
OVER = 175
"""When all that ends has ended: an hour's window and the time that counters are held later."""
FAULTS = (
    "hbm-overheat",
    "pcie-replays",
    "pcie-degraded",
    "xgmi-link-down",
    "ecc-storm",
    "throttle",
)
"""Of GPU 0, 1, …; 6 and 7 have none."""
NODES = ("faults", "lost", "serving")


def _at(node: str, gpu: int | str, *names: str) -> set[Told]:
    return {(f"AmdGpu{name}", node, str(gpu)) for name in names}


EXPECTED: set[Told] = {
    ("AmdGpuWatchdog", "", ""),
    *(("AmdGpuSimulated", node, "") for node in NODES),
    *_at("faults", 0, "HbmAtLimit", "XgmiLinkDown"),  # the link's other end is at GPU 3
    *_at("faults", 1, "PcieReplays", "PcieRetrains"),
    *_at("faults", 2, "PcieDegraded"),
    *_at("faults", 3, "XgmiLinkDown"),
    *_at("faults", 4, "EccUncorrectable", "BadPagesPending"),
    *_at("faults", 5, "ThermalThrottling", "PowerCapped"),
    *_at("lost", 7, "Down"),
    *_at("lost", "", "Missing"),
}
PASSING: set[Told] = {
    *_at("faults", 0, "HbmNearLimit"),  # on the way up and down, if it takes long enough
    *_at("faults", 1, "PcieNaks", "PcieCorrectableErrors"),  # once what caused them has ended
    *_at("faults", 4, "EccCorrectable", "EccDeferred"),
    *_at("lost", "", "CollectorFailing", "ViewsDisagree"),
}
"""Consequences, which arrive only in a moment in which their cause does not fire."""
STAYING: set[Told] = {
    ("AmdGpuWatchdog", "", ""),
    *(("AmdGpuSimulated", node, "") for node in NODES),
    *_at("faults", 4, "BadPagesPending"),  # a page waits until the driver is loaded anew
    *_at("faults", 4, "EccCorrectable"),  # a day's count
}
"""What does not end with the faults."""


def test_faults_arrive_and_resolve(tmp_path: Path) -> None:
    """Each fault's alerts, at the GPU that it strikes, with their texts; and no others."""
    faults = [
        {"name": name, "gpu": gpu, "start": f"{START}m", "end": f"{END}m"}
        for gpu, name in enumerate(FAULTS)
    ]
    lost = {"name": "gpu-lost", "gpu": 7, "start": f"{START}m", "end": f"{END}m"}
    nodes = [
        Node("faults", ["training", *faults]),
        Node("lost", ["training", lost]),
        Node("serving", ["inference"]),
    ]
    with stack(nodes, tmp_path) as chain:
        chain.until(START - 1)
        before = {*chain.fired} - STAYING
        chain.until(OVER)
        failures = chain.query("prometheus_rule_evaluation_failures_total > 0")
        skipped = chain.query("prometheus_rule_group_iterations_missed_total > 5")
        fired = {*chain.fired}
        left = fired - {*chain.resolved} - STAYING
        hbm = chain.fired.get(("AmdGpuHbmAtLimit", "faults", "0"), {})

    assert set() == before
    assert (set(), set()) == (EXPECTED - fired, fired - EXPECTED - PASSING)
    assert set() == left
    assert ([], []) == (failures, skipped)
    assert "The hbm of GPU 0 (0000:05:00.0) of faults is at 10" in hbm["description"]
