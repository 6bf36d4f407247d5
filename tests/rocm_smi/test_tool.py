"""The command rocm-smi: its real output at test time, and outputs that no version should give."""

from __future__ import annotations

import json
import stat
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from exporter.sources.files import KernelFiles
from exporter.sources.rocm_smi_tool import (
    EVERY,
    TIMEOUT,
    RocmSmiToolSession,
    ToolGpu,
    find,
    parse,
)
from exporter.sources.session import UnavailableError
from exporter.values import NO_ANSWER, Absent
from tests.kernel.node import Node
from tests.rocm_smi.conftest import Source

Start = Callable[..., Source]
GIB = 1 << 30
CARD = {"PCI Bus": "0000:C1:00.0", "GPU use (%)": "7"}
CASES = [
    ("bookworm", "MI210", None),
    ("trixie", "MI210", None),
    ("trixie", "MI300X", (1, 5)),
    ("sid", "MI210", None),
    ("sid", "MI300X", None),
]


@pytest.mark.parametrize(("suite", "model", "metrics"), CASES)
def test_real_output_of_each_version(
    tmp_path: Path, start: Start, suite: str, model: str, metrics: tuple[int, int] | None
) -> None:
    """The keys differ ('GPU memory use (%)', 'Card series'), the fields don't."""
    node = Node.create(tmp_path / "tree", model, 2, metrics=metrics)
    node.temperature(1, "junction", 61)
    node.power(1, 155)
    node.vram(1, 5 * GIB)
    node.set(1, "gpu_busy_percent", 87)
    node.set(1, "mem_busy_percent", 43)
    node.set(1, "pcie_replay_count", 4)
    gpu = node.gpus[1]
    source = start(suite, node, "tool")
    read = source.read(1)
    assert {
        "devices": [[each.bdf, number] for number, each in enumerate(node.gpus)],
        "uuid": f"GPU-{gpu.unique_id:016x}",
        "serial": gpu.serial,
        "vbios": node.get(1, "vbios_version"),
        "junction": 61.0,
        "power": (155.0, float(gpu.model.power_cap_watts)),
        "activity": (0.87, 0.43),
        "vram": (gpu.model.vram_bytes, 5 * GIB),
        "replays": 4,
        "gfx": gpu.model.sclk_mhz[1] * 1_000_000,
    } == {
        "devices": source.hello["devices"],
        "uuid": read["identity"]["uuid"],
        "serial": read["identity"]["serial"],
        "vbios": read["identity"]["vbios_version"],
        "junction": read["temperature"]["sensors"]["junction"],
        "power": (read["power"]["watts"], read["power"]["limit_watts"]),
        "activity": (read["activity"]["gfx"], read["activity"]["memory"]),
        "vram": (read["memory"]["total"], read["memory"]["used"]),
        "replays": read["pcie"]["replays"],
        "gfx": read["clocks"]["current"]["gfx"],
    }


def test_the_secondary_die_has_no_power(tmp_path: Path, start: Start) -> None:
    """The tool prints 'N/A (Secondary die)' there."""
    source = start("sid", Node.create(tmp_path / "tree", "MI250X", 2), "tool")
    assert "not_supported" == source.read(1)["power"]["watts"][0]
    assert 90.0 == source.read(0)["power"]["watts"]


def test_the_tool_is_run_once_a_minute(tmp_path: Path, start: Start) -> None:
    """In the background, since a run is expensive; until it has ended the last values stay."""
    node = Node.create(tmp_path / "tree", "MI210", 1)
    source = start("sid", node, "tool")
    assert 45.0 == source.read(now=1.0)["temperature"]["sensors"]["junction"]
    node.temperature(0, "junction", 61)
    assert 45.0 == source.read(now=EVERY)["temperature"]["sensors"]["junction"]
    time.sleep(1)
    assert 45.0 == source.read(now=EVERY + 1)["temperature"]["sensors"]["junction"]
    seen = [45.0]
    while seen[-1] == 45.0 and len(seen) < 100:
        time.sleep(0.1)
        seen.append(source.read(now=EVERY + 2)["temperature"]["sensors"]["junction"])
    assert 61.0 == seen[-1]


