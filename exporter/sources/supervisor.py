"""Keeps the workers alive and on time, and collects what they answer.

One thread, one selector, no waiting without an end. A device that hangs, or kills its worker, is
left out by the replacement and asked again by a probe: a worker for that device alone, so that the
others go on being read. A process that can't be killed (state D) is abandoned, counted, and its
device left alone until that process is gone.
"""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import psutil

from exporter.values import NO_ANSWER, Absent, FieldValue, from_wire

RESTART_REASONS = (
    "crash",
    "hang",
    "init_hang",
    "memory",
    "open_files",
    "protocol",
    "devices_changed",
)
"""Why a worker was replaced, the label `reason` of amdgpu_exporter_source_restarts_total."""


@dataclass(frozen=True, slots=True)
class Limits:
    """What a worker may take; all in seconds and bytes.

    Attributes:
        interval: between two polls.
        init: until the source is open. Eight GPUs take 0.03 s without hardware, several seconds
            where a driver has to wake them.
        resident_bytes: of memory; AMD SMI 10.1 with eight GPUs takes about 40 MiB.
        open_files: descriptors; AMD SMI opens its devices anew and closes them.
        kill: until a killed process counts as unkillable.
        abandoned: how many unkillable processes a source may leave behind.
    """

    interval: float
    init: float = 15.0
    resident_bytes: int = 512 << 20
    open_files: int = 256
    kill: float = 1.0
    abandoned: int = 3

    @property
    def device(self) -> float:
        """Seconds for one device in one poll."""
        return min(max(0.4 * self.interval, 1.0), 10.0)

    @property
    def cycle(self) -> float:
        """Seconds after which a poll is closed with what has been answered."""
        return 1.6 * self.interval

    @property
    def patience(self) -> float:
        """Seconds for which a poll waits for a worker that is still starting."""
        return 0.8 * self.interval


@dataclass(frozen=True, slots=True)
class Answer:
    """What one source answered about one device in one poll.

    Attributes:
        time: when the device was read, in seconds of the source's clock.
        suspended: the device sleeps and was not touched.
        readings: by partition ("" for the whole device), then by reader id.
        durations: seconds by collector.
        errors: by collector, a reader that failed; its fields are missing.
    """

    time: float
    suspended: bool
    readings: Mapping[str, Mapping[str, Mapping[str, FieldValue]]]
    durations: Mapping[str, float]
    errors: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Usage:
    """What a worker costs: CPU seconds of all its incarnations, resident bytes, descriptors."""

    cpu_seconds: float
    resident_bytes: int
    open_files: int


@dataclass(frozen=True, slots=True)
class SourceReport:
    """A source after a poll.

    Attributes:
        up: it answered this poll.
        paused: it rests, since the other sources give all that it could.
        reason, remedy: why it is not up, and what to do; empty when up.
        node: versions and counts.
        devices: PCI address to the source's own index, as last listed.
        answers: by PCI address.
        unanswered: PCI address to why the source has no answer of a device it lists.
        restarts: by reason, since the daemon started.
        usage: of the worker; None if there is none.
        abandoned: processes that could not be killed and still exist.
    """

    name: str
    up: bool
    paused: bool
    reason: str
    remedy: str
    node: Mapping[str, FieldValue]
    devices: Mapping[str, int]
    answers: Mapping[str, Answer]
    unanswered: Mapping[str, Absent]
    restarts: Mapping[str, int]
    usage: Usage | None
    abandoned: int


class Launcher(Protocol):
    """How a Python module is started as a process of its own."""

    def command(self, arguments: Sequence[str]) -> list[str]:
        """The whole command line for Python's `arguments`."""

    def environment(self) -> Mapping[str, str]:
        """Variables to add to the environment."""


class PythonLauncher:
    """This interpreter, this environment."""

    def command(self, arguments: Sequence[str]) -> list[str]:
        return [sys.executable, *arguments]

    def environment(self) -> Mapping[str, str]:
        return {}


class Process(Protocol):
    """What the supervisor needs of a process; `subprocess.Popen` has it."""

    @property
    def pid(self) -> int: ...

    def poll(self) -> int | None: ...

    def kill(self) -> None: ...


