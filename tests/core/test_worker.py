"""The worker sends what changed, and the daemon keeps what did not."""

from collections.abc import Mapping
from typing import Any

import pytest

from exporter.sources.supervisor import _decode
from exporter.sources.worker import Opened, Worker, reader_ids

from .nodes import ADDRESS, amdsmi_session, library

READERS = [name for name, (_, reader) in reader_ids().items() if reader.source == "amdsmi"]


class Asked:
    """A worker for one device, and the daemon's memory of what it sent."""

    def __init__(self, table: Mapping[str, object]) -> None:
        session = amdsmi_session(library(lambda: None, get_gpu_metrics_info=lambda _: dict(table)))
        self._sent: list[Mapping[str, Any]] = []
        self._now = 0.0
        self._worker = Worker(Opened({"amdsmi": session}, lambda: self._now), self._sent.append)
        self.known: dict[tuple[str, str, str], Any] = {}

    def poll(self) -> Mapping[str, Any]:
        """The readings that are sent for the device."""
        self._now += 5.0
        self._worker.answer({"poll": 1, "readers": READERS})
        return next(answer for answer in reversed(self._sent) if "device" in answer)

    def decoded(self, sent: Mapping[str, Any]) -> Mapping[str, Any]:
        """The readings as the daemon has them."""
        return _decode(sent, ADDRESS, self.known).readings[""]


def test_only_what_changed_is_sent() -> None:
    """What is as it was is the same object as before."""
    table = {"temperature_hotspot": 45, "current_socket_power": 140, "system_clock_counter": 1}
    asked = Asked(table)
    first = asked.poll()
    before = asked.decoded(first)
    table.update(current_socket_power=150, system_clock_counter=2)
    second = asked.poll()
    after = asked.decoded(second)

    assert all(first["readings"][""].values())
    changed = {reader for reader, fields in second["readings"][""].items() if fields is not None}
    assert {"power/0", "xgmi/0"} == changed
    assert before.keys() == after.keys()
    assert changed == {reader for reader in after if after[reader] is not before[reader]}
    assert (140, 150) == (before["power/0"]["watts"], after["power/0"]["watts"])


def test_what_was_never_sent_is_nonsense() -> None:
    """A worker starts with nothing known of it."""
    with pytest.raises(KeyError):
        _decode({"time": 1.0, "readings": {"": {"power/0": None}}}, ADDRESS, {})
