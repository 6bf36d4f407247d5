"""Nodes written by hand: files in memory, and as much of the package `amdsmi` as a test needs."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

from hypothesis import HealthCheck, settings

from exporter.collectors import BY_NAME
from exporter.sources.amdsmi import AmdSmiGpu, AmdSmiSession
from exporter.sources.sysfs import AMDGPU_DRIVER, KFD, PCI_DEVICES, SysfsGpu, SysfsSession
from exporter.values import Absent, FieldValue, Value

PATIENT = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
"""For properties: the machine may be busy."""

ADDRESS = "0000:05:00.0"
OTHER = "0000:19:00.0"


@dataclass
class MemoryFiles:
    """Files, and links, by path; a number stands for the errno with which reading fails."""

    files: dict[str, str | int] = field(default_factory=dict)
    links: dict[str, str] = field(default_factory=dict)
    touched: list[str] = field(default_factory=list)

    def read(self, path: str) -> str:
        self.touched.append(path)
        content = self.files.get(path, errno.ENOENT)
        if isinstance(content, int):
            raise OSError(content, os.strerror(content), path)
        return content

    def list(self, path: str) -> list[str]:
        names = {
            known[len(path) + 1 :].partition("/")[0]
            for known in (*self.files, *self.links)
            if known.startswith(f"{path}/")
        }
        if not names:
            raise OSError(errno.ENOENT, os.strerror(errno.ENOENT), path)
        return sorted(names)

    def link(self, path: str) -> str:
        if path not in self.links:
            raise OSError(errno.EINVAL, os.strerror(errno.EINVAL), path)
        return self.links[path]


def node_files(
    device: Mapping[str, str | int] | None = None,
    *,
    addresses: Sequence[str] = (ADDRESS,),
    elsewhere: Mapping[str, str | int] | None = None,
) -> MemoryFiles:
    """A node whose GPUs are bound to the driver; `device` has the files of the first."""
    files = MemoryFiles(dict(elsewhere or {}))
    for address in addresses:
        files.links[f"{AMDGPU_DRIVER}/{address}"] = f"{PCI_DEVICES}/{address}"
    for path, content in (device or {}).items():
        files.files[f"{PCI_DEVICES}/{addresses[0]}/{path}"] = content
    return files


def kfd_files(*memory: int, bus: int = 5) -> dict[str, str | int]:
    """A KFD topology with one processor and a node per entry of `memory`, all of one device."""
    base = f"{KFD}/topology"
    files: dict[str, str | int] = {
        f"{base}/generation_id": "2",
        f"{base}/nodes/0/gpu_id": "0",
        f"{base}/nodes/0/properties": "cpu_cores_count 64\n",
    }
    for number, size in enumerate(memory, 1):
        files |= {
            f"{base}/nodes/{number}/gpu_id": f"{1000 + number}",
            f"{base}/nodes/{number}/properties": (
                f"domain 0\nlocation_id {(bus << 8) + number - 1}\ngfx_target_version 90402\n"
            ),
            f"{base}/nodes/{number}/mem_banks/0/properties": f"size_in_bytes {size}\nwidth 8192\n",
        }
    return files


def sysfs_gpu(
    device: Mapping[str, str | int] | None = None,
    *,
    elsewhere: Mapping[str, str | int] | None = None,
    links: Mapping[str, str] | None = None,
) -> SysfsGpu:
    """The whole device of a node, as the session over these files shows it."""
    files = node_files(device, elsewhere=elsewhere)
    files.links |= links or {}
    return SysfsSession(files).views(ADDRESS, per_partition=False)[0]


class LibraryError(Exception):
    """As AMD SMI raises it, with a status code."""

    def __init__(self, code: int) -> None:
        super().__init__(f"Error code: {code}")
        self.code = code

    def get_error_code(self) -> int:
        """The status."""
        return self.code


def library(table: object = None, **answers: object) -> Any:
    """Something that answers like the package `amdsmi`: a function returns, or raises, its answer.

    Args:
        table: of gpu_metrics; a clock is added to it.
        answers: by function name, without the prefix `amdsmi_`.
    """

    def answering(answer: object) -> Callable[..., object]:
        def function(*arguments: object) -> object:
            given = answer(*arguments) if callable(answer) else answer
            if isinstance(given, Exception):
                raise given
            return given

        return function

    if isinstance(table, dict):
        table = {"system_clock_counter": 5_000_000_000, **table}
    every: dict[str, object] = {
        "init": None,
        "get_processor_handles": ["handle"],
        "get_gpu_device_bdf": ADDRESS,
        "get_gpu_metrics_info": LibraryError(2) if table is None else table,
        **answers,
    }
    functions = {f"amdsmi_{name}": answering(answer) for name, answer in every.items()}
    return SimpleNamespace(AmdSmiLibraryException=LibraryError, **functions)


def amdsmi_session(api: Any, files: MemoryFiles | None = None) -> AmdSmiSession:
    """A session over such a library, at second 10."""
    session = AmdSmiSession(api, files or node_files(), {"amdsmi_version": "26.1"})
    session.begin(10.0)
    return session


def amdsmi_gpu(table: object = None, **answers: object) -> AmdSmiGpu:
    """The device that such a library has."""
    session = amdsmi_session(library(table, **answers))
    return session.views(ADDRESS, per_partition=False)[0]


def partitioned(table: object, count: int) -> list[AmdSmiGpu]:
    """The partitions of a device, each a function of its PCI device."""
    api = library(
        table,
        get_processor_handles=list(range(count)),
        get_gpu_device_bdf=lambda handle: f"{ADDRESS[:-1]}{handle}",
        get_gpu_kfd_info=lambda handle: {"current_partition_id": handle},
    )
    return list(amdsmi_session(api).views(ADDRESS, per_partition=True))


def read(collector: str, gpu: object, number: int = 0) -> dict[str, FieldValue]:
    """What a reader, by its place in the collector's order, gives of a device."""
    return dict(BY_NAME[collector].readers[number].read(gpu))


def number_of(collector: str, name: str) -> int:
    """The place of a reader by the name of its function."""
    readers = BY_NAME[collector].readers
    return next(n for n, reader in enumerate(readers) if reader.read.__name__ == name)


def reason(value: object) -> str:
    """Why a value is absent."""
    assert isinstance(value, Absent), value
    return value.reason


def entries(value: FieldValue) -> dict[str, Value]:
    """A field that has several values."""
    assert isinstance(value, Mapping), value
    return dict(value)


def given(value: FieldValue) -> dict[str, Value]:
    """Those of its values that are not absent."""
    return {key: item for key, item in entries(value).items() if not isinstance(item, Absent)}
