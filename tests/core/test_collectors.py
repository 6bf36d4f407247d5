"""The collectors' readers over small nodes: what no whole simulated node has."""

import errno

import pytest

from exporter.collectors import COLLECTORS
from exporter.collectors.identity import gfx_target
from exporter.collectors.ras import _BLOCKS as RAS_BLOCKS
from exporter.sources.session import UnavailableError
from exporter.sources.sysfs import KFD, SysfsSession
from exporter.values import (
    BUSY,
    ERROR,
    IMPLAUSIBLE,
    NOT_PERMITTED,
    NOT_SUPPORTED,
    SENTINEL,
    STALE,
    Absent,
    FieldValue,
)

from .nodes import (
    ADDRESS,
    OTHER,
    LibraryError,
    amdsmi_gpu,
    amdsmi_session,
    entries,
    given,
    kfd_files,
    library,
    node_files,
    number_of,
    partitioned,
    read,
    reason,
    sysfs_gpu,
)

ONES = 0xFFFFFFFFFFFFFFFF
HOSTILE: tuple[object, ...] = (
    "N/A",
    None,
    [],
    ["N/A"],
    [[]],
    [None, {}, []],
    {"N/A": 1},
    ONES,
    -1,
    1 << 70,
    float("nan"),
    True,
    b"\x00",
    object(),
)


def of_source(source: str) -> list[tuple[str, int]]:
    """Every reader of a source."""
    return [
        (collector.name, number)
        for collector in COLLECTORS
        for number, reader in enumerate(collector.readers)
        if reader.source == source
    ]


class Hostile(dict[str, object]):
    """A gpu_metrics table in which every key has the same answer."""

    def __init__(self, answer: object) -> None:
        super().__init__(system_clock_counter=5)
        self._answer = answer

    def get(self, key: str, default: object = None) -> object:
        return super().get(key, self._answer)


def scalars(fields: dict[str, FieldValue]) -> list[object]:
    """All values of all fields."""
    return [
        value
        for item in fields.values()
        for value in (
            entries(item).values() if not isinstance(item, (*SCALARS, Absent)) else [item]
        )
    ]


SCALARS = (int, float, str)


@pytest.mark.parametrize("answer", HOSTILE, ids=repr)
@pytest.mark.parametrize(("collector", "number"), of_source("amdsmi"))
def test_hostile_tables(collector: str, number: int, answer: object) -> None:
    """Whatever shape stands under a key of gpu_metrics, a reader gives values or absences."""
    table = Hostile(answer)
    gpu = amdsmi_session(library(lambda: None, get_gpu_metrics_info=lambda _: table)).views(
        ADDRESS, per_partition=False
    )[0]
    given_fields = read(collector, gpu, number)

    assert all(isinstance(value, (*SCALARS, Absent)) for value in scalars(given_fields))
    assert not any(isinstance(value, bool) for value in scalars(given_fields))


@pytest.mark.parametrize("content", ["", "N/A", "\x00", "-1", "9" * 400, errno.EIO, errno.EACCES])
@pytest.mark.parametrize(("collector", "number"), of_source("sysfs"))
def test_hostile_files(collector: str, number: int, content: str | int) -> None:
    """Whatever a file holds, or however it fails, a reader gives values or absences."""
    names = """
        gpu_busy_percent mem_busy_percent mem_info_vram_total mem_info_vram_used mem_info_gtt_total
        pp_dpm_sclk current_link_speed current_link_width max_link_speed pcie_replay_count
        aer_dev_fatal ras/features ras/umc_err_count ras/gpu_vram_bad_pages
        ras/xgmi_wafl_err_count xgmi_port_num hwmon/hwmon0/temp1_label hwmon/hwmon0/temp1_input
        hwmon/hwmon0/pwm1_enable hwmon/hwmon0/pwm1 hwmon/hwmon0/power1_average
        hwmon/hwmon0/power1_cap product_name numa_node fw_version/smc_fw_version
    """
    gpu = sysfs_gpu(dict.fromkeys(names.split(), content))

    assert all(isinstance(v, (*SCALARS, Absent)) for v in scalars(read(collector, gpu, number)))


