"""For every alert: what its series do, and what must be told when it fires.

One case is a node (or more) in order, just short of the fault, and with it. `tests/alerts/story.py`
makes promtool's tests of it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

INSTANCE = "node1:10450"
TARGET = {"instance": INSTANCE, "job": "amdgpu"}
NODE = {"instance": INSTANCE}
GPU = {**NODE, "gpu": "2", "pci_address": "0000:46:00.0"}
DEVICE = {**TARGET, **GPU}
LINK = {"link": "1", "peer": "0000:65:00.0"}
LINKED = {**DEVICE, **LINK}
WHERE = f"GPU 2 (0000:46:00.0) of {INSTANCE}"

GIB = 2**30


@dataclass(frozen=True, slots=True)
class Series:
    """One series in the course of a case; None is a time without the series.

    Attributes:
        quiet: in order: the value of a gauge, what a counter gains every minute, or the age of a
            timestamp.
        below: just short of the fault; as in order if it is left out.
        fault: with the fault.
    """

    name: str
    labels: Mapping[str, str]
    quiet: float | None
    fault: float | None
    below: float | None = None
    kind: Literal["gauge", "counter", "timestamp"] = "gauge"


@dataclass(frozen=True, slots=True)
class Case:
    """One alert.

    Attributes:
        labels: those that the firing alert has beside alertname, severity and domain.
        minutes: from the beginning of the fault until the alert fires.
        exact: it does not fire a minute earlier.
        clears: minutes after which it no longer fires once the fault ended.
        warm: minutes in order before the fault.
        below: whether the case tells what is just short of the fault.
        vanishes: the series whose absence is no fault; all, unless absence is what it is about.
    """

    alert: str
    series: tuple[Series, ...]
    labels: Mapping[str, str]
    description: str
    minutes: int
    exact: bool = True
    clears: int = 8
    warm: int = 10
    below: bool = True
    vanishes: bool = True


def gauge(  # of a device, unless labels say otherwise
    name: str,
    quiet: float | None,
    fault: float | None,
    below: float | None = None,
    of: Mapping[str, str] = DEVICE,
    **labels: str,
) -> Series:
    """A gauge."""
    return Series(name, {**of, **labels}, quiet, fault, below)


def counter(
    name: str,
    quiet: float,
    fault: float,
    below: float | None = None,
    of: Mapping[str, str] = DEVICE,
    **labels: str,
) -> Series:
    """A counter, by what it gains every minute."""
    return Series(name, {**of, **labels}, quiet, fault, below, kind="counter")


def clock(name: str, quiet: float, fault: float, below: float) -> Series:
    """A timestamp of the target, by its age in seconds."""
    return Series(name, TARGET, quiet, fault, below, kind="timestamp")


def _same(name: str, value: float, of: Mapping[str, str] = DEVICE, **labels: str) -> Series:
    return Series(name, {**of, **labels}, value, value, value)


TRANSFERS = "amdgpu_pcie_link_transfers_per_second"
MAX_TRANSFERS = "amdgpu_pcie_link_max_transfers_per_second"
LANES = "amdgpu_pcie_link_width_lanes"
MAX_LANES = "amdgpu_pcie_link_max_width_lanes"
GEN5 = (_same(TRANSFERS, 3.2e10), _same(LANES, 16))
SENT = "amdgpu_xgmi_transmit_bytes_total"
MINUTE_OF_LINK = 6.4e10 * 60

HOLD = 30

CHAIN = (
    Case(
        "AmdGpuExporterDown",
        (gauge("up", 1, 0, of=TARGET),),
        TARGET,
        f"{INSTANCE} of job amdgpu can't be scraped; its GPUs are not watched.",
        minutes=5,
        below=False,
    ),
    Case(
        "AmdGpuExporterAbsent",
        (gauge("up", 1, 0, of=TARGET),),
        {},
        "No target of a job that matches amdgpu.* answers: no GPU is watched.",
        minutes=10,
        clears=1,
        below=False,
    ),
    Case(
        "AmdGpuFleetBlind",
        (
            *(gauge("up", 1, 0, 0, {"job": "amdgpu", "instance": f"n{n}"}) for n in range(2)),
            gauge("up", 1, 0, 1, {"job": "amdgpu", "instance": "n2"}),
            *(_same("up", 1, {"job": "amdgpu", "instance": f"n{n}"}) for n in range(3, 24)),
        ),
        {},
        "12.5% of the exporters of the cluster  can't be scraped.",
        minutes=10,
    ),
    Case(
        "AmdGpuExporterVanished",
        (gauge("up", 1, None, of=TARGET),),
        TARGET,
        f"{INSTANCE} of job amdgpu answered within 1d, and is no longer a target.",
        minutes=15,
        clears=1,
        below=False,
        vanishes=False,
    ),
    Case(
        "AmdGpuPollStale",
        (
            clock("amdgpu_exporter_last_poll_timestamp_seconds", 5, 240, 60),
            _same("amdgpu_exporter_poll_interval_seconds", 10, TARGET),
        ),
        NODE,
        f"The last poll of {INSTANCE} ended 4m 0s ago.",
        minutes=2,
    ),
    Case(
        "AmdGpuClockSkew",
        (clock("amdgpu_exporter_last_poll_timestamp_seconds", 5, -63, -30),),
        NODE,
        f"The clock of {INSTANCE} is 1m 3s ahead of Prometheus's.",
        minutes=10,
    ),
    Case(
        "AmdGpuSourceDown",
        (gauge("amdgpu_exporter_source_up", 1, 0, of=TARGET, source="amdsmi"),),
        {**TARGET, "source": "amdsmi"},
        f"amdsmi on {INSTANCE} gives nothing; what it alone could tell is absent.",
        minutes=15,
        below=False,
    ),
    Case(
        "AmdGpuSourceRestarts",
        (
            counter(
                "amdgpu_exporter_source_restarts_total",
                0,
                0.1,
                0.04,
                TARGET,
                source="amdsmi",
                reason="hang",
            ),
            counter(
                "amdgpu_exporter_source_restarts_total",
                1,
                1,
                1,
                TARGET,
                source="amdsmi",
                reason="devices_changed",
            ),
        ),
        {**NODE, "source": "amdsmi"},
        f"amdsmi on {INSTANCE} was restarted 6 times in 1h.",
        minutes=60,
        exact=False,
        clears=95,
        warm=65,
    ),
    Case(
        "AmdGpuWorkerAbandoned",
        (gauge("amdgpu_exporter_source_abandoned_workers", 0, 1, of=TARGET, source="sysfs"),),
        {**TARGET, "source": "sysfs"},
        f"1 workers of sysfs on {INSTANCE} hang in the kernel and can't be killed.",
        minutes=5,
        below=False,
    ),
    Case(
        "AmdGpuCollectorFailing",
        (gauge("amdgpu_exporter_collector_success", 1, 0, of=TARGET, collector="ras"),),
        {**TARGET, "collector": "ras"},
        f"The collector ras on {INSTANCE} does not get all it asks for.",
        minutes=15,
        below=False,
    ),
    Case(
        "AmdGpuValuesRejected",
        (
            counter(
                "amdgpu_exporter_rejected_values_total",
                0,
                1,
                0.6,
                TARGET,
                collector="power",
                reason="error",
            ),
            counter(  # how this hardware is: no fault
                "amdgpu_exporter_rejected_values_total",
                50,
                50,
                50,
                TARGET,
                collector="power",
                reason="sentinel",
            ),
        ),
        {**NODE, "collector": "power", "reason": "error"},
        f"power on {INSTANCE} turned down 15 values in 15m: error.",
        minutes=20,
        exact=False,
        clears=95,
        warm=65,
    ),
    Case(
        "AmdGpuRequestsRejected",
        (counter("amdgpu_exporter_rejected_requests_total", 0, 1, 0.15, TARGET),),
        TARGET,
        f"{INSTANCE} turned 60 requests away in 1h.",
        minutes=60,
        exact=False,
        clears=95,
        warm=65,
    ),
    Case(
        "AmdGpuConfigReloadFailed",
        (gauge("amdgpu_exporter_config_last_reload_successful", 1, 0, of=TARGET),),
        TARGET,
        f"{INSTANCE} goes on with its last good configuration.",
        minutes=5,
        below=False,
    ),
    Case(
        "AmdGpuSimulated",
        (gauge("amdgpu_exporter_simulated", 0, 1, of=TARGET),),
        TARGET,
        f"Every value of {INSTANCE} is simulated.",
        minutes=0,
        clears=1,
        below=False,
    ),
)

DEVICES = (
    Case(
        "AmdGpuDown",
        (gauge("amdgpu_up", 1, 0),),
        DEVICE,
        f"{WHERE} does not answer any source.",
        minutes=5,
        below=False,
    ),
    Case(
        "AmdGpuMissing",
        (gauge("amdgpu_devices", 8, 7, of=TARGET, view="pci"),),
        NODE,
        f"{INSTANCE} lacks 1 GPUs on its PCI bus.",
        minutes=5,
        below=False,
    ),
    Case(
        "AmdGpuViewsDisagree",
        (
            _same("amdgpu_devices", 8, TARGET, view="pci"),
            gauge("amdgpu_devices", 8, 6, 8, of=TARGET, view="amdsmi"),
            _same("amdgpu_devices", 9, TARGET, view="expected"),
        ),
        NODE,
        f"The views of {INSTANCE} differ by 2 GPUs.",
        minutes=15,
    ),
    Case(
        "AmdGpuTelemetryLost",
        (
            _same("amdgpu_up", 1),
            gauge("amdgpu_temperature_celsius", 50, None, sensor="junction"),
        ),
        GPU,
        f"{WHERE} answers, and gives no temperature.",
        minutes=15,
        below=False,
    ),
)


def _temperature(kind: str, sensor: str, limits: Mapping[str, float], degrees: str) -> Case:
    name = {"hbm": "Hbm", "junction": "Junction"}[sensor]
    near = kind == "NearLimit"
    critical = limits["critical"]
    fault, below = (critical - 5, critical - 6) if near else (critical, critical - 1)
    what = "within 5 degrees of its limit" if near else "its critical limit or above"
    return Case(
        f"AmdGpu{name}{kind}",
        (
            gauge("amdgpu_temperature_celsius", 60, fault, below, sensor=sensor),
            *(
                _same("amdgpu_temperature_limit_celsius", value, sensor=sensor, limit=limit)
                for limit, value in limits.items()
            ),
        ),
        {**GPU, "sensor": sensor},
        f"The {sensor} of {WHERE} is at {degrees} °C, {what}.",
        minutes=5 if near else 2,
    )


OWN = {"critical": 94, "emergency": 99}
CONFIGURED = (
    Case(
        "AmdGpuHbmNearLimit",
        (
            gauge("amdgpu_temperature_celsius", 60, 95, 94, sensor="hbm"),
            _same("amdgpu_temperature_limit_celsius", 95, sensor="hbm", limit="configured_warning"),
            _same(
                "amdgpu_temperature_limit_celsius", 105, sensor="hbm", limit="configured_critical"
            ),
        ),
        {**GPU, "sensor": "hbm"},
        f"The hbm of {WHERE} is at 95 °C, within 5 degrees of its limit.",
        minutes=5,
    ),
    Case(
        "AmdGpuHbmAtLimit",
        (
            gauge("amdgpu_temperature_celsius", 60, 105, 104, sensor="hbm"),
            _same(
                "amdgpu_temperature_limit_celsius", 105, sensor="hbm", limit="configured_critical"
            ),
        ),
        {**GPU, "sensor": "hbm"},
        f"The hbm of {WHERE} is at 105 °C, its critical limit or above.",
        minutes=2,
    ),
)


def _throttled(
    alert: str, reason: str, seconds: float, below: float, share: str, window: int
) -> Case:
    texts = {
        "AmdGpuThermalThrottling": f"{WHERE} was throttled for {share} of 10m: {reason}.",
        "AmdGpuProchot": f"{WHERE} was under PROCHOT for {share} of 5m.",
        "AmdGpuPowerCapped": f"{WHERE} was held by its power limit for {share} of 30m.",
    }
    return Case(
        alert,
        (counter("amdgpu_throttle_seconds_total", 0, seconds, below, reason=reason),),
        {**GPU, "reason": reason},
        texts[alert],
        minutes=window,
        exact=False,
        clears=window + HOLD + 3,
        warm=window + 1,
    )


HEAT = (
    _temperature("NearLimit", "hbm", OWN, "89"),
    _temperature("AtLimit", "hbm", OWN, "94"),
    _temperature("NearLimit", "junction", {"critical": 100}, "95"),
    _temperature("AtLimit", "junction", {"critical": 100}, "100"),
    *CONFIGURED,
    _throttled("AmdGpuThermalThrottling", "hbm_thermal", 6, 2.9, "10%", 10),
    _throttled("AmdGpuProchot", "prochot", 3, 0.5, "5%", 5),
    _throttled("AmdGpuPowerCapped", "power", 30, 17, "50%", 30),
)

_NORMAL = (_same(MAX_TRANSFERS, 3.2e10), _same(MAX_LANES, 16))


def _pcie(alert: str, series: str, what: str, *known: Series, **labels: str) -> Case:
    return Case(
        alert,
        (counter(series, 0, 2, 1.5, {**DEVICE, **labels}), *known),
        GPU,
        f"The link of {WHERE} had 120 {what} in 1h, too many for its width and speed.",
        minutes=76,
        exact=False,
        clears=95,
        warm=65,
    )


PCIE = (
    Case(
        "AmdGpuPcieDegraded",
        (
            gauge(LANES, 16, 8, 16),
            gauge(TRANSFERS, 3.2e10, 1.6e10, 3.2e10),
            _same("amdgpu_gfx_activity_ratio", 0.9),
            *_NORMAL,
        ),
        GPU,
        f"The link of {WHERE} has 25% of its highest bandwidth under load.",
        minutes=15,
    ),
    Case(  # an idle GPU lowers its link, and that is no fault
        "AmdGpuPcieDegraded",
        (
            gauge(LANES, 16, 8, 8),
            _same(TRANSFERS, 3.2e10),
            gauge("amdgpu_gfx_activity_ratio", 0.9, 0.9, 0),
            _same("amdgpu_up", 1),
            *_NORMAL,
        ),
        GPU,
        f"The link of {WHERE} has 50% of its highest bandwidth under load.",
        minutes=15,
    ),
    _pcie("AmdGpuPcieReplays", "amdgpu_pcie_replays_total", "replays", *GEN5),
    _pcie("AmdGpuPcieReplays", "amdgpu_pcie_replays_total", "replays"),
    _pcie("AmdGpuPcieNaks", "amdgpu_pcie_naks_total", "NAKs", *GEN5, direction="sent"),
    _pcie(
        "AmdGpuPcieCorrectableErrors",
        "amdgpu_pcie_aer_errors_total",
        "correctable errors",
        *GEN5,
        severity="correctable",
    ),
    Case(
        "AmdGpuPcieRetrains",
        (counter("amdgpu_pcie_replay_rollovers_total", 0, 0.1, 0.04),),
        DEVICE,
        f"The link of {WHERE} was retrained 6 times in 1h.",
        minutes=60,
        exact=False,
        clears=95,
        warm=65,
    ),
)


def _errors(
    alert: str,
    series: str,
    rates: tuple[float, float],
    text: str,
    window: int = 60,
    **further: str,
) -> Case:
    """Errors that come every minute, by `rates` too many and just short of it."""
    return Case(
        alert,
        (counter(series, 0, *rates, {**DEVICE, **further}),),
        {**GPU, **{name: value for name, value in further.items() if name == "block"}},
        text,
        minutes=window,
        exact=False,
        clears=window + HOLD + 3,
        warm=window + 2,
    )


_AER = "amdgpu_pcie_aer_errors_total"
_XGMI = "amdgpu_xgmi_errors_total"
_ECC = "amdgpu_ecc_errors_total"

XGMI_RATE = "amdgpu_xgmi_link_max_bytes_per_second"
_OTHERS: tuple[dict[str, str], ...] = tuple(
    {"link": f"{n}", "peer": f"0000:{n}5:00.0"} for n in range(2, 5)
)
_PACE = 0.5 * MINUTE_OF_LINK

XGMI = (
    Case(  # the links to a lost GPU are no fault of their own
        "AmdGpuXgmiLinkDown",
        (
            gauge("amdgpu_xgmi_link_up", 1, 0, 0, LINKED),
            gauge("amdgpu_up", 1, 1, 0, {**TARGET, "gpu": "3", "pci_address": LINK["peer"]}),
        ),
        LINKED,
        f"Link 1 of {WHERE} to 0000:65:00.0 is down.",
        minutes=1,
    ),
    Case(
        "AmdGpuXgmiLinkDown",
        (gauge("amdgpu_xgmi_link_up", 1, 0, of=LINKED),),
        LINKED,
        f"Link 1 of {WHERE} to 0000:65:00.0 is down.",
        minutes=1,
        below=False,
    ),
    _errors(
        "AmdGpuXgmiUncorrectableErrors",
        _XGMI,
        (1, 0),
        f"{WHERE} had 60 uncorrectable XGMI errors in 1h.",
        severity="uncorrectable",
    ),
    _errors(
        "AmdGpuXgmiCorrectableErrors",
        _XGMI,
        (0.5, 0.15),
        f"{WHERE} had 30 correctable XGMI errors in 1h.",
        severity="correctable",
    ),
    Case(
        "AmdGpuXgmiLinkSlow",
        (
            gauge(XGMI_RATE, 6.4e10, 3.2e10, 6e10, LINKED),
            _same(XGMI_RATE, 6.4e10, {**DEVICE, **_OTHERS[0]}),
        ),
        {**GPU, **LINK},
        f"Link 1 of {WHERE} to 0000:65:00.0 trained at 50% of the best of its node.",
        minutes=15,
    ),
    Case(
        "AmdGpuXgmiSaturated",
        (
            counter(SENT, 0, 0.75 * MINUTE_OF_LINK, 0.69 * MINUTE_OF_LINK, LINKED),
            _same(XGMI_RATE, 6.4e10, LINKED),
        ),
        {**GPU, **LINK},
        f"Link 1 of {WHERE} to 0000:65:00.0 sent at 75% of its rate.",
        minutes=36,
        exact=False,
        clears=40,
    ),
    Case(
        "AmdGpuXgmiImbalance",
        (
            counter(SENT, _PACE, _PACE / 16, _PACE / 3, LINKED),
            _same(XGMI_RATE, 6.4e10, LINKED),
            *(counter(SENT, _PACE, _PACE, _PACE, {**DEVICE, **other}) for other in _OTHERS),
            *(_same(XGMI_RATE, 6.4e10, {**DEVICE, **other}) for other in _OTHERS),
        ),
        {**GPU, **LINK},
        f"Link 1 of {WHERE} to 0000:65:00.0 sent 8.163% of the mean of its GPU's links.",
        minutes=36,
        exact=False,
        clears=40,
    ),
)

RAS = (
    _errors(
        "AmdGpuEccUncorrectable",
        _ECC,
        (0.5, 0),
        f"{WHERE} had 30 uncorrectable errors in block umc in 1h.",
        block="umc",
        severity="uncorrectable",
    ),
    _errors(
        "AmdGpuEccDeferred",
        _ECC,
        (0.5, 0),
        f"{WHERE} had 30 deferred errors in block gfx in 1h.",
        block="gfx",
        severity="deferred",
    ),
    Case(
        "AmdGpuEccCorrectable",
        (
            counter(
                "amdgpu_ecc_errors_total",
                0,
                1,
                0.06,
                {**DEVICE, "block": "umc", "severity": "correctable"},
            ),
            counter(  # XGMI's own alerts tell of these
                "amdgpu_ecc_errors_total",
                9,
                9,
                9,
                {**DEVICE, "block": "xgmi_wafl", "severity": "correctable"},
            ),
        ),
        GPU,
        f"{WHERE} corrected 120 errors in 1d.",
        minutes=120,
        exact=False,
        clears=1540,
        warm=121,
    ),
    Case(
        "AmdGpuBadPagesPending",
        (gauge("amdgpu_bad_pages", 0, 2, state="pending"),),
        {**DEVICE, "state": "pending"},
        f"2 pages of {WHERE} are bad and still in use.",
        minutes=60,
        below=False,
    ),
    *(
        Case(
            f"AmdGpuBadPages{name}Threshold",
            (
                gauge("amdgpu_bad_pages", 3, fault, below, state="retired"),
                _same("amdgpu_bad_pages", 2, state="pending"),
                _same("amdgpu_bad_pages", 100, state="unreservable"),
                _same("amdgpu_bad_page_threshold", 100),
            ),
            GPU,
            f"{WHERE} has {fault + 2}% of the bad pages that it tolerates.",
            minutes=5,
        )
        for name, fault, below in (("Near", 49, 48), ("At", 89, 88))
    ),
)

_USED = "amdgpu_vram_used_bytes"
_TOTAL = "amdgpu_vram_total_bytes"


def _exhaustion(name: str, fault: float, below: float, text: str, minutes: int) -> Case:
    return Case(
        f"AmdGpuVramExhaustion{name}",
        (
            gauge("amdgpu_vram_exhaustion_seconds", None, fault, below),
            gauge("amdgpu_vram_growth_bytes_per_second", 0, 4e6, 4e6),
        ),
        DEVICE,
        f"The VRAM of {WHERE} will be full in {text} at its present growth.",
        minutes=minutes,
    )


MEMORY = (
    Case(
        "AmdGpuVramNearlyFull",
        (gauge(_USED, 50 * GIB, 99 * GIB, 98 * GIB), _same(_TOTAL, 100 * GIB)),
        GPU,
        f"99% of the VRAM of {WHERE} is in use.",
        minutes=15,
    ),
    Case(
        "AmdGpuVramLeakSuspected",
        (gauge("amdgpu_vram_leak_suspected", 0, 1, kind="residue"),),
        {**DEVICE, "kind": "residue"},
        f"The memory of {WHERE} grows and is not given back: residue.",
        minutes=15,
        below=False,
    ),
    _exhaustion("", 23 * 3600, 24 * 3600, "23h 0m 0s", 60),
    _exhaustion("Soon", 3600, 7200, "1h 0m 0s", 10),
    Case(
        "AmdGpuVramOrphaned",
        (
            gauge("amdgpu_vram_unattributed_bytes", 0, 2 * GIB, 1 * GIB),
            _same(_TOTAL, 192 * GIB),
            _same("amdgpu_processes", 0),
        ),
        DEVICE,
        f"2GiB of the VRAM of {WHERE} belong to no process.",
        minutes=30,
    ),
    Case(  # memory that a running process may account for is nobody's fault
        "AmdGpuVramOrphaned",
        (
            gauge("amdgpu_vram_unattributed_bytes", 0, 4 * GIB, 4 * GIB),
            _same(_TOTAL, 192 * GIB),
            gauge("amdgpu_processes", 1, 0, 1),
        ),
        DEVICE,
        f"4GiB of the VRAM of {WHERE} belong to no process.",
        minutes=30,
    ),
    Case(
        "AmdGpuVramZombie",
        (gauge("amdgpu_vram_zombie_bytes", 0, GIB, 2**26),),
        DEVICE,
        f"1GiB of the VRAM of {WHERE} belong to processes that have ended.",
        minutes=15,
    ),
    Case(
        "AmdGpuHeldIdle",
        (
            *(_same("amdgpu_process_vram_bytes", 10 * GIB, pid=pid) for pid in ("7", "9")),
            _same(_TOTAL, 100 * GIB),
            counter("amdgpu_gfx_active_seconds_total", 60, 0, 1.5),
        ),
        GPU,
        f"Processes hold 20% of the VRAM of {WHERE}, which computes nothing.",
        minutes=130,
        exact=False,
        clears=45,
    ),
)

FLEET = (
    Case(
        "AmdGpuFirmwareMismatch",
        (
            _same("amdgpu_firmware_devices", 7, TARGET, block="smc", version="85.1"),
            gauge("amdgpu_firmware_devices", 0, 1, of=TARGET, block="smc", version="85.2"),
            _same("amdgpu_firmware_devices", 8, TARGET, block="vcn", version="1.0"),
        ),
        {**NODE, "block": "smc"},
        f"{INSTANCE} runs 2 versions of smc.",
        minutes=60,
        below=False,
    ),
    Case(
        "AmdGpuDriverDiffers",
        (
            _same("amdgpu_node_info", 1, {"instance": "n1"}, driver_version="6.14.1"),
            gauge("amdgpu_node_info", None, 1, of={"instance": "n2"}, driver_version="6.14.2"),
            _same("amdgpu_node_info", 1, {"instance": "n3"}, driver_version=""),
        ),
        {},
        "The cluster  runs 2 versions of the amdgpu driver.",
        minutes=1440,
        exact=False,
        clears=40,
        below=False,
    ),
)

UNCORRECTABLE_PCIE = _errors(
    "AmdGpuPcieUncorrectableErrors",
    _AER,
    (1, 0),
    f"The link of {WHERE} had 60 nonfatal or fatal errors in 1h.",
    severity="fatal",
)

CASES = (*CHAIN, *DEVICES, *HEAT, *PCIE, UNCORRECTABLE_PCIE, *XGMI, *RAS, *MEMORY, *FLEET)
