"""ROCm SMI: AMD's older library, through the binding file that is installed with it.

Structures, enumerations and status codes are those of the binding file. What each version answers
was tried on those of ROCm 5.2.3, 6.1.2 and 6.4.1, over a simulated kernel.

gpu_metrics is read once per device and poll. The binding file describes its C structure from 6.4
on. Up to 6.2 it only grew at its end, so the part that all versions share is described here; the
memory behind what a version fills in keeps all ones, AMD's own mark for "no value".
"""

from __future__ import annotations

import ctypes
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

from exporter.sources.amdsmi import GpuMetrics
from exporter.sources.files import Files, read_text
from exporter.sources.guard import item, text
from exporter.sources.rocm_smi_library import Loaded, load
from exporter.sources.rocm_smi_tool import RocmSmiToolSession, find
from exporter.sources.session import POLL, SLOW, STATIC, Memo, Session, UnavailableError
from exporter.sources.sysfs import KFD, PCI_DEVICES, bound_addresses, runtime_suspended
from exporter.values import (
    BUSY,
    ERROR,
    IMPLAUSIBLE,
    NOT_PERMITTED,
    NOT_SUPPORTED,
    SENTINEL,
    Absent,
    Value,
)

T = TypeVar("T")
_REASONS = {
    2: NOT_SUPPORTED,
    4: NOT_PERMITTED,
    9: NOT_SUPPORTED,  # not yet implemented
    10: NOT_SUPPORTED,  # not found
    14: NOT_SUPPORTED,  # no data
    16: BUSY,
    18: NOT_SUPPORTED,  # setting unavailable
}
"""Status codes (rsmi_status_t) with a meaning; the numbers are the same in all versions."""
_MARGIN = 8192
"""Bytes behind every structure, in case that the library knows a longer one."""
_FORMATS = (1, 2, 3)
"""The formats of gpu_metrics that there are (kgd_pp_interface.h): 1 for GPUs, others for APUs."""
# The files that the library takes apart, in the form that it expects; no part matches in two ways.
_CLOCK_LEVELS = re.compile(r"(?:(?:\d+|S): *\d+Mhz(?: *\*)?\s*)*", re.IGNORECASE)
_PCIE_LEVELS = re.compile(r"(?:\d+: *[\d.]+GT/s, *x\d+(?: *\d+Mhz)?(?: *\*)?\s*)*", re.IGNORECASE)
_FEATURES = re.compile(r"feature mask: 0x[0-9a-f]+(?:\s.*)?", re.IGNORECASE | re.DOTALL)
_ERROR_COUNT = re.compile(r"ue: \d+\s+ce: \d+(?:\s+de: \d+)?\s*")
_BAD_PAGES = re.compile(r"(?:0x[0-9a-f]+ : 0x[0-9a-f]+ : [RPF]\s*)*", re.IGNORECASE)
_TEXT_SIZE = 256
_DRM = "/sys/class/drm"
_SHARED_MEMORY = "/dev/shm"  # noqa: S108  # only looked at
_LOCK = "rocm_smi_card"
_MOST_PAGES = 100_000
_RESERVED_BLOCK = 1 << 63
_CLOCK_FILES = {"sys": "sclk", "df": "fclk", "dcef": "dcefclk", "soc": "socclk", "mem": "mclk"}
_ALIASES = ("first", "last", "invalid")

_U16, _U32, _U64 = ctypes.c_uint16, ctypes.c_uint32, ctypes.c_uint64


class _MetricsHeader(ctypes.Structure):
    _fields_ = (
        ("structure_size", _U16),
        ("format_revision", ctypes.c_uint8),
        ("content_revision", ctypes.c_uint8),
    )


_TEMPERATURES = ("edge", "hotspot", "mem", "vrgfx", "vrsoc", "vrmem")
_AVERAGES = ("gfx_activity", "umc_activity", "mm_activity", "socket_power")
_CLOCKS = ("gfxclk", "socclk", "uclk", "vclk0", "dclk0", "vclk1", "dclk1")
_PCIE_COUNTS = (
    "bandwidth_acc",
    "bandwidth_inst",
    "l0_to_recov_count_acc",
    "replay_count_acc",
    "replay_rover_count_acc",
)


