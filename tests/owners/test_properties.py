"""What holds of any processes."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.owners.node import Files, Watch, node, vram

PIDS = st.integers(2, 4_000_000)
KIB = 1 << 10
HELD = st.dictionaries(
    PIDS,
    st.tuples(st.integers(0, 1 << 30), st.lists(st.integers(0, 1 << 20), max_size=3)),
    max_size=40,
)
"""By process: what KFD tells in bytes, and DRM in KiB for each client."""


def build(held: dict[int, tuple[int, list[int]]], order: list[int]) -> Files:
    """A node with these processes, written in that order."""
    files = node()
    for pid in order:
        kfd, clients = held[pid]
        files.process(pid, kfd, [(f"{pid}.{n}", kib) for n, kib in enumerate(clients)])
    return files


@settings(max_examples=40, deadline=None)
@given(HELD)
def test_the_sum_is_what_was_read(held: dict[int, tuple[int, list[int]]]) -> None:
    """Over the named and the others: of each process the larger of the two, nothing else."""
    found = Watch(build(held, list(held))).reading()
    amounts = {pid: max(kfd, sum(clients) * KIB) for pid, (kfd, clients) in held.items()}

    assert sum(amounts.values()) == sum(value for _, value in vram(found))
    assert len([amount for amount in amounts.values() if amount]) == found.count


@settings(max_examples=25, deadline=None)
@given(HELD.flatmap(lambda held: st.tuples(st.just(held), st.permutations(list(held)))))
def test_order_does_not_matter(
    given_: tuple[dict[int, tuple[int, list[int]]], list[int]],
) -> None:
    """However the processes come, the readings are the same."""
    held, order = given_
    assert Watch(build(held, sorted(held))).fields() == Watch(build(held, order)).fields()


@settings(max_examples=25, deadline=None)
@given(HELD, HELD)
def test_nothing_of_the_past_remains(
    before: dict[int, tuple[int, list[int]]], after: dict[int, tuple[int, list[int]]]
) -> None:
    """After a new look the readings are those of a node that was always so."""
    files = build(before, list(before))
    watch = Watch(files)
    watch.fields()
    for pid in before:
        files.end(pid)
    fresh = build(after, list(after))
    files.files, files.links = fresh.files, fresh.links

    assert Watch(fresh).reading().vram == watch.reading(31).vram
