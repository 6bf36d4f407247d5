"""The readers of ROCm SMI over a device written by hand: calls for what gpu_metrics lacks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import pytest

from exporter.collectors import COLLECTORS
from exporter.sources.guard import item, text
from exporter.values import ERROR, IMPLAUSIBLE, NOT_SUPPORTED, SENTINEL, Absent

from .nodes import entries, given, number_of, reason

GONE = Absent(ERROR, "it failed")


@dataclass
class Gpu:
    """A device as `RocmSmiGpu` shows it; what is not given fails.

    Attributes:
        table: gpu_metrics.
        answers: of `get`, by function and arguments; of the other calls, by method and argument.
    """

    table: object = GONE
    answers: Mapping[Any, object] = field(default_factory=dict)
    partitioned: bool = False
    partition: str | None = None
    index: int = 3
    asked: list[str] = field(default_factory=list)
    default: object = GONE

    def _answer(self, *key: object) -> object:
        self.asked.append(str(key[0]))
        return self.answers.get(key, self.default)

    def metric(self, *path: str | int) -> object:
        """An entry of gpu_metrics."""
        return item(self.table, *path)

    def get(self, name: str, kind: str, *arguments: int, every: float = 0) -> object:
        """A number."""
        return self._answer(name, *arguments)

    def text(self, name: str, every: float = 0) -> object:
        """A text."""
        return text(self._answer(name))

    def clock(self, name: str, every: float = 0) -> object:
        """A clock."""
        return self._answer("clock", name)

    def pci_bandwidth(self, every: float = 0) -> object:
        """The PCIe link."""
        return self._answer("pci_bandwidth")

    def ras_blocks(self) -> object:
        """The enabled blocks."""
        return self.answers.get(("ras_blocks",), GONE)

    def error_count(self, block: str, mask: int) -> object:
        """Errors of a block."""
        return self._answer("error_count", block, mask)

    def page_counts(self) -> object:
        """Bad pages by state."""
        return self._answer("page_counts")

    def firmware(self) -> Mapping[str, object]:
        """Versions by block."""
        answer = self.answers.get(("firmware",), {})
        assert isinstance(answer, Mapping)
        return answer


def read(collector: str, gpu: Gpu) -> dict[str, Any]:
    """What the reader that is ROCm SMI's own gives."""
    number = number_of(collector, "read_rocm_smi")
    return dict(next(c for c in COLLECTORS if c.name == collector).readers[number].read(gpu))


READERS = [
    (collector.name, number)
    for collector in COLLECTORS
    for number, reader in enumerate(collector.readers)
    if reader.source == "rocm_smi"
]


@pytest.mark.parametrize("answer", [GONE, "N/A", None, [], {}, -1, (1 << 64) - 1, 1 << 70], ids=str)
@pytest.mark.parametrize(("collector", "number"), READERS)
def test_hostile_answers(collector: str, number: int, answer: object) -> None:
    """Whatever the library answers, a reader gives values or absences."""
    reader = next(c for c in COLLECTORS if c.name == collector).readers[number]
    fields = reader.read(Gpu(answer, default=answer))
    values = [v for f in fields.values() for v in (f.values() if isinstance(f, dict) else [f])]

    assert all(isinstance(value, (int, float, str, Absent)) for value in values)


def test_temperature() -> None:
    """Only the sensors that gpu_metrics lacks are asked for; limits come from calls."""
    call = "rsmi_dev_temp_metric_get"
    answers = {(call, 0, 0): 41_000, (call, 1, 5): 105_000, (call, 2, 7): 0}
    fields = read("temperature", Gpu({"temperature_hotspot": 50, "temperature_mem": 45}, answers))

    assert {"edge": 41.0} == fields["sensors"]
    assert {"junction": 105.0} == given(fields["critical"])
    assert SENTINEL == reason(entries(fields["emergency"])["hbm"])


def test_power() -> None:
    """From the table where it tells, else from hwmon through the calls of either generation."""
    current, average, cap = (
        ("rsmi_dev_current_socket_power_get",),
        ("rsmi_dev_power_ave_get", 0),
        ("rsmi_dev_power_cap_get", 0),
    )
    table = Gpu({"average_socket_power": 90}, {cap: 300_000_000})

    assert (90, 300.0) == (read("power", table)["watts"], read("power", table)["limit_watts"])
    assert current[0] not in table.asked
    assert 140.0 == read("power", Gpu(GONE, {current: 140_000_000, average: 9}))["watts"]
    assert 80.0 == read("power", Gpu(GONE, {average: 80_000_000}))["watts"]
    assert NOT_SUPPORTED == reason(read("power", Gpu(GONE, {cap: 0}))["watts"])


