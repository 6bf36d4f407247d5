"""Reliability: RAS errors, bad pages, devices that are lost, and the sources that tell of them."""

from __future__ import annotations

from dashboards.model import (
    NONE_IS_GOOD,
    OF_GPU,
    OF_NODE,
    ONE_IS_GOOD,
    YES_OR_NO,
    Annotation,
    Dashboard,
    Link,
    Panel,
    Query,
    Row,
    Thresholds,
    above,
    stat,
)

_BAD = 'sum by (<gpu>) (amdgpu_bad_pages{GPU, state=~"retired|pending"})'

_STATE = Row(
    "In the time shown",
    (
        stat(
            "Uncorrectable",
            "Uncorrectable ECC errors, all blocks. Each may have killed a job.",
            'sum(increase(amdgpu_ecc_errors_total{GPU, severity="uncorrectable"}[$__range]))',
            thresholds=NONE_IS_GOOD,
            decimals=0,
            see=Link("amdgpu-reliability", "Uncorrectable errors"),
        ),
        stat(
            "Deferred",
            "Errors that were found and poisoned, but not consumed yet.",
            'sum(increase(amdgpu_ecc_errors_total{GPU, severity="deferred"}[$__range]))',
            thresholds=Thresholds("green", ((1, "orange"),)),
            decimals=0,
        ),
        stat(
            "XGMI errors",
            "Uncorrectable errors of the XGMI block.",
            'sum(increase(amdgpu_xgmi_errors_total{GPU, severity="uncorrectable"}[$__range]))',
            thresholds=NONE_IS_GOOD,
            decimals=0,
        ),
        stat(
            "PCIe non-fatal and fatal",
            "By Advanced Error Reporting.",
            "sum(increase(amdgpu_pcie_aer_errors_total{GPU,"
            ' severity=~"nonfatal|fatal"}[$__range]))',
            thresholds=NONE_IS_GOOD,
            decimals=0,
        ),
        stat(
            "Workers replaced",
            "Readers of a source that crashed, hung or grew too large.",
            "sum(increase(amdgpu_exporter_source_restarts_total{NODE}[$__range]))",
            thresholds=Thresholds("green", ((1, "orange"),)),
            decimals=0,
        ),
        stat(
            "Failures per 1,000 GPU-months",
            "Uncorrectable ECC errors, over the GPUs and the time shown. A short time makes it a "
            "rough figure.",
            'sum(increase(amdgpu_ecc_errors_total{GPU, severity="uncorrectable"}[$__range]))'
            " / count(amdgpu_up{GPU}) / $__range_s * 2629800 * 1000",
            decimals=0,
        ),
    ),
)

_RAS = Row(
    "RAS",
    (
        Panel(
            "Uncorrectable errors",
            "ECC errors of each GPU that were not corrected, per hour. Nothing here is the good "
            "case.",
            "none",
            (
                Query(
                    "sum by (<gpu>, severity) (rate(amdgpu_ecc_errors_total{GPU,"
                    ' severity=~"uncorrectable|deferred"}[$__rate_interval])) * 3600 > 0',
                    f"{OF_GPU} {{{{severity}}}}",
                ),
            ),
            low=0,
            drill="amdgpu-gpu",
        ),
        Panel(
            "ECC errors by block",
            "Correctable errors by RAS block, per hour. HBM (umc) has a few; a rate that stays "
            "up is a chip on its way out.",
            "none",
            (
                Query(
                    "sum by (<gpu>, block) (rate(amdgpu_ecc_errors_total{GPU,"
                    ' severity="correctable"}[$__rate_interval])) * 3600 > 0',
                    f"{OF_GPU} {{{{block}}}}",
                ),
            ),
            low=0,
            drill="amdgpu-gpu",
        ),
        Panel(
            "Bad pages",
            "VRAM pages taken out of use, or about to be, and the number that the device "
            "tolerates. Pending pages are retired when the driver is loaded next.",
            "none",
            (
                Query('sum by (instance, gpu) (amdgpu_bad_pages{GPU, state="retired"})', "retired"),
                Query(
                    'sum by (instance, gpu) (amdgpu_bad_pages{GPU, state="pending"})',
                    "pending",
                    thresholds=Thresholds("green", ((1, "orange"),)),
                ),
                Query(
                    'sum by (instance, gpu) (amdgpu_bad_pages{GPU, state="unreservable"})',
                    "unreservable",
                    thresholds=NONE_IS_GOOD,
                ),
                Query("max by (instance, gpu) (amdgpu_bad_page_threshold{GPU})", "tolerated"),
            ),
            "table",
            labels=("instance", "gpu"),
            sort="retired",
            drill="amdgpu-gpu",
        ),
        Panel(
            "Bad pages of those tolerated",
            "Retired and pending pages over the device's threshold, of the 20 GPUs with the most. "
            "At 100 % the board has to be replaced.",
            "percentunit",
            (Query(f"topk(20, {_BAD} / max by (<gpu>) (amdgpu_bad_page_threshold{{GPU}}))"),),
            thresholds=above(0.5, 0.9),
            low=0,
            drill="amdgpu-gpu",
        ),
    ),
)

