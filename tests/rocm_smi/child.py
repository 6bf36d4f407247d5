"""The process in which ROCm SMI is read: JSON lines out, one after opening and one per poll.

Arguments: `library`, or `tool` and the command that stands for `rocm-smi`, or `any` for what the
daemon would take. Every line on standard
input is the monotonic time of a poll. A poll's answer is, by address and partition, what the
collectors' ROCm SMI readers gave, the first value for each key, an absence as `[reason, detail]`.
"""

from __future__ import annotations

import json
import os
import sys
from typing import Any

from exporter.collectors import COLLECTORS
from exporter.sources.files import KernelFiles
from exporter.sources.rocm_smi import RocmSmiSession, open_session
from exporter.sources.rocm_smi_library import load
from exporter.sources.rocm_smi_tool import RocmSmiToolSession
from exporter.sources.session import Session, UnavailableError
from exporter.values import to_wire


def opened(arguments: list[str]) -> Session:
    """The source that the arguments name."""
    if arguments[0] == "tool":
        return RocmSmiToolSession(arguments[1:], KernelFiles())
    if arguments[0] == "any":
        return open_session(KernelFiles(), os.environ["TEST_ROOT"])
    return RocmSmiSession(load(root=os.environ["TEST_ROOT"]), KernelFiles())


def better(old: Any, new: Any) -> Any:
    """A field after one more reader: key by key the first that has a value."""
    if isinstance(old, dict) and isinstance(new, dict):
        return {key: better(old.get(key), new.get(key)) for key in {**old, **new}}
    return new if old is None or (isinstance(old, list) and new is not None) else old


def read(session: Session) -> dict[str, Any]:
    """One poll."""
    result: dict[str, Any] = {}
    for address, _ in session.devices():
        for collector in COLLECTORS:
            for reader in collector.readers:
                if reader.source != "rocm_smi":
                    continue
                for view in session.views(address, per_partition=reader.per_partition):
                    device = result.setdefault(address, {}).setdefault(view.partition or "", {})
                    fields = device.setdefault(collector.name, {})
                    for name, value in reader.read(view).items():
                        fields[name] = better(fields.get(name), to_wire(value))
    return result


def main() -> None:
    """Open, then poll at every line."""
    # As the worker does: the vendor prints to standard output, so answers need another way.
    reply = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    try:
        session = opened(sys.argv[1:])
    except UnavailableError as error:
        print(json.dumps({"reason": error.reason, "remedy": error.remedy}), file=reply)
        return
    hello = {
        "node": {name: to_wire(value) for name, value in session.node().items()},
        "devices": list(session.devices()),
        "mutex": os.environ.get("RSMI_MUTEX_THREAD_ONLY"),
    }
    print(json.dumps(hello), file=reply)
    for line in sys.stdin:
        session.begin(float(line))
        answer = {
            "changed": session.changed(),
            "suspended": [a for a, _ in session.devices() if session.suspended(a)],
            "read": read(session),
        }
        print(json.dumps(answer), file=reply)


if __name__ == "__main__":
    main()
