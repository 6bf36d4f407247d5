"""The simulated package answers in the shapes of AMD SMI 10.1."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from exporter.simulation.amdsmi import Handle, SimulatedAmdSmi
from exporter.simulation.models import MODELS
from exporter.simulation.spec import ScenarioRun, SimulationSpec
from tests.simulation import node_at, with_runs

CAPTURED = json.loads((Path(__file__).parent / "gpu_metrics_10_1.json").read_text())
"""Shapes of what AMD's own library 27.1.0 answered over simulated kernel files of gpu_metrics 1.3
(MI210) and 1.7 (MI300X): a type's name, 'N/A', or runs of equal items."""
FILLED_BY_HAND = {"xgmi_read_data_acc", "xgmi_write_data_acc"}
"""There the capture has a 0 for a link that was never wired; hardware has all ones, thus 'N/A'."""


def _shape(value: object) -> object:
    if not isinstance(value, list):
        return "N/A" if value == "N/A" else type(value).__name__
    items: list[list[object]] = []
    for entry in map(_shape, value):
        if items and items[-1][1] == entry:
            items[-1][0] = int(str(items[-1][0])) + 1
        else:
            items.append([1, entry])
    return [f"{count} x {json.dumps(entry)}" for count, entry in items]


def _api(model: str, gpus: int = 8) -> SimulatedAmdSmi:
    return SimulatedAmdSmi(node_at(777.0, SimulationSpec(model=model, gpus=gpus)))


def _status(call: object, *arguments: object) -> int:
    assert callable(call)
    with pytest.raises(SimulatedAmdSmi.AmdSmiLibraryException) as refusal:
        call(*arguments)
    return refusal.value.get_error_code()


@pytest.mark.parametrize("model", sorted(CAPTURED))
def test_metrics_have_the_shape_of_the_real_ones(model: str) -> None:
    """Every key is there, and each value or list is filled where the real library fills it."""
    table = _api(model, 4 if model == "MI210" else 8).amdsmi_get_gpu_metrics_info(Handle(0, 0))
    expected = {k: v for k, v in CAPTURED[model].items() if k not in FILLED_BY_HAND}
    assert expected == {k: _shape(v) for k, v in table.items() if k not in FILLED_BY_HAND}


@pytest.mark.parametrize("model", sorted(MODELS))
def test_metrics_have_all_keys_and_lengths(model: str) -> None:
    """Whatever the revision, the keys are those of 10.1, and lists have their lengths."""
    table = _api(model).amdsmi_get_gpu_metrics_info(Handle(1, 0))
    assert CAPTURED["MI300X"].keys() == table.keys()

    def length(shapes: object) -> int:
        return sum(int(run.split()[0]) for run in shapes) if isinstance(shapes, list) else 0

    expected = {key: length(shape) for key, shape in CAPTURED["MI300X"].items()}
    assert expected == {k: len(v) if isinstance(v, list) else 0 for k, v in table.items()}


def test_newest_revision_fills_stacks_and_dies() -> None:
    """The MI355X gives temperatures per HBM stack and compute die, and no num_partition."""
    table = _api("MI355X").amdsmi_get_gpu_metrics_info(Handle(0, 0))
    assert ['8 x "int"', '4 x "N/A"'] == _shape(table["temperature_hbm_stacks"])
    assert "N/A" == table["num_partition"]
    stacks = table["temperature_hbm_stacks"]
    assert isinstance(stacks, list)
    assert table["temperature_mem"] == max(stacks[:8])


def test_partitions() -> None:
    """CPX shows 64 devices of eight sockets; what belongs to a socket stands with the first."""
    api = _api("MI300X-CPX")
    handles = api.amdsmi_get_processor_handles()
    assert 64 == len(handles)
    assert "0000:05:00.7" == api.amdsmi_get_gpu_device_bdf(handles[7])
    assert 7 == api.amdsmi_get_gpu_kfd_info(handles[7])["current_partition_id"]
    assert "CPX" == api.amdsmi_get_gpu_compute_partition(handles[7])
    assert 2 == _status(api.amdsmi_get_gpu_metrics_info, handles[7])
    table = api.amdsmi_get_gpu_metrics_info(handles[0])
    assert 8 == table["num_partition"]
    assert ['8 x ["1 x \\"int\\"", "7 x \\"N/A\\""]'] == _shape(table["xcp_stats.gfx_busy_inst"])


