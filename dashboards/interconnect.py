"""Interconnect: XGMI between the GPUs of a node, and PCIe to its host."""

from __future__ import annotations

from dashboards.model import (
    OF_GPU,
    ONE_IS_GOOD,
    Dashboard,
    Link,
    Panel,
    Query,
    Row,
    Thresholds,
    below,
)
from dashboards.queries import PEER

_SHARE = Thresholds(
    "transparent", ((0.01, "blue"), (0.3, "green"), (0.7, "yellow"), (0.85, "orange"))
)
"""Of a link's peak: idle, some, busy, near the peak."""


def _matrix(query: str) -> str:
    """A query over links as a matrix from GPU to GPU."""
    return f"""
        max by (from, to) (
          label_replace(({query}) * {PEER}, "from", "GPU $1", "gpu", "(.+)")
        )
    """


_MATRIX = Row(
    "XGMI from GPU to GPU",
    (
        Panel(
            "XGMI matrix",
            "What each GPU (line) sends to each peer (column), in per cent of the link's peak, "
            "over the time shown. A field of another colour than its neighbours is a link "
            "that idled, or was down, for a part of it. Empty: no link.",
            "percentunit",
            (
                Query(
                    _matrix("""
                      sum by (<gpu>, peer)
                        (rate(amdgpu_xgmi_transmit_bytes_total{GPU}[$__range]))
                      / sum by (<gpu>, peer) (amdgpu_xgmi_link_max_bytes_per_second{GPU})
                    """),
                    "share of peak",
                ),
            ),
            "matrix",
            _SHARE,
            labels=("from", "to"),
            height=9,
            low=0,
            high=1,
            decimals=0,
        ),
        Panel(
            "State of the links",
            "1 is up, 0 is down, at the end of the GPU of the line. A link that was never wired "
            "is absent.",
            "none",
            (
                Query(
                    _matrix("min by (<gpu>, peer) (amdgpu_xgmi_link_up{GPU})"),
                    "state",
                ),
            ),
            "matrix",
            ONE_IS_GOOD,
            labels=("from", "to"),
            height=9,
            names={0: ("down", "red"), 1: ("up", "green")},
        ),
    ),
)

_XGMI = Row(
    "XGMI over time",
    (
        Panel(
            "Busiest link of each GPU",
            "In per cent of its peak, one way. Near 100 % the collective waits for this link.",
            "percentunit",
            (
                Query(
                    "max by (<gpu>) (rate(amdgpu_xgmi_transmit_bytes_total{GPU}"
                    "[$__rate_interval]) / amdgpu_xgmi_link_max_bytes_per_second{GPU})",
                ),
            ),
            low=0,
            high=1,
            drill="amdgpu-gpu",
        ),
        Panel(
            "XGMI traffic",
            "Bytes per second over all links of each GPU.",
            "Bps",
            (
                Query(
                    "sum by (<gpu>) (rate(amdgpu_xgmi_receive_bytes_total{GPU}[$__rate_interval]))",
                    f"{OF_GPU} received",
                ),
                Query(
                    "sum by (<gpu>)"
                    " (rate(amdgpu_xgmi_transmit_bytes_total{GPU}[$__rate_interval]))",
                    f"{OF_GPU} sent",
                ),
            ),
            low=0,
            drill="amdgpu-gpu",
        ),
        Panel(
            "Quietest link beside its busiest peer",
            "The least busy link of each GPU over its busiest; near 0 one link idles while others "
            "work.",
            "percentunit",
            (
                Query(
                    "min by (<gpu>) (rate(amdgpu_xgmi_transmit_bytes_total{GPU}"
                    "[$__rate_interval])) / (max by (<gpu>) (rate("
                    "amdgpu_xgmi_transmit_bytes_total{GPU}[$__rate_interval])) > 0)",
                ),
            ),
            thresholds=below(0.5, 0.1),
            low=0,
            high=1,
            width=8,
            drill="amdgpu-gpu",
        ),
        Panel(
            "XGMI errors",
            "Errors of the XGMI block, per minute.",
            "none",
            (
                Query(
                    "rate(amdgpu_xgmi_errors_total{GPU}[$__rate_interval]) * 60",
                    f"{OF_GPU} {{{{severity}}}}",
                ),
            ),
            low=0,
            width=8,
            drill="amdgpu-gpu",
        ),
        Panel(
            "Links that are down",
            "Ends of links that are down now. Nothing here is the good case.",
            "none",
            (
                Query(
                    "min by (instance, gpu, link, peer) (amdgpu_xgmi_link_up{GPU}) == 0",
                    "state",
                ),
            ),
            "table",
            ONE_IS_GOOD,
            labels=("instance", "gpu", "link", "peer"),
            width=8,
            names={0: ("down", "red"), 1: ("up", "green")},
            drill="amdgpu-gpu",
        ),
    ),
)