class SharedMetrics(ctypes.Structure):
    """The part of `rsmi_gpu_metrics_t` in which all versions agree; names as in 6.4's file."""

    _fields_ = (
        ("common_header", _MetricsHeader),
        *((f"temperature_{name}", _U16) for name in _TEMPERATURES),
        *((f"average_{name}", _U16) for name in _AVERAGES),
        ("energy_accumulator", _U64),
        ("system_clock_counter", _U64),
        *((f"average_{name}_frequency", _U16) for name in _CLOCKS),
        *((f"current_{name}", _U16) for name in _CLOCKS),
        ("throttle_status", _U32),
        ("current_fan_speed", _U16),
        ("pcie_link_width", _U16),
        ("pcie_link_speed", _U16),
        ("gfx_activity_acc", _U32),
        ("mem_activity_acc", _U32),
        ("temperature_hbm", _U16 * 4),  # 5.2 ends here
        ("firmware_timestamp", _U64),
        *((f"voltage_{name}", _U16) for name in ("soc", "gfx", "mem")),
        ("indep_throttle_status", _U64),
        ("current_socket_power", _U16),
        ("vcn_activity", _U16 * 4),
        ("gfxclk_lock_status", _U32),
        ("xgmi_link_width", _U16),
        ("xgmi_link_speed", _U16),
        *((f"pcie_{name}", _U64) for name in _PCIE_COUNTS),
        ("xgmi_read_data_acc", _U64 * 8),
        ("xgmi_write_data_acc", _U64 * 8),
        ("current_gfxclks", _U16 * 8),
        ("current_socclks", _U16 * 4),
        ("current_vclk0s", _U16 * 4),
        ("current_dclk0s", _U16 * 4),  # 6.0 ends here
        ("jpeg_activity", _U16 * 32),
        ("pcie_nak_sent_count_acc", _U32),
        ("pcie_nak_rcvd_count_acc", _U32),  # 6.1 and 6.2 end here
    )


def plain(raw: Any) -> object:
    """A ctypes structure as AMD SMI's Python package would give it: dicts, lists and numbers.

    An array of structures becomes one list per field, under `array.field`. An array that holds
    nothing but all ones was not filled in: it is absent as a whole.
    """
    if isinstance(raw, ctypes.Structure):
        table: dict[str, object] = {}
        for entry in raw._fields_:
            name, value = entry[0], getattr(raw, entry[0])
            if isinstance(value, ctypes.Array) and issubclass(value._type_, ctypes.Structure):
                rows = [plain(element) for element in value]
                for inner in value._type_._fields_:
                    table[f"{name}.{inner[0]}"] = [item(row, inner[0]) for row in rows]
            else:
                table[name] = plain(value)
        return table
    if isinstance(raw, ctypes.Array):
        if bytes(raw).strip(b"\xff"):
            return list(raw)
        return Absent(SENTINEL, "all ones")
    return raw