def test_activity() -> None:
    """From the busy files where the table does not tell; never the socket's for a partition."""
    busy = {("rsmi_dev_busy_percent_get",): 70, ("rsmi_dev_memory_busy_percent_get",): 20}

    assert {"gfx": pytest.approx(0.7), "memory": pytest.approx(0.2)} == read(
        "activity", Gpu(GONE, busy)
    )
    assert {} == read("activity", Gpu({"average_gfx_activity": 1, "average_umc_activity": 2}, busy))
    assert {"memory"} == read("activity", Gpu(GONE, busy, partitioned=True)).keys()


def test_clocks() -> None:
    """From the table, else from the levels; the highest always from the levels."""
    levels = {
        ("clock", "sys"): {"current": 8e8, "highest": 2e9},
        ("clock", "mem"): {"current": 9e8, "highest": 1.6e9},
    }
    fields = read("clocks", Gpu({"current_gfxclk": 1000}, levels))

    assert {"gfx": 1e9, "memory": 9e8} == given(fields["current"])
    assert {"gfx": 2e9, "memory": 1.6e9} == given(fields["highest"])


def test_memory() -> None:
    """Exact bytes; a partition is shown the whole device's, which is not taken."""
    total, used = "rsmi_dev_memory_total_get", "rsmi_dev_memory_usage_get"
    answers = {(total, 0): 100, (used, 0): 7, (total, 2): 50, (used, 2): 51}
    fields = read("memory", Gpu({"vram_max_bandwidth": 5300}, answers))

    assert (100, 7, 5.3e12) == (fields["total"], fields["used"], fields["max_bandwidth"])
    assert (50, IMPLAUSIBLE) == (fields["gtt_total"], reason(fields["gtt_used"]))
    assert "total" not in read("memory", Gpu(GONE, answers, partitioned=True))


def test_pcie() -> None:
    """The replay count, and the link's limits."""
    answers = {
        ("rsmi_dev_pci_replay_counter_get",): 7,
        ("pci_bandwidth",): {"transfers": {"highest": 16e9}, "lanes": {"highest": 16}},
    }

    assert {"replays": 7, "max_transfers": 16e9, "max_width": 16} == read(
        "pcie", Gpu(GONE, answers)
    )


def test_ras() -> None:
    """Enabled blocks only; a block that fails is absent, not zero."""
    answers: dict[tuple[object, ...], object] = {
        ("ras_blocks",): {"umc": 1, "gfx": 4},
        ("error_count", "umc", 1): {"correctable_err": 3, "uncorrectable_err": 0},
        ("page_counts",): {"reserved": 2, "pending": 0},
    }
    fields = read("ras", Gpu(GONE, answers))

    assert {"umc": 3} == given(fields["correctable"])
    assert {"umc": 0} == given(fields["uncorrectable"])
    assert ERROR == reason(entries(fields["correctable"])["gfx"])
    assert {"retired": 2, "pending": 0} == given(fields["bad_pages"])


def test_fan_and_firmware() -> None:
    """The speed over its highest; versions as the files have them."""
    speed = {("rsmi_dev_fan_speed_get", 0): 51, ("rsmi_dev_fan_speed_max_get", 0): 255}
    versions = {("firmware",): {"smc": 0x557300, "vce": 0, "sos": GONE}}

    assert {"speed": pytest.approx(0.2)} == read("fan", Gpu(GONE, speed))
    assert {"smc": "0x00557300"} == given(read("firmware", Gpu(GONE, versions))["versions"])


def test_identity() -> None:
    """The UUID as HIP writes it; all ones are none."""
    answers: dict[tuple[object, ...], object] = {
        ("rsmi_dev_unique_id_get",): 0xAB,
        ("rsmi_dev_name_get",): "MI210",
        ("rsmi_dev_drm_render_minor_get",): 129,
        ("rsmi_topo_numa_affinity_get",): -1,
    }
    fields = read("identity", Gpu(GONE, answers))

    assert "GPU-00000000000000ab" == fields["uuid"]
    assert ("MI210", "renderD129", "3") == tuple(
        fields[name] for name in ("name", "render_node", "vendor_index")
    )
    assert SENTINEL == reason(fields["numa_node"])
    assert SENTINEL == reason(
        read("identity", Gpu(GONE, {("rsmi_dev_unique_id_get",): (1 << 64) - 1}))["uuid"]
    )