class _Worker:
    """One incarnation of a worker: its process, pipes, and what it is busy with."""

    def __init__(self, source: str, argument: str, launcher: Launcher, deadline: float) -> None:
        read_fd, write_fd = os.pipe()
        try:
            extra = [argument] if argument else []
            self._popen = subprocess.Popen(  # noqa: S603  # our own interpreter and module
                launcher.command(["-m", "exporter.sources.worker", source, str(write_fd), *extra]),
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,  # vendor code prints there
                stderr=subprocess.DEVNULL,
                pass_fds=(write_fd,),
                env={**os.environ, **launcher.environment()},
                start_new_session=True,  # a Ctrl-C in the terminal is the daemon's to handle
            )
        except OSError:
            os.close(read_fd)
            raise
        finally:
            os.close(write_fd)
        os.set_blocking(read_fd, False)
        self.process: Process = self._popen
        self.reply_fd = read_fd
        self.open = False
        self.deadline = deadline
        self.device: str | None = None
        self.polling: int | None = None
        self._buffer = bytearray()
        self._stats: psutil.Process | None = None
        with contextlib.suppress(psutil.Error):
            self._stats = psutil.Process(self.process.pid)

    def request(self, poll: int, request: Mapping[str, object]) -> bool:
        """Send a request; false if the worker is gone."""
        assert self._popen.stdin is not None  # noqa: S101  # opened with a pipe above
        try:
            self._popen.stdin.write(json.dumps({"poll": poll, **request}).encode() + b"\n")
            self._popen.stdin.flush()
        except OSError:
            return False
        self.polling = poll
        return True

    def receive(self) -> tuple[list[dict[str, object]], bool]:
        """The answers that have come, and whether the pipe is at its end.

        Raises:
            ValueError: something else than JSON objects came.
        """
        ended = False
        while True:
            try:
                chunk = os.read(self.reply_fd, 1 << 16)
            except BlockingIOError:
                break
            if not chunk:
                ended = True
                break
            self._buffer += chunk
        *lines, rest = self._buffer.split(b"\n")
        self._buffer = bytearray(rest)
        if len(self._buffer) > 1 << 24:
            raise ValueError("an answer without an end")
        answers = [json.loads(line) for line in lines]
        if not all(isinstance(answer, dict) for answer in answers):
            raise ValueError("an answer that is no object")
        return answers, ended

    def usage(self) -> tuple[float, int, int] | None:
        """CPU seconds, resident bytes and open descriptors, while the process lives."""
        if self._stats is None:
            return None
        try:
            with self._stats.oneshot():
                times = self._stats.cpu_times()
                return (
                    times.user + times.system,
                    self._stats.memory_info().rss,
                    self._stats.num_fds(),
                )
        except psutil.Error:
            return None

    def exit_text(self) -> str:
        """How the process ended, for the log."""
        status = self.process.poll()
        if status is None:
            return "it closed its pipe"
        return f"killed by signal {-status}" if status < 0 else f"exit status {status}"

    def close(self) -> None:
        """Close the pipes; a healthy worker ends by itself then."""
        os.close(self.reply_fd)
        if self._popen.stdin is not None:
            with contextlib.suppress(OSError):
                self._popen.stdin.close()


@dataclass(slots=True)
class _Quarantine:
    """A device that hung, or killed its worker.

    Attributes:
        why: what happened, for the support report.
        failures: how often in a row.
        until: when it may be asked again.
        process: the worker that hangs on it, as long as it can't be killed.
    """

    why: str
    failures: int
    until: float
    process: Process | None = None


@dataclass(slots=True)
class _Cycle:
    """What has come in during one poll."""

    poll: int
    begin: float
    answers: dict[str, Answer] = field(default_factory=dict)
    asked: bool = False
    ended: bool = False