def test_a_tool_that_hangs_is_killed(tmp_path: Path) -> None:
    """Its values are then absent, and the next run is tried when it is due."""
    answer = json.dumps({"card0": CARD})
    flag = tmp_path / "hang"
    script = f"[ -e {flag} ] && exec sleep 60\ncat <<'E'\n{answer}\nE"
    session = RocmSmiToolSession([tool(tmp_path, script)], KernelFiles())
    (view,) = session.views("0000:c1:00.0", per_partition=False)
    flag.touch()
    session.begin(1.0)
    session.begin(1.0 + EVERY)
    session.begin(1.0 + EVERY + TIMEOUT / 2)
    assert "7" == view.metric("average_gfx_activity")
    session.begin(1.0 + EVERY + TIMEOUT)
    answered = view.metric("average_gfx_activity")
    assert isinstance(answered, Absent)
    assert NO_ANSWER == answered.reason
    flag.unlink()
    session.begin(1.0 + 2 * EVERY)
    time.sleep(1)
    session.begin(2.0 + 2 * EVERY)
    assert "7" == view.metric("average_gfx_activity")


def test_no_driver(tmp_path: Path, start: Start) -> None:
    """The tool then prints a line to standard error and nothing else."""
    node = Node.create(tmp_path / "tree", "MI210", 1)
    node.unload_driver()
    assert start("sid", node, "tool").hello["reason"].startswith("rocm-smi: ")


@pytest.mark.parametrize(
    "output",
    [
        json.dumps({"card0": CARD}),
        "WARNING: Unlocked monitor_devices lock\n\n" + json.dumps({"card0": CARD}) + "\n\n",
        "WARNING: {unknown} field\n" + json.dumps({"card0": CARD}),
        '{"error": {"text": "none"}}\n' + json.dumps({"card0": CARD}) + "\ntrailing } text {",
        json.dumps({"card0": CARD, "card1": "N/A", "card2": None, "system": {"Driver": "6.10"}}),
        json.dumps({"card0": {**CARD, "list": [1], "nested": {"a": 1}, "none": None}}),
    ],
)
def test_only_devices_with_an_address_count(output: str) -> None:
    """Whatever stands around the JSON or beside the devices."""
    assert {"0000:c1:00.0": CARD} == parse(output)


@pytest.mark.parametrize(
    "output",
    [
        "",
        "\n\nWARNING: No JSON data to report\n",
        "{",
        "{}",
        "[]",
        "{" * 5000,
        '{"card0": ' * 5000,
        '{"card0": {"GPU use (%)": "7"}}',
        '{"card0": {"PCI Bus": "N/A"}}',
        '{"card0": {"PCI Bus": 5}}',
        '{"card0": {"PCI Bus": "../../0000:c1:00.0"}}',
        '{"card0": ["PCI Bus", "0000:c1:00.0"]}',
        "\x00\ufffd{\x00}",
    ],
)
def test_no_use(output: str) -> None:
    """Empty, cut off, nested without end, or without an address: no device, and no exception."""
    assert {} == parse(output)


def tool(folder: Path, text: str) -> str:
    """A shell script in the place of rocm-smi."""
    path = folder / "rocm-smi"
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return str(path)


def gpu(folder: Path, **card: Any) -> ToolGpu:
    """The one device of a tool that prints this card."""
    answer = json.dumps({"card0": {"PCI Bus": "0000:c1:00.0", **card}})
    session = RocmSmiToolSession([tool(folder, f"cat <<'E'\n{answer}\nE")], KernelFiles())
    (view,) = session.views("0000:c1:00.0", per_partition=True)
    return view


