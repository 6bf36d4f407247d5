"""Keeps the workers alive and on time, and collects what they answer.

One thread, one selector, no waiting without an end. A device that hangs, or kills its worker, is
left out by the replacement and asked again by a probe: a worker for that device alone, so that the
others go on being read. A process that can't be killed (state D) is abandoned, counted, and its
device left alone until that process is gone.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Protocol

import psutil

import exporter
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
STARTING = "it is starting"
"""The reason of a source that is not up because it has not failed yet."""
_ROOT = Path(exporter.__file__).absolute().parents[1]
_BOOT = (
    "import sys; sys.path[:] = [sys.argv.pop(1), *filter(None, sys.path)]; "
    "import exporter; del sys.path[0]; from importlib import import_module; "
    "sys.exit(import_module(sys.argv.pop(1)).main(sys.argv[1:]))"
)
"""Runs a module of the daemon's own package, wherever that lies. Not by `python -m`, which would
execute a json.py, or a package amdsmi, of the directory in which the daemon was started."""
_WORKER = ("-c", _BOOT, str(_ROOT), "exporter.sources.worker")
_DRIVER = frozenset({"amdsmi", "rocm_smi", "sysfs"})
"""Sources that ask the kernel's driver."""
_CHUNK, _CHUNKS = 1 << 16, 64
"""How much is read from a pipe at once, and how often before others have their turn."""
_LONGEST_ANSWER = 1 << 24
_GATHER = 0.005
"""Seconds in which more answers may come: taking in several costs little more than one."""
_LAST_WORDS = 300
"""Bytes that are kept of a worker's standard error."""
_EXIT = 0.2
"""Seconds between the end of a pipe and that of its process."""
_LONGEST_DELAY = 300.0
"""Seconds between two attempts, however many failed."""
_REMEMBERED = 60.0
"""Seconds for which a device that answers again is remembered, at least: one that hangs time and
again is asked more and more seldom."""
_ASKED = 4
"""How many workers are asked in one poll, each the replacement of the one before."""


@dataclass(frozen=True, slots=True)
class Limits:
    """What a worker may take; all in seconds and bytes.

    Attributes:
        interval: between two polls.
        init: until the source is open. Eight GPUs take 0.03 s without hardware, several seconds
            where a driver has to wake them; AMD SMI 6.1.2 waits 5 s for each GPU whose lock in
            /dev/shm a program left behind.
        first: how long the first poll waits for a source, since the numbers of the GPUs follow
            the order of the preferred one.
        resident_bytes: of memory; AMD SMI 10.1 with eight GPUs takes about 40 MiB.
        open_files: descriptors; AMD SMI opens its devices anew and closes them.
        kill: until a killed process counts as unkillable.
        abandoned: how many unkillable processes a source may leave behind.
    """

    interval: float
    init: float = 45.0
    first: float = 10.0
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
        unanswered: PCI address to why the source has no answer of a device it lists: one that it
            leaves out since it hung, or that it did not reach for the second time.
        restarts: by reason, since the daemon started.
        usage: of the worker; None if there is none.
        abandoned: processes that could not be killed and still exist.
        replaced: why the worker was replaced after it answered; mostly empty.
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
    replaced: str = ""


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
    """What the supervisor needs of a process."""

    @property
    def pid(self) -> int: ...

    def poll(self) -> int | None:
        """Its exit status, negative for a signal; None while it is there."""

    def wait(self, timeout: float) -> int | None:
        """As `poll`, after at most `timeout` seconds."""

    def kill(self) -> None:
        """Send SIGKILL to it and to what it started."""


class Start(Protocol):
    """How a process is started."""

    def __call__(
        self,
        command: Sequence[str],
        environment: Mapping[str, str],
        *,
        stdin: int,
        stderr: int,
        reply: int,
    ) -> Process:
        """Start a command on these descriptors; `reply` keeps its number in the process.

        Raises:
            OSError: it can't be started.
        """


class _Child:
    """A process of our own, in a session of its own."""

    def __init__(self, popen: subprocess.Popen[bytes]) -> None:
        self._popen = popen

    @property
    def pid(self) -> int:
        return self._popen.pid

    def poll(self) -> int | None:
        return self._popen.poll()

    def wait(self, timeout: float) -> int | None:
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._popen.wait(timeout)
        return self._popen.returncode

    def kill(self) -> None:
        with contextlib.suppress(OSError):  # it has gone already
            os.killpg(self._popen.pid, signal.SIGKILL)