@pytest.mark.parametrize(("collector", "number"), of_source("amdsmi"))
def test_a_library_that_fails(collector: str, number: int) -> None:
    """Every call fails: every value is absent, but for the index, which needs no call."""
    values = scalars(read(collector, amdsmi_gpu(), number))

    assert ["0"] * (collector == "identity") == [v for v in values if not isinstance(v, Absent)]


# ---- AMD SMI's session


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        (LibraryError(2), NOT_SUPPORTED),
        (LibraryError(3), NOT_SUPPORTED),
        (LibraryError(10), NOT_PERMITTED),
        (LibraryError(30), BUSY),
        (LibraryError(43), ERROR),
        (KeyError("x"), ERROR),
        (AttributeError("undefined symbol"), NOT_SUPPORTED),
    ],
)
def test_status_codes_become_reasons(answer: Exception, expected: str) -> None:
    """The library's ways to fail, its wrapper's own, and a symbol that the library lacks."""
    told: list[object] = [{"power_cap": 1}]
    gpu = amdsmi_gpu(get_power_cap_info=lambda *_: told[-1])

    assert {"power_cap": 1} == gpu.call("amdsmi_get_power_cap_info")

    told.append(answer)

    assert expected == reason(gpu.call("amdsmi_get_power_cap_info"))


def test_what_a_version_lacks() -> None:
    """A function, or a member of an enumeration, that another version has."""
    gpu = amdsmi_gpu()

    assert NOT_SUPPORTED == reason(gpu.call("amdsmi_get_the_future"))
    assert NOT_SUPPORTED == reason(gpu.constant("AmdSmiClkType", "GFX"))
    assert NOT_SUPPORTED == reason(gpu.call("amdsmi_get_power_cap_info", Absent(NOT_SUPPORTED)))


def test_a_table_that_stands_still() -> None:
    """Success with old values is betrayed by the table's clocks; zeros by their being zero."""
    table = {"system_clock_counter": 7, "temperature_mem": 41}
    session = amdsmi_session(library(lambda: None, get_gpu_metrics_info=lambda _: dict(table)))
    gpu = session.views(ADDRESS, per_partition=False)[0]

    assert 41 == gpu.metric("temperature_mem")

    session.begin(10.5)

    assert 41 == gpu.metric("temperature_mem")

    session.begin(15.0)

    assert STALE == reason(gpu.metric("temperature_mem"))

    table["system_clock_counter"] = 8
    session.begin(20.0)

    assert 41 == gpu.metric("temperature_mem")

    table["system_clock_counter"] = 0
    session.begin(25.0)

    assert IMPLAUSIBLE == reason(gpu.metric("temperature_mem"))

    del table["system_clock_counter"]
    session.begin(30.0)

    assert STALE == reason(gpu.metric("temperature_mem"))


@pytest.mark.parametrize(
    ("never", "then"),
    [
        (LibraryError(43), ERROR),  # an integrated GPU's format, with AMD SMI
        (LibraryError(2), ERROR),
        ({"system_clock_counter": 0}, IMPLAUSIBLE),
        ({"temperature_mem": 41}, STALE),
    ],
)
def test_a_table_that_was_never_good(never: object, then: str) -> None:
    """That is how the device is, not a fault; it becomes one once a table was good."""
    told: list[object] = [never]
    session = amdsmi_session(library(lambda: None, get_gpu_metrics_info=lambda _: told[-1]))
    gpu = session.views(ADDRESS, per_partition=False)[0]
    for now in (10.0, 15.0, 3600.0):
        session.begin(now)

        assert NOT_SUPPORTED == reason(gpu.metric("temperature_mem"))

    told.append({"system_clock_counter": 7, "temperature_mem": 41})
    session.begin(3605.0)

    assert 41 == gpu.metric("temperature_mem")

    told.append(never)
    session.begin(3610.0)

    assert then == reason(gpu.metric("temperature_mem"))


def test_a_call_that_never_worked() -> None:
    """Such as for a clock that an older library does not know; an error once it has worked."""
    told: list[object] = [LibraryError(1)]
    session = amdsmi_session(library(get_fan=lambda *_: told[-1]))
    gpu = session.views(ADDRESS, per_partition=False)[0]

    assert NOT_SUPPORTED == reason(gpu.call("amdsmi_get_fan", 0))

    told.append(5)

    assert 5 == gpu.call("amdsmi_get_fan", 0)

    told.append(LibraryError(1))

    assert ERROR == reason(gpu.call("amdsmi_get_fan", 0))
    assert NOT_SUPPORTED == reason(gpu.call("amdsmi_get_fan", 1))


