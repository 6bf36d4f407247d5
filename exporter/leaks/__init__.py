"""VRAM leaks: is memory being lost, by whom, since when, how fast, and how sure is that.

A pure engine over samples: no clock, no file and no device of its own. `Watch` keeps one
`Detector` per GPU; `exporter.leaks.check` judges what was recorded.
"""

from exporter.leaks.detector import Detector, Watch
from exporter.leaks.model import ProcessUse, Sample, Thresholds, Verdict

__all__ = ["Detector", "ProcessUse", "Sample", "Thresholds", "Verdict", "Watch"]