def test_integrated_gpu_comes_first_and_lacks_most() -> None:
    """card0 is the processor's graphics; its gpu_metrics can't be read (status 43)."""
    api = _api("MI210-iGPU")
    handles = api.amdsmi_get_processor_handles()
    assert 9 == len(handles)
    first, second = (api.amdsmi_get_gpu_enumeration_info(handle) for handle in handles[:2])
    assert (0, 1) == (first["drm_card"], second["drm_card"])
    integrated = handles[0]
    assert 43 == _status(api.amdsmi_get_gpu_metrics_info, integrated)
    assert 43 == _status(api.amdsmi_get_pcie_info, integrated)
    for call in (
        api.amdsmi_get_power_cap_info,
        api.amdsmi_get_gpu_compute_partition,
        api.amdsmi_get_link_metrics,
        api.amdsmi_get_gpu_ecc_enabled,
        api.amdsmi_get_gpu_bad_page_info,
        api.amdsmi_get_energy_count,
    ):
        assert 2 == _status(call, integrated)


@pytest.mark.parametrize("model", ["MI100", "MI210", "MI250X"])
def test_older_models_lack_what_theirs_lack(model: str) -> None:
    """No partitions and no link states before MI300; links are counted as all ones."""
    api, handle = _api(model), Handle(0, 0)
    assert 2 == _status(api.amdsmi_get_gpu_compute_partition, handle)
    assert 2 == _status(api.amdsmi_get_gpu_memory_partition, handle)
    assert 2 == _status(api.amdsmi_get_gpu_xgmi_link_status, handle)
    assert 2 == _status(api.amdsmi_get_gpu_bad_page_threshold, handle)
    metrics = api.amdsmi_get_link_metrics(handle)
    assert 3 == metrics["num_links"]
    links = metrics["links"]
    assert isinstance(links, list)
    assert {(1 << 64) - 1} == {link["read"] for link in links}


def test_second_die_has_no_power_sensor() -> None:
    """MI250X: cap 0 and energy 0 on the second die, and no power."""
    api, second = _api("MI250X"), Handle(1, 0)
    assert 0 == api.amdsmi_get_power_cap_info(second)["power_cap"]
    assert 0 == api.amdsmi_get_energy_count(second)["energy_accumulator"]
    assert 0 == api.amdsmi_get_gpu_metrics_info(second)["average_socket_power"]
    assert 2 == _status(api.amdsmi_get_power_info, second)
    assert 560_000_000 == api.amdsmi_get_power_cap_info(Handle(0, 0))["power_cap"]


def test_temperatures_by_call() -> None:
    """The edge and the stacks exist on the MI210 and not on the MI300X; limits on both."""
    old, new, handle = _api("MI210"), _api("MI300X"), Handle(0, 0)
    kind, what = old.AmdSmiTemperatureType, old.AmdSmiTemperatureMetric
    for sensor in (kind.EDGE, kind.HBM_3):
        assert 20 < old.amdsmi_get_temp_metric(handle, sensor, what.CURRENT) < 100
        assert 2 == _status(new.amdsmi_get_temp_metric, handle, sensor, what.CURRENT)
    assert 99 == old.amdsmi_get_temp_metric(handle, kind.VRAM, what.EMERGENCY)
    assert 100 == new.amdsmi_get_temp_metric(handle, kind.JUNCTION, what.CRITICAL)
    assert 2 == _status(new.amdsmi_get_temp_metric, handle, kind.VRAM, what.MIN)


def test_clocks() -> None:
    """GFX and SYS are one clock; PCIE is refused as 10.1 does, VCLK1 is not there."""
    api, handle = _api("MI300X"), Handle(0, 0)
    clock = api.AmdSmiClkType
    answer = api.amdsmi_get_clock_info(handle, clock.SYS)
    assert answer == api.amdsmi_get_clock_info(handle, clock.GFX)
    assert (132, 2100) == (answer["min_clk"], answer["max_clk"])
    assert 1 == _status(api.amdsmi_get_clock_info, handle, clock.PCIE)
    assert 2 == _status(api.amdsmi_get_clock_info, handle, clock.VCLK1)


