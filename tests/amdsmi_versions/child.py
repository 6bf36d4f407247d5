"""The process in which one wrapper runs: JSON in on standard input, JSON out on standard output.

In: the answers of each device, `{address: [[function, second argument, values], …]}`; the values
are put into the structure that the wrapper itself declares for that function. Out: what was
loaded, and for each device and collector the fields as read, or why nothing could be loaded.
"""

from __future__ import annotations

import ctypes
import dataclasses
import errno
import json
import os
import sys
from collections.abc import Sequence
from typing import Any

from exporter.collectors import COLLECTORS
from exporter.sources.amdsmi import AmdSmiSession
from exporter.sources.amdsmi_library import Loaded, load
from exporter.sources.session import UnavailableError
from exporter.sources.sysfs import AMDGPU_DRIVER
from exporter.values import Absent, FieldValue, to_wire

Answer = tuple[str, int, Any]


class BoundOnly:
    """The files of a node that has nothing but the driver's list of devices."""

    def __init__(self, addresses: Sequence[str]) -> None:
        self._addresses = sorted(addresses)

    def read(self, path: str) -> str:
        raise OSError(errno.ENOENT, os.strerror(errno.ENOENT), path)

    def list(self, path: str) -> list[str]:
        if path == AMDGPU_DRIVER:
            return self._addresses
        raise OSError(errno.ENOENT, os.strerror(errno.ENOENT), path)

    def link(self, path: str) -> str:
        raise OSError(errno.ENOENT, os.strerror(errno.ENOENT), path)


def put(structure: Any, values: dict[str, Any]) -> None:
    """Set the members that this release's structure has; the others stay as they are."""
    for name, value in values.items():
        if name not in {field[0] for field in structure._fields_}:
            continue
        if isinstance(value, str):
            setattr(structure, name, value.encode())
        elif isinstance(value, list):
            member = getattr(structure, name)
            for index, entry in enumerate(value[: len(member)]):
                if isinstance(entry, dict):
                    put(member[index], entry)
                else:
                    member[index] = entry
        else:
            setattr(structure, name, value)


def tell(wrapper: Any, address: str, index: int, answers: Sequence[Answer]) -> None:
    """Tell the stand-in what its device number `index` answers."""
    library = wrapper._libraries["libamd_smi.so"]
    library.standin_device.restype = ctypes.c_void_p
    handle = ctypes.c_void_p(library.standin_device(index))

    def register(function: str, second: int, argument: int, content: bytes) -> None:
        library.standin_answer(
            function.encode(), handle, ctypes.c_int64(second), argument, content,
            ctypes.c_size_t(len(content)),
        )  # fmt: skip

    bus, device, function = (int(part, 16) for part in address[5:].replace(".", ":").split(":"))
    bdf = int(address[:4], 16) << 16 | bus << 8 | device << 3 | function
    register("amdsmi_get_gpu_device_bdf", -1, 1, bdf.to_bytes(8, "little"))
    for name, second, values in answers:
        types = getattr(getattr(wrapper, name, None), "argtypes", None)
        if types is None:
            continue  # this release has no such function
        argument = max(i for i, kind in enumerate(types) if hasattr(kind, "contents"))
        kind = types[argument]._type_
        if isinstance(values, str):
            content = values.encode() + b"\0"
        else:
            value = kind()
            if isinstance(values, dict):
                # members of which nothing is said are as the library leaves what it doesn't know
                ctypes.memset(ctypes.byref(value), values.get("*", 0), ctypes.sizeof(value))
                put(value, values)
            else:
                value.value = values
            content = bytes(value)
        register(name, second, argument, content)


def read(loaded: Loaded, devices: dict[str, list[Answer]]) -> dict[str, Any]:
    """What the collectors read of every device."""
    for index, (address, answers) in enumerate(devices.items()):
        tell(sys.modules["amdsmi.amdsmi_wrapper"], address, index, answers)
    session = AmdSmiSession(
        loaded.api, BoundOnly([*devices]), {"amdsmi_version": loaded.library_version}
    )
    session.begin(1.0)
    result: dict[str, Any] = {}
    for address, _ in session.devices():
        for collector in COLLECTORS:
            fields: dict[str, FieldValue] = {}
            for reader in collector.readers:
                if reader.source != "amdsmi":
                    continue
                for view in session.views(address, per_partition=reader.per_partition):
                    for name, value in reader.read(view).items():
                        if isinstance(fields.get(name, Absent("")), Absent):
                            fields[name] = value
            wire = {name: to_wire(value) for name, value in fields.items()}
            result.setdefault(address, {})[collector.name] = wire
    return result


def main() -> None:
    """Load, read and report."""
    devices = json.load(sys.stdin)
    try:
        loaded = load(root=os.environ["TEST_ROOT"])
    except UnavailableError as error:
        json.dump({"reason": error.reason, "remedy": error.remedy}, sys.stdout)
        return
    said = {
        field.name: getattr(loaded, field.name)
        for field in dataclasses.fields(loaded)
        if field.name != "api"
    }
    variables = ("ROCM_PATH", "ROCM_HOME", "RSMI_MUTEX_THREAD_ONLY", "AMDSMI_MUTEX_CROSS_PROCESS")
    json.dump(
        {
            "loaded": said,
            "environment": {name: os.environ.get(name) for name in variables},
            "read": read(loaded, devices) if devices else {},
        },
        sys.stdout,
    )


if __name__ == "__main__":
    main()