def test_a_table_that_is_busy_or_forbidden_from_the_start() -> None:
    """That says nothing of the device: somebody may have to do something."""
    for status, expected in ((30, BUSY), (10, NOT_PERMITTED)):
        gpu = amdsmi_gpu(LibraryError(status), get_gpu_metrics_info=LibraryError(status))

        assert expected == reason(gpu.metric("temperature_mem"))


def test_the_table_is_read_once_per_poll() -> None:
    """All collectors share it."""
    asked: list[object] = []

    def table(handle: object) -> dict[str, object]:
        asked.append(handle)
        return {"system_clock_counter": len(asked)}

    session = amdsmi_session(library(lambda: None, get_gpu_metrics_info=table))
    gpu = session.views(ADDRESS, per_partition=False)[0]
    for now in (10.0, 15.0):
        session.begin(now)
        for collector, number in of_source("amdsmi"):
            read(collector, gpu, number)

    assert ["handle"] * 2 == asked


@pytest.mark.parametrize(
    ("answers", "reason_part"),
    [
        ({"init": LibraryError(34)}, "driver is not loaded"),
        ({"init": LibraryError(8)}, "amdsmi_init failed"),
        ({"get_processor_handles": LibraryError(2)}, "get_processor_handles"),
        ({"get_processor_handles": []}, "lists no GPU"),
        ({"get_gpu_device_bdf": "N/A"}, "lists no GPU"),
    ],
)
def test_a_library_that_can_not_be_used(answers: dict[str, object], reason_part: str) -> None:
    """It is said what is wrong, and what to do."""
    with pytest.raises(UnavailableError) as caught:
        amdsmi_session(library(**answers))

    assert reason_part in caught.value.reason
    assert caught.value.remedy


# ---- XGMI

LINKS = {
    "xgmi_link_width": 16,
    "xgmi_link_speed": 32,
    "xgmi_read_data_acc": [10, 20, 0, ONES],
    "xgmi_write_data_acc": [1, 2, 0, ONES],
}


def test_links_by_their_status() -> None:
    """Up and down are told; a link that was never wired has no series at all."""
    fields = read("xgmi", amdsmi_gpu({**LINKS, "xgmi_link_status": [1, 0, "N/A", 0xFFFF]}))

    assert {"0": 1, "1": 0} == entries(fields["up"])
    assert {"0": 10240, "1": 20480} == entries(fields["received"])
    assert {"0": 1024, "1": 2048} == entries(fields["transmitted"])
    assert {"0": 64e9, "1": 64e9} == entries(fields["max_rate"])
    assert 5.0 == fields["clock"]


@pytest.mark.parametrize("status", [None, ["N/A"] * 4])
def test_links_without_a_status(status: object) -> None:
    """Before gpu_metrics 1.7 a link is wired once it has carried a byte; none is up or down."""
    table = {**LINKS} if status is None else {**LINKS, "xgmi_link_status": status}
    fields = read("xgmi", amdsmi_gpu(table))

    assert {} == entries(fields["up"])
    assert {"0", "1"} == entries(fields["received"]).keys()


def test_links_of_a_short_status() -> None:
    """A status for fewer links than there are counters: the others are taken as not wired."""
    fields = read("xgmi", amdsmi_gpu({**LINKS, "xgmi_link_status": [1]}))

    assert {"0"} == entries(fields["received"]).keys()


def test_a_link_up_whose_counter_is_absent() -> None:
    """The state is told, the traffic is not."""
    table = {**LINKS, "xgmi_read_data_acc": [ONES] * 4, "xgmi_link_status": [1, "N/A", 2, 2]}
    fields = read("xgmi", amdsmi_gpu(table))

    assert {"0": 1} == entries(fields["up"])
    assert SENTINEL == reason(entries(fields["received"])["0"])
    assert {"0": 1024} == entries(fields["transmitted"])