_PCIE = Row(
    "PCIe to the host",
    (
        Panel(
            "PCIe links",
            "Speed of one lane and number of lanes, now and at most. An idle link may save power "
            "at a lower speed; a busy one should not.",
            "none",
            (
                Query(
                    "max by (instance, gpu) (amdgpu_pcie_link_transfers_per_second{GPU}) / 1e9",
                    "GT/s",
                ),
                Query(
                    "max by (instance, gpu) (amdgpu_pcie_link_max_transfers_per_second{GPU}) / 1e9",
                    "GT/s at most",
                ),
                Query("max by (instance, gpu) (amdgpu_pcie_link_width_lanes{GPU})", "lanes"),
                Query(
                    "max by (instance, gpu) (amdgpu_pcie_link_max_width_lanes{GPU})",
                    "lanes at most",
                ),
                Query(
                    """
                    max by (instance, gpu) (
                      amdgpu_pcie_link_transfers_per_second{GPU}
                      * amdgpu_pcie_link_width_lanes{GPU}
                      / amdgpu_pcie_link_max_transfers_per_second{GPU}
                      / amdgpu_pcie_link_max_width_lanes{GPU}
                    )
                    """,
                    "of the maximum",
                    "percentunit",
                    below(1, 0.5),
                ),
            ),
            "table",
            labels=("instance", "gpu"),
            drill="amdgpu-gpu",
        ),
        Panel(
            "PCIe replays",
            "Packets sent again, per hour. Above 100 an hour the slot, riser or cable deserves a "
            "look.",
            "none",
            (Query("rate(amdgpu_pcie_replays_total{GPU}[$__rate_interval]) * 3600"),),
            thresholds=Thresholds("green", ((100, "orange"),)),
            low=0,
            drill="amdgpu-gpu",
            see=Link("amdgpu-gpu", "PCIe replays"),
        ),
        Panel(
            "PCIe errors by AER",
            "Errors that Advanced Error Reporting counts, per minute. Non-fatal and fatal ones "
            "are never normal.",
            "none",
            (
                Query(
                    "rate(amdgpu_pcie_aer_errors_total{GPU}[$__rate_interval]) * 60 > 0",
                    f"{OF_GPU} {{{{severity}}}}",
                ),
            ),
            width=8,
            low=0,
            drill="amdgpu-gpu",
        ),
        Panel(
            "NAKs",
            "Packets refused because they arrived damaged, per minute and direction.",
            "none",
            (
                Query(
                    "rate(amdgpu_pcie_naks_total{GPU}[$__rate_interval]) * 60 > 0",
                    f"{OF_GPU} {{{{direction}}}}",
                ),
            ),
            width=8,
            low=0,
            drill="amdgpu-gpu",
        ),
        Panel(
            "Recoveries and retrained links",
            "How often the link left its working state to recover, and how often the replay "
            "counter rolled over, which retrains the link; per hour.",
            "none",
            (
                Query(
                    "rate(amdgpu_pcie_l0_recoveries_total{GPU}[$__rate_interval]) * 3600 > 0",
                    f"{OF_GPU} recoveries",
                ),
                Query(
                    "rate(amdgpu_pcie_replay_rollovers_total{GPU}[$__rate_interval]) * 3600 > 0",
                    f"{OF_GPU} retrained",
                ),
            ),
            width=8,
            low=0,
            drill="amdgpu-gpu",
        ),
    ),
)

DASHBOARD = Dashboard(
    "interconnect",
    "AMD GPU / Interconnect",
    "XGMI from GPU to GPU in per cent of peak, links that are down or idle, and the PCIe links.",
    (_MATRIX, _XGMI, _PCIE),
    instances="one",
    gpus="many",
)