class Library:
    """The calls of one loaded library, each guarded: the answer, or why there is none.

    Args:
        loaded: the library and AMD's binding module.
    """

    def __init__(self, loaded: Loaded) -> None:
        self.loaded = loaded
        codes = loaded.bindings.rsmi_status_t
        self._statuses = {
            value & 0xFFFFFFFF: name
            for name, value in vars(codes).items()
            if name.startswith("RSMI_STATUS_") and isinstance(value, int)
        }

    def structure(self, name: str) -> Any:
        """A structure of AMD's binding file by its name, None where this version has none."""
        return getattr(self.loaded.bindings, name, None)

    def members(self, enumeration: str, prefix: str) -> dict[str, int]:
        """The members of an enumeration, named in lower case without the prefix."""
        found = {
            name[len(prefix) :].lower(): value
            for name, value in vars(self.structure(enumeration) or object).items()
            if name.startswith(prefix) and isinstance(value, int)
        }
        return {name: value for name, value in found.items() if name not in _ALIASES}

    def call(self, name: str, *arguments: object) -> Absent | None:
        """Call a function whose answers lie behind pointers; None where it succeeded."""
        try:
            function = getattr(self.loaded.library, name)
        except AttributeError:
            return Absent(NOT_SUPPORTED, f"this version has no {name}")
        status = function(*arguments) & 0xFFFFFFFF
        if not status:
            return None
        known = self._statuses.get(status, "unknown")
        return Absent(_REASONS.get(status, ERROR), f"{name}: {known} ({status})")

    def ask(self, name: str, kind: Any, *arguments: object) -> Any | Absent:
        """Call a function with one out-parameter of the ctypes type `kind`, which is last."""
        if kind is None:
            return Absent(NOT_SUPPORTED, f"{name}: its structure is not in AMD's binding file")
        answer = kind.from_buffer(bytearray(b"\xff" * (ctypes.sizeof(kind) + _MARGIN)))
        failed = self.call(name, *arguments, ctypes.byref(answer))
        return failed if failed is not None else answer

    def text(self, name: str, *arguments: object) -> str | Absent:
        """Call a function that fills in a text."""
        memory = ctypes.create_string_buffer(_TEXT_SIZE)
        failed = self.call(name, *arguments, memory, ctypes.c_size_t(_TEXT_SIZE))
        return failed if failed is not None else text(memory.value.decode("utf-8", "replace"))