def test_xgmi_of_mi200() -> None:
    """A table without XGMI fields says so."""
    fields = read("xgmi", amdsmi_gpu({"temperature_mem": 40}))

    assert {"received", "clock"} == fields.keys()
    assert NOT_SUPPORTED == reason(entries(fields["received"])["0"])


def test_peers() -> None:
    """Port by port in hexadecimal; what leads to no device is absent."""
    base = f"/sys/bus/pci/devices/{ADDRESS}/xgmi_hive_info"
    gpu = sysfs_gpu(
        {
            "xgmi_port_num": "1:0 -> 2:0\n1:a -> c:1\n1:1 -> 9:1\n",
            "ras/xgmi_wafl_err_count": "ue: 1\nce: 2\n",
        },
        links={f"{base}/node2": f"../../{OTHER}", f"{base}/node12": f"../../{ADDRESS}"},
    )
    fields = read("xgmi", gpu, number_of("xgmi", "read_sysfs"))

    assert {"0": OTHER, "10": ADDRESS} == given(fields["peers"])
    assert NOT_SUPPORTED == reason(entries(fields["peers"])["1"])
    assert {"uncorrectable": 1, "correctable": 2} == entries(fields["errors"])


# ---- RAS

COUNTS = {f"ras/{block}_err_count": "ue: 1\nce: 22\nde: 3\n" for block in RAS_BLOCKS}


@pytest.mark.parametrize(
    ("mask", "blocks"),
    [
        ("feature mask: 0x5\n", {"umc", "gfx"}),
        ("feature mask: 0x0\n", set()),
        ("feature mask: 0x80\n", {"xgmi_wafl"}),
        ("no mask here\n", set(RAS_BLOCKS)),
        (errno.EIO, set(RAS_BLOCKS)),
        ("feature mask: 0xffffffff\n", set(RAS_BLOCKS)),
    ],
)
def test_enabled_blocks_only(mask: str | int, blocks: set[str]) -> None:
    """The bits of the mask say which blocks count; without a mask all that have a file do."""
    fields = read("ras", sysfs_gpu({**COUNTS, "ras/features": mask}))

    assert dict.fromkeys(blocks, 1) == entries(fields["uncorrectable"])
    assert dict.fromkeys(blocks, 22) == entries(fields["correctable"])
    assert dict.fromkeys(blocks, 3) == entries(fields["deferred"])


def test_a_block_that_fails() -> None:
    """Its neighbour is not affected, and it does not stand at zero."""
    gpu = sysfs_gpu(
        {**COUNTS, "ras/umc_err_count": errno.EIO, "ras/gfx_err_count": "nonsense\nue: x\n"}
    )
    fields = read("ras", gpu)

    assert ERROR == reason(entries(fields["correctable"])["umc"])
    assert IMPLAUSIBLE == reason(entries(fields["correctable"])["gfx"])
    assert 22 == entries(fields["correctable"])["sdma"]


def test_bad_pages_by_state() -> None:
    """Retired, pending and unreservable; an empty file means none."""
    pages = (
        "0x00000001 : 0x00001000 : R\n0x00000002 : 0x00001000 : P\n0x3 : 0x1000 : R\nx : y : F\n"
    )

    assert {"retired": 2, "pending": 1, "unreservable": 0} == entries(
        read("ras", sysfs_gpu({"ras/gpu_vram_bad_pages": pages}))["bad_pages"]
    )
    assert {"retired": 0, "pending": 0, "unreservable": 0} == entries(
        read("ras", sysfs_gpu({"ras/gpu_vram_bad_pages": "\n"}))["bad_pages"]
    )
    assert NOT_SUPPORTED == reason(entries(read("ras", sysfs_gpu())["bad_pages"])["retired"])


# ---- power


@pytest.mark.parametrize("power", [0, 0xFFFF, "N/A"])
def test_secondary_die(power: object) -> None:
    """The second die of an MI250X has no sensor: no power, no limit, no energy, not zeros."""
    table = {"average_socket_power": power, "energy_accumulator": 0}
    fields = read("power", amdsmi_gpu(table, get_power_cap_info={"power_cap": 0}))

    assert NOT_SUPPORTED == reason(fields["watts"])
    assert NOT_SUPPORTED == reason(fields["limit_watts"])
    assert SENTINEL == reason(fields["joules"])


