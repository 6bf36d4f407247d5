"""AMD SMI: the vendor's library through its Python package `amdsmi`, versions 5.7 to 10.1.

gpu_metrics, from which most values come, is read once per device and poll and shared by the
collectors. Facts about names, keys and status codes: amdsmi_interface.py of those versions.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

from exporter.sources.files import Files
from exporter.sources.guard import counter, item, number, text
from exporter.sources.session import POLL, STATIC, Memo, UnavailableError
from exporter.sources.sysfs import bound_addresses, runtime_suspended
from exporter.values import (
    BUSY,
    ERROR,
    IMPLAUSIBLE,
    NOT_PERMITTED,
    NOT_SUPPORTED,
    STALE,
    Absent,
    Value,
)

T = TypeVar("T")

_REASONS = {2: NOT_SUPPORTED, 3: NOT_SUPPORTED, 10: NOT_PERMITTED, 30: BUSY}
DRIVER_NOT_LOADED = 34
_TABLE = "amdsmi_get_gpu_metrics_info"
_OWN_TABLE = "amdsmi_get_gpu_partition_metrics_info"
_CLOCKS = (
    "system_clock_counter",
    "firmware_timestamp",
    "accumulation_counter",
    "energy_accumulator",
)
_ENERGY = _CLOCKS.index("energy_accumulator")
"""The one that may well be zero: on a secondary die."""
STANDSTILL = 0.9
"""Seconds after which the clocks in gpu_metrics must have moved; the driver caches for 1 ms."""


class _Tables:
    """gpu_metrics in the wrapper's own structure, without the package's function around it.

    That function takes twice as long as the library itself: it looks at each of 1,000 numbers
    whether it is all ones. The guard does so with those that are wanted. The entries have the
    names that the function gives them.

    Args:
        api: the package; its structures have been found to be the library's.
    """

    def __init__(self, api: Any) -> None:
        self._wrapper: Any = api.amdsmi_wrapper
        self._check: Callable[[int], None] = api.amdsmi_interface._check_res
        self._structure: type[ctypes.Structure] = self._wrapper.amdsmi_gpu_metrics_t
        self._numbers: list[str] = []
        self._lists: list[str] = []
        self._headers: list[tuple[str, str, str]] = []
        self._rows: list[tuple[str, str, str]] = []
        for name, kind, *_ in self._structure._fields_:
            if issubclass(kind, ctypes._SimpleCData):
                self._numbers.append(name)
            elif issubclass(kind, ctypes.Structure):
                self._headers += _inside(name, kind)
            elif issubclass(kind, ctypes.Array) and not name.startswith("PADDING"):
                if issubclass(kind._type_, ctypes.Structure):
                    self._rows += _inside(name, kind._type_)
                else:
                    self._lists.append(name)

    def read(self, name: str, handle: Any) -> dict[str, object]:
        """What the library's function `name` fills in; raises what the package raises."""
        raw: Any = self._structure()
        self._check(getattr(self._wrapper, name)(handle, ctypes.byref(raw)))
        table: dict[str, object] = {name: getattr(raw, name) for name in self._numbers}
        for name in self._lists:
            table[name] = getattr(raw, name)[:]
        for key, outer, inner in self._headers:
            table[key] = getattr(getattr(raw, outer), inner)
        told = table.get("num_partition")
        for key, outer, inner in self._rows:  # one row per partition, and room for more
            rows = getattr(raw, outer)
            count = told if isinstance(told, int) and 0 < told <= len(rows) else len(rows)
            table[key] = [getattr(rows[place], inner)[:] for place in range(count)]
        return table


def _inside(name: str, structure: type[ctypes.Structure]) -> list[tuple[str, str, str]]:
    """The fields of a structure inside the table: the entry's name, its own and the field's."""
    return [(f"{name}.{field[0]}", name, field[0]) for field in structure._fields_]


@dataclass(slots=True)
class _Read:
    """What was last read of a device: its table, the clocks in it, and when they last moved."""

    table: object
    clocks: tuple[int | float | Absent, ...]
    moved_at: float


class Ever:
    """Tells what fails from what is not there: that never gave a value since the worker began.

    An integrated GPU, or a library older than the GPU, has any status for what it can't read.
    """

    def __init__(self) -> None:
        self._gave: set[object] = set()

    def judge(self, question: object, answer: T) -> T | Absent:
        """The answer; an error is "not supported" if the question was never answered before."""
        if not isinstance(answer, Absent):
            self._gave.add(question)
        elif answer.reason == ERROR and question not in self._gave:
            return Absent(NOT_SUPPORTED, answer.detail)
        return answer


