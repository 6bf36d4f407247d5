"""Processes on the landing page and in the support report."""

from __future__ import annotations

from exporter.collectors import COLLECTORS
from exporter.exposition.landing import landing_html
from exporter.exposition.support import support_table
from exporter.snapshot import CollectorHealth
from tests.core.polls import device, snapshot
from tests.owners.node import Watch, node

ON = {"processes": CollectorHealth(True, 0.1)}


def test_processes_are_listed() -> None:
    """Device, pid, name, user, job, memory and state; what comes from outside is text."""
    files = node()
    files.process(10, 3 << 30, name="<b>&", environ="SLURM_JOB_ID=7\0")
    files.process(11, 1 << 30, state="Z")
    html = landing_html(
        snapshot(device({"processes": Watch(files).reading()}), collectors=ON), "/metrics"
    ).decode()

    assert "<h2>Processes</h2>" in html
    assert "&lt;b&gt;&amp;</td><td>root</td><td>7</td>" in html
    assert '<td class="n">3.0 GiB</td><td class="">running</td>' in html
    assert '<td class="n">1.0 GiB</td><td class="bad">zombie</td>' in html


def test_no_processes() -> None:
    """It is said that nobody holds memory; without the collector nothing is said."""
    nobody = snapshot(device({"processes": Watch(node()).reading()}), collectors=ON)
    assert b"No process holds VRAM" in landing_html(nobody, "/metrics")
    assert b"Processes</h2>" not in landing_html(snapshot(device()), "/metrics")


def test_support_has_a_line_for_all_processes() -> None:
    """Their pids come and go: fields that are told for each share a line."""
    places = {("processes", "command", str(pid)): "sysfs" for pid in (10, 11)}
    told = snapshot(device(origins=places), device(origins=places, gpu=1, address="0000:19:00.0"))
    lines = support_table(told, COLLECTORS).splitlines()

    assert ["  0-1  processes.command[pid]"] == [
        line.split("  sysfs")[0].rstrip() for line in lines if "processes.command" in line
    ]