def test_secondary_die_from_files() -> None:
    """The same from hwmon."""
    gpu = sysfs_gpu({"hwmon/hwmon1/power1_average": "0", "hwmon/hwmon1/power1_cap": "0"})
    fields = read("power", gpu, number_of("power", "read_sysfs"))

    assert [NOT_SUPPORTED] * 2 == [reason(fields["watts"]), reason(fields["limit_watts"])]


def test_an_idle_device_may_draw_nothing() -> None:
    """Zero watts under a limit are a reading."""
    table = {"current_socket_power": 0, "average_socket_power": 90, "energy_accumulator": 1 << 16}
    fields = read("power", amdsmi_gpu(table, get_power_cap_info={"power_cap": 750_000_000}))

    assert {"watts": 0, "limit_watts": 750.0, "joules": 1.0} == fields


def test_power_of_either_generation() -> None:
    """The current power where there is one, else the average, else hwmon's."""
    newer = {"current_socket_power": 140, "average_socket_power": 0xFFFF}
    older = {"current_socket_power": "N/A", "average_socket_power": 90}

    assert [140, 90] == [read("power", amdsmi_gpu(table))["watts"] for table in (newer, older)]


# ---- the other domains


def test_hbm_stacks() -> None:
    """Only the stacks that the device has, from the table that has any."""
    older = {"temperature_hbm": [40, 41, 0xFFFF, 0xFFFF], "temperature_hbm_stacks": ["N/A"] * 8}
    newer = {"temperature_hbm": "N/A", "temperature_hbm_stacks": [50] * 8}

    assert {"0": 40, "1": 41} == entries(read("temperature", amdsmi_gpu(older))["hbm_stacks"])
    assert dict.fromkeys("01234567", 50) == entries(
        read("temperature", amdsmi_gpu(newer))["hbm_stacks"]
    )


def test_limits_of_zero_are_none() -> None:
    """A virtual function's firmware gives no limits."""
    gpu = sysfs_gpu(
        {
            "hwmon/hwmon1/temp3_label": "mem",
            "hwmon/hwmon1/temp3_crit": "0",
            "hwmon/hwmon1/temp3_emergency": "105000",
        }
    )
    fields = read("temperature", gpu, number_of("temperature", "read_sysfs_limits"))

    assert SENTINEL == reason(entries(fields["critical"])["hbm"])
    assert {"hbm": 105.0} == entries(fields["emergency"])


def test_clocks_from_files() -> None:
    """The marked level is the current one, the last the highest; a table may have no mark."""
    gpu = sysfs_gpu(
        {
            "pp_dpm_sclk": "S: 19Mhz *\n0: 500Mhz\n1: 800Mhz *\n2: 1700Mhz\n",
            "pp_dpm_mclk": "0: 400Mhz\n1: 1600Mhz\n",
            "pp_dpm_socclk": "\n",
        }
    )
    fields = read("clocks", gpu, number_of("clocks", "read_sysfs"))

    assert {"gfx": 8e8} == given(fields["current"])
    assert {"gfx": 1.7e9, "memory": 1.6e9} == given(fields["highest"])
    assert {NOT_SUPPORTED} == {
        reason(v) for k, v in entries(fields["current"]).items() if k != "gfx"
    }


def test_clocks_are_the_mean_over_the_dies() -> None:
    """Dies that are not there don't count."""
    table = {"current_gfxclks": [1000, 2000, 0xFFFF, "N/A"], "current_uclk": 900}

    assert {"gfx": 1.5e9, "memory": 9e8} == given(read("clocks", amdsmi_gpu(table))["current"])


@pytest.mark.parametrize(
    ("raw", "speed"),
    [(1, 2.5e9), (4, 16e9), (5, 32e9), (6, 64e9), (25, 2.5e9), (160, 16e9), (320, 32e9)],
)
def test_link_speed_in_either_unit(raw: int, speed: float) -> None:
    """A generation on some devices, tenths of GT/s on others."""
    gpu = amdsmi_gpu({"pcie_link_speed": raw, "pcie_link_width": 16})

    assert {"transfers": speed, "width": 16} == read(
        "pcie", gpu, number_of("pcie", "read_amdsmi_link")
    )


