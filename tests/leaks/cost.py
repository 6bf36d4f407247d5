"""What the detector costs: CPU and memory of an evaluation, and the size of the kept state."""

from __future__ import annotations

import json
import time
import tracemalloc
from random import Random
from statistics import median

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


def watched(
    gpus: int, processes: int, leaking: int, hours: float, step: float, random: Random
) -> Watch:
    """After a history with a sample at every step."""
    watch = Watch()
    for index in range(int(hours * 3600 / step)):
        for gpu in range(gpus):
            watch.observe(str(gpu), sample(random, START + index * step, processes, leaking), "")
    return watch


def evaluation(gpus: int, processes: int, leaking: int, hours: float, step: float) -> float:
    """CPU seconds of an evaluation of all GPUs after a history: the median of ten."""
    random = Random(1)  # noqa: S311 - to be repeated
    watch, spent = watched(gpus, processes, leaking, hours, step, random), []
    for index in range(10):
        moment = START + hours * 3600 + index * 300  # a new bucket, so that all is judged anew
        samples = [sample(random, moment, processes, leaking) for _ in range(gpus)]
        began = time.process_time()
        for gpu, each in enumerate(samples):
            watch.observe(str(gpu), each, "")
        spent.append(time.process_time() - began)
    return median(spent)


def memory(processes: int, hours: float, step: float) -> int:
    """Bytes that the history of one GPU takes."""
    tracemalloc.start()
    watch = watched(1, processes, 0, hours, step, Random(1))  # noqa: S311 - to be repeated
    taken, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    del watch
    return taken


def kept(processes: int, hours: float, step: float) -> int:
    """Bytes of the kept state of one GPU."""
    watch = watched(1, processes, 0, hours, step, Random(1))  # noqa: S311 - to be repeated
    return len(json.dumps(watch.dump(), separators=(",", ":")))
