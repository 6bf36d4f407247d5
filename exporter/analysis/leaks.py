"""The leak detector over snapshots: samples in, a reading of the collector `leaks` out.

What it remembers is kept in the state directory. It starts afresh after a reboot, when a device was
away (as after a driver reload), and when its partitions change.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

from exporter.analysis.state import read_state, write_state
from exporter.collectors.leaks import Leaks
from exporter.leaks import ProcessUse, Sample, Thresholds, Verdict, Watch
from exporter.leaks.model import OTHERS
from exporter.snapshot import Device, Snapshot

FILE = "leaks.json"
SAVE_EVERY = 300.0
"""Seconds between two writes; what a crash loses of them is far less than a verdict takes."""
RETRY_AFTER = 30.0
"""Seconds between two attempts while writing fails."""
_SHARED = "shared"


class LeakWatch:
    """Follows the memory of every device and partition.

    Args:
        directory: where its memory is kept; None keeps it in memory only.
        thresholds: when it speaks.
    """

    def __init__(self, directory: Path | None, thresholds: Thresholds | None = None) -> None:
        self._path = None if directory is None else directory / FILE
        self._thresholds = thresholds
        self._watch = Watch(thresholds)
        self._boot_id: str | None = None
        self._away: dict[str, int] = {}
        """How often a device left the driver's list, by address: each time its memory is new."""
        self._gone: set[str] = set()
        self._saved_at = 0.0

    def open(self, boot_id: str | None, *, mend: bool = True) -> None:
        """Load what an earlier run in this boot kept.

        Args:
            boot_id: of this boot, None while it is not known.
            mend: set a damaged file aside.

        Raises:
            StateError: the file is damaged, and the history starts afresh.
        """
        if boot_id is None or boot_id == self._boot_id:
            return
        self._boot_id = boot_id
        if self._path is None:
            return
        afresh = "the histories of the VRAM leaks"
        kept = read_state(self._path, self._parse, afresh, mend=mend)
        if kept is not None and kept[0] == boot_id:
            self._watch, self._away = kept[1], kept[2]

    def _parse(self, kept: Any) -> tuple[object, Watch, dict[str, int]]:
        away = {str(address): int(times) for address, times in kept["away"].items()}
        return kept["boot_id"], Watch.restore(kept["devices"], self._thresholds), away

    def judge(self, snapshot: Snapshot, now: float) -> Snapshot:
        """The snapshot with a reading `leaks` for every device whose memory was read.

        Args:
            snapshot: of this poll.
            now: seconds of the readings' clock.
        """
        partitions: dict[str, list[Device]] = {}
        for device in snapshot.devices:
            partitions.setdefault(device.key.address, []).append(device)
        judged: list[Device] = []
        listed = {address for report in snapshot.sources for address in report.devices}
        for address, devices in partitions.items():
            if address in listed:
                self._gone.discard(address)
            elif listed and address not in self._gone:
                self._gone.add(address)
                self._away[address] = self._away.get(address, 0) + 1
            generation = f"{self._boot_id} {len(devices)} {self._away.get(address, 0)}"
            for device in devices:
                sample = _sample(device, devices, now)
                if sample is None:
                    judged.append(device)
                    continue
                name = f"{address} {device.key.partition or ''}".strip()
                verdict = self._watch.observe(name, sample, generation)
                leaks = _reading(verdict, snapshot.timestamp - now)
                judged.append(replace(device, readings={**device.readings, "leaks": leaks}))
        return replace(snapshot, devices=tuple(judged))

    def save(self, now: float, *, at_once: bool = False) -> bool:
        """Write what is known, every few minutes; whether it was written.

        Raises:
            StateError: it can't be written; the watch goes on in memory.
        """
        if self._path is None or self._boot_id is None:
            return False
        if not at_once and now - self._saved_at < SAVE_EVERY:
            return False
        self._saved_at = now - SAVE_EVERY + RETRY_AFTER
        kept = {"boot_id": self._boot_id, "away": self._away, "devices": self._watch.dump()}
        lost = "after a restart, VRAM leaks are judged from scratch"
        write_state(self._path, json.dumps(kept, separators=(",", ":")), lost)
        self._saved_at = now
        return True


def _sample(device: Device, of_socket: Iterable[Device], now: float) -> Sample | None:
    """What the readings of a poll say of one device or partition; None where memory is unknown.

    What the partitions share belongs to no compute process. It is judged only while no partition
    has an owner, since the driver holds memory there on their behalf.
    """
    memory = device.readings.get("memory")
    if memory is None or memory.used is None:
        return None
    activity = device.readings.get("activity")
    gfx = None if activity is None else activity.gfx
    owners = _owners(device)
    total = memory.total
    if device.key.partition == _SHARED:
        others = [other for other in of_socket if other.key.partition != _SHARED]
        total = sum(m.total or 0 for d in of_socket if (m := d.readings.get("memory")))
        owners = owners if all(_owners(other) == () for other in others) else None
    if total is None or not 0 <= memory.used <= total:
        return None
    return Sample(now, int(total), int(memory.used), gfx, owners)


def _owners(device: Device) -> tuple[ProcessUse, ...] | None:
    """Who holds memory, zombies left out: what they hold is nobody's."""
    processes = device.readings.get("processes")
    if processes is None or processes.count is None:
        return () if device.key.partition == _SHARED else None
    living = tuple(
        ProcessUse(holder.pid, holder.started or 0.0, holder.vram)
        for holder in processes.holders()
        if processes.state.get(str(holder.pid)) not in ("zombie", "gone")
    )
    rest = (ProcessUse(OTHERS, 0.0, processes.rest),) if processes.rest else ()
    return living + rest


def _reading(verdict: Verdict, to_unix: float) -> Leaks:
    """The verdict in the units of the page; its clock is turned into Unix time."""
    return Leaks(
        process=None if verdict.process is None else int(verdict.process),
        residue=None if verdict.residue is None else int(verdict.residue),
        growth=verdict.growth_bytes_per_second,
        unattributed=verdict.unattributed_bytes,
        exhaustion=verdict.exhaustion_seconds,
        evidence=verdict.evidence,
        since=None if verdict.since_seconds is None else verdict.since_seconds + to_unix,
        pace=verdict.bytes_per_second,
        pid=verdict.pid,
        confidence=verdict.confidence,
    )
