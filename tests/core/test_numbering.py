"""The numbers of the GPUs."""

import json
import stat
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exporter.analysis.numbering import FILE, Numbering
from exporter.analysis.state import StateError

from .nodes import PATIENT

A, B, C, D = (f"0000:{bus:02x}:00.0" for bus in (5, 0x19, 0x2D, 0x41))


def numbered(directory: Path | None, boot: str | None = "boot", **devices: int) -> Numbering:
    """A daemon's numbers after its first poll."""
    numbering = Numbering(directory)
    numbering.open(boot)
    numbering.see({f"0000:{name}:00.0": index for name, index in devices.items()})
    numbering.save()
    return numbering


def test_the_index_of_the_vendor_at_first_sight() -> None:
    """The number is the one that `amd-smi` shows, too."""
    numbering = Numbering(None)
    numbering.see({A: 2, B: 0, C: 1})

    assert {A: 2, B: 0, C: 1} == numbering.numbers()


def test_a_lost_device_leaves_a_hole() -> None:
    """The indexes shift; no number does, and a newcomer gets none that was ever given."""
    numbering = Numbering(None)
    numbering.see({A: 0, B: 1, C: 2})
    numbering.see({A: 0, C: 1})
    numbering.see({A: 0, C: 1, D: 2})

    assert {A: 0, B: 1, C: 2, D: 3} == numbering.numbers()

    numbering.see({B: 0, A: 1, C: 2, D: 3})

    assert {A: 0, B: 1, C: 2, D: 3} == numbering.numbers()


listings = st.lists(
    st.permutations(range(6)).flatmap(lambda order: st.integers(0, 6).map(lambda n: order[:n])),
    max_size=8,
)


@PATIENT
@given(listings)
def test_numbers_are_never_given_twice(polls: list[list[int]]) -> None:
    """However devices come, go and change places: one number each, for good."""
    numbering = Numbering(None)
    before: dict[str, int] = {}
    for order in polls:
        numbering.see({f"gpu{device}": index for index, device in enumerate(order)})
        now = dict(numbering.numbers())

        assert len(now) == len(set(now.values()))
        assert before == {address: now[address] for address in before}
        assert all(f"gpu{device}" in now for device in order)
        before = now


def test_kept_over_a_restart(tmp_path: Path) -> None:
    """In the same boot a restart renames nothing, and knows the device that is lost."""
    numbering = numbered(tmp_path)
    numbering.see({A: 0, B: 1})
    numbering.save()
    again = Numbering(tmp_path)
    again.open("boot")
    again.see({B: 0, C: 1})

    assert {A: 0, B: 1, C: 2} == again.numbers()


def test_a_reboot_starts_afresh(tmp_path: Path) -> None:
    """The hardware may have been changed."""
    numbering = Numbering(tmp_path)
    numbering.open("first")
    numbering.see({A: 0, B: 1})
    numbering.save()
    again = Numbering(tmp_path)
    again.open("second")
    again.see({B: 0})
    again.save()

    assert {B: 0} == again.numbers()
    assert {"boot_id": "second", "gpus": {B: 0}} == json.loads((tmp_path / FILE).read_text())


def test_the_boot_is_known_late(tmp_path: Path) -> None:
    """What was kept wins over what was numbered before it could be read; none is given twice."""
    kept = Numbering(tmp_path)
    kept.open("boot")
    kept.see({A: 0, B: 1})
    kept.save()
    numbering = Numbering(tmp_path)
    numbering.open(None)
    numbering.see({B: 0, C: 1, D: 7})
    numbering.save()
    numbering.open("boot")
    numbering.see({B: 0, C: 1, D: 2})

    assert {A: 0, B: 1, C: 8, D: 7} == numbering.numbers()


def test_without_a_boot_nothing_is_kept(tmp_path: Path) -> None:
    """It would not be known whether it still holds."""
    numbered(tmp_path, None)

    assert [] == list(tmp_path.iterdir())


