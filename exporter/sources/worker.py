"""The process that reads one source: a loop over requests, nothing but the standard library.

Started by `exporter.sources.supervisor` with the arguments SOURCE REPLY_FD [ARGUMENT]. Requests
come as JSON lines on standard input, answers go as JSON lines to the descriptor REPLY_FD, because
vendor code prints to standard output. The end of standard input ends the worker; so does the end of
the daemon, even while vendor code hangs.

Answers, in this order:

    {"hello": {"node": {…}, "devices": [[address, index], …]}}   the source is open
    {"unavailable": [reason, remedy]}                            or it is not; the worker ends
    {"changed": true}                                            devices came or went; it ends
    {"start": address}                                           before a device is touched
    {"device": address, "time": …, …}                            what it answered; fields that are
                                                                 as they were sent last are null
    {"end": poll}                                                the request is done
"""

from __future__ import annotations

import json
import os
import resource
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial

from exporter.collectors import COLLECTORS
from exporter.collectors.base import Reader
from exporter.sources.files import KernelFiles
from exporter.sources.orphan import end_with_parent
from exporter.sources.session import POD_RESOURCES, Memo, Session, UnavailableError
from exporter.values import Wire, to_wire

LONG = 4.5
"""Seconds; AMD SMI up to 6.1 waits 5 when it starts, and for ever when it reads, for a lock that a
killed program has left behind."""
LOCKED = (
    "it took long to start: maybe a program that was killed left a lock behind in "
    "/dev/shm/rocm_smi*; if so, stop all that use ROCm SMI or AMD SMI, and delete these files"
)
WHOLE_DEVICE = ""
"""The key of the whole device where partitions have their numbers."""


@dataclass(frozen=True, slots=True)
class Opened:
    """An opened source.

    Attributes:
        sessions: by the name under which readers ask for them. The simulated source has one for
            each source that it stands for.
        clock: the time of the readings, in seconds.
    """

    sessions: Mapping[str, Session]
    clock: Callable[[], float]


def _open_amdsmi(_: str) -> Opened:
    from exporter.sources.amdsmi import AmdSmiSession
    from exporter.sources.amdsmi_library import load

    loaded = load()
    versions = {
        "amdsmi_version": loaded.library_version,
        "amdsmi_wrapper_version": loaded.wrapper_version,
        "amdsmi_wrapper_path": loaded.wrapper_path,
        "amdsmi_library_path": loaded.library_path,
    }
    session = AmdSmiSession(loaded.api, KernelFiles(), versions)
    return Opened({"amdsmi": session}, time.monotonic)


def _open_rocm_smi(_: str) -> Opened:
    from exporter.sources.rocm_smi import open_session

    return Opened({"rocm_smi": open_session(KernelFiles())}, time.monotonic)


def _open_sysfs(_: str) -> Opened:
    from exporter.sources.sysfs import SysfsSession

    return Opened(
        {"sysfs": SysfsSession(KernelFiles(), own=(os.getpid(), os.getppid()))}, time.monotonic
    )


def _open_pod_resources(socket: str) -> Opened:
    from exporter.sources.pod_resources import PodResourcesSession, kubelet

    return Opened(
        {POD_RESOURCES: PodResourcesSession(kubelet(socket), KernelFiles())}, time.monotonic
    )


def _open_simulated(argument: str) -> Opened:
    from exporter.simulation.clock import SimulatedClock
    from exporter.simulation.source import open_sessions
    from exporter.simulation.spec import SimulationSpec

    spec = SimulationSpec.from_json(argument)
    clock = SimulatedClock(spec.speed, spec.started)
    amdsmi, sysfs = open_sessions(spec, clock)
    return Opened({"amdsmi": amdsmi, "sysfs": sysfs}, clock.now)


OPENERS: Mapping[str, Callable[[str], Opened]] = {
    "amdsmi": _open_amdsmi,
    "rocm_smi": _open_rocm_smi,
    "sysfs": _open_sysfs,
    POD_RESOURCES: _open_pod_resources,
    "simulated": _open_simulated,
}
"""Every source, by its name. An argument is the simulated node's, or the kubelet's socket."""


def reader_ids() -> dict[str, tuple[str, Reader]]:
    """Id to collector name and reader: how daemon and worker name a reader to each other."""
    return {
        f"{collector.name}/{number}": (collector.name, reader)
        for collector in COLLECTORS
        for number, reader in enumerate(collector.readers)
    }