def start_process(
    command: Sequence[str], environment: Mapping[str, str], *, stdin: int, stderr: int, reply: int
) -> Process:
    """Start a real process."""
    return _Child(
        subprocess.Popen(  # noqa: S603  # our own interpreter and module
            command,
            stdin=stdin,
            stdout=subprocess.DEVNULL,  # vendor code prints there
            stderr=stderr,
            pass_fds=(reply,),
            env=environment,
            # A Ctrl-C in the terminal is the daemon's to handle; and what the worker starts, such
            # as a vendor's tool, can be killed with it.
            start_new_session=True,
        )
    )


class _Worker:
    """One incarnation of a worker: its process, pipes, and what it is busy with.

    Attributes:
        process: what runs.
        open: it has told its devices.
        listed: those devices.
        deadline: when it must have answered again.
        end_by: when it must have done with the request.
        device: what it is reading.
        polling: the poll whose request it is busy with.
        known: the fields that it sent last, by device, partition and reader.
    """

    def __init__(
        self, command: Sequence[str], source: str, argument: str, launcher: Launcher, start: Start
    ) -> None:
        pipes: list[tuple[int, int]] = []
        try:
            for _ in range(3):
                pipes.append(os.pipe())
            (stdin, self._request_fd), (self._reply_fd, reply), (error_fd, stderr) = pipes
            extra = [argument] if argument else []
            self.process = start(
                launcher.command([*command, source, str(reply), *extra]),
                {**os.environ, **launcher.environment()},
                stdin=stdin,
                stderr=stderr,
                reply=reply,
            )
        except OSError:
            for descriptor in (end for pipe in pipes for end in pipe):
                os.close(descriptor)
            raise
        for descriptor in (stdin, reply, stderr):
            os.close(descriptor)
        for descriptor in (self._request_fd, self._reply_fd, error_fd):
            os.set_blocking(descriptor, False)
        self._error_fd: int | None = error_fd
        self.open = False
        self.listed: frozenset[str] = frozenset()
        self.deadline = self.end_by = math.inf
        self.device: str | None = None
        self.polling: int | None = None
        self.known: dict[tuple[str, str, str], Mapping[str, FieldValue]] = {}
        self._buffer = bytearray()
        self._errors = bytearray()
        self._cpu_seconds = 0.0
        self._stats: psutil.Process | None = None
        with contextlib.suppress(psutil.Error, OSError):  # also where descriptors have run out
            self._stats = psutil.Process(self.process.pid)

    def descriptors(self) -> list[int]:
        """What to wait on."""
        return [self._reply_fd, *([] if self._error_fd is None else [self._error_fd])]

    def request(self, poll: int, request: Mapping[str, object]) -> None:
        """Send a request. Where that fails the worker is gone or stuck, and will be found so."""
        self.polling = poll
        with contextlib.suppress(OSError):
            os.write(self._request_fd, json.dumps({"poll": poll, **request}).encode() + b"\n")

    def receive(self) -> tuple[list[bytes], bool]:
        """The lines that have come, and whether the pipe is at its end.

        Raises:
            ValueError: a line does not end.
        """
        self._listen()
        ended = False
        for _ in range(_CHUNKS):
            try:
                chunk = os.read(self._reply_fd, _CHUNK)
            except BlockingIOError:
                break
            if not chunk:
                ended = True
                break
            self._buffer += chunk
        *lines, rest = self._buffer.split(b"\n")
        self._buffer = rest
        if len(self._buffer) > _LONGEST_ANSWER:
            raise ValueError("an answer without an end")
        return [bytes(line) for line in lines], ended

    def _listen(self) -> None:
        """Keep the end of what came on standard error, and the pipe empty."""
        for _ in range(_CHUNKS):
            if self._error_fd is None:
                return
            try:
                chunk = os.read(self._error_fd, _CHUNK)
            except BlockingIOError:
                return
            if not chunk:
                os.close(self._error_fd)
                self._error_fd = None
            self._errors = (self._errors + chunk)[-_LAST_WORDS:]

    def last_words(self) -> str:
        """The end of what it wrote to standard error, on one line; empty if it wrote nothing."""
        self._listen()
        return " ".join(self._errors.decode("utf-8", "replace").split())

    def usage(self) -> Usage | None:
        """What it costs, while it lives."""
        if self._stats is None:
            return None
        try:
            with self._stats.oneshot():
                times = self._stats.cpu_times()
                self._cpu_seconds = times.user + times.system
                return Usage(
                    self._cpu_seconds, self._stats.memory_info().rss, self._stats.num_fds()
                )
        except (psutil.Error, OSError):
            return None

    def cpu_seconds(self) -> float:
        """Its CPU time, as last seen where it has died."""
        self.usage()
        return self._cpu_seconds

    def exit_text(self) -> str:
        """How the process ended, for the log."""
        status = self.process.wait(_EXIT)  # the pipe ends an instant before the process
        if status is None:
            return "it closed its pipe"
        if status >= 0:
            return f"exit status {status}"
        try:
            return f"killed by {signal.Signals(-status).name}"
        except ValueError:
            return f"killed by signal {-status}"

    def close(self) -> None:
        """Close the pipes."""
        for descriptor in (self._request_fd, *self.descriptors()):
            os.close(descriptor)


