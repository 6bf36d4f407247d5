"""The number `gpu` of every device: given at first sight, kept for this boot, never given twice.

It is kept in the state directory, so that a restart of the daemon renames nothing and a device that
is lost stays known. A reboot starts afresh, since the hardware may have been changed.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from exporter.analysis.state import read_state, write_state

FILE = "devices.json"


class Numbering:
    """PCI address to number.

    Args:
        directory: where the numbers are kept; None keeps them in memory only.
    """

    def __init__(self, directory: Path | None) -> None:
        self._path = None if directory is None else directory / FILE
        self._numbers: dict[str, int] = {}
        self._boot_id: str | None = None
        self._saved: dict[str, int] = {}

    def open(self, boot_id: str | None, *, mend: bool = True) -> None:
        """Load what an earlier run in this boot kept.

        Args:
            boot_id: of this boot, None while it is not known.
            mend: set a damaged file aside.

        Raises:
            StateError: the file is damaged, and the numbers start afresh.
        """
        if self._boot_id == boot_id and boot_id is not None:
            return
        self._boot_id = boot_id
        if self._path is None or boot_id is None:
            return
        kept = read_state(self._path, _parse, "the numbers of the GPUs", mend=mend)
        if kept is None or kept[0] != boot_id:
            return
        taken = set(kept[1].values())
        # What was numbered before the boot was known gives way to what was kept.
        free = {a: gpu for a, gpu in self._numbers.items() if gpu not in taken}
        self._numbers = {**free, **kept[1]}
        self._saved = dict(kept[1])

    def see(self, devices: Mapping[str, int]) -> None:
        """Give numbers to new devices: the vendor's index of this moment where it is free."""
        taken = set(self._numbers.values())
        new = {a: index for a, index in devices.items() if a not in self._numbers}
        for address, index in sorted(new.items(), key=lambda device: (device[1], device[0])):
            number = index
            if number in taken:
                number = max(taken | set(devices.values())) + 1
            self._numbers[address] = number
            taken.add(number)

    def numbers(self) -> Mapping[str, int]:
        """Every device seen in this boot, and its number."""
        return self._numbers

    def save(self) -> bool:
        """Write the numbers if they changed, atomically; whether what there is to keep is kept.

        Raises:
            StateError: it can't be written; the numbers live on in memory.
        """
        if self._path is None or self._boot_id is None:
            return False
        if self._numbers == self._saved:
            return True
        text = json.dumps({"boot_id": self._boot_id, "gpus": self._numbers}, indent=1)
        write_state(self._path, text, "after a restart, GPUs may get other numbers")
        self._saved = dict(self._numbers)
        return True


def _parse(kept: Any) -> tuple[object, dict[str, int]]:
    """The boot's id and the numbers by address; raises what bad data makes it raise."""
    numbers = {str(address): int(gpu) for address, gpu in kept["gpus"].items()}
    if len(set(numbers.values())) != len(numbers) or min(numbers.values(), default=0) < 0:
        raise ValueError("two devices with one number, or a negative one")
    return kept["boot_id"], numbers
