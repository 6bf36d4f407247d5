"""The kernel's RAS files, used by more than one domain."""

from __future__ import annotations

import re

from exporter.sources.guard import counter
from exporter.values import IMPLAUSIBLE, Absent, Value

SEVERITIES = {"ce": "correctable", "ue": "uncorrectable", "de": "deferred"}
_COUNT = re.compile(r"^(ue|ce|de):\s*(\d+)\s*$", re.MULTILINE)


def error_counts(text: str | Absent) -> dict[str, Value]:
    """Severity to count, from a file like `ras/umc_err_count` ("ue: 0", "ce: 3", "de: 0").

    Deferred errors are counted by newer kernels only. Documentation/gpu/amdgpu/ras.rst.
    """
    if isinstance(text, Absent):
        return {"correctable": text, "uncorrectable": text}
    found: dict[str, Value] = {
        SEVERITIES[severity]: counter(count, bits=64) for severity, count in _COUNT.findall(text)
    }
    for severity in ("correctable", "uncorrectable"):
        found.setdefault(severity, Absent(IMPLAUSIBLE, f"no error count in {text[:40]!r}"))
    return found