@dataclass(slots=True)
class _Suspect:
    """A device that hung, or killed its worker.

    Attributes:
        why: what happened last.
        failures: how often, until it was forgotten.
        held: it is left out, and asked by a probe alone.
        until: when the next probe is due; once it has answered, when all is forgotten.
    """

    why: str
    failures: int
    held: bool
    until: float


@dataclass(frozen=True, slots=True)
class _Killed:
    """A process that was sent SIGKILL and has not ended yet.

    Attributes:
        overdue: from when it counts as unkillable.
        device: what it was reading; it is left alone until the process is gone.
    """

    process: Process
    overdue: float
    device: str | None


@dataclass(slots=True)
class _Cycle:
    """What has come in during one poll.

    Attributes:
        asked: how many workers were asked; more than one where one was replaced.
        lost: a worker was lost in this poll.
        replaced: why one was, though it answered.
    """

    poll: int
    begin: float
    answers: dict[str, Answer] = field(default_factory=dict)
    asked: int = 0
    ended: bool = False
    lost: bool = False
    replaced: str = ""


class Source:
    """One source: its worker, its probe, and what is known of its devices.

    Args:
        name: as in `exporter.sources.worker.OPENERS`.
        launcher: how Python is started.
        limits: what a worker may take.
        argument: for the source, if it takes one.
        clock: monotonic, in seconds.
        start: how processes are started.

    Attributes:
        limits: may be replaced between two polls.
        readers: the readers to ask.
        paused: it rests.
    """

    def __init__(
        self,
        name: str,
        launcher: Launcher,
        limits: Limits,
        *,
        argument: str = "",
        clock: Callable[[], float] = time.monotonic,
        start: Start = start_process,
    ) -> None:
        self.name = name
        self.limits = limits
        self.readers: tuple[str, ...] = ()
        self.paused = False
        self._launcher = launcher
        self._argument = argument
        self._clock = clock
        self._start = start
        self._worker: _Worker | None = None
        self._probe: _Worker | None = None
        self._probed = ""
        self._node: dict[str, FieldValue] = {}
        self._devices: dict[str, int] = {}
        self._missed: set[str] = set()
        self._suspects: dict[str, _Suspect] = {}
        self._killed: list[_Killed] = []
        self._restarts = dict.fromkeys(RESTART_REASONS, 0)
        self._failures = 0
        self._not_before = 0.0
        self._reason = self._remedy = ""
        self._cpu_before = 0.0
        self._cycle = _Cycle(0, 0.0)

    # ------------------------------------------------------------------ a poll, from outside

    def begin(self, poll: int) -> None:
        """Start a poll."""
        answered = self._cycle.answers
        self._missed = {a for a in self._devices if self._cycle.asked and a not in answered}
        self._cycle = _Cycle(poll, self._clock())
        self._advance()

    def descriptors(self) -> list[int]:
        """What to wait on."""
        return [descriptor for worker in self._workers() for descriptor in worker.descriptors()]

    def wait_until(self) -> float | None:
        """Until when this poll must wait for the source; None if it need not wait."""
        worker, cycle = self._worker, self._cycle
        if worker is None or cycle.ended or self.paused:
            return None
        if worker.open and worker.polling is None and cycle.asked == _ASKED:
            return None
        if worker.open or cycle.lost:
            patience = self.limits.cycle
        elif cycle.poll == 1:
            patience = self.limits.first
        else:
            patience = self.limits.patience
        return min(worker.deadline, cycle.begin + patience)

    def attend(self) -> None:
        """Take in what has come and act on deadlines, without waiting for anything to come."""
        for worker in self._workers():
            self._attend(worker)
        self._advance()

    def report(self) -> SourceReport:
        """The source after the poll."""
        cycle = self._cycle
        up = self._worker is not None and self._worker.open and bool(cycle.asked or cycle.answers)
        usage = self._measure()
        unanswered: dict[str, Absent] = {}
        for address in sorted(self._devices.keys() - cycle.answers.keys()):
            suspect = self._suspects.get(address)
            if suspect is not None and suspect.held:
                unanswered[address] = Absent(NO_ANSWER, f"{self.name}: {suspect.why}")
            elif up and address in self._missed:
                why = "it was not reached in time, twice in a row"
                unanswered[address] = Absent(NO_ANSWER, f"{self.name}: {why}")
        down = not up and not self.paused
        return SourceReport(
            name=self.name,
            up=up,
            paused=self.paused,
            reason=(self._reason or STARTING) if down else "",
            remedy=self._remedy if down else "",
            node=self._node,
            devices=self._devices,
            answers=cycle.answers,
            unanswered={} if self.paused else unanswered,
            restarts=dict(self._restarts),
            usage=usage,
            abandoned=len(self._abandoned()),
            replaced=cycle.replaced,
        )

    def hurry(self) -> None:
        """Try again now: something changed that may have been in the way."""
        self._not_before = 0.0
        self._failures = 0

    def pause(self) -> None:
        """Stop the worker, since no field is wanted from this source; `resume` starts it again."""
        self.paused = True
        for worker in self._workers():
            self._kill(worker)

    def resume(self) -> None:
        """Start reading again."""
        self.paused = False
        self.hurry()

    def wait_for_killed(self, until: float) -> None:
        """Wait for the end of killed processes; those that don't end are left to the kernel."""
        for killed in self._killed:
            killed.process.wait(max(until - self._clock(), 0.0))
        self._reap()

    # ------------------------------------------------------------------ inside: what comes in

    def _workers(self) -> list[_Worker]:
        return [worker for worker in (self._worker, self._probe) if worker is not None]

    def _attend(self, worker: _Worker) -> None:
        try:
            lines, ended = worker.receive()
            for line in lines:
                self._take(worker, _parse(line))
                if worker not in self._workers():
                    return
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            self._failed(worker, "protocol", f"it answered nonsense: {error}")
            return
        if ended:
            reading = f" reading {worker.device}" if worker.device else ""
            self._failed(worker, "crash", f"its worker died{reading} ({worker.exit_text()})")
        elif self._clock() >= worker.deadline:
            if not worker.open:
                self._failed(worker, "init_hang", "it did not open in time")
            elif worker.device:
                self._failed(worker, "hang", f"{worker.device} did not answer in time")
            else:
                self._failed(worker, "hang", "its worker stopped answering")

    def _take(self, worker: _Worker, answer: Mapping[str, object]) -> None:
        if "hello" in answer and not worker.open:
            self._greet(worker, answer["hello"])
        elif "unavailable" in answer and not worker.open:
            reason, remedy = _pair(answer["unavailable"])
            self._unavailable(worker, reason, remedy)
        elif not worker.open or worker.polling is None:
            raise ValueError(f"{list(answer)[:3]} unasked")
        elif "start" in answer:
            worker.device = _listed(worker, answer["start"])
            self._set_deadline(worker)
        elif "device" in answer:
            address = _listed(worker, answer["device"])
            self._cycle.answers[address] = _decode(answer, address, worker.known)
            worker.device = None
            self._set_deadline(worker)
        elif "end" in answer:
            self._done(worker)
        elif "changed" in answer:
            if worker is self._worker:
                self._restarts["devices_changed"] += 1
            else:
                self._hold(self._probed, "the devices changed while it was asked")
            self._kill(worker)
        else:
            raise ValueError(f"unknown answer {list(answer)[:3]}")

    def _set_deadline(self, worker: _Worker) -> None:
        worker.deadline = min(self._clock() + self.limits.device, worker.end_by)

    def _greet(self, worker: _Worker, hello: object) -> None:
        if not isinstance(hello, dict):
            raise ValueError("hello is no object")
        node = {str(name): from_wire(value) for name, value in hello["node"].items()}
        devices = {str(address): int(index) for address, index in hello["devices"]}
        worker.open = True
        worker.listed = frozenset(devices)
        worker.deadline = math.inf
        if worker is self._worker:
            self._reason = self._remedy = ""
            self._node, self._devices = node, devices
            for gone in self._suspects.keys() - devices.keys():
                del self._suspects[gone]

    def _unavailable(self, worker: _Worker, reason: str, remedy: str) -> None:
        if worker is self._probe:
            self._hold(self._probed, reason)
        else:
            self._reason, self._remedy = reason, remedy
            self._devices = {}
            self._back_off()
        self._kill(worker)

    def _done(self, worker: _Worker) -> None:
        """A worker has done with a request."""
        asked, worker.polling = worker.polling, None
        worker.deadline = math.inf
        if worker is self._probe:
            suspect = self._suspects.get(self._probed)
            if suspect is not None:
                suspect.held = False
                suspect.until = self._clock() + max(2 * self._delay(suspect.failures), _REMEMBERED)
            self._kill(worker)
            return
        self._failures = 0
        if asked == self._cycle.poll:
            self._cycle.ended = True

    # ------------------------------------------------------------------ inside: what goes wrong

    def _failed(self, worker: _Worker, reason: str, what: str) -> None:
        """A worker hung, died or went wild: replace it, and leave out the device to blame."""
        self._restarts[reason] += 1
        blamed = self._probed if worker is self._probe else worker.device
        words = worker.last_words()
        if blamed:
            self._hold(blamed, f"{what}; its last words: {words}" if words else what)
        else:
            self._reason = what
            self._remedy = "see `amdgpu-exporter support`"
            if self.name in _DRIVER:
                self._remedy += " and the kernel log for amdgpu"
            if words:
                self._remedy += f"; its last words: {words}"
            self._back_off()
        self._kill(worker, blamed)

    def _hold(self, address: str, why: str) -> None:
        """Leave a device out until a probe of it has gone well."""
        suspect = self._suspects.get(address)
        failures = 1 if suspect is None else suspect.failures + 1
        until = self._clock() + self._delay(failures)
        self._suspects[address] = _Suspect(why, failures, held=True, until=until)

    def _delay(self, failures: int) -> float:
        return min(self.limits.interval * 2.0 ** min(failures - 1, 20), _LONGEST_DELAY)

    def _back_off(self) -> None:
        self._failures += 1
        self._not_before = self._clock() + min(2.0 ** min(self._failures, 20), _LONGEST_DELAY)

    def _kill(self, worker: _Worker, device: str | None = None) -> None:
        """End a worker. Not even a healthy one is asked to: vendor shutdown code can hang."""
        self._cpu_before += worker.cpu_seconds()
        worker.close()
        worker.process.kill()
        if worker.process.poll() is None:
            overdue = self._clock() + self.limits.kill
            self._killed.append(_Killed(worker.process, overdue, device or None))
        if worker is self._worker:
            self._worker = None
            self._cycle.lost = True
        else:
            self._probe, self._probed = None, ""

    def _reap(self) -> None:
        self._killed = [killed for killed in self._killed if killed.process.poll() is None]

    def _abandoned(self) -> list[_Killed]:
        now = self._clock()
        return [killed for killed in self._killed if now >= killed.overdue]

    def _left_out(self) -> set[str]:
        """The devices that the worker must not touch."""
        held = {address for address, suspect in self._suspects.items() if suspect.held}
        return held | {killed.device for killed in self._killed if killed.device is not None}

    # ------------------------------------------------------------------ inside: what goes on

    def _advance(self) -> None:
        """Start what must be started and ask what must be asked."""
        self._reap()
        if self.paused:
            return
        now = self._clock()
        for address, suspect in list(self._suspects.items()):
            if not suspect.held and now >= suspect.until:
                del self._suspects[address]
        if self._worker is None and now >= self._not_before:
            # Those that hang on a device are one per device; others would pile up without an end.
            stuck = sum(killed.device is None for killed in self._abandoned())
            if stuck >= self.limits.abandoned:
                self._reason = f"{stuck} of its workers can't be killed (state D)"
                self._remedy = "look for a stuck device in the kernel log; a reboot clears it"
            else:
                self._start_worker()
        worker, cycle = self._worker, self._cycle
        if worker is None:
            return
        if worker.open and worker.polling is None and not cycle.ended and cycle.asked < _ASKED:
            cycle.asked += 1
            self._ask(worker, {"skip": sorted(self._left_out() | cycle.answers.keys())})
        self._probe_suspects(now)

    def _probe_suspects(self, now: float) -> None:
        if self._probe is not None:
            if self._probe.open and self._probe.polling is None:
                self._ask(self._probe, {"only": [self._probed]})
            return
        stuck = {killed.device for killed in self._killed}
        for address, suspect in self._suspects.items():
            if suspect.held and now >= suspect.until and address not in stuck:
                try:
                    self._probe, self._probed = self._spawn(), address
                except OSError:  # the device stays left out, for the reason that it was
                    suspect.until = now + self._delay(suspect.failures)
                return

    def _ask(self, worker: _Worker, request: Mapping[str, object]) -> None:
        worker.end_by = self._clock() + self.limits.device * (len(worker.listed) + 1)
        self._set_deadline(worker)
        worker.request(self._cycle.poll, {"readers": self.readers, **request})

    def _start_worker(self) -> None:
        try:
            self._worker = self._spawn()
        except OSError as error:
            self._reason = f"its worker could not be started: {error}"
            self._remedy = "see whether the node is out of memory, processes or descriptors"
            self._back_off()

    def _spawn(self) -> _Worker:
        worker = _Worker(_WORKER, self.name, self._argument, self._launcher, self._start)
        worker.deadline = self._clock() + self.limits.init
        return worker

    def _measure(self) -> Usage | None:
        """What the worker costs; one above a ceiling is replaced before the next poll."""
        worker = self._worker
        usage = worker.usage() if worker is not None else None
        if worker is None or usage is None:
            return None
        total = replace(usage, cpu_seconds=self._cpu_before + usage.cpu_seconds)
        limits = self.limits
        if usage.resident_bytes > limits.resident_bytes:
            self._replace(worker, "memory", f"over {limits.resident_bytes >> 20} MiB of memory")
        elif usage.open_files > limits.open_files:
            self._replace(worker, "open_files", f"over {limits.open_files} open files")
        return total

    def _replace(self, worker: _Worker, reason: str, what: str) -> None:
        self._restarts[reason] += 1
        self._cycle.replaced = f"it had {what}"
        self._kill(worker)


