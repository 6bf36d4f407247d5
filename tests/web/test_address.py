"""Addresses as they are written in the configuration."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exporter.web.address import ListenAddress, parse_address


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (":10450", ListenAddress("", 10450)),
        ("0.0.0.0:10450", ListenAddress("0.0.0.0", 10450)),  # noqa: S104 - nothing is bound
        ("[::1]:10450", ListenAddress("::1", 10450)),
        ("[2001:DB8:0::1]:0", ListenAddress("2001:db8::1", 0)),
        ("Node-7.example.org:65535", ListenAddress("node-7.example.org", 65535)),
    ],
)
def test_every_form_is_read(text: str, expected: ListenAddress) -> None:
    """The documented forms are understood, and equal addresses become equal values."""
    assert expected == parse_address(text)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("", "'' has no port: write ':10450' or 'host:10450'"),
        ("10450", "'10450' has no port: write ':10450' or 'host:10450'"),
        ("host:", "'host:': '' is not a port from 0 to 65535"),
        ("host:http", "'host:http': 'http' is not a port from 0 to 65535"),
        (":65536", "':65536': '65536' is not a port from 0 to 65535"),
        (":-1", "':-1': '-1' is not a port from 0 to 65535"),
        (":١", "':١': '١' is not a port from 0 to 65535"),
        ("::1:10450", "'::1:10450': an IPv6 address needs brackets and a port, as '[::1]:10450'"),
        ("[::1]", "'[::1]': an IPv6 address needs brackets and a port, as '[::1]:10450'"),
        ("[]:1", "'[]:1': '' is not an IPv6 address"),
        ("[1.2.3.4]:1", "'[1.2.3.4]:1': '1.2.3.4' is not an IPv6 address"),
        ("[\0]:1", "'[\\x00]:1': '\\x00' is not an IPv6 address"),
        ("256.1.1.1:1", "'256.1.1.1:1': '256.1.1.1' is not an IPv4 address"),
        ("a b:1", "'a b:1': 'a b' is not a host name or an IP address"),
        ("-a:1", "'-a:1': '-a' is not a host name or an IP address"),
        ("a:b:1", "'a:b:1': an IPv6 address needs brackets and a port, as '[::1]:10450'"),
    ],
)
def test_what_is_malformed_is_explained(text: str, sentence: str) -> None:
    """Every mistake gets a sentence that names the text and what is wrong with it."""
    with pytest.raises(ValueError, match=f"^{re.escape(sentence)}$"):
        parse_address(text)


HOSTS = st.one_of(
    st.just(""),
    st.ip_addresses().map(lambda ip: f"[{ip}]" if ip.version == 6 else str(ip)),
    st.from_regex(r"[A-Za-z][A-Za-z0-9]{0,20}(\.[a-z][a-z0-9]{0,9}){0,3}", fullmatch=True),
)


@given(HOSTS, st.integers(0, 65535))
def test_the_written_form_of_an_address_is_read_as_the_same(host: str, port: int) -> None:
    """Writing down what was read, and reading that, changes nothing."""
    address = parse_address(f"{host}:{port}")
    assert address == parse_address(str(address))


@given(st.text())
def test_any_text_is_read_or_refused(text: str) -> None:
    """No text does anything but give an address or a ValueError."""
    try:
        address = parse_address(text)
    except ValueError:
        return
    assert address == parse_address(str(address))


@pytest.mark.parametrize(
    ("one", "other", "expected"),
    [
        (":1", "0.0.0.0:1", True),
        (":1", "[::]:1", True),
        (":1", "host:1", True),
        (":1", ":2", False),
        (":0", "127.0.0.1:0", False),
        ("0.0.0.0:1", "127.0.0.1:1", True),
        ("0.0.0.0:1", "[::1]:1", False),
        ("0.0.0.0:1", "host:1", False),
        ("[::]:1", "[::1]:1", True),
        ("[::]:1", "127.0.0.1:1", False),
        ("127.0.0.1:1", "0.0.0.0:1", False),
        ("127.0.0.1:1", "127.0.0.1:1", True),
    ],
)
def test_what_an_address_covers(one: str, other: str, expected: bool) -> None:
    """An address for all of the machine's covers each; IPv4 and IPv6 are apart."""
    assert expected is parse_address(one).covers(parse_address(other))
