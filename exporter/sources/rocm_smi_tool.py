"""The last resort: the command `rocm-smi`, where AMD's binding file is not installed.

A run takes 0.2 s of CPU time and more, so it is run on a slow clock: once in `EVERY` seconds, in
the background, one at a time and with all the flags that are needed. Its values are kept until the
next run has ended. It is never used where the library works.

The keys of its JSON differ from version to version; those of 5.2 to 6.4 are known here. Warnings
may stand before the JSON, and where no field is supported there is none, with any exit status.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import subprocess
from collections.abc import Mapping, Sequence

from exporter.sources.files import Files
from exporter.sources.guard import MEGAHERTZ, number, text
from exporter.sources.orphan import die_with_parent
from exporter.sources.session import POLL, STATIC, UnavailableError
from exporter.sources.sysfs import bound_addresses, runtime_suspended
from exporter.values import ERROR, NO_ANSWER, NOT_SUPPORTED, Absent, Value

EVERY = 60.0
"""Seconds between two runs."""
TIMEOUT = 10.0
"""Seconds after which a run is killed."""
_SHOW = (
    "bus temp power maxpower use memuse replaycount fan productname vbios uniqueid serial clocks "
    "energycounter meminfo"
)
_FLAGS = ("--json", *(f"--show{what}" for what in _SHOW.split()), "vram", "vis_vram", "gtt")
_MICRO = 1e6
_MOST_OUTPUT = 4 << 20

_METRICS = {
    "temperature_edge": ("Temperature (Sensor edge) (C)",),
    "temperature_hotspot": ("Temperature (Sensor junction) (C)",),
    "temperature_mem": ("Temperature (Sensor memory) (C)",),
    "average_socket_power": ("Average Graphics Package Power (W)",),
    "current_socket_power": ("Current Socket Graphics Package Power (W)",),
    "average_gfx_activity": ("GPU use (%)",),
    "average_umc_activity": ("GPU Memory Read/Write Activity (%)", "GPU memory use (%)"),
    "energy_accumulator": ("Energy counter",),
}
_CALLS: dict[tuple[object, ...], tuple[str, float]] = {
    ("rsmi_dev_power_cap_get", 0): ("Max Graphics Package Power (W)", _MICRO),
    ("rsmi_dev_memory_total_get", 0): ("VRAM Total Memory (B)", 1),
    ("rsmi_dev_memory_usage_get", 0): ("VRAM Total Used Memory (B)", 1),
    ("rsmi_dev_memory_total_get", 1): ("VIS_VRAM Total Memory (B)", 1),
    ("rsmi_dev_memory_usage_get", 1): ("VIS_VRAM Total Used Memory (B)", 1),
    ("rsmi_dev_memory_total_get", 2): ("GTT Total Memory (B)", 1),
    ("rsmi_dev_memory_usage_get", 2): ("GTT Total Used Memory (B)", 1),
    ("rsmi_dev_pci_replay_counter_get",): ("PCIe Replay Count", 1),
    ("rsmi_dev_fan_speed_get", 0): ("Fan speed (%)", 1),
}
_TEXTS = {
    "rsmi_dev_name_get": ("Card Series", "Card series"),
    "rsmi_dev_vbios_version_get": ("VBIOS version",),
    "rsmi_dev_serial_number_get": ("Serial Number",),
}
_CLOCKS = {"sys": "sclk", "mem": "mclk", "soc": "socclk", "df": "fclk"}
_ADDRESS = re.compile(r"[0-9a-f]{4,}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]")


def find(environment: Mapping[str, str] = os.environ) -> str:
    """The command: that of $ROCM_PATH, on the path, or of /opt/rocm.

    Raises:
        UnavailableError: there is none; a minimal ROCm comes without.
    """
    folders = [os.path.join(place, "bin") for place in (environment.get("ROCM_PATH"),) if place]
    folders += [environment.get("PATH", os.defpath), "/opt/rocm/bin"]
    found = shutil.which("rocm-smi", path=os.pathsep.join(folders))
    if found is None:
        raise UnavailableError("no command rocm-smi", "install the package rocm-smi")
    return found


class Run:
    """One run of the command, in the background: a poll has less time than it may take.

    Args:
        command: the program and what goes before the flags.
        started: the monotonic time, in seconds.
    """

    def __init__(self, command: Sequence[str], started: float) -> None:
        self.started = started
        self._name = command[-1]
        # Files in memory, since a full pipe that nobody reads would stop the tool.
        self._output = os.memfd_create("rocm-smi")
        self._errors = os.memfd_create("rocm-smi errors")
        self._process: subprocess.Popen[bytes] | None = None
        self._failure = ""
        try:
            self._process = subprocess.Popen(  # noqa: S603  # found on this node
                [*command, *_FLAGS],
                stdin=subprocess.DEVNULL,
                stdout=self._output,
                stderr=self._errors,
                env={**os.environ, "RSMI_MUTEX_THREAD_ONLY": "1"},
                preexec_fn=die_with_parent,  # the worker may be killed at any time
            )
        except OSError as error:
            self._failure = error.strerror or str(error)

    def wait(self) -> None:
        """Wait for its end, but not longer than `TIMEOUT`."""
        if self._process is not None:
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(TIMEOUT)

    def result(self, now: float) -> str | Absent | None:
        """The output, or why there is none; None while it still runs."""
        if self._process is None:
            return Absent(ERROR, f"{self._name}: {self._failure}")
        status = self._process.poll()
        if status is None:
            if now - self.started < TIMEOUT:
                return None
            self._process.kill()
            with contextlib.suppress(subprocess.TimeoutExpired):  # one in state D stays
                self._process.wait(0.2)
            return Absent(NO_ANSWER, f"{self._name}: no answer in {TIMEOUT:.0f} s")
        output = _text_of(self._output)
        if "{" not in output:
            said = " ".join((output + _text_of(self._errors)).split())[-200:]
            return Absent(ERROR, f"{self._name}: status {status}, no JSON: {said}")
        return output

    def close(self) -> None:
        """Let go of the files."""
        os.close(self._output)
        os.close(self._errors)


def _text_of(descriptor: int) -> str:
    return os.pread(descriptor, _MOST_OUTPUT, 0).decode("utf-8", "replace")


def parse(output: str) -> dict[str, dict[str, str]]:
    """PCI address to what the tool says of that device; empty where the output is no use.

    Whatever stands before and after the JSON is skipped, and so is every entry of another shape
    and every device without an address, which could be any.
    """
    found: dict[str, dict[str, str]] = {}
    decoder = json.JSONDecoder()
    start = output.find("{")
    while start >= 0:
        try:
            document, _ = decoder.raw_decode(output, start)
        except (ValueError, RecursionError):
            document = None
        if isinstance(document, dict):
            for entry in document.values():
                if not isinstance(entry, dict):
                    continue
                address = str(entry.get("PCI Bus", "")).strip().lower()
                if _ADDRESS.fullmatch(address):
                    found[address] = {
                        str(key): value for key, value in entry.items() if isinstance(value, str)
                    }
            if found:
                return found
        start = output.find("{", start + 1)
    return found


def _devices(output: str | Absent | None) -> dict[str, dict[str, str]] | Absent:
    return parse(output) if isinstance(output, str) else output or Absent(NO_ANSWER)


class ToolGpu:
    """One device as the collectors read it; answers like `RocmSmiGpu`, with less.

    Attributes:
        address: the PCI address.
        partition: always None: the tool doesn't say which partition it means.
        partitioned: always False, for the same reason.
        index: the place in the tool's list.
    """

    def __init__(self, session: RocmSmiToolSession, address: str, index: int) -> None:
        self.address = address
        self.partition = None
        self.partitioned = False
        self.index = index
        self._session = session

    def _raw(self, *keys: str) -> str | Absent:
        said = self._session.said(self.address)
        if isinstance(said, Absent):
            return said
        for key in keys:
            raw = said.get(key)
            if raw is not None:
                # 'N/A', 'N/A (Secondary die)', 'Unsupported', …
                return Absent(NOT_SUPPORTED, raw[:80]) if raw[:2] in ("N/", "Un") else raw
        return Absent(NOT_SUPPORTED, f"rocm-smi has no {keys[-1]!r}")

    def metric(self, *path: str | int) -> object:
        """What the tool prints of gpu_metrics, as text; most of it is missing."""
        name = path[0]
        if name == "temperature_hbm":
            stacks: list[object] = [
                self._raw(f"Temperature (Sensor HBM {stack}) (C)") for stack in range(4)
            ]
            missing = next((raw for raw in stacks if isinstance(raw, Absent)), None)
            return stacks if missing is None else missing
        keys = _METRICS.get(str(name))
        return self._raw(*keys) if keys else Absent(NOT_SUPPORTED, f"rocm-smi has no {name}")

    def get(self, name: str, kind: str, *arguments: int, every: float = POLL) -> object:
        """The number that the library's function would answer, in that function's unit."""
        if name == "rsmi_dev_unique_id_get":
            raw = self._raw("Unique ID")
            if isinstance(raw, Absent):
                return raw
            digits = raw.lower().removeprefix("0x")
            return (
                int(digits, 16) if re.fullmatch(r"[0-9a-f]{1,16}", digits) else Absent(ERROR, raw)
            )
        if name == "rsmi_dev_fan_speed_max_get":
            return 100  # the speed is taken in percent
        known = _CALLS.get((name, *arguments))
        if known is None:
            return Absent(NOT_SUPPORTED, f"rocm-smi doesn't say what {name} does")
        key, scale = known
        return number(self._raw(key), scale=scale, ones=frozenset())

    def text(self, name: str, every: float = STATIC) -> str | Absent:
        """The text that the library's function would answer."""
        keys = _TEXTS.get(name)
        if keys is None:
            return Absent(NOT_SUPPORTED, f"rocm-smi doesn't say what {name} does")
        return text(self._raw(*keys))

    def clock(self, name: str, every: float = POLL) -> object:
        """The current clock in hertz; the highest is not told."""
        raw = self._raw(f"{_CLOCKS.get(name, name)} clock speed:")
        if isinstance(raw, Absent):
            return raw
        digits = re.search(r"(\d+)\s*mhz", raw, re.IGNORECASE)
        return {"current": int(digits[1]) * MEGAHERTZ} if digits else Absent(ERROR, raw[:80])

    def pci_bandwidth(self, every: float = POLL) -> object:
        """The link at present, from `1 (16.0GT/s x16)`."""
        raw = self._raw("pcie clock level")
        if isinstance(raw, Absent):
            return raw
        link = re.search(r"([\d.]+)\s*GT/s\s*,?\s*x(\d+)", raw)
        if link is None:
            return Absent(ERROR, raw[:80])
        return {
            "transfers": {"current": number(link[1], scale=1e9)},
            "lanes": {"current": int(link[2])},
        }

    def ras_blocks(self) -> Mapping[str, int] | Absent:
        """Not asked for: the tool takes long for it, and prints a table even in JSON."""
        return Absent(NOT_SUPPORTED, "not asked of rocm-smi")

    def error_count(self, block: str, mask: int) -> object:
        """Not asked for."""
        return Absent(NOT_SUPPORTED, "not asked of rocm-smi")

    def page_counts(self) -> Mapping[str, int] | Absent:
        """Not asked for."""
        return Absent(NOT_SUPPORTED, "not asked of rocm-smi")

    def firmware(self) -> Mapping[str, int | Absent]:
        """Not asked for."""
        return {}