class GpuMetrics:
    """The tables gpu_metrics of all devices, each judged once per poll.

    A library may report success and hand out what it read long ago; then the clocks inside the
    table stand still. It may hand out zeros for all of the table or for its end; then clocks are
    zero. And where it has one table for all devices (AMD SMI 6.1, ROCm SMI from 6.0 on) and can't
    read that of one device, it hands out the one that it read last, of whatever device.

    A table of which none was ever good is how the device is, such as that of an integrated GPU,
    whose format the libraries don't know: not supported, and asked for again in every poll.
    """

    def __init__(self) -> None:
        self._read: dict[str, _Read] = {}

    def judge(self, address: str, table: object, now: float) -> object:
        """The table itself, or an `Absent` in its place."""
        judged = self._judged(address, table, now)
        never = address not in self._read
        if never and isinstance(judged, Absent) and judged.reason in (ERROR, IMPLAUSIBLE, STALE):
            return Absent(NOT_SUPPORTED, judged.detail)
        return judged

    def _judged(self, address: str, table: object, now: float) -> object:
        before = self._read.get(address)
        if isinstance(table, Absent):
            lost = before is not None and table.reason == NOT_SUPPORTED
            return Absent(ERROR, f"{table.detail}, which it was before") if lost else table
        clocks = tuple(counter(item(table, key), bits=64) for key in _CLOCKS)
        running = [value for value in clocks if not isinstance(value, Absent)]
        if running and not any(running):
            return Absent(IMPLAUSIBLE, "gpu_metrics: every clock in it is zero")
        if not running:
            return Absent(STALE, "gpu_metrics: no clock in it is reported")
        for other, read in self._read.items():
            if other != address and read.clocks == clocks and read.table == table:
                return Absent(STALE, f"gpu_metrics: the library handed out that of {other}")
        if before is not None and any(
            new == 0 and not isinstance(old, Absent) and old > 0
            for old, new in zip(before.clocks[:_ENERGY], clocks, strict=False)
        ):
            return Absent(IMPLAUSIBLE, "gpu_metrics: a clock in it fell to zero")
        if before is None or before.clocks != clocks:
            self._read[address] = _Read(table, clocks, now)
        elif now - before.moved_at >= STANDSTILL:
            return Absent(STALE, f"gpu_metrics: its clocks stand still at {running[0]}")
        return table


class AmdSmiGpu:
    """One device, or one partition of it, as the collectors read it from AMD SMI.

    Attributes:
        address: the PCI address.
        partition: the partition's number as text, None for the whole device.
        partitioned: whether the device is split into partitions.
        index: the place in the library's own list.
    """

    def __init__(
        self,
        session: AmdSmiSession,
        handle: Any,
        address: str,
        partition: str | None,
        index: int,
        partitioned: bool,
    ) -> None:
        self.address = address
        self.index = index
        self.partition = partition
        self.partitioned = partitioned
        self._session = session
        self._handle = handle

    def metric(self, *path: str | int) -> object:
        """A raw entry of gpu_metrics, such as `temperature_hotspot`, or why there is none."""
        return item(self._session.gpu_metrics(self.address), *path)

    def call(self, name: str, *arguments: object, every: float = POLL) -> object:
        """The raw answer of a function of the package for this device, or why there is none."""
        if every == POLL:
            return self._ask(name, *arguments)
        return self._session.memo.get(
            (name, self.address, self.partition, arguments),
            every,
            lambda: self._ask(name, *arguments),
        )

    def _ask(self, name: str, *arguments: object) -> object:
        answer = self._session.call(name, self._handle, *arguments)
        return self._session.ever.judge((name, self.address, self.partition, *arguments), answer)

    def constant(self, enumeration: str, name: str) -> object:
        """A member of one of the package's enumerations, `Absent` where this version lacks it."""
        member = getattr(getattr(self._session.api, enumeration, None), name, None)
        return Absent(NOT_SUPPORTED, f"no {enumeration}.{name}") if member is None else member


def _partition_of(answer: object, order: int) -> str:
    """A partition's number: as KFD tells (6.3 and newer), else by its place in the list."""
    told = number(item(answer, "current_partition_id"))
    return str(order) if isinstance(told, Absent) else str(told)


