"""A site and clients written by hand, for the tests of the web server."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.client import HTTPConnection

from exporter.web.address import ListenAddress
from exporter.web.app import Page
from exporter.web.server import WebServer

TEXT = "text/plain; version=0.0.4"
BODY = b"amdgpu_up 1\n" * 20_000
PACKED = b"packed metrics"


@dataclass
class FakeSite:
    """Answers from fields; a closed ``gate`` holds up the methods in ``held``."""

    not_ready: str | None = None
    reload_error: str | None = None
    failure: Exception | None = None
    held: tuple[str, ...] = ("metrics", "landing", "snapshot", "ready", "reload")
    gate: threading.Event = field(default_factory=threading.Event)
    calls: list[tuple[object, ...]] = field(default_factory=list)
    entered: threading.Semaphore = field(default_factory=lambda: threading.Semaphore(0))

    def __post_init__(self) -> None:
        self.gate.set()

    def metrics(
        self, accept: str, accept_gzip: bool, collect: tuple[str, ...], exclude: tuple[str, ...]
    ) -> Page:
        self._enter("metrics", accept, accept_gzip, collect, exclude)
        if "nonsense" in (*collect, *exclude):
            return Page(400, TEXT, b"unknown collector: nonsense\n")
        return Page(200, TEXT, PACKED, "gzip") if accept_gzip else Page(200, TEXT, BODY)

    def landing(self) -> Page:
        self._enter("landing")
        return Page(200, "text/html; charset=utf-8", b"<h1>GPUs</h1>")

    def snapshot(self) -> Page:
        self._enter("snapshot")
        return Page(200, "application/json", b"{}")

    def ready(self) -> str | None:
        self._enter("ready")
        return self.not_ready

    def reload(self) -> str | None:
        self._enter("reload")
        return self.reload_error

    def _enter(self, *call: object) -> None:
        self.calls.append(call)
        self.entered.release()
        if call[0] in self.held:
            self.gate.wait(30)
        if self.failure:
            raise self.failure


@dataclass(frozen=True)
class Reply:
    """What a client got."""

    status: int
    headers: dict[str, str]
    body: bytes


@contextmanager
def serving(
    site: FakeSite,
    listen: str = "127.0.0.1:0",
    *,
    telemetry_path: str = "/metrics",
    max_requests: int = 0,
    enable_lifecycle: bool = True,
    max_connections: int = 256,
    head_timeout: float = 30.0,
    idle_timeout: float = 120.0,
    answer_timeout: float = 30.0,
) -> Iterator[WebServer]:
    """Serve a site while the block runs."""
    server = WebServer(
        site,
        listen=[listen],
        telemetry_path=telemetry_path,
        max_requests=max_requests,
        enable_lifecycle=enable_lifecycle,
        max_connections=max_connections,
        head_timeout=head_timeout,
        idle_timeout=idle_timeout,
        answer_timeout=answer_timeout,
    )
    server.start()
    try:
        yield server
    finally:
        site.gate.set()
        server.stop(5)


def fetch(
    server: WebServer, target: str = "/metrics", method: str = "GET", **headers: str
) -> Reply:
    """Make one request on a connection of its own; underscores in names stand for hyphens."""
    with closing_client(server.addresses[0]) as client:
        return ask(client, target, method, **headers)


@contextmanager
def closing_client(address: ListenAddress) -> Iterator[HTTPConnection]:
    """Give a client for an address, and close it."""
    client = HTTPConnection(address.host or "127.0.0.1", address.port, timeout=20)
    try:
        yield client
    finally:
        client.close()


def ask(
    client: HTTPConnection, target: str = "/metrics", method: str = "GET", **headers: str
) -> Reply:
    """Make one request."""
    named = {"Accept-Encoding": "identity"}
    named.update({name.replace("_", "-"): value for name, value in headers.items()})
    client.request(method, target, headers=named)
    response = client.getresponse()
    return Reply(response.status, dict(response.getheaders()), response.read())


def connect(server: WebServer) -> socket.socket:
    """Open a bare connection."""
    address = server.addresses[0]
    return socket.create_connection((address.host, address.port), timeout=20)


def ended(client: socket.socket) -> bool:
    """Wait for the server to close a connection, and say that it did."""
    try:
        while client.recv(1 << 16):
            pass
    except ConnectionResetError:
        pass
    return True