class Source:
    """One source: its worker, its probe, and what is known of its devices."""

    def __init__(
        self,
        name: str,
        launcher: Launcher,
        limits: Limits,
        *,
        argument: str = "",
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.name = name
        self.limits = limits
        self.readers: tuple[str, ...] = ()
        self.paused = False
        self._launcher = launcher
        self._argument = argument
        self._clock = clock
        self._worker: _Worker | None = None
        self._probe: _Worker | None = None
        self._probed: str | None = None
        self._node: dict[str, FieldValue] = {}
        self._devices: dict[str, int] = {}
        self._quarantined: dict[str, _Quarantine] = {}
        self._abandoned: list[Process] = []
        self._dying: list[tuple[Process, float, str | None]] = []
        self._restarts = dict.fromkeys(RESTART_REASONS, 0)
        self._failures = 0
        self._not_before = 0.0
        self._reason = "it has not been asked yet"
        self._remedy = ""
        self._cpu_before = 0.0
        self._usage: Usage | None = None
        self._cycle = _Cycle(0, 0.0)

    # ------------------------------------------------------------------ a poll, from outside

    def begin(self, poll: int) -> None:
        """Start a poll."""
        self._cycle = _Cycle(poll, self._clock())
        self._advance()

    def descriptors(self) -> list[int]:
        """What to wait on."""
        return [worker.reply_fd for worker in (self._worker, self._probe) if worker is not None]

    def wait_until(self) -> float | None:
        """Until when this poll must wait for the source; None if it need not wait."""
        worker, begin = self._worker, self._cycle.begin
        if self._cycle.ended or self.paused:
            return None
        if worker is not None and worker.open:
            return min(worker.deadline, begin + self.limits.cycle)
        patience = self.limits.init if self._cycle.poll == 1 else self.limits.patience
        if worker is None and self._not_before > begin + patience:
            return None
        moment = begin + patience
        return moment if worker is None else min(worker.deadline, moment)

    def attend(self) -> None:
        """Take in what has come and act on deadlines; never waits."""
        for worker in (self._worker, self._probe):
            if worker is not None:
                self._attend(worker)
        self._advance()

    def report(self) -> SourceReport:
        """The source after the poll."""
        self._measure()
        cycle = self._cycle
        unanswered: dict[str, Absent] = {}
        for address in self._devices:
            if address not in cycle.answers:
                held = self._quarantined.get(address)
                why = held.why if held else self._reason or "it was not reached in time"
                unanswered[address] = Absent(NO_ANSWER, f"{self.name}: {why}")
        up = self._worker is not None and self._worker.open and bool(cycle.asked)
        return SourceReport(
            name=self.name,
            up=up,
            paused=self.paused,
            reason="" if up or self.paused else self._reason or "it is starting",
            remedy="" if up or self.paused else self._remedy,
            node=self._node,
            devices=self._devices,
            answers=cycle.answers,
            unanswered={} if self.paused else unanswered,
            restarts=dict(self._restarts),
            usage=self._usage,
            abandoned=len(self._abandoned),
        )

    def hurry(self) -> None:
        """Try again now: something changed that may have been in the way."""
        self._not_before = 0.0
        self._failures = 0

    def pause(self) -> None:
        """Stop the worker, since no field is wanted from this source; `resume` starts it again."""
        self.paused = True
        for worker in (self._worker, self._probe):
            if worker is not None:
                self._kill(worker)

    def resume(self) -> None:
        """Start reading again."""
        self.paused = False
        self.hurry()

    def stop(self) -> None:
        """End every process; those that can't be killed are left to the kernel."""
        for worker in (self._worker, self._probe):
            if worker is not None:
                self._kill(worker)
        limit = self._clock() + self.limits.kill
        while self._dying and self._clock() < limit:
            self._reap()
            time.sleep(0.01)

    # ------------------------------------------------------------------ inside

    def _attend(self, worker: _Worker) -> None:
        try:
            answers, ended = worker.receive()
            for answer in answers:
                self._take(worker, answer)
                if worker not in (self._worker, self._probe):
                    return
        except (ValueError, KeyError, TypeError) as error:
            self._failed(worker, "protocol", f"it answered nonsense: {error}")
            return
        if ended:
            what = worker.exit_text()
            if worker.device:
                self._failed(worker, "crash", f"its worker died reading {worker.device} ({what})")
            else:
                self._failed(worker, "crash", f"its worker died ({what})")
        elif self._clock() >= worker.deadline:
            if worker.open and worker.device:
                self._failed(worker, "hang", f"{worker.device} did not answer in time")
            elif worker.open:
                self._failed(worker, "hang", "its worker stopped answering")
            else:
                self._failed(worker, "init_hang", "it did not open in time")

    def _take(self, worker: _Worker, answer: dict[str, object]) -> None:
        now = self._clock()
        if "start" in answer:
            worker.device = str(answer["start"])
            worker.deadline = now + self.limits.device
        elif "device" in answer:
            address = str(answer["device"])
            self._cycle.answers[address] = _decode(answer)
            worker.device = None
            worker.deadline = now + self.limits.device
        elif "end" in answer:
            worker.polling = None
            worker.deadline = float("inf")
            self._failures = 0
            if worker is self._probe:
                self._quarantined.pop(self._probed or "", None)
                self._kill(worker)
            elif answer["end"] == self._cycle.poll:
                self._cycle.ended = True
        elif "hello" in answer:
            worker.open = True
            worker.deadline = float("inf")
            if worker is self._worker:
                self._reason = self._remedy = ""
                self._greet(answer["hello"])
        elif "unavailable" in answer:
            told = answer["unavailable"]
            if not isinstance(told, list) or len(told) != 2:
                raise ValueError("unavailable without reason and remedy")
            self._kill(worker)
            if worker is not self._probe:
                self._reason, self._remedy = str(told[0]), str(told[1])
                self._devices = {}
                self._back_off()
        elif "changed" in answer:
            self._restarts["devices_changed"] += 1
            self._kill(worker)
        else:
            raise ValueError(f"unknown answer {list(answer)[:3]}")

    def _greet(self, hello: object) -> None:
        if not isinstance(hello, dict):
            raise ValueError("hello is no object")
        self._node = {name: from_wire(value) for name, value in hello["node"].items()}
        self._devices = {str(address): int(index) for address, index in hello["devices"]}
        for gone in self._quarantined.keys() - self._devices.keys():
            del self._quarantined[gone]

    def _failed(self, worker: _Worker, reason: str, what: str) -> None:
        """A worker hung, died or went wild: replace it, and leave out the device to blame."""
        self._restarts[reason] += 1
        blamed = worker.device
        if worker is self._probe:
            blamed = self._probed
        self._kill(worker, blamed)
        if blamed is None:
            self._reason = what
            self._remedy = f"see `amdgpu-exporter support` and the kernel log for {self.name}"
            self._back_off()
            return
        held = self._quarantined.get(blamed)
        failures = held.failures + 1 if held else 1
        delay = min(self.limits.interval * 2 ** (failures - 1), 300.0)
        self._quarantined[blamed] = _Quarantine(
            what, failures, self._clock() + delay, worker.process
        )

    def _back_off(self) -> None:
        self._failures += 1
        self._not_before = self._clock() + min(2.0**self._failures, 300.0)

    def _kill(self, worker: _Worker, device: str | None = None) -> None:
        """End a worker. Not even a healthy one is asked to: vendor shutdown code can hang."""
        usage = worker.usage()
        if usage is not None:
            self._cpu_before += usage[0]
        worker.close()
        worker.process.kill()
        self._dying.append((worker.process, self._clock() + self.limits.kill, device))
        if worker is self._worker:
            self._worker = None
            self._cycle.asked = False  # its replacement may still answer this poll
        else:
            self._probe = self._probed = None

    def _reap(self) -> None:
        still: list[tuple[Process, float, str | None]] = []
        for process, limit, device in self._dying:
            if process.poll() is not None:
                held = self._quarantined.get(device or "")
                if held is not None and held.process is process:
                    held.process = None
            elif self._clock() >= limit:
                self._abandoned.append(process)
            else:
                still.append((process, limit, device))
        self._dying = still
        for process in self._abandoned[:]:
            if process.poll() is not None:
                self._abandoned.remove(process)
                for held in self._quarantined.values():
                    if held.process is process:
                        held.process = None

    def _advance(self) -> None:
        """Start what must be started and ask what must be asked."""
        self._reap()
        if self.paused:
            return
        now = self._clock()
        if self._worker is None and now >= self._not_before:
            if len(self._abandoned) >= self.limits.abandoned:
                self._reason = f"{len(self._abandoned)} of its workers can't be killed (state D)"
                self._remedy = "look for a stuck device in the kernel log; a reboot clears it"
            else:
                self._worker = self._spawn(now)
        worker = self._worker
        if worker is not None and worker.open and worker.polling is None and not self._cycle.asked:
            self._ask(worker, {"skip": [*self._quarantined, *self._cycle.answers]})
            self._cycle.asked = True
        self._probe_quarantined(now)

    def _probe_quarantined(self, now: float) -> None:
        if self._probe is None:
            for address, held in self._quarantined.items():
                if held.process is None and now >= held.until and self._worker is not None:
                    self._probe = self._spawn(now)
                    self._probed = address
                    return
        elif self._probe.open and self._probe.polling is None:
            self._ask(self._probe, {"only": [self._probed]})

    def _ask(self, worker: _Worker, request: dict[str, object]) -> None:
        worker.deadline = self._clock() + self.limits.device
        worker.request(self._cycle.poll, {"readers": self.readers, **request})

    def _spawn(self, now: float) -> _Worker | None:
        try:
            return _Worker(self.name, self._argument, self._launcher, now + self.limits.init)
        except OSError as error:
            self._reason = f"its worker could not be started: {error}"
            self._remedy = "see whether the node is out of memory, processes or descriptors"
            self._back_off()
            return None

    def _measure(self) -> None:
        worker = self._worker
        usage = worker.usage() if worker is not None else None
        if worker is None or usage is None:
            self._usage = None
            return
        cpu, resident, open_files = usage
        self._usage = Usage(self._cpu_before + cpu, resident, open_files)
        if resident > self.limits.resident_bytes:
            self._restarts["memory"] += 1
            self._kill(worker)
        elif open_files > self.limits.open_files:
            self._restarts["open_files"] += 1
            self._kill(worker)


def _decode(answer: Mapping[str, object]) -> Answer:
    readings = answer.get("readings", {})
    durations = answer.get("durations", {})
    errors = answer.get("errors", {})
    moment = answer["time"]
    if not (
        isinstance(readings, dict)
        and isinstance(durations, dict)
        and isinstance(errors, dict)
        and isinstance(moment, (int, float))
    ):
        raise ValueError("an answer of the wrong shape")
    return Answer(
        time=float(moment),
        suspended=answer.get("suspended") is True,
        readings={
            partition: {
                reader: {name: from_wire(value) for name, value in fields.items()}
                for reader, fields in by_reader.items()
            }
            for partition, by_reader in readings.items()
        },
        durations=durations,
        errors=errors,
    )


class Supervisor:
    """All sources together: one poll asks them at once and waits for those that may answer."""

    def __init__(
        self, sources: Sequence[Source], stopping: Callable[[], bool] = lambda: False
    ) -> None:
        self.sources = tuple(sources)
        self._stopping = stopping
        self._polls = 0

    def poll(self) -> list[SourceReport]:
        """Ask every source; returns within the cycle limit whatever the hardware does."""
        self._polls += 1
        for source in self.sources:
            source.begin(self._polls)
        while True:
            for source in self.sources:
                source.attend()
            now = time.monotonic()
            waits = [
                until
                for source in self.sources
                if (until := source.wait_until()) is not None and until > now
            ]
            if not waits or self._stopping():
                return [source.report() for source in self.sources]
            # Short enough to notice deadlines of workers that no poll waits for.
            self._select(min(min(waits) - now, 0.5))

    def _select(self, timeout: float) -> None:
        with selectors.DefaultSelector() as selector:
            for source in self.sources:
                for descriptor in source.descriptors():
                    selector.register(descriptor, selectors.EVENT_READ)
            selector.select(timeout)

    def stop(self) -> None:
        """End all workers."""
        for source in self.sources:
            source.stop()