class RocmSmiGpu:
    """One device, or one partition of it, as the collectors read it from ROCm SMI.

    Attributes:
        address: the PCI address.
        partition: the partition's number as text, None for the whole device.
        partitioned: whether the device is split into partitions.
        index: the library's number of the device.
    """

    def __init__(
        self,
        session: RocmSmiSession,
        index: int,
        address: str,
        partition: str | None,
        partitioned: bool,
    ) -> None:
        self.address = address
        self.partition = partition
        self.partitioned = partitioned
        self.index = index
        self._session = session
        self._library = session.library

    def metric(self, *path: str | int) -> object:
        """A raw entry of gpu_metrics, such as `temperature_hotspot`, or why there is none.

        The names are those of `rsmi_gpu_metrics_t` in ROCm 6.4's binding file, which AMD SMI
        has too, so that one reader function serves both libraries.
        """
        return item(self._session.gpu_metrics(self.address), *path)

    def get(self, name: str, kind: str, *arguments: int, every: float = POLL) -> object:
        """The raw number that a function of the library answers, or why there is none.

        Args:
            name: of the function, such as `rsmi_dev_busy_percent_get`.
            kind: of its last parameter, as in C without `_t`: `uint32`, `uint64`, `int64` …
            arguments: between the device and that parameter.
            every: how many seconds the answer is kept.
        """
        c_type = getattr(ctypes, f"c_{kind}")

        def ask() -> object:
            answer = self._library.ask(name, c_type, self.index, *arguments)
            return answer if isinstance(answer, Absent) else answer.value

        return self._keep(every, ask, name, *arguments)

    def text(self, name: str, every: float = STATIC) -> str | Absent:
        """The text that a function of the library answers, or why there is none."""
        return self._keep(every, lambda: self._library.text(name, self.index), name)

    def clock(self, name: str, every: float = POLL) -> object:
        """A clock by AMD's name (`sys`, `df`, `soc`, `mem`): `current` and `highest`, in hertz."""

        def ask() -> object:
            types = self._library.members("rsmi_clk_type_t", "RSMI_CLK_TYPE_")
            if name not in types or name not in _CLOCK_FILES:
                return Absent(NOT_SUPPORTED, f"this version has no clock {name}")
            unsafe = self._unsafe(f"pp_dpm_{_CLOCK_FILES[name]}", _CLOCK_LEVELS)
            if unsafe is not None:
                return unsafe
            kind = self._library.structure("rsmi_frequencies_t")
            answer = self._library.ask("rsmi_dev_gpu_clk_freq_get", kind, self.index, types[name])
            return answer if isinstance(answer, Absent) else _level(answer, answer.frequency)

        return self._keep(every, ask, "clock", name)

    def pci_bandwidth(self, every: float = POLL) -> object:
        """The PCIe link by its table of levels: `transfers` per second and `lanes`.

        Each is a mapping with `current` and `highest`.
        """

        def ask() -> object:
            unsafe = self._unsafe("pp_dpm_pcie", _PCIE_LEVELS)
            if unsafe is not None:
                return unsafe
            kind = self._library.structure("rsmi_pcie_bandwidth_t")
            answer = self._library.ask("rsmi_dev_pci_bandwidth_get", kind, self.index)
            if isinstance(answer, Absent):
                return answer
            rate = answer.transfer_rate
            return {"transfers": _level(rate, rate.frequency), "lanes": _level(rate, answer.lanes)}

        return self._keep(every, ask, "pci_bandwidth")

    def ras_blocks(self) -> Mapping[str, int] | Absent:
        """The blocks whose errors are counted, by name (`umc`), with their masks."""
        enabled = self._keep(SLOW, self._enabled, "ras_blocks")
        if isinstance(enabled, Absent):
            return enabled
        blocks = self._library.members("rsmi_gpu_block_t", "RSMI_GPU_BLOCK_")
        return {name: mask for name, mask in blocks.items() if mask & enabled & ~_RESERVED_BLOCK}

    def _enabled(self) -> int | Absent:
        unsafe = self._unsafe("ras/features", _FEATURES)
        if unsafe is not None:
            return unsafe
        answer = self._library.ask("rsmi_dev_ecc_enabled_get", ctypes.c_uint64, self.index)
        return answer if isinstance(answer, Absent) else int(answer.value)

    def error_count(self, block: str, mask: int) -> object:
        """The errors of a RAS block since the driver was loaded: `correctable_err` and so on."""

        def ask() -> object:
            unsafe = self._unsafe(f"ras/{block}_err_count", _ERROR_COUNT)
            if unsafe is not None:
                return unsafe
            kind = self._library.structure("rsmi_error_count_t")
            answer = self._library.ask(
                "rsmi_dev_ecc_count_get", kind, self.index, ctypes.c_uint64(mask)
            )
            return answer if isinstance(answer, Absent) else plain(answer)

        return self._keep(SLOW, ask, "error_count", mask)

    def page_counts(self) -> Mapping[str, int] | Absent:
        """How many VRAM pages are `reserved`, `pending` and `unreservable`."""
        return self._keep(SLOW, self._page_counts, "pages")

    def _page_counts(self) -> Mapping[str, int] | Absent:
        unsafe = self._unsafe("ras/gpu_vram_bad_pages", _BAD_PAGES)
        if unsafe is not None:
            return unsafe
        name = "rsmi_dev_memory_reserved_pages_get"
        count = ctypes.c_uint32(0)
        failed = self._library.call(name, self.index, ctypes.byref(count), None)
        if failed is not None:
            return failed
        if count.value > _MOST_PAGES:
            return Absent(ERROR, f"{name}: {count.value} pages")
        states = self._library.members("rsmi_memory_page_status_t", "RSMI_MEM_PAGE_STATUS_")
        counts = dict.fromkeys(states, 0)
        if not count.value:
            return counts
        record = self._library.structure("rsmi_retired_page_record_t")
        if record is None:
            return Absent(NOT_SUPPORTED, f"{name}: its structure is not in AMD's binding file")
        pages = (record * count.value)()
        failed = self._library.call(name, self.index, ctypes.byref(count), pages)
        if failed is not None:
            return failed
        names = {value: state for state, value in states.items()}
        for page in pages[: count.value]:
            if page.status in names:
                counts[names[page.status]] += 1
        return counts

    def firmware(self) -> Mapping[str, int | Absent]:
        """The firmware versions as numbers, by block (`smc`, `ta_ras`); asked once."""
        name = "rsmi_dev_firmware_version_get"
        blocks = self._library.members("rsmi_fw_block_t", "RSMI_FW_BLOCK_")
        found: dict[str, int | Absent] = {}
        for block, number in blocks.items():
            version = self.get(name, "uint64", number, every=STATIC)
            found[block] = version if isinstance(version, (int, Absent)) else Absent(ERROR)
        return found

    def _unsafe(self, path: str, shape: re.Pattern[str]) -> Absent | None:
        """Why the library must not be asked about a file; None where it may.

        Where the file has another form than it expects, a library built with assertions (Debian's)
        ends the process, and where it can't be read, 6.1 answers success and zero.
        """
        content = self._session.file(self.address, path)
        if isinstance(content, Absent):
            return content
        if not shape.fullmatch(content):
            return Absent(ERROR, f"{path}: {content[:40]!r}")
        return None

    def _keep(self, every: float, ask: Callable[[], T], *key: object) -> T:
        if every == POLL:
            return ask()
        return self._session.memo.get((self.index, self.partition, *key), every, ask)


