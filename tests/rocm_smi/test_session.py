"""What the real libraries say of a simulated node, under the collectors' names."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.kernel.node import MetricsFault, Node
from tests.kernel.packages import SUITES
from tests.rocm_smi.conftest import Source

Start = Callable[..., Source]
GIB = 1 << 30
CASES = [
    ("bookworm", "MI210", None),
    ("bookworm", "MI250X", None),
    ("trixie", "MI210", None),
    ("trixie", "MI250X", None),
    ("trixie", "MI300X", (1, 5)),
    ("sid", "MI210", None),
    ("sid", "MI250X", None),
    ("sid", "MI300X", None),
]
"""Every model on every version that can read it; 6.1.2 knows gpu_metrics up to 1.5."""
MI300X = [case for case in CASES if case[1] == "MI300X"]
every_case = pytest.mark.parametrize(("suite", "model", "metrics"), CASES)


def reason(value: Any) -> str:
    """The reason of an absence."""
    assert isinstance(value, list), value
    return str(value[0])


@every_case
def test_values_come_out_as_the_kernel_has_them(
    tmp_path: Path, start: Start, suite: str, model: str, metrics: tuple[int, int] | None
) -> None:
    """Temperatures, power, memory, RAS and the rest, under the same names as from AMD SMI."""
    node = Node.create(tmp_path / "tree", model, 2, metrics=metrics)
    node.temperature(0, "junction", 61)
    node.temperature(0, "mem", 57)
    node.power(0, 155)
    node.vram(0, 5 * GIB)
    node.ras(0, "umc", ue=2, ce=9)
    node.metrics(0, average_gfx_activity=87, average_umc_activity=43, pcie_link_width=8)
    node.set(
        0,
        "ras/gpu_vram_bad_pages",
        "0x00000001 : 0x00001000 : R\n0x00000002 : 0x00001000 : R\n0x00000003 : 0x00001000 : P\n",
    )
    gpu = node.gpus[0]
    source = start(suite, node)
    read = source.read()
    picked = {
        "devices": source.hello["devices"],
        "count": source.hello["node"]["devices_rocm_smi"],
        "uuid": read["identity"]["uuid"],
        "serial": read["identity"]["serial"],
        "vbios": read["identity"]["vbios_version"],
        "index": read["identity"]["vendor_index"],
        "render": read["identity"]["render_node"],
        "numa": read["identity"]["numa_node"],
        "junction": read["temperature"]["sensors"]["junction"],
        "memory": read["temperature"]["sensors"]["hbm"],
        "critical": read["temperature"]["critical"]["hbm"],
        "emergency": read["temperature"]["emergency"]["junction"],
        "watts": read["power"]["watts"],
        "limit": read["power"]["limit_watts"],
        "joules": read["power"]["joules"],
        "gfx": read["activity"]["gfx"],
        "umc": read["activity"]["memory"],
        "vram": (read["memory"]["total"], read["memory"]["used"]),
        "visible": read["memory"]["visible_used"],
        "highest": read["clocks"]["highest"]["gfx"],
        "lanes": read["pcie"]["width"],
        "ue": read["ras"]["uncorrectable"]["umc"],
        "ce": read["ras"]["correctable"]["umc"],
        "pages": read["ras"]["bad_pages"],
        "smc": read["firmware"]["versions"]["smc"],
    }
    assert {
        "devices": [[each.bdf, number] for number, each in enumerate(node.gpus)],
        "count": 2,
        "uuid": f"GPU-{gpu.unique_id:016x}",
        "serial": gpu.serial,
        "vbios": node.get(0, "vbios_version"),
        "index": "0",
        "render": f"renderD{gpu.render}",
        "numa": str(gpu.numa_node),
        "junction": 61,
        "memory": 57,
        "critical": 94.0,
        "emergency": 105.0,
        "watts": 155,
        "limit": float(gpu.model.power_cap_watts),
        "joules": 15_000_000_000 / 2**16,
        "gfx": 0.87,
        "umc": 0.43,
        "vram": (gpu.model.vram_bytes, 5 * GIB),
        "visible": 5 * GIB,
        "highest": gpu.model.sclk_mhz[-1] * 1_000_000,
        "lanes": 8,
        "ue": 2,
        "ce": 9,
        "pages": {"retired": 2, "pending": 1, "unreservable": 0},
        "smc": node.get(0, "fw_version/smc_fw_version"),
    } == picked


@pytest.mark.parametrize("suite", SUITES)
def test_mi200_tells_the_temperature_of_each_hbm_stack(
    tmp_path: Path, start: Start, suite: str
) -> None:
    """And it has no XGMI counters, no residencies and no partitions, in any version."""
    node = Node.create(tmp_path / "tree", "MI210", 2)
    node.metrics(0, temperature_hbm=[51, 52, 53, 54])
    read = start(suite, node).read()
    assert {"0": 51, "1": 52, "2": 53, "3": 54} == read["temperature"]["hbm_stacks"]
    assert "sentinel" == reason(read["xgmi"]["received"]["0"])
    assert {"sentinel", "not_supported"} >= {
        reason(value) for value in read["throttle"]["residency"].values()
    }
    assert "not_supported" == reason(read["identity"]["partition_mode"])


@pytest.mark.parametrize(("suite", "model", "metrics"), MI300X)
def test_mi300_gives_xgmi_and_pcie_counts_from_6_1_on(
    tmp_path: Path, start: Start, suite: str, model: str, metrics: tuple[int, int] | None
) -> None:
    """6.1's binding file does not describe the table; ours of what all versions share fits."""
    node = Node.create(tmp_path / "tree", model, 4, metrics=metrics)
    node.metrics(
        0,
        xgmi_read_data_acc=[11, 12, 13, 0, 0, 0, 0, 0],
        xgmi_write_data_acc=[21, 22, 23, 0, 0, 0, 0, 0],
        pcie_replay_count_acc=7,
        pcie_l0_to_recov_count_acc=8,
        pcie_replay_rover_count_acc=9,
        pcie_nak_sent_count_acc=10,
        pcie_nak_rcvd_count_acc=11,
    )
    read = start(suite, node).read()
    links = {key: read["xgmi"][key] for key in ("received", "transmitted", "max_rate")}
    counts = {key: read["pcie"][key] for key in ("replays", "recoveries", "rollovers", "naks")}
    assert {
        "received": {"0": 11 * 1024, "1": 12 * 1024, "2": 13 * 1024},
        "transmitted": {"0": 21 * 1024, "1": 22 * 1024, "2": 23 * 1024},
        "max_rate": dict.fromkeys("012", 16 * 32e9 / 8),
    } == links
    assert {
        "replays": 7,
        "recoveries": 8,
        "rollovers": 9,
        "naks": {"sent": 10, "received": 11},
    } == counts
    assert ("SPX", "NPS1") == (
        read["identity"]["partition_mode"],
        read["identity"]["memory_partition"],
    )


