"""The nodes on which the faults are made."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

pytest.register_assert_rewrite("tests.faults.harness")

from tests.kernel.node import Node, scratch  # noqa: E402  # after the rewrite is asked for


@pytest.fixture
def eight() -> Iterator[Node]:
    """Eight MI300X."""
    with scratch() as folder:
        yield Node.create(folder, "MI300X", 8)


@pytest.fixture
def two() -> Iterator[Node]:
    """Two MI300X."""
    with scratch() as folder:
        yield Node.create(folder, "MI300X", 2)


@pytest.fixture
def old() -> Iterator[Node]:
    """Two MI210, whose gpu_metrics AMD SMI 6.1.2 reads."""
    with scratch() as folder:
        yield Node.create(folder, "MI210", 2)