def test_calls_agree_with_the_table() -> None:
    """What other functions tell is what gpu_metrics tells."""
    spec = with_runs(ScenarioRun("training"), ScenarioRun("pcie-replays", gpu=0))
    api, handle = SimulatedAmdSmi(node_at(5000.0, spec)), Handle(0, 0)
    table = api.amdsmi_get_gpu_metrics_info(handle)
    assert table["current_socket_power"] == api.amdsmi_get_power_info(handle)["socket_power"]
    energy = api.amdsmi_get_energy_count(handle)
    assert table["energy_accumulator"] == energy["energy_accumulator"]
    assert table["system_clock_counter"] == energy["timestamp"]
    assert [(3 * 86_400 + 5000) * 10**9, (3 * 86_400 + 5000) * 10**8] == [
        table["system_clock_counter"],
        table["firmware_timestamp"],
    ]
    assert table["pcie_replay_count_acc"] == api.amdsmi_get_gpu_pci_replay_counter(handle) > 0
    metric = api.amdsmi_get_pcie_info(handle)["pcie_metric"]
    assert isinstance(metric, dict)
    assert table["pcie_nak_sent_count_acc"] == metric["pcie_nak_sent_count"]
    links = api.amdsmi_get_link_metrics(handle)["links"]
    assert isinstance(links, list)
    read = table["xgmi_read_data_acc"]
    assert isinstance(read, list)
    assert read[:7] == [link["read"] for link in links][:7]
    hives = {api.amdsmi_get_xgmi_info(Handle(n, 0))["xgmi_hive_id"] for n in range(8)}
    assert 1 == len(hives - {0})
    status = {"status": ["U"] * 7 + ["X"], "total_links": 8}
    assert status == api.amdsmi_get_gpu_xgmi_link_status(handle)


def test_errors_by_block() -> None:
    """Only the UMC has errors; the total is theirs; the mask names the enabled blocks."""
    api = SimulatedAmdSmi(node_at(1000.0, with_runs(ScenarioRun("ecc-storm", gpu=0))))
    handle, block = Handle(0, 0), api.AmdSmiGpuBlock
    umc = {"correctable_count": 12_000, "uncorrectable_count": 5, "deferred_count": 20}
    assert umc == api.amdsmi_get_gpu_ecc_count(handle, block["UMC"])
    assert umc == api.amdsmi_get_gpu_total_ecc_count(handle)
    assert {0} == set(api.amdsmi_get_gpu_ecc_count(handle, block["GFX"]).values())
    assert 2 == _status(api.amdsmi_get_gpu_ecc_count, handle, block["INVALID"])
    assert 509 == api.amdsmi_get_gpu_ecc_enabled(handle)
    blocks = api.amdsmi_get_gpu_ras_block_features_enabled(handle)
    assert 39 == len(blocks)
    assert 8 == sum(entry["status"] == "ENABLED" for entry in blocks)
    assert [0, 0, 0, 0, 1] == [p["status"] for p in api.amdsmi_get_gpu_bad_page_info(handle)]


@pytest.mark.parametrize("model", sorted(MODELS))
def test_nothing_looks_like_hardware(model: str) -> None:
    """Names, serial numbers and the driver say that the node is made up."""
    api = _api(model)
    for handle in api.amdsmi_get_processor_handles():
        assert str(api.amdsmi_get_gpu_asic_info(handle)["market_name"]).endswith(" (simulated)")
        board = api.amdsmi_get_gpu_board_info(handle)
        assert str(board["product_name"]).endswith(" (simulated)")
        assert str(board["product_serial"]).startswith("SIM")
        assert "simulated" == api.amdsmi_get_gpu_driver_info(handle)["driver_version"]
    assert (True, "simulated") == api.amdsmi_get_rocm_version()
    assert "simulated" == api.amdsmi_get_lib_version()["build"]


def test_firmware_is_written_as_the_wrapper_does() -> None:
    """Bytes in hexadecimal, in decimal, or one number, by the block."""
    listed = _api("MI300X").amdsmi_get_fw_info(Handle(0, 0))["fw_list"]
    assert isinstance(listed, list)
    versions = {
        entry["fw_name"].name[len("AMDSMI_FW_ID_") :]: entry["fw_version"] for entry in listed
    }
    assert "00.36.76.3F" == versions["PSP_SOSDRV"]
    assert "00.85.115.00" == versions["PM"]
    assert "169" == versions["CP_MEC1"]


def test_memory_calls() -> None:
    """VRAM in MiB and in bytes are the same; a partition is shown the whole device's."""
    api, handle = _api("MI300X-CPX"), Handle(2, 5)
    usage = api.amdsmi_get_gpu_vram_usage(handle)
    kind = api.AmdSmiMemoryType
    assert 196592 == usage["vram_total"]
    assert usage["vram_used"] == api.amdsmi_get_gpu_memory_usage(handle, kind.VRAM) >> 20
    assert api.amdsmi_get_gpu_memory_total(handle, kind.VIS_VRAM) == usage["vram_total"] << 20
    assert 128 << 30 == api.amdsmi_get_gpu_memory_total(handle, kind.GTT)
    assert api.amdsmi_get_gpu_memory_usage(handle, kind.GTT) < 1 << 30
    assert 196592 == api.amdsmi_get_gpu_vram_info(handle)["vram_size"]