def test_without_a_directory() -> None:
    """The numbers live in memory."""
    assert {} == numbered(None).numbers()


def test_saved_only_when_changed(tmp_path: Path) -> None:
    """No write per poll."""
    numbering = Numbering(tmp_path / "down")
    numbering.open("boot")
    numbering.see({A: 0})
    numbering.save()
    path = tmp_path / "down" / FILE
    path.unlink()
    numbering.see({A: 3})
    numbering.save()

    assert not path.exists()
    assert [] == list(path.parent.iterdir())


DAMAGED = [
    "",
    "{",
    "[]",
    "null",
    "7",
    "{}",
    '{"boot_id": "boot"}',
    '{"boot_id": "boot", "gpus": []}',
    '{"boot_id": "boot", "gpus": {"a": "x"}}',
    '{"boot_id": "boot", "gpus": {"a": null}}',
    '{"boot_id": "boot", "gpus": {"a": Infinity}}',
    '{"boot_id": "boot", "gpus": {"a": NaN}}',
    '{"boot_id": "boot", "gpus": {"a": -1}}',
    '{"boot_id": "boot", "gpus": {"a": 1, "b": 1}}',
    "[" * 100_000,
    "\udcff",
]


@pytest.mark.parametrize("text", DAMAGED, ids=lambda text: text[:50])
def test_a_damaged_file_is_set_aside(tmp_path: Path, text: str) -> None:
    """It is said where it went, the numbers start afresh, and they are kept again."""
    (tmp_path / FILE).write_text(text, errors="surrogateescape")
    numbering = Numbering(tmp_path)
    with pytest.raises(StateError, match=r"is damaged .* it is now devices\.damaged") as caught:
        numbering.open("boot")
    numbering.see({A: 0})
    numbering.save()

    assert 1 == len(str(caught.value).splitlines())
    assert {"boot_id": "boot", "gpus": {A: 0}} == json.loads((tmp_path / FILE).read_text())
    assert (tmp_path / "devices.damaged").exists()


@PATIENT
@given(st.binary(max_size=60))
def test_no_file_ends_the_daemon(tmp_path_factory: pytest.TempPathFactory, content: bytes) -> None:
    """Whatever the file holds, it is read, or refused with a message."""
    directory = tmp_path_factory.mktemp("state")
    (directory / FILE).write_bytes(content)
    numbering = Numbering(directory)
    with pytest.raises(StateError, match="damaged"):
        numbering.open("boot")


def test_a_directory_that_can_not_be_used(tmp_path: Path) -> None:
    """A file stands where the directory should be: said, and the numbers live on in memory."""
    blocked = tmp_path / "state"
    blocked.write_text("no directory")
    numbering = Numbering(blocked)
    with pytest.raises(StateError, match="can't be read"):
        numbering.open("boot")
    numbering.see({A: 0})
    for _ in range(2):
        with pytest.raises(StateError, match="can't be written"):
            numbering.save()

    assert {A: 0} == numbering.numbers()


def test_a_damaged_file_that_can_not_be_set_aside(tmp_path: Path) -> None:
    """Said as well."""
    (tmp_path / FILE).write_text("{")
    (tmp_path / "devices.damaged").mkdir()
    (tmp_path / "devices.damaged" / "x").touch()
    with pytest.raises(StateError, match="can't be set aside"):
        Numbering(tmp_path).open("boot")


def test_the_file_is_replaced_at_once(tmp_path: Path) -> None:
    """A reader finds the old file or the new one, never a part."""
    numbering = Numbering(tmp_path)
    numbering.open("boot")
    numbering.see({A: 0})
    numbering.save()
    first = (tmp_path / FILE).stat()[stat.ST_INO]
    numbering.see({B: 1})
    numbering.save()

    assert first != (tmp_path / FILE).stat()[stat.ST_INO]
    assert [FILE] == [path.name for path in tmp_path.iterdir()]
