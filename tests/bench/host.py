"""The daemon as a process of its own that polls when told to, for measurements.

    python -m tests.bench.host {"command": […], "environment": {…}, "notes": "…", "flags": […]}

Reads one word per line from standard input and answers each with a JSON line on standard output:
`poll`, or `render NUMBER`, which renders every kind of page so many times. The end of standard
input stops the daemon.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from exporter.collectors import COLLECTORS
from exporter.config import Config, load
from exporter.daemon import Daemon
from exporter.exposition.page import MetricsPage
from exporter.flags import parse
from exporter.log import set_up

if TYPE_CHECKING:
    from cProfile import Profile

ROOT = Path(__file__).parents[2]
"""Where the workers find this package: they don't look into the working directory."""
OPEN_METRICS = "application/openmetrics-text; version=1.0.0"


class SteppedLauncher:
    """Starts the workers on the simulated kernel, as `tests.bench.worker`.

    Args:
        command: what comes before Python's own arguments.
        environment: variables to add.
    """

    def __init__(self, command: Sequence[str], environment: Mapping[str, str]) -> None:
        self._command = command
        self._environment = environment

    def command(self, arguments: Sequence[str]) -> list[str]:
        stepped = {"exporter.sources.worker": "tests.bench.worker"}
        return [*self._command, *(stepped.get(argument, argument) for argument in arguments)]

    def environment(self) -> Mapping[str, str]:
        return self._environment


class SteppedDaemon(Daemon):
    """Waits for a word on standard input where the daemon waits for the clock."""

    profile: Profile | None = None
    notes = ""

    def _poll(self) -> None:
        if self.profile is None:
            super()._poll()
            return
        self.profile.enable()
        super()._poll()
        self.profile.disable()
        self.profile.dump_stats(os.path.join(self.notes, "daemon"))

    def _sleep(self, until: float) -> None:
        _say({"port": self.web.addresses[0].port})
        for line in sys.stdin:
            word, *rest = line.split()
            if word == "poll":
                return
            _say(self._render(int(rest[0])))
        self.stop()

    def _render(self, times: int) -> dict[str, object]:
        """CPU seconds and bytes of a page, by kind, each rendered from the snapshot on."""
        shown = self._shown
        assert shown is not None
        kinds = {"text": ("", False), "openmetrics": (OPEN_METRICS, False), "gzip": ("", True)}
        cost: dict[str, object] = {}
        for kind, (accept, compress) in kinds.items():
            begin = time.thread_time()
            for _ in range(times):
                page = MetricsPage(shown.snapshot, self._reader.picture.collectors, self._status)
                body = page.render(accept, compress=compress)[1]
            cost[kind] = {"seconds": (time.thread_time() - begin) / times, "bytes": len(body)}
        return cost


def _say(answer: Mapping[str, object]) -> None:
    print(json.dumps(answer), flush=True)  # noqa: T201  # the answer to the one who asked


def main(argument: str) -> None:
    """Run the daemon until standard input ends."""
    told = json.loads(argument)
    invocation = parse(["serve", *told["flags"]], COLLECTORS)

    def settings() -> Config:
        return load(invocation, COLLECTORS)

    config = settings()
    set_up(config.log_level, config.log_format)
    launcher = SteppedLauncher(
        told["command"],
        {
            **told["environment"],
            "PYTHONPATH": os.pathsep.join(
                [str(ROOT), *filter(None, [told["environment"].get("PYTHONPATH")])]
            ),
            "BENCH_INTERVAL": str(config.poll_interval),
            "BENCH_NOTES": told["notes"],
        },
    )
    daemon = SteppedDaemon(config, settings, launcher)
    if told["notes"]:
        from cProfile import Profile

        daemon.profile, daemon.notes = Profile(), told["notes"]
    daemon.run()


if __name__ == "__main__":
    main(sys.argv[1])
