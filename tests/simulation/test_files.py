"""The simulated kernel files have the kernel's formats and agree with the simulated library."""

from __future__ import annotations

import re

import pytest

from exporter.simulation.amdsmi import Handle, SimulatedAmdSmi
from exporter.simulation.files import SimulatedFiles
from exporter.simulation.models import MODELS
from exporter.simulation.spec import ScenarioRun, SimulationSpec
from exporter.sources.sysfs import SysfsSession, kfd_nodes
from tests.simulation import node_at, walk, with_runs

PCI = "/sys/bus/pci/devices/0000:05:00.0"
PROC = "/sys/class/kfd/kfd/proc"


def _files(model: str = "MI300X", *runs: ScenarioRun, moment: float = 1000.0) -> SimulatedFiles:
    return SimulatedFiles(node_at(moment, with_runs(*runs, model=model)))


@pytest.mark.parametrize("model", sorted(MODELS))
def test_every_file_can_be_read(model: str) -> None:
    """What a folder lists can be read, and ends with a line break if it has any text."""
    found = dict(walk(_files(model, ScenarioRun("training")), ""))
    assert len(found) > 400
    for path, text in found.items():
        assert text == "" or text.endswith("\n"), path


def test_formats() -> None:
    """A few files, as the kernel writes them."""
    files = _files("MI300X", ScenarioRun("ecc-storm", gpu=0), ScenarioRun("pcie-degraded", gpu=0))
    expected = {
        "current_link_speed": "16.0 GT/s PCIe\n",
        "max_link_speed": "32.0 GT/s PCIe\n",
        "current_link_width": "8\n",
        "max_link_width": "16\n",
        "ras/features": "feature mask: 0x1fd\n",
        "ras/umc_err_count": "ue: 5\nce: 12000\nde: 20\n",
        "power/runtime_status": "active\n",
        "vendor": "0x1002\n",
        "hwmon/hwmon0/temp2_label": "junction\n",
        "hwmon/hwmon0/temp3_crit": "105000\n",
        "hwmon/hwmon0/power1_cap": "750000000\n",
    }
    assert expected == {name: files.read(f"{PCI}/{name}") for name in expected}
    pages = files.read(f"{PCI}/ras/gpu_vram_bad_pages").splitlines()
    assert ["R", "R", "R", "R", "P"] == [page[-1] for page in pages]
    assert all(re.fullmatch(r"0x[0-9a-f]{8} : 0x00001000 : [RP]", page) for page in pages)
    assert "TOTAL_ERR_FATAL 0\n" == files.read(f"{PCI}/aer_dev_fatal").splitlines(True)[-1]
    ports = files.read(f"{PCI}/xgmi_port_num").splitlines()
    assert "01:00 ->  02:00" == ports[0]
    assert 7 == len(ports)
    assert "../../0000:19:00.0" == files.link(f"{PCI}/xgmi_hive_info/node2")
    assert "0: 900Mhz *\n" in files.read(f"{PCI}/pp_dpm_mclk")


def test_sensors_by_model() -> None:
    """The MI300X has no edge and tells power as of now, the MI210 as an average."""
    old, new = _files("MI210"), _files("MI300X")
    folder = f"{PCI}/hwmon/hwmon0"
    assert {"temp1_label", "power1_average"} <= set(old.list(folder))
    assert {"temp1_label", "power1_average"}.isdisjoint(new.list(folder))
    assert "power1_input" in new.list(folder)
    second = _files("MI250X").list("/sys/bus/pci/devices/0000:19:00.0/hwmon/hwmon1")
    assert {"power1_average", "power1_input"}.isdisjoint(second)


@pytest.mark.parametrize("path", ["/nowhere", f"{PCI}/nothing", f"{PROC}/1/vram_1", "/proc/1/comm"])
def test_what_is_not_there(path: str) -> None:
    """A missing path fails as the kernel lets it fail, whichever way it is asked for."""
    files = _files()
    for ask in (files.read, files.list, files.link):
        with pytest.raises(FileNotFoundError):
            ask(path)


