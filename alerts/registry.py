"""All alerts and recording rules; a new domain is a file in `domains/` and a line here."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from alerts.domains import chain, devices, fleet, heat, memory, pcie, ras, xgmi
from alerts.model import Alert, Domain
from alerts.recording import GROUPS

DOMAINS: tuple[Domain, ...] = (
    chain.DOMAIN,
    devices.DOMAIN,
    heat.DOMAIN,
    pcie.DOMAIN,
    xgmi.DOMAIN,
    ras.DOMAIN,
    memory.DOMAIN,
    fleet.DOMAIN,
)
RECORDINGS = GROUPS

ALERTS: Mapping[str, Alert] = {alert.name: alert for d in DOMAINS for alert in d.alerts}
"""By name."""

BLINDED = ("AmdGpuPollStale", "AmdGpuSourceDown", "AmdGpuCollectorFailing", "AmdGpuValuesRejected")
"""What an exporter that is down can only repeat."""


def causes(alert: Alert) -> Iterator[str]:
    """The alerts that inhibit this one: a lost GPU all of that GPU, and those it names itself."""
    if alert.scope == "gpu" and alert.name != "AmdGpuDown":
        yield "AmdGpuDown"
    if alert.name in BLINDED:
        yield "AmdGpuExporterDown"
    yield from alert.inhibited_by
