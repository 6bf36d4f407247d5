"""A source whose clock and processes are the test's: what no real process does on demand."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from exporter.sources.supervisor import Limits, Process, PythonLauncher, Source, SourceReport

DEVICES = ("0000:01:00.0", "0000:02:00.0", "0000:03:00.0")
LIMITS = Limits(10.0)
NO_SUCH_PID = 1 << 22
"""Beyond any pid that Linux gives."""


class FakeWorker:
    """A worker process, played by the test.

    Attributes:
        immortal: SIGKILL does not end it (state D).
        killed: it was sent SIGKILL.
    """

    pid = NO_SUCH_PID

    def __init__(self, stdin: int, stderr: int, reply: int) -> None:
        self.immortal = False
        self.killed = False
        self._status: int | None = None
        self._stdin, self._stderr, self._reply = (os.dup(fd) for fd in (stdin, stderr, reply))
        os.set_blocking(self._stdin, False)

    # ------------------------------------------------------------------ as the supervisor sees it

    def poll(self) -> int | None:
        return self._status

    def wait(self, timeout: float) -> int | None:
        return self._status

    def kill(self) -> None:
        self.killed = True
        if not self.immortal:
            self.die(-9)

    # ------------------------------------------------------------------ as the test plays it

    def die(self, status: int) -> None:
        """End with an exit status; negative for a signal."""
        if self._status is None:
            self._status = status
            for descriptor in (self._stdin, self._stderr, self._reply):
                os.close(descriptor)

    def say(self, text: bytes | Mapping[str, object]) -> None:
        """Answer, in JSON or in nonsense."""
        line = text if isinstance(text, bytes) else json.dumps(text).encode()
        os.write(self._reply, line + b"\n")

    def complain(self, text: bytes) -> None:
        """Write to standard error."""
        os.write(self._stderr, text)

    def hello(self, devices: Sequence[str] = DEVICES) -> None:
        """The source is open."""
        listed = [[address, index] for index, address in enumerate(devices)]
        self.say({"hello": {"node": {}, "devices": listed}})

    def asked(self) -> dict[str, object] | None:
        """The request that has come, if any."""
        try:
            line = os.read(self._stdin, 1 << 16)
        except BlockingIOError:
            return None
        request: dict[str, object] = json.loads(line)
        return request

    def start(self, address: str) -> None:
        """Begin to read a device."""
        self.say({"start": address})

    def read(self, address: str, watts: int = 100) -> None:
        """Read a device."""
        self.start(address)
        readings = {"": {"power/0": {"watts": watts}}}
        self.say({"device": address, "time": 1.0, "readings": readings})

    def end(self, request: Mapping[str, object] | None) -> None:
        """The request is done."""
        assert request is not None
        self.say({"end": request["poll"]})

    def answer(self) -> list[str]:
        """Do what is asked, at once; the devices that were read."""
        request = self.asked()
        assert request is not None
        only, skip = request.get("only", DEVICES), request.get("skip", ())
        assert isinstance(only, (list, tuple))
        assert isinstance(skip, (list, tuple))
        read = [address for address in DEVICES if address in only and address not in skip]
        for address in read:
            self.read(address)
        self.end(request)
        return read


@dataclass
class Stage:
    """A source with its clock and its workers.

    Attributes:
        now: what the clock shows.
        workers: every one that was started, in order.
        times: when.
        refused: the error that starting a process gives, if any.
        name: of the source.
    """

    limits: Limits = LIMITS
    now: float = 1000.0
    workers: list[FakeWorker] = field(default_factory=list)
    times: list[float] = field(default_factory=list)
    refused: OSError | None = None
    polls: int = 0
    name: str = "sysfs"

    def __post_init__(self) -> None:
        self.source = Source(
            self.name, PythonLauncher(), self.limits, clock=lambda: self.now, start=self._start
        )

    def _start(
        self,
        command: Sequence[str],
        environment: Mapping[str, str],
        *,
        stdin: int,
        stderr: int,
        reply: int,
    ) -> Process:
        if self.refused is not None:
            raise self.refused
        worker = FakeWorker(stdin, stderr, reply)
        self.workers.append(worker)
        self.times.append(self.now)
        return worker

    @property
    def last(self) -> FakeWorker:
        """The worker that was started last."""
        return self.workers[-1]

    def begin(self) -> None:
        """Begin a poll."""
        self.polls += 1
        self.source.begin(self.polls)

    def attend(self, after: float = 0.0) -> SourceReport:
        """What the source makes of all that was said, some time later."""
        self.now += after
        self.source.attend()
        return self.source.report()

    def opened(self) -> FakeWorker:
        """The first worker, open and asked, in a first poll."""
        self.begin()
        self.last.hello()
        self.attend()
        return self.last

    def polled(self) -> FakeWorker:
        """The first worker after a poll in which it read every device."""
        worker = self.opened()
        worker.answer()
        self.attend()
        return worker

    def close(self) -> None:
        """End everything, the immortal too."""
        self.source.pause()
        for worker in self.workers:
            worker.die(-9)
        self.source.wait_for_killed(self.now)