def _level(table: Any, values: Any) -> object:
    """The marked entry and the highest of a table of levels (`rsmi_frequencies_t`)."""
    count = table.num_supported
    if not 0 < count <= len(values):
        return Absent(NOT_SUPPORTED, f"{count} levels")
    levels = list(values[:count])
    return {
        "current": levels[table.current]
        if table.current < count
        else Absent(NOT_SUPPORTED, "no level marked"),
        "highest": max(levels),
    }


def _place(pci_id: int) -> tuple[str, int]:
    """The PCI address of the socket and the partition's number, from the library's 64 bits."""
    domain, bus, device = pci_id >> 32, pci_id >> 8 & 0xFF, pci_id >> 3 & 0x1F
    # The partition stands in bits 28 to 31; versions before showed it as the PCI function.
    return f"{domain:04x}:{bus:02x}:{device:02x}.0", pci_id >> 28 & 0xF or pci_id & 7


class RocmSmiSession:
    """The library, initialised; see `exporter.sources.session.Session`.

    Args:
        loaded: by `rocm_smi_library.load`, in this process.
        files: to see whether devices came or went, and whether one sleeps.

    Raises:
        UnavailableError: the driver is not loaded, the library does not start here, or it sees no
            GPU where the kernel does.
    """

    def __init__(self, loaded: Loaded, files: Files) -> None:
        self.library = Library(loaded)
        self.memo = Memo()
        self._files = files
        self._version = loaded.version
        self._bound = bound_addresses(files)
        self._generation = self._kfd_generation()
        self._tables: dict[str, object] = {}
        self._judge = GpuMetrics()
        self._start()
        self._sockets = self._enumerate()
        if not self._sockets:
            raise UnavailableError(
                f"ROCm SMI lists no GPU, but the driver is bound to {len(self._bound)}",
                "look for a second copy of librocm_smi64 in LD_PRELOAD or LD_LIBRARY_PATH",
            )

    def _start(self) -> None:
        cards = [name for name in self._names(_DRM) if name.startswith("card")]
        if not self._bound or not cards:  # 6.1 then counts through 2^32 cards in rsmi_init
            raise UnavailableError(
                "ROCm SMI: the amdgpu driver is not loaded, or has no device", "modprobe amdgpu"
            )
        failed = self.library.call("rsmi_init", ctypes.c_uint64(0))
        if failed is None:
            return
        remedy = (
            "see the kernel log; before ROCm 6.0 the library does not start where hwmon has no "
            "in0_label, as on MI300: install a newer one, or AMD SMI"
        )
        if any(name.startswith(_LOCK) for name in self._names(_SHARED_MEMORY)):
            remedy += (
                f". A killed process may also have left a lock of it: stop all that use ROCm SMI "
                f"and remove {_SHARED_MEMORY}/{_LOCK}*"
            )
        raise UnavailableError(f"ROCm SMI{self._named()}: {failed.detail}", remedy)

    def _names(self, path: str) -> list[str]:
        try:
            return self._files.list(path)
        except OSError:
            return []

    def _named(self) -> str:
        return "" if isinstance(self._version, Absent) else f" {self._version}"

    def _kfd_generation(self) -> str | Absent:
        return read_text(self._files, f"{KFD}/topology/generation_id")

    def _enumerate(self) -> dict[str, list[RocmSmiGpu]]:
        count = self.library.ask("rsmi_num_monitor_devices", ctypes.c_uint32)
        if isinstance(count, Absent):
            raise UnavailableError(f"ROCm SMI: {count.detail}", "see what `rocm-smi` says")
        grouped: dict[str, list[tuple[int, int]]] = {}
        for index in range(count.value):
            pci_id = self.library.ask("rsmi_dev_pci_id_get", ctypes.c_uint64, index)
            if isinstance(pci_id, Absent):
                continue  # a device that can't say which it is has no name to be served under
            address, number = _place(pci_id.value)
            grouped.setdefault(address, []).append((index, number))
        return {address: self._views_of(address, group) for address, group in grouped.items()}

    def _views_of(self, address: str, group: list[tuple[int, int]]) -> list[RocmSmiGpu]:
        if len(group) == 1:
            return [RocmSmiGpu(self, group[0][0], address, None, partitioned=False)]
        told = len({number for _, number in group}) == len(group)
        return [
            RocmSmiGpu(self, index, address, str(number if told else order), partitioned=True)
            for order, (index, number) in enumerate(group)
        ]

    def file(self, address: str, path: str) -> str | Absent:
        """A file of a PCI device."""
        return read_text(self._files, f"{PCI_DEVICES}/{address}/{path}")

    def gpu_metrics(self, address: str) -> object:
        """The table of this poll, read at most once per poll, or why there is none."""
        if address not in self._tables:
            table = self._table(address)
            self._tables[address] = self._judge.judge(address, table, self.memo.now)
        return self._tables[address]

    def _table(self, address: str) -> object:
        kind = self.library.structure("rsmi_gpu_metrics_t") or SharedMetrics
        index = self._sockets[address][0].index
        answer = self.library.ask("rsmi_dev_gpu_metrics_info_get", kind, index)
        if isinstance(answer, Absent):
            return answer
        revision = answer.common_header.format_revision
        if revision not in _FORMATS:  # 5.2 passes on whatever it has read
            return Absent(IMPLAUSIBLE, f"gpu_metrics: its header tells format {revision}")
        return plain(answer)

    def node(self) -> Mapping[str, Value]:
        return {"rocm_smi_version": self._version, "devices_rocm_smi": len(self._sockets)}

    def begin(self, now: float) -> None:
        self.memo.now = now
        self._tables.clear()

    def changed(self) -> bool:
        return (
            bound_addresses(self._files) != self._bound
            or self._kfd_generation() != self._generation
        )

    def devices(self) -> Sequence[tuple[str, int]]:
        return [(address, place) for place, address in enumerate(self._sockets)]

    def suspended(self, address: str) -> bool:
        return runtime_suspended(self._files, address)

    def views(self, address: str, *, per_partition: bool) -> Sequence[RocmSmiGpu]:
        views = self._sockets[address]
        if per_partition or len(views) == 1:
            return views
        index = views[0].index
        return self.memo.get(
            ("socket", address),
            STATIC,
            lambda: [RocmSmiGpu(self, index, address, None, partitioned=True)],
        )


def open_session(files: Files, root: str = "/") -> Session:
    """ROCm SMI as this node has it: the library, or where it can't be loaded the command.

    Args:
        files: for the session.
        root: the folder that stands for `/` when looking for an installed ROCm.

    Raises:
        UnavailableError: there is neither, or the library does not start here.
    """
    try:
        loaded = load(root=root)
    except UnavailableError as no_library:
        try:
            return RocmSmiToolSession((find(),), files)
        except UnavailableError as no_tool:
            raise UnavailableError(
                f"{no_library.reason}; {no_tool.reason}", no_library.remedy
            ) from no_tool
    return RocmSmiSession(loaded, files)
