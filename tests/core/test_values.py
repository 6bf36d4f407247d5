"""Values on their way from a worker to the daemon."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exporter.values import FAULTS, REASONS, Absent, FieldValue, from_wire, to_wire

from .nodes import PATIENT

absent = st.builds(Absent, st.sampled_from(REASONS), st.text())
values = (
    st.integers(-(1 << 64), 1 << 64)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text()
    | absent
)


@PATIENT
@given(values | st.dictionaries(st.text(), values))
def test_round_trip(value: FieldValue) -> None:
    """What goes into the pipe as JSON comes out of it unchanged."""
    assert value == from_wire(json.loads(json.dumps(to_wire(value))))


@pytest.mark.parametrize(
    "wire",
    [True, None, [], ["no such reason", ""], ["error"], [["error"], ""], {"a": None}, {"a": {}}],
)
def test_nonsense_is_refused(wire: object) -> None:
    """A worker that went wild is noticed."""
    with pytest.raises(ValueError, match="reading"):
        from_wire(wire)


def test_faults_are_reasons() -> None:
    """The reasons that are logged are among those that there are."""
    assert set(REASONS) >= FAULTS