class Worker:
    """The loop. `send` takes one answer."""

    def __init__(self, opened: Opened, send: Callable[[Mapping[str, object]], None]) -> None:
        self._opened = opened
        self._send = send
        self._readers = reader_ids()
        self._sessions = tuple(opened.sessions.values())
        self._memo = Memo()
        self._sent: dict[tuple[str, str, str], dict[str, Wire]] = {}
        self._listed = {
            name: frozenset(address for address, _ in session.devices())
            for name, session in opened.sessions.items()
        }

    def hello(self) -> None:
        """Tell which devices there are, and the node's versions and counts."""
        node: dict[str, Wire] = {}
        devices: dict[str, int] = {}
        for session in self._sessions:
            node.update({name: to_wire(value) for name, value in session.node().items()})
            for address, index in session.devices():
                devices.setdefault(address, index)
        self._send({"hello": {"node": node, "devices": list(devices.items())}})

    def answer(self, request: Mapping[str, object]) -> bool:
        """One request; false if the devices changed and the worker must be replaced."""
        now = self._opened.clock()
        self._memo.now = now
        for session in self._sessions:
            session.begin(now)
        if any(session.changed() for session in self._sessions):
            self._send({"changed": True})
            return False
        wanted = request["readers"]
        chosen = [
            (name, *self._readers[name])
            for name in (wanted if isinstance(wanted, list) else ())
            if self._readers[name][1].source in self._opened.sessions
        ]
        only, skip = request.get("only"), request.get("skip")
        for address in dict.fromkeys(a for listed in self._listed.values() for a in sorted(listed)):
            if isinstance(only, list) and address not in only:
                continue
            if isinstance(skip, list) and address in skip:
                continue
            self._device(address, chosen)
        self._send({"end": request["poll"]})
        return True

    def _device(self, address: str, chosen: list[tuple[str, str, Reader]]) -> None:
        self._send({"start": address})
        moment = self._opened.clock()
        answer: dict[str, object] = {"device": address, "time": moment}
        if any(session.suspended(address) for session in self._sessions):
            self._send({**answer, "suspended": True})
            return
        readings: dict[str, dict[str, dict[str, Wire] | None]] = {}
        durations: dict[str, float] = {}
        errors: dict[str, str] = {}
        begin = time.perf_counter()
        for name, collector, reader in chosen:
            try:
                if reader.every:
                    read = partial(self._read, address, reader)
                    views = self._memo.get((address, name), reader.every, read)
                else:
                    views = self._read(address, reader)
                for partition, fields in views:
                    place = (address, partition, name)
                    same = self._sent.get(place) == fields
                    readings.setdefault(partition, {})[name] = None if same else fields
                    self._sent[place] = fields
            except Exception as error:  # a reader's fault costs its own fields, no other's
                errors[collector] = f"{type(error).__name__}: {error}"[:200]
            begin, before = time.perf_counter(), begin
            durations[collector] = round(durations.get(collector, 0.0) + begin - before, 6)
        self._send({**answer, "readings": readings, "durations": durations, "errors": errors})

    def _read(self, address: str, reader: Reader) -> list[tuple[str, dict[str, Wire]]]:
        if address not in self._listed[reader.source]:
            return []
        session = self._opened.sessions[reader.source]
        return [
            (
                view.partition or WHOLE_DEVICE,
                {field: to_wire(value) for field, value in reader.read(view).items()},
            )
            for view in session.views(address, per_partition=reader.per_partition)
        ]


def main(arguments: list[str]) -> int:
    """Open the source and answer requests until standard input ends."""
    source, reply_fd, *rest = arguments
    end_with_parent()
    # Vendor crashes must not fill the disk. 1 and not 0, since only 1 also stops the kernel from
    # handing a core to a program (core_pattern with a pipe).
    resource.setrlimit(resource.RLIMIT_CORE, (1, 1))
    reply = os.fdopen(int(reply_fd), "wb", buffering=0)
    encode = json.JSONEncoder(separators=(",", ":")).encode
    held = b""

    def send(answer: Mapping[str, object]) -> None:
        nonlocal held
        held += encode(answer).encode() + b"\n"
        if "device" not in answer:  # that goes with the start of the next, or the end
            reply.write(held)
            held = b""

    begin = time.monotonic()
    try:
        worker = Worker(OPENERS[source](rest[0] if rest else ""), send)
    except UnavailableError as error:
        send({"unavailable": [error.reason, error.remedy]})
        return 0
    worker.hello()
    if time.monotonic() - begin > LONG:
        # Kept by the supervisor, and told in the log if this worker hangs.
        sys.stderr.write(f"{LOCKED}\n")
    for line in sys.stdin.buffer:
        if not worker.answer(json.loads(line)):
            break
    # The vendor's own shutdown can crash or hang; there is nothing in this process to save.
    reply.close()
    os._exit(0)