def _refuse(constant: str) -> object:
    raise ValueError(f"{constant} is no number")


_DECODER = json.JSONDecoder(parse_constant=_refuse)


def _parse(line: bytes) -> dict[str, object]:
    try:
        answer = _DECODER.decode(line.decode())
    except RecursionError as error:
        raise ValueError("an answer nested too deeply") from error
    if not isinstance(answer, dict):
        raise ValueError("an answer that is no object")
    return answer


def _pair(told: object) -> tuple[str, str]:
    if not isinstance(told, list) or len(told) != 2:
        raise ValueError("unavailable without reason and remedy")
    return str(told[0]), str(told[1])


def _listed(worker: _Worker, address: object) -> str:
    if address not in worker.listed:
        raise ValueError(f"it lists no device {address!r:.40}")
    return str(address)


def _decode(
    answer: Mapping[str, object],
    address: str,
    known: dict[tuple[str, str, str], Mapping[str, FieldValue]],
) -> Answer:
    """What was answered; fields that are as they were are the very same object as before."""
    readings = answer.get("readings", {})
    durations = answer.get("durations", {})
    errors = answer.get("errors", {})
    if not (
        isinstance(readings, dict) and isinstance(durations, dict) and isinstance(errors, dict)
    ):
        raise ValueError("an answer of the wrong shape")
    for partition, by_reader in readings.items():
        for reader, fields in by_reader.items():
            if fields is not None:
                known[address, partition, reader] = {
                    name: from_wire(value) for name, value in fields.items()
                }
    return Answer(
        time=_seconds(answer["time"]),
        suspended=answer.get("suspended") is True,
        readings={
            partition: {reader: known[address, partition, reader] for reader in by_reader}
            for partition, by_reader in readings.items()
        },
        durations={collector: _seconds(value) for collector, value in durations.items()},
        errors={collector: str(value) for collector, value in errors.items()},
    )


def _seconds(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise ValueError(f"{value!r:.40} is no time")
    return float(value)


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
        waiting = select.poll()
        for source in self.sources:
            for descriptor in source.descriptors():
                waiting.register(descriptor, select.POLLIN)
        if waiting.poll(math.ceil(timeout * 1000)):
            time.sleep(_GATHER)

    def stop(self) -> None:
        """End all workers and leave no process behind but those that can't be killed."""
        for source in self.sources:
            source.pause()
        for source in self.sources:
            source.wait_for_killed(time.monotonic() + source.limits.kill)