_DEVICES = Row(
    "Devices",
    (
        Panel(
            "GPUs answering",
            "GPUs that were lost in the time shown or are lost now; others are left out. "
            "Nothing here is the good case.",
            "none",
            (
                Query(
                    "max by (<gpu>) (amdgpu_up{GPU}) and min by (<gpu>)"
                    " (min_over_time(amdgpu_up{GPU}[$__range])) == 0",
                ),
            ),
            "statetimeline",
            ONE_IS_GOOD,
            names={0: ("lost", "red"), 1: ("answers", "green")},
            drill="amdgpu-gpu",
        ),
        Panel(
            "Thermal and PROCHOT throttling",
            "Share of time that something other than the power cap held a GPU back.",
            "percentunit",
            (
                Query(
                    'rate(amdgpu_throttle_seconds_total{GPU, reason!="power"}[$__rate_interval])'
                    " > 0",
                    f"{OF_GPU} {{{{reason}}}}",
                ),
            ),
            thresholds=Thresholds("green", ((0.05, "orange"),)),
            low=0,
            drill="amdgpu-gpu",
            see=Link("amdgpu-gpu", "Throttling"),
        ),
    ),
)

_SOURCES = Row(
    "Sources: whether the telemetry can be trusted",
    (
        Panel(
            "Sources",
            "Whether each source answered. One that rests, since others give all it could, is "
            "absent.",
            "none",
            (
                Query(
                    "min by (<node>, source) (amdgpu_exporter_source_up{NODE})",
                    "{{instance}} {{source}}",
                ),
            ),
            "statetimeline",
            ONE_IS_GOOD,
            names={0: ("down", "red"), 1: ("up", "green")},
            drill="amdgpu-node",
        ),
        Panel(
            "Age of the last poll",
            "Time since the poll that the page shows. It should stay below a few intervals.",
            "s",
            (
                Query(
                    "time() - amdgpu_exporter_last_poll_timestamp_seconds{NODE}",
                    OF_NODE,
                ),
            ),
            low=0,
            drill="amdgpu-node",
        ),
        Panel(
            "Restarts by reason",
            "Workers replaced, per hour.",
            "none",
            (
                Query(
                    "sum by (<node>, source, reason) (rate("
                    "amdgpu_exporter_source_restarts_total{NODE}[$__rate_interval])) * 3600 > 0",
                    "{{instance}} {{source}} {{reason}}",
                ),
            ),
            width=8,
            low=0,
            drill="amdgpu-node",
        ),
        Panel(
            "Rejected values",
            "Values that a source did not give or that could not be true, per hour, by collector "
            "and reason.",
            "none",
            (
                Query(
                    "sum by (<node>, collector, reason) (rate("
                    "amdgpu_exporter_rejected_values_total{NODE}[$__rate_interval])) * 3600 > 0",
                    "{{instance}} {{collector}} {{reason}}",
                ),
            ),
            width=8,
            low=0,
            drill="amdgpu-node",
        ),
        Panel(
            "Counters that went backwards",
            "Hardware counters that were reset, per hour: a driver loaded anew, a GPU that came "
            "back.",
            "none",
            (
                Query(
                    "sum by (<node>) (rate("
                    "amdgpu_exporter_reset_values_total{NODE}[$__rate_interval])) * 3600",
                    OF_NODE,
                ),
            ),
            width=8,
            low=0,
            drill="amdgpu-node",
        ),
        Panel(
            "Health of the exporters",
            "Collectors whose readers failed, workers that hang in the kernel, and whether the "
            "configuration was read.",
            "none",
            (
                Query(
                    "sum by (instance) (1 - amdgpu_exporter_collector_success{NODE})",
                    "collectors failing",
                    thresholds=Thresholds("green", ((1, "orange"),)),
                ),
                Query(
                    "sum by (instance) (amdgpu_exporter_source_abandoned_workers{NODE})",
                    "workers hanging",
                    thresholds=NONE_IS_GOOD,
                ),
                Query(
                    "min by (instance) (amdgpu_exporter_config_last_reload_successful{NODE})",
                    "configuration read",
                    thresholds=ONE_IS_GOOD,
                    names=YES_OR_NO,
                ),
                Query(
                    "sum by (instance)"
                    " (round(increase(amdgpu_exporter_rejected_requests_total{NODE}[$__range])))",
                    "requests turned away",
                    thresholds=Thresholds("green", ((1, "orange"),)),
                ),
            ),
            "table",
            width=24,
            height=7,
            labels=("instance",),
            sort="collectors failing",
            drill="amdgpu-node",
        ),
    ),
)

DASHBOARD = Dashboard(
    "reliability",
    "AMD GPU / Reliability",
    "RAS errors, bad pages against their threshold, lost devices, and whether the sources can be "
    "trusted.",
    (_STATE, _RAS, _DEVICES, _SOURCES),
    gpus="many",
    span="now-24h",
    annotations=(Annotation("GPU does not answer", "amdgpu_up{GPU} == 0"),),
)