class AmdSmiSession:
    """The library, initialised for GPUs only; see `exporter.sources.session.Session`.

    Args:
        api: the package `amdsmi`, or something that answers like it.
        files: to see whether devices came or went, and whether one sleeps.
        versions: what `node` reports under amdsmi_version and the like.

    Raises:
        UnavailableError: the driver is not loaded, or the library sees no GPU where the
            kernel does.
    """

    def __init__(self, api: Any, files: Files, versions: Mapping[str, Value]) -> None:
        self.api = api
        self.memo = Memo()
        self._files = files
        self._versions = versions
        self._bound = bound_addresses(files)
        self._tables: dict[str, object] = {}
        self.ever = Ever()
        self._judge = GpuMetrics()
        self._own: dict[str, Callable[[Any], object]] = {}
        if hasattr(api, "amdsmi_wrapper"):  # a simulated library has none
            read = _Tables(api).read
            self._own = {name: partial(read, name) for name in (_TABLE, _OWN_TABLE)}
        self._error_class: type[BaseException] = getattr(
            api, "AmdSmiLibraryException", getattr(api, "AmdSmiException", Exception)
        )
        self._start()
        self._sockets = self._enumerate()
        if not self._sockets and self._bound:
            raise UnavailableError(
                f"AMD SMI lists no GPU, but the driver is bound to {len(self._bound)}",
                "look for a second copy of librocm_smi64 or libamd_smi in LD_PRELOAD or "
                "LD_LIBRARY_PATH, and whether the user is in the groups render and video",
            )

    def _start(self) -> None:
        flags = getattr(self.api, "AmdSmiInitFlags", None)
        gpus = getattr(flags, "INIT_AMD_GPUS", None)  # never CPUs: esmi crashes (rocm-systems#6898)
        try:
            self.api.amdsmi_init(*(() if gpus is None else (gpus,)))
        except Exception as error:  # the vendor raises several unrelated classes here
            code = self._code(error)
            if code == DRIVER_NOT_LOADED:
                raise UnavailableError(
                    "AMD SMI: the amdgpu driver is not loaded (status 34)", "modprobe amdgpu"
                ) from error
            raise UnavailableError(
                f"AMD SMI: amdsmi_init failed: {_line(error)}",
                "see what `amd-smi list` says, and the kernel log",
            ) from error

    def _code(self, error: BaseException) -> int | None:
        ask = getattr(error, "get_error_code", None)
        code = ask() if callable(ask) else getattr(error, "err_code", None)
        return code if isinstance(code, int) else None

    def call(self, name: str, *arguments: object) -> object:
        """Call a function of the package; every way to fail becomes an `Absent`."""
        for argument in arguments:
            if isinstance(argument, Absent):
                return argument
        function = getattr(self.api, name, None)
        if function is None:
            return Absent(NOT_SUPPORTED, f"this version has no {name}")
        try:
            return self._own.get(name, function)(*arguments)
        except AttributeError as error:  # 10.1: a symbol that the library lacks
            return Absent(NOT_SUPPORTED, f"{name}: {_line(error)}")
        except Exception as error:  # the wrapper itself raises KeyError, ValueError, TypeError …
            code = self._code(error)
            return Absent(_REASONS.get(code or -1, ERROR), f"{name}: {_line(error)}")

    def _enumerate(self) -> dict[str, list[AmdSmiGpu]]:
        """The sockets in the library's order, each with its partitions."""
        handles = self.call("amdsmi_get_processor_handles")
        if isinstance(handles, Absent):
            raise UnavailableError(f"AMD SMI: {handles.detail}", "see what `amd-smi list` says")
        grouped: dict[str, list[tuple[int, Any, str]]] = {}
        for index, handle in enumerate(handles if isinstance(handles, list) else []):
            raw = text(self.call("amdsmi_get_gpu_device_bdf", handle))
            if isinstance(raw, Absent):
                continue  # a device that can't say which it is has no name to be served under
            address = raw.lower()
            kfd = self.call("amdsmi_get_gpu_kfd_info", handle)
            group = grouped.setdefault(f"{address[:-1]}0", [])  # a partition is a PCI function
            group.append((index, handle, _partition_of(kfd, len(group))))
        return {
            address: [
                AmdSmiGpu(self, handle, address, number if len(group) > 1 else None, index, parted)
                for index, handle, number in group
            ]
            for address, group in grouped.items()
            for parted in [len(group) > 1]
        }

    def gpu_metrics(self, address: str) -> object:
        """The table of this poll, read at most once per poll, or why there is none."""
        if address not in self._tables:
            views = self._sockets[address]
            table = views[0].call(_TABLE)
            table = self._judge.judge(address, table, self.memo.now)
            self._tables[address] = self._with_own_rows(views, table)
        return self._tables[address]

    def _with_own_rows(self, views: Sequence[AmdSmiGpu], table: object) -> object:
        """The table with each partition's row of `xcp_stats.*` from the partition's own table.

        AMD SMI 10.1 takes the rows of table 1.8 for 16 bytes longer than they are, since its own
        have one field more (`temperature_xcd`): what it gives for all but the first is false.
        """
        revision = item(table, "common_header.content_revision")
        if not isinstance(table, Mapping) or revision != 8 or not hasattr(self.api, _OWN_TABLE):
            return table
        own = [view.call(_OWN_TABLE) for view in views[1:]]
        return {
            key: [value[0], *(item(other, key, 0) for other in own)]
            if key.startswith("xcp_stats.") and isinstance(value, list) and value
            else value
            for key, value in table.items()
        }

    def node(self) -> Mapping[str, Value]:
        return {**self._versions, "devices_amdsmi": len(self._sockets)}

    def begin(self, now: float) -> None:
        self.memo.now = now
        self._tables.clear()

    def changed(self) -> bool:
        return bound_addresses(self._files) != self._bound

    def devices(self) -> Sequence[tuple[str, int]]:
        return [(address, place) for place, address in enumerate(self._sockets)]

    def suspended(self, address: str) -> bool:
        return runtime_suspended(self._files, address)

    def views(self, address: str, *, per_partition: bool) -> Sequence[AmdSmiGpu]:
        views = self._sockets[address]
        if per_partition or len(views) == 1:
            return views
        primary = views[0]
        return self.memo.get(
            ("socket", address),
            STATIC,
            lambda: [AmdSmiGpu(self, primary._handle, address, None, primary.index, True)],
        )


def _line(error: BaseException) -> str:
    """The vendor's message on one line, short enough for a log line."""
    return f"{type(error).__name__}: {' '.join(str(error).split())}"[:200]