def test_6_4_gives_residencies_and_dies(tmp_path: Path, start: Start) -> None:
    """What gpu_metrics 1.7 has and earlier tables have not."""
    node = Node.create(tmp_path / "tree", "MI300X", 2)
    node.metrics(0, ppt_residency_acc=123, accumulation_counter=456)
    read = start("sid", node).read()
    assert (123, 456) == (read["throttle"]["residency"]["power"], read["throttle"]["ticks"])
    assert [str(die) for die in range(8)] == sorted(read["xcc"]["activity"])
    assert {"0": 1} == read["xgmi"]["up"]
    assert 5325e9 == read["memory"]["max_bandwidth"]


def test_6_4_tables_before_1_7_have_links_without_a_status(tmp_path: Path, start: Start) -> None:
    """An array of all ones is no array: links are then known by their counters."""
    node = Node.create(tmp_path / "tree", "MI300X", 2, metrics=(1, 6))
    read = start("sid", node).read()
    assert ({}, ["0"]) == (read["xgmi"]["up"], list(read["xgmi"]["received"]))


@pytest.mark.parametrize("suite", SUITES)
def test_secondary_die_has_no_power(tmp_path: Path, start: Start, suite: str) -> None:
    """The package's sensor belongs to the primary die of an MI250X."""
    source = start(suite, Node.create(tmp_path / "tree", "MI250X", 2))
    power = source.read(1)["power"]
    assert ["not_supported", "not_supported", "sentinel"] == [
        reason(power[name]) for name in ("watts", "limit_watts", "joules")
    ]
    assert 90 == source.read(0)["power"]["watts"]