class RocmSmiToolSession:
    """The command as a source; see `exporter.sources.session.Session`.

    Args:
        command: the program and what goes before the flags, as `find` gives it.
        files: to see whether devices came or went, and whether one sleeps.

    Raises:
        UnavailableError: the command gives nothing of use.
    """

    def __init__(self, command: Sequence[str], files: Files) -> None:
        self._command = command
        self._files = files
        self._bound = bound_addresses(files)
        self._running: Run | None = None
        self._due = 0.0
        first = Run(command, 0.0)
        first.wait()
        self._said = _devices(first.result(TIMEOUT))
        first.close()
        if isinstance(self._said, Absent) or not self._said:
            said = self._said.detail if isinstance(self._said, Absent) else "no device in its JSON"
            raise UnavailableError(f"rocm-smi: {said}", "see what `rocm-smi --json -i` says")
        self._addresses = tuple(self._said)
        self._fresh = True

    def said(self, address: str) -> Mapping[str, str] | Absent:
        """What the tool said of a device when it was run last."""
        if isinstance(self._said, Absent):
            return self._said
        return self._said.get(address, Absent(NOT_SUPPORTED, "rocm-smi doesn't list the device"))

    def begin(self, now: float) -> None:
        if self._fresh:  # the run that opened the session serves the first minute
            self._fresh = False
            self._due = now + EVERY
        output = self._running.result(now) if self._running is not None else None
        if self._running is not None and output is not None:
            self._said = _devices(output)
            self._running.close()
            self._running = None
        if self._running is None and now >= self._due:
            self._running = Run(self._command, now)
            self._due = now + EVERY

    def node(self) -> Mapping[str, Value]:
        return {"devices_rocm_smi": len(self._addresses)}

    def changed(self) -> bool:
        return bound_addresses(self._files) != self._bound

    def devices(self) -> Sequence[tuple[str, int]]:
        return [(address, index) for index, address in enumerate(self._addresses)]

    def suspended(self, address: str) -> bool:
        return runtime_suspended(self._files, address)

    def views(self, address: str, *, per_partition: bool) -> Sequence[ToolGpu]:
        return [ToolGpu(self, address, self._addresses.index(address))]