def test_link_from_files() -> None:
    """The text of the PCI files; an unknown speed is none."""
    gpu = sysfs_gpu(
        {
            "current_link_speed": "16.0 GT/s PCIe\n",
            "max_link_speed": "Unknown\n",
            "current_link_width": "8\n",
            "max_link_width": "255\n",
        }
    )
    fields = read("pcie", gpu, number_of("pcie", "read_sysfs"))

    assert (16e9, 8) == (fields["transfers"], fields["width"])
    assert NOT_SUPPORTED == reason(fields["max_transfers"])
    assert IMPLAUSIBLE == reason(fields["max_width"])


def test_aer_totals() -> None:
    """The last line of each file; a file without one gives nothing."""
    gpu = sysfs_gpu(
        {
            "aer_dev_correctable": "RxErr 1\nBadTLP 2\nTOTAL_ERR_COR 3\n",
            "aer_dev_nonfatal": "Undefined 0\n",
            "aer_dev_fatal": errno.EIO,
        }
    )
    aer = entries(read("pcie", gpu, number_of("pcie", "read_sysfs_aer"))["aer"])

    assert 3 == aer["correctable"]
    assert NOT_SUPPORTED == reason(aer["nonfatal"])
    assert ERROR == reason(aer["fatal"])


def test_a_replay_counter_at_65535() -> None:
    """That is a count, not a mark."""
    fields = read("pcie", amdsmi_gpu({"pcie_replay_count_acc": 65535}))

    assert 65535 == fields["replays"]


def test_fan() -> None:
    """A share of its highest; no fan, or one whose highest is zero, has no share."""
    gpu = sysfs_gpu({"hwmon/hwmon1/pwm1_enable": "2", "hwmon/hwmon1/pwm1": "51"})
    calls = {"get_gpu_fan_speed": 128, "get_gpu_fan_speed_max": 0}

    assert {"speed": pytest.approx(0.2)} == read("fan", gpu)
    assert NOT_SUPPORTED == reason(read("fan", sysfs_gpu())["speed"])
    assert IMPLAUSIBLE == reason(read("fan", amdsmi_gpu(**calls), 1)["speed"])
    assert {"speed": 0.5} == read("fan", amdsmi_gpu(**{**calls, "get_gpu_fan_speed_max": 256}), 1)


def test_firmware_that_is_not_loaded() -> None:
    """A block at zero is not there."""
    gpu = sysfs_gpu(
        {
            "fw_version/smc_fw_version": "0x00557300\n",
            "fw_version/vce_fw_version": "0x00000000\n",
            "fw_version/other": "1",
        }
    )
    versions = read("firmware", gpu)["versions"]

    assert {"smc": "0x00557300"} == given(versions)
    assert NOT_SUPPORTED == reason(entries(versions)["vce"])


@pytest.mark.parametrize(
    ("version", "name"),
    [
        (90402, "gfx942"),
        (90500, "gfx950"),
        (90010, "gfx90a"),
        (90008, "gfx908"),
        (110501, "gfx1151"),
    ],
)
def test_gfx_targets(version: int, name: str) -> None:
    """KFD's decimal number under the compiler's name."""
    assert name == gfx_target(version)


def test_identity_from_files() -> None:
    """What the kernel knows of a device, with its KFD node and render node."""
    gpu = sysfs_gpu(
        {"product_name": "AMD Instinct MI300X", "drm/renderD130/dev": "", "numa_node": "-1"},
        elsewhere=kfd_files(1),
    )
    fields = read("identity", gpu, number_of("identity", "read_sysfs"))

    assert "gfx942" == fields["gfx_target"]
    assert "renderD130" == fields["render_node"]
    assert "AMD Instinct MI300X" == fields["name"]
    assert SENTINEL == reason(fields["numa_node"])


# ---- partitions

BUSY_DIES = {
    "xcp_stats.gfx_busy_inst": [[10, 30, 0xFFFF], [50, "N/A"], "N/A"],
    "xcp_stats.vcn_busy": [[20, 0xFFFF], [40]],
    "xcp_stats.gfx_below_host_limit_acc": [[7, ONES], [9]],
    "accumulation_counter": 100,
    "average_gfx_activity": 90,
}