def test_partitions_stand_under_their_socket(tmp_path: Path, start: Start) -> None:
    """6.4 lists every partition; facts of the socket are read once, the dies per partition."""
    node = Node.create(tmp_path / "tree", "MI300X", 2, partitions=8)
    source = start("sid", node)
    assert [[node.gpus[0].bdf, 0], [node.gpus[1].bdf, 1]] == source.hello["devices"]
    read = source.poll()["read"][node.gpus[0].bdf]
    assert ["", *"01234567"] == sorted(read)
    assert 45 == read[""]["temperature"]["sensors"]["junction"]
    assert "total" not in read[""]["memory"]
    assert "gfx" in read["3"]["activity"]
    assert "xcc" not in read[""]


def test_5_2_does_not_start_on_mi300(tmp_path: Path, start: Start) -> None:
    """Its init fails with status 8; the remedy says what it is and what to do."""
    hello = start("bookworm", Node.create(tmp_path / "tree", "MI300X", 1)).hello
    assert "ROCm SMI 1.0.0: rsmi_init: RSMI_STATUS_INIT_ERROR (8)" == hello["reason"]
    assert "before ROCm 6.0" in hello["remedy"]


@pytest.mark.parametrize("suite", SUITES)
def test_driver_not_loaded(tmp_path: Path, start: Start, suite: str) -> None:
    """Told apart from a library that does not start; 6.1 would look through 2^32 cards."""
    node = Node.create(tmp_path / "tree", "MI210", 1)
    node.unload_driver()
    hello = start(suite, node).hello
    assert "modprobe amdgpu" == hello["remedy"]


def test_a_removed_gpu_is_a_change(tmp_path: Path, start: Start) -> None:
    """The worker is then replaced, since the library's indexes shift."""
    node = Node.create(tmp_path / "tree", "MI210", 2)
    source = start("sid", node)
    assert source.poll(1.0)["changed"] is False
    node.remove(1)
    assert source.poll(2.0)["changed"] is True


def test_a_sleeping_gpu_is_told(tmp_path: Path, start: Start) -> None:
    """From a file whose reading wakes nothing."""
    node = Node.create(tmp_path / "tree", "MI210", 2)
    node.set(1, "power/runtime_status", "suspended")
    assert [node.gpus[1].bdf] == start("sid", node).poll()["suspended"]


@every_case
def test_gpu_metrics_is_read_once_per_device_and_poll(
    tmp_path: Path, start: Start, suite: str, model: str, metrics: tuple[int, int] | None
) -> None:
    """Each read costs the firmware a message; 6.1 and newer open the file twice for one call."""
    node = Node.create(tmp_path / "tree", model, 2, metrics=metrics)
    source = start(suite, node)
    source.poll(1.0)
    node.rules("*/gpu_metrics log")
    source.poll(2.0)
    table = f"{node.gpus[0].bdf}/gpu_metrics"
    opened = [path for _, path in node.opened() if path.endswith(table)]
    assert (1 if suite == "bookworm" else 2) == len(opened)


@every_case
def test_a_table_that_stands_still_is_stale(
    tmp_path: Path, start: Start, suite: str, model: str, metrics: tuple[int, int] | None
) -> None:
    """Success with old values: what only the table has is absent, the rest comes from calls."""
    node = Node.create(tmp_path / "tree", model, 1, metrics=metrics)
    source = start(suite, node)
    assert 45 == source.read(now=1.0)["temperature"]["sensors"]["junction"]
    node.set(0, "hwmon/temp2_input", 71000)
    read = source.read(now=3.0)
    assert ("stale", 71.0) == (
        reason(read["power"]["joules"]),
        read["temperature"]["sensors"]["junction"],
    )
    node.advance(1)
    assert 45 == source.read(now=4.0)["temperature"]["sensors"]["junction"]


