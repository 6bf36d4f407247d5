"""A registry of collectors for the tests."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Named:
    """As much of a collector as settings need."""

    name: str
    summary: str
    default: bool = True


COLLECTORS = (
    Named("temperature", "Temperatures, and 100% of their limits"),
    Named("xgmi", "XGMI links | between GPUs"),
    Named("processes", "Memory per process", default=False),
)
