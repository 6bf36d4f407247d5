"""What the detector costs: CPU and memory of an evaluation, and the size of the kept state."""

from __future__ import annotations

import json
import time
import tracemalloc
from dataclasses import dataclass
from random import Random

from exporter.leaks import ProcessUse, Sample, Watch

GIBIBYTE = 1 << 30
TOTAL = 192 * GIBIBYTE
START = 1_700_000_000.0


def sample(random: Random, moment: float, processes: int, leaking: int) -> Sample:
    """A GPU with processes whose memory comes and goes; the first of them leak."""
    uses = tuple(
        ProcessUse(
            1000 + index,
            float(index),
            GIBIBYTE
            + random.randrange(64) * 65_536 * (index >= leaking)
            + int((moment - START) * 400_000) // 4096 * 4096 * (index < leaking),
        )
        for index in range(processes)
    )
    used = sum(use.vram_bytes for use in uses) + GIBIBYTE // 2
    return Sample(moment, TOTAL, min(used, TOTAL), random.uniform(0.5, 1), uses)


@dataclass(frozen=True, slots=True)
class Cost:
    """Of one evaluation of all GPUs; of the history that they keep; of the kept state."""

    cpu_seconds: float
    memory_bytes: int
    kept_bytes: int


def measure(gpus: int, processes: int, leaking: int, hours: float, step: float) -> Cost:
    """After a history: the dearest of ten evaluations, each with a new bucket to judge."""
    random = Random(1)  # noqa: S311 - to be repeated
    tracemalloc.start()
    before, _ = tracemalloc.get_traced_memory()
    watch = Watch()
    moment = START
    while moment < START + hours * 3600:
        for gpu in range(gpus):
            watch.observe(str(gpu), sample(random, moment, processes, leaking), "")
        moment += step
    memory = tracemalloc.get_traced_memory()[0] - before
    tracemalloc.stop()
    spent = []
    for _ in range(10):
        moment += 300
        samples = [sample(random, moment, processes, leaking) for _ in range(gpus)]
        began = time.process_time()
        for gpu, each in enumerate(samples):
            watch.observe(str(gpu), each, "")
        spent.append(time.process_time() - began)
    return Cost(sorted(spent)[5], memory, len(json.dumps(watch.dump(), separators=(",", ":"))))