@every_case
def test_no_device_gets_the_table_of_another(
    tmp_path: Path, start: Start, suite: str, model: str, metrics: tuple[int, int] | None
) -> None:
    """6.1 and 6.4 report success and the neighbour's table where one device has none."""
    node = Node.create(tmp_path / "tree", model, 2, metrics=metrics)
    source = start(suite, node)
    source.poll(1.0)
    for now in (2.0, 3.0, 4.0):
        node.advance(1, [1])
        node.break_metrics(0, "missing")
        read = source.read(0, now)
        expected = "error" if suite == "bookworm" else "stale"
        assert expected == reason(read["power"]["joules"])
        assert 45.0 == read["temperature"]["sensors"]["junction"]  # from hwmon; 46 is the other's
        assert 30 == read["pcie"]["replays"]
    node.metrics(0)
    node.advance(1)
    assert 45 == source.read(0, 5.0)["temperature"]["sensors"]["junction"]
    assert isinstance(source.read(0, 5.0)["power"]["joules"], float)


@pytest.mark.parametrize("fault", ["garbage", "zero", "all_ones", "unknown_revision"])
def test_5_2_passes_on_whatever_it_read(tmp_path: Path, start: Start, fault: MetricsFault) -> None:
    """The header betrays it."""
    node = Node.create(tmp_path / "tree", "MI210", 1)
    source = start("bookworm", node)
    source.poll(1.0)
    node.break_metrics(0, fault)
    assert "implausible" == reason(source.read(now=2.0)["power"]["joules"])


@pytest.mark.parametrize("fault", ["missing", "empty", "zero", "unknown_revision"])
@pytest.mark.parametrize("suite", SUITES)
def test_a_table_bad_from_the_start(
    tmp_path: Path, start: Start, suite: str, fault: MetricsFault
) -> None:
    """Some absence, never a wrong number; temperature and power still come from hwmon."""
    node = Node.create(tmp_path / "tree", "MI210", 1)
    node.break_metrics(0, fault)
    read = start(suite, node).read()
    assert isinstance(read["power"]["joules"], list)
    assert (45.0, 42.0, 0.1) == (
        read["temperature"]["sensors"]["junction"],
        read["power"]["watts"],
        read["activity"]["gfx"],
    )


def test_6_1_knows_no_table_newer_than_1_5(tmp_path: Path, start: Start) -> None:
    """All that has a call of its own is still read, and the reason is told for the rest."""
    node = Node.create(tmp_path / "tree", "MI300X", 1, metrics=(1, 6))
    read = start("trixie", node).read()
    assert [
        "not_supported",
        "rsmi_dev_gpu_metrics_info_get: RSMI_STATUS_UNEXPECTED_DATA (15)",
    ] == read["power"]["joules"]
    assert (140.0, 45.0, 0.1, 1_285_000_000) == (
        read["power"]["watts"],
        read["temperature"]["sensors"]["junction"],
        read["activity"]["gfx"],
        read["clocks"]["current"]["gfx"],
    )


@pytest.mark.parametrize("suite", SUITES)
def test_failures_become_reasons(tmp_path: Path, start: Start, suite: str) -> None:
    """A file that may not be opened, one that is missing, one that is busy, one that fails."""
    node = Node.create(tmp_path / "tree", "MI210", 1)
    source = start(suite, node)
    node.rules(
        "*/temp2_crit open_errno 13",
        "*/power1_cap open_errno 16",
        "*/mem_info_vram_used open_errno 5",
        "*/pcie_replay_count open_errno 2",
    )
    read = source.read()
    assert {
        "permission": "not_permitted",
        "busy": "busy",
        "failing": "error",
        "missing": "not_supported",
    } == {
        "permission": reason(read["temperature"]["critical"]["junction"]),
        "busy": reason(read["power"]["limit_watts"]),
        "failing": reason(read["memory"]["used"]),
        "missing": reason(read["pcie"]["replays"]),
    }


