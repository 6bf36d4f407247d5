"""The generated documents are those that the registries make."""

from __future__ import annotations

import pytest

from tests.docs.generate import DOCS, DOCUMENTS


@pytest.mark.parametrize("name", DOCUMENTS)
def test_document_is_fresh(name: str) -> None:
    """A document that was not regenerated after a change fails; `make docs` mends it."""
    assert DOCUMENTS[name]() == (DOCS / name).read_text()
