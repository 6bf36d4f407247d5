"""Opening the source `simulated` in its worker."""

from __future__ import annotations

from exporter.simulation.amdsmi import VERSION, SimulatedAmdSmi
from exporter.simulation.clock import Clock, SimulatedClock
from exporter.simulation.files import SimulatedFiles
from exporter.simulation.node import SimulatedNode
from exporter.simulation.spec import SimulationSpec
from exporter.sources.amdsmi import AmdSmiSession
from exporter.sources.sysfs import SysfsSession

__all__ = ["SimulatedClock", "open_sessions"]

_VERSIONS = {"amdsmi_version": f"{VERSION} (simulated)", "rocm_version": "simulated"}


def open_sessions(
    spec: SimulationSpec, clock: Clock | None = None
) -> tuple[AmdSmiSession, SysfsSession]:
    """Sessions over the simulated node, to be polled like those over a real one.

    When devices come or go, open new ones: the node's time goes on, since it comes from the
    specification.

    Args:
        spec: what to simulate.
        clock: the node's time; `begin` and the times of the readings belong to it. By default
            `SimulatedClock(spec.speed, spec.started)`, which every process can make for itself.
    """
    node = SimulatedNode(spec, clock or SimulatedClock(spec.speed, spec.started))
    files = SimulatedFiles(node)
    return AmdSmiSession(SimulatedAmdSmi(node), files, _VERSIONS), SysfsSession(files)