def test_activity_of_partitions() -> None:
    """A partition's activity is that of its own dies, not the socket's."""
    number = number_of("activity", "read_amdsmi_gfx")
    views = partitioned(BUSY_DIES, 3)

    assert ["0", "1", "2"] == [view.partition for view in views]
    assert [pytest.approx(0.2), 0.5] == [read("activity", v, number)["gfx"] for v in views[:2]]
    assert SENTINEL == reason(read("activity", views[2], number)["gfx"])
    assert 0.9 == read("activity", amdsmi_gpu(BUSY_DIES), number)["gfx"]


def test_dies_of_partitions() -> None:
    """The dies that a partition has, by their number within it."""
    views = partitioned(BUSY_DIES, 3)

    assert {"0": 0.1, "1": 0.3} == entries(read("xcc", views[0])["activity"])
    assert {"0": 0.5} == entries(read("xcc", views[1])["activity"])
    assert {"0": 7} == entries(read("host_limit", views[0])["residency"])
    assert {"0": 9} == entries(read("host_limit", views[1])["residency"])


def test_socket_of_a_partitioned_device() -> None:
    """It is one view, read through the first partition, and knows that it is split."""
    table = {"system_clock_counter": 5, "temperature_mem": 40}
    api = library(
        lambda: None,
        get_processor_handles=[0, 1],
        get_gpu_device_bdf=lambda handle: f"{ADDRESS[:-1]}{handle}",
        get_gpu_metrics_info=lambda handle: table if handle == 0 else LibraryError(2),
        get_gpu_vram_usage={"vram_total": 100, "vram_used": 1},
    )
    session = amdsmi_session(api)
    (socket,) = session.views(ADDRESS, per_partition=False)

    assert (None, True) == (socket.partition, socket.partitioned)
    assert 40 == socket.metric("temperature_mem")
    assert {} == read("memory", socket, number_of("memory", "read_amdsmi_vram"))
    assert [(ADDRESS, 0)] == list(session.devices())


def memory_of_partitions(processes: dict[str, str | int]) -> list[dict[str, FieldValue]]:
    """The memory of the two partitions, and of what they share."""
    files = node_files(
        {"mem_info_vram_total": "1000", "mem_info_vram_used": "700"},
        elsewhere={**kfd_files(400, 500), **{f"{KFD}/proc/{k}": v for k, v in processes.items()}},
    )
    views = SysfsSession(files).views(ADDRESS, per_partition=True)
    return [read("memory", view, number_of("memory", "read_sysfs_partition")) for view in views]


def test_memory_of_partitions_adds_up() -> None:
    """The partitions and what none of them holds are together the socket's memory."""
    parts = memory_of_partitions({"10/vram_1001": "100", "11/vram_1001": "50", "11/vram_1002": "9"})

    assert [
        {"total": 400, "used": 150},
        {"total": 500, "used": 9},
        {"total": 100, "used": 541},
    ] == parts


def test_memory_of_partitions_that_is_not_known() -> None:
    """A process whose memory may not be read: its partition's use is not known, nor the rest."""
    first, second, shared = memory_of_partitions(
        {"10/vram_1001": errno.EACCES, "10/vram_1002": "5"}
    )

    assert NOT_PERMITTED == reason(first["used"])
    assert 5 == second["used"]
    assert NOT_PERMITTED == reason(shared["used"])


def test_more_held_than_used() -> None:
    """Two files that don't belong to one moment: absent, not negative."""
    assert IMPLAUSIBLE == reason(
        memory_of_partitions({"1/vram_1001": "390", "1/vram_1002": "480"})[2]["used"]
    )


def test_use_above_the_total() -> None:
    """Can't be true."""
    fields = read("memory", sysfs_gpu({"mem_info_vram_total": "10", "mem_info_vram_used": "11"}))

    assert 10 == fields["total"]
    assert IMPLAUSIBLE == reason(fields["used"])


def test_count_of_partitions() -> None:
    """KFD's nodes; without KFD it is not known."""
    assert {"count": 2} == read("partition", sysfs_gpu(elsewhere=kfd_files(1, 1)))
    assert NOT_SUPPORTED == reason(read("partition", sysfs_gpu())["count"])