@pytest.mark.parametrize(
    "text", ["exit 0", "exit 1", "exit 2", "echo 'No JSON data to report' >&2", "kill -ABRT $$"]
)
def test_no_json_with_any_status_is_unavailable(tmp_path: Path, text: str) -> None:
    """The reason carries the status and the last words."""
    with pytest.raises(UnavailableError, match=r"rocm-smi: .* status -?\d+, no JSON: "):
        RocmSmiToolSession([tool(tmp_path, text)], KernelFiles())


def test_a_tool_that_can_not_be_started(tmp_path: Path) -> None:
    """For example one that was removed in between."""
    with pytest.raises(UnavailableError, match="No such file"):
        RocmSmiToolSession([str(tmp_path / "nothing")], KernelFiles())


@pytest.mark.parametrize(
    ("printed", "reason"),
    [
        ("N/A", "not_supported"),
        ("N/A (Secondary die)", "not_supported"),
        ("Unsupported", "not_supported"),
        ("", "sentinel"),
        ("many", "implausible"),
    ],
)
def test_texts_in_the_place_of_numbers(tmp_path: Path, printed: str, reason: str) -> None:
    """They are absences."""
    view = gpu(tmp_path, **{"Max Graphics Package Power (W)": printed})
    answer = view.get("rsmi_dev_power_cap_get", "uint64", 0)
    assert isinstance(answer, Absent)
    assert reason == answer.reason


def test_hostile_values_of_other_kinds(tmp_path: Path) -> None:
    """A clock, a link and an id that are none are errors, not exceptions."""
    view = gpu(
        tmp_path,
        **{"sclk clock speed:": "fast", "pcie clock level": "2", "Unique ID": "0xnothing"},
    )
    answers = (
        view.clock("sys"),
        view.pci_bandwidth(),
        view.get("rsmi_dev_unique_id_get", "uint64"),
    )
    assert ["error"] * 3 == [answer.reason for answer in answers if isinstance(answer, Absent)]


def test_find_takes_rocm_path_first(tmp_path: Path) -> None:
    """And says what to install where there is none."""
    for folder in ("own/bin", "path"):
        (tmp_path / folder).mkdir(parents=True)
    first, second = tool(tmp_path / "own/bin", ""), tool(tmp_path / "path", "")
    path = str(tmp_path / "path")
    assert first == find({"ROCM_PATH": str(tmp_path / "own"), "PATH": path})
    assert second == find({"PATH": path})
    with pytest.raises(UnavailableError, match="install the package rocm-smi"):
        find({"PATH": str(tmp_path / "nothing")})


def test_the_daemon_takes_the_library_where_there_is_one(tmp_path: Path, start: Start) -> None:
    """The command is not even looked for."""
    source = start("sid", Node.create(tmp_path / "tree", "MI210", 1), "any")
    assert {"rocm_smi_version": "7.6.0", "devices_rocm_smi": 1} == source.hello["node"]


def test_the_daemon_takes_the_command_where_there_is_no_library(
    tmp_path: Path, start: Start
) -> None:
    """As in a container with the tool alone."""
    (tmp_path / "own/bin").mkdir(parents=True)
    tool(tmp_path / "own/bin", f"cat <<'E'\n{json.dumps({'card0': CARD})}\nE")
    node = Node.create(tmp_path / "tree", "MI210", 1)
    source = start("sid", node, "any", ROCM_PATH=str(tmp_path / "own"))
    assert [["0000:c1:00.0", 0]] == source.hello["devices"]
    assert 0.07 == source.read()["activity"]["gfx"]


def test_neither(tmp_path: Path, start: Start) -> None:
    """Both reasons are told, and what to install."""
    node = Node.create(tmp_path / "tree", "MI210", 1)
    hello = start("sid", node, "any", ROCM_PATH="/nothing", PATH="/nothing").hello
    assert (
        "ROCm SMI: no rsmiBindings.py in $ROCM_PATH, /opt/rocm*, /usr/libexec; no command rocm-smi"
    ) == hello["reason"]
    assert "rocm-smi-lib" in hello["remedy"]