@pytest.mark.parametrize("suite", SUITES)
def test_a_failing_ras_file_is_no_zero(tmp_path: Path, start: Start, suite: str) -> None:
    """6.1 and 6.4 answer 'not supported' and no bad pages there, and 5.2 ends the process."""
    node = Node.create(tmp_path / "tree", "MI210", 1)
    source = start(suite, node)
    node.rules("*/ras/umc_err_count errno 5", "*/ras/gpu_vram_bad_pages errno 5")
    ras = source.read()["ras"]
    assert ["error", "error"] == [
        reason(ras["correctable"]["umc"]),
        reason(ras["bad_pages"]["retired"]),
    ]
    assert 0 == ras["correctable"]["gfx"]


@pytest.mark.parametrize("suite", SUITES)
def test_files_of_another_form_do_not_end_the_process(
    tmp_path: Path, start: Start, suite: str
) -> None:
    """Debian's builds have assertions on all of these."""
    node = Node.create(tmp_path / "tree", "MI210", 1)
    for name in (
        "ras/features",
        "ras/umc_err_count",
        "ras/gpu_vram_bad_pages",
        "pp_dpm_sclk",
        "pp_dpm_pcie",
        "pcie_replay_count",
        "mem_info_vram_used",
        "unique_id",
        "hwmon/temp2_crit",
        "fw_version/smc_fw_version",
    ):
        node.set(0, name, "another form\n")
    read = start(suite, node).read()
    assert {"error"} == {
        reason(read["ras"]["bad_pages"]["retired"]),
        reason(read["clocks"]["highest"]["gfx"]),
        reason(read["pcie"]["max_width"]),
        reason(read["pcie"]["replays"]),
        reason(read["memory"]["used"]),
        reason(read["temperature"]["critical"]["junction"]),
    }
    assert {} == read["ras"]["correctable"]
    assert 45 == read["temperature"]["sensors"]["junction"]


def test_a_missing_symbol_is_not_supported(tmp_path: Path, start: Start) -> None:
    """5.2 has no call for the partition modes; 6.1 and newer have."""
    read = start("bookworm", Node.create(tmp_path / "tree", "MI210", 1)).read()
    assert ["not_supported", "this version has no rsmi_dev_compute_partition_get"] == (
        read["identity"]["partition_mode"]
    )


def killed_while_reading(source: Source, node: Node) -> None:
    """Kill the child in the middle of a poll, as the supervisor does."""
    source.poll(1.0)
    node.rules("*/gpu_metrics delay inf")
    assert source.process.stdin is not None
    source.process.stdin.write("2.0\n")
    source.process.stdin.flush()
    time.sleep(1)
    source.process.kill()
    source.process.wait(10)
    node.rules()


def test_a_killed_poller_leaves_no_lock_from_6_1_on(tmp_path: Path, start: Start) -> None:
    """The lock that processes share is switched off."""
    node = Node.create(tmp_path / "tree", "MI210", 2)
    killed_while_reading(start("trixie", node), node)
    for _ in range(3):
        assert 45 == start("trixie", node).read()["temperature"]["sensors"]["junction"]


def test_a_killed_poller_of_5_2_leaves_a_lock(tmp_path: Path, start: Start) -> None:
    """Which only a person may remove, since others may hold it: the remedy says so."""
    node = Node.create(tmp_path / "tree", "MI210", 2)
    killed_while_reading(start("bookworm", node), node)
    assert "devices" in start("bookworm", node).hello
    hello = start("bookworm", node).hello
    assert "ROCm SMI 1.0.0: rsmi_init: RSMI_STATUS_INIT_ERROR (8)" == hello["reason"]
    assert hello["remedy"].endswith("stop all that use ROCm SMI and remove /dev/shm/rocm_smi_card*")