def test_partitions_in_the_topology() -> None:
    """CPX has eight KFD nodes per address, each with an eighth of the memory."""
    nodes = kfd_nodes(_files("MI300X-CPX"))
    assert 8 == len(nodes)
    total = MODELS["MI300X-CPX"].vram
    for behind in nodes.values():
        assert 8 == len(behind)
        assert 0 <= total - sum(node.memory_bytes for node in behind) < 8 * 4096
    assert list(range(8)) == [n.properties["location_id"] & 7 for n in nodes["0000:05:00.0"]]


@pytest.mark.parametrize("model", ["MI300X", "MI300X-CPX", "MI210-iGPU"])
def test_processes_fit_the_memory_in_use(model: str) -> None:
    """The processes' memory is a part of what is in use; nobody has a number Linux could give."""
    files = _files(model, ScenarioRun("inference"))
    held = 0
    for pid in files.list(PROC):
        assert int(pid) > 4_194_304
        assert "serve\n" == files.read(f"/proc/{pid}/comm")
        assert (
            f"{pid} (serve) R 1 " == files.read(f"/proc/{pid}/stat")[: len(f"{pid} (serve) R 1 ")]
        )
        held += sum(
            int(files.read(f"{PROC}/{pid}/{name}"))
            for name in files.list(f"{PROC}/{pid}")
            if name.startswith("vram_")
        )
    used = sum(
        int(files.read(f"/sys/bus/pci/devices/{address}/mem_info_vram_used"))
        for address in files.list("/sys/bus/pci/drivers/amdgpu")
        if address.startswith("0000:")
    )
    assert 0 < used - held < 9 * (300 << 20)


def test_files_agree_with_the_library() -> None:
    """Temperatures, power, memory and replays are the same from both."""
    node = node_at(1234.5, with_runs(ScenarioRun("training"), ScenarioRun("pcie-replays", gpu=0)))
    files, api = SimulatedFiles(node), SimulatedAmdSmi(node)
    table = api.amdsmi_get_gpu_metrics_info(Handle(0, 0))
    hwmon = f"{PCI}/hwmon/hwmon0"
    expected = {
        f"{hwmon}/temp2_input": f"{table['temperature_hotspot']}000\n",
        f"{hwmon}/temp3_input": f"{table['temperature_mem']}000\n",
        f"{hwmon}/power1_input": f"{table['current_socket_power']}000000\n",
        f"{hwmon}/freq1_input": f"{table['current_gfxclk']}000000\n",
        f"{PCI}/gpu_busy_percent": f"{table['average_gfx_activity']}\n",
        f"{PCI}/pcie_replay_count": f"{table['pcie_replay_count_acc']}\n",
    }
    assert expected == {path: files.read(path) for path in expected}
    used = int(files.read(f"{PCI}/mem_info_vram_used"))
    assert used >> 20 == api.amdsmi_get_gpu_vram_usage(Handle(0, 0))["vram_used"]


def test_hives() -> None:
    """Eight MI210 are two hives of four; all MI300X are one."""

    def hives(model: str) -> list[str]:
        files = _files(model)
        return [
            files.read(f"/sys/bus/pci/devices/{address}/xgmi_hive_info/xgmi_hive_id")
            for address in files.list("/sys/bus/pci/devices")
        ]

    assert [4, 4] == sorted(hives("MI210").count(hive) for hive in set(hives("MI210")))
    assert 1 == len(set(hives("MI300X")))
    alone = SimulatedFiles(node_at(0.0, SimulationSpec(gpus=1)))
    assert "xgmi_hive_info" not in alone.list(PCI)


def test_node_facts_say_simulated() -> None:
    """Versions and counts as the session tells them."""
    facts = SysfsSession(_files("MI300X-CPX")).node()
    assert {
        "devices_pci": 8,
        "devices_drm": 8,
        "devices_kfd": 8,
        "driver_version": "simulated",
        "rocm_version": "simulated",
        "kernel_version": "6.8.0-simulated",
    } == {key: value for key, value in facts.items() if key != "boot_id"}
    assert re.fullmatch(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", str(facts["boot_id"]))
