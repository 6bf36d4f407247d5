"""The worker with a clock that takes one poll interval per poll; see `exporter.sources.worker`.

With BENCH_NOTES in the environment, a folder, it leaves a profile of its polls there after each.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from exporter.sources import worker
from exporter.sources.worker import Opened

if TYPE_CHECKING:
    from cProfile import Profile


class Steps:
    """The clock: it stands still until the next poll begins."""

    def __init__(self, interval: float) -> None:
        self._interval = interval
        self._now = time.monotonic()

    def now(self) -> float:
        return self._now

    def step(self) -> None:
        self._now += self._interval


def before(owner: Any, name: str, act: Callable[[], None]) -> None:
    """Let `act` run before every call of a method."""
    inner = getattr(owner, name)

    def both(*arguments: object) -> object:
        act()
        return inner(*arguments)

    setattr(owner, name, both)


def around(owner: Any, name: str, profile: Profile, path: str) -> None:
    """Profile every call of a method, and write down what all calls together took."""
    inner = getattr(owner, name)

    def profiled(*arguments: object) -> object:
        profile.enable()
        try:
            return inner(*arguments)
        finally:
            profile.disable()
            profile.dump_stats(path)

    setattr(owner, name, profiled)


def main(arguments: list[str]) -> int:
    """As `exporter.sources.worker.main`."""
    source = arguments[0]
    opener = worker.OPENERS[source]
    steps = Steps(float(os.environ["BENCH_INTERVAL"]))

    def opened(argument: str) -> Opened:
        sessions = opener(argument).sessions
        before(next(iter(sessions.values())), "begin", steps.step)
        return Opened(sessions, steps.now)

    vars(worker)["OPENERS"] = {source: opened}
    if notes := os.environ["BENCH_NOTES"]:
        from cProfile import Profile

        around(worker.Worker, "answer", Profile(), os.path.join(notes, source))
    return worker.main(arguments)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
