"""The addresses the exporter listens on, as they are written in its configuration."""

from __future__ import annotations

import re
import socket
from dataclasses import dataclass

_BRACKETED = re.compile(r"\[([^\[\]]*)\]:(.*)")
_HOST_NAME = re.compile(r"(?!-)[a-z0-9_-]{1,63}(?<!-)(\.(?!-)[a-z0-9_-]{1,63}(?<!-))*")
_NUMERIC = re.compile(r"[0-9.]+")
_PORT = re.compile(r"[0-9]{1,5}")
_LAST_PORT = 65535
_ANY_IPV4 = "0.0.0.0"  # noqa: S104 - to know it, not to listen on it


@dataclass(frozen=True, slots=True)
class ListenAddress:
    """A host and a port to listen on.

    An empty ``host`` stands for every address of the machine, IPv4 and IPv6 together; port 0
    lets the system choose a free one.
    """

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    def covers(self, other: ListenAddress) -> bool:
        """Tell whether listening here listens there too, as far as the texts show."""
        if not self.port or self.port != other.port:
            return False
        if self.host == _ANY_IPV4:
            return bool(_NUMERIC.fullmatch(other.host))
        if self.host == "::":
            return ":" in other.host
        return self.host in ("", other.host)


def parse_address(text: str) -> ListenAddress:
    """Read ``:10450``, ``0.0.0.0:10450``, ``[::1]:10450`` or ``host:10450``.

    ``[::]`` means IPv6 alone, as ``0.0.0.0`` means IPv4 alone. Raises ``ValueError`` with a
    sentence that says what is wrong.
    """
    bracketed = _BRACKETED.fullmatch(text)
    if bracketed:
        host, port = bracketed.groups()
        return ListenAddress(_ipv6(text, host), _port(text, port))
    host, colon, port = text.rpartition(":")
    if not colon:
        raise ValueError(f"{text!r} has no port: write ':10450' or 'host:10450'")
    if ":" in host:
        raise ValueError(f"{text!r}: an IPv6 address needs brackets and a port, as '[::1]:10450'")
    return ListenAddress(_host(text, host.lower()), _port(text, port))


def _ipv6(text: str, host: str) -> str:
    """Return the canonical form of an IPv6 address."""
    try:
        return socket.inet_ntop(socket.AF_INET6, socket.inet_pton(socket.AF_INET6, host))
    except (OSError, ValueError):
        raise ValueError(f"{text!r}: {host!r} is not an IPv6 address") from None


def _host(text: str, host: str) -> str:
    """Check an IPv4 address or a host name; the empty host is every address."""
    if _NUMERIC.fullmatch(host):
        try:
            socket.inet_pton(socket.AF_INET, host)
        except OSError:
            raise ValueError(f"{text!r}: {host!r} is not an IPv4 address") from None
    elif host and not _HOST_NAME.fullmatch(host):
        raise ValueError(f"{text!r}: {host!r} is not a host name or an IP address")
    return host


def _port(text: str, port: str) -> int:
    """Check a port number."""
    if not _PORT.fullmatch(port) or int(port) > _LAST_PORT:
        raise ValueError(f"{text!r}: {port!r} is not a port from 0 to {_LAST_PORT}")
    return int(port)
