"""The server: sockets, connections and their limits, in a thread of its own.

Tornado speaks HTTP; this module accepts the connections for it, so that the number of them and
the time each may take stay bounded whatever the clients do.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import os
import socket
import threading
import time
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass
from http import HTTPStatus
from typing import cast

import tornado.platform.asyncio  # noqa: F401  # else loaded late, when descriptors may be short
from tornado.http1connection import (
    HTTP1Connection,
    HTTP1ConnectionParameters,
    HTTP1ServerConnection,
)
from tornado.httputil import (
    HTTPConnection,
    HTTPHeaders,
    HTTPMessageDelegate,
    HTTPServerConnectionDelegate,
    RequestStartLine,
    ResponseStartLine,
    format_timestamp,
)
from tornado.iostream import IOStream

from exporter.web.address import ListenAddress, parse_address
from exporter.web.app import Application, Request, Site

log = logging.getLogger(__name__)
# Below a warning, Tornado reports the mistakes of clients: they could fill the log at will.
logging.getLogger("tornado").setLevel(logging.WARNING)

_MAX_HEAD = 32 * 1024  # of which the application takes the smaller half; beyond, no answer
_MAX_BODY = 16 * 1024
_READ_BUFFER = 64 * 1024
_BACKLOG = 512
_ACCEPT_BATCH = 16
_PRIVILEGED = 1024
_ACCEPT_PAUSE = 1.0
_STOP_POLL = 0.02
_STOP_GRACE = 1.0


class ListenError(Exception):
    """An address that cannot be listened on, and why, in one line."""

    def __init__(self, address: str, reason: str) -> None:
        super().__init__(f"cannot listen on {address}: {reason}")
        self.address = address
        self.reason = reason


@dataclass(frozen=True, slots=True)
class _Limits:
    """How many connections there may be, and how many seconds each state of one may last."""

    connections: int
    head: float
    idle: float
    answer: float


class WebServer:
    """Serves a site over HTTP from a thread of its own.

    A client has ``head_timeout`` seconds from connecting to the end of its first request,
    ``idle_timeout`` from an answer to the end of the next request, and ``answer_timeout`` from
    the end of a request to the last byte of the answer; then the connection is closed. When there
    are ``max_connections``, a new one takes the place of an old one: of the one that has been
    without a request for longest or, when most are being answered, of the one with the slowest
    answer. ``on_failure`` is called, in the thread, if it ends without having been stopped.
    """

    def __init__(
        self,
        site: Site,
        *,
        listen: Sequence[str],
        telemetry_path: str = "/metrics",
        max_requests: int,
        enable_lifecycle: bool,
        max_connections: int = 256,
        head_timeout: float = 30.0,
        idle_timeout: float = 120.0,
        answer_timeout: float = 30.0,
        on_failure: Callable[[], None] = lambda: None,
    ) -> None:
        if not listen:
            raise ValueError("no address to listen on")
        self._listen = tuple(listen)
        self._app = Application(
            site,
            telemetry_path=telemetry_path,
            max_requests=max_requests,
            enable_lifecycle=enable_lifecycle,
        )
        self._limits = _Limits(max_connections, head_timeout, idle_timeout, answer_timeout)
        self._addresses: tuple[ListenAddress, ...] = ()
        self._stop_timeout = 0.0
        self._on_failure = on_failure
        self.failure = ""
        """Why it ended without having been stopped."""
        self._thread: threading.Thread | None = None
        self._loop: asyncio.AbstractEventLoop
        self._stopping: asyncio.Event

    @property
    def addresses(self) -> tuple[ListenAddress, ...]:
        """The addresses that are listened on, with the ports the system chose."""
        return self._addresses

    @property
    def rejected(self) -> int:
        """How many requests were turned away because of ``max_requests``."""
        return self._app.rejected

    def start(self) -> None:
        """Bind every address, then serve; raises ``ListenError`` with nothing left bound."""
        bound = _bind_all(self._listen)
        self._addresses = tuple(address for address, _ in bound)
        listeners = [listener for _, listener in bound]
        started: Future[None] = Future()
        thread = threading.Thread(
            target=self._run, args=(listeners, started), name="web", daemon=True
        )
        thread.start()
        started.result()
        self._thread = thread

    def stop(self, timeout: float) -> None:
        """Stop listening, give the answers under way ``timeout`` seconds, and end the thread."""
        if self._thread is None:
            return
        self._stop_timeout = timeout
        with suppress(RuntimeError):  # the loop has failed
            self._loop.call_soon_threadsafe(self._stopping.set)
        self._thread.join(timeout + _STOP_GRACE)
        if self._thread.is_alive():
            log.warning("the web server did not end in time: a page is still being rendered")
        self._thread = None

    def _run(self, listeners: Sequence[socket.socket], started: Future[None]) -> None:
        """Be the thread: a failure before ``started`` is the starter's, a later one is told."""
        try:
            asyncio.run(self._serve(listeners, started))
        except Exception as error:
            if started.done():
                self.failure = " ".join(f"{type(error).__name__}: {error}".split())
            else:
                started.set_exception(error)
        finally:
            for listener in listeners:
                listener.close()
        if self.failure:
            self._on_failure()

    async def _serve(self, listeners: Sequence[socket.socket], started: Future[None]) -> None:
        """Serve until stopped."""
        self._loop = asyncio.get_running_loop()
        self._stopping = asyncio.Event()
        crowd = _Crowd(self._app, self._limits)
        for listener in listeners:
            crowd.listen(listener)
        started.set_result(None)
        await self._stopping.wait()
        for listener in listeners:
            self._loop.remove_reader(listener)
            listener.close()
        await crowd.disperse(self._stop_timeout)
        self._app.close()


class _Crowd:
    """All the connections there are, each either waiting for a request or being answered.

    Both dictionaries are sets that remember their order: whoever has been there longest is first.
    """

    def __init__(self, app: Application, limits: _Limits) -> None:
        self.app = app
        self.limits = limits
        self.loop = asyncio.get_running_loop()
        self.waiting: dict[_Connection, None] = {}
        self.answering: dict[_Connection, None] = {}

    def listen(self, listener: socket.socket) -> None:
        """Accept the connections of a socket from now on, unless it was closed meanwhile."""
        if listener.fileno() != -1:
            self.loop.add_reader(listener, self._accept, listener)

    def _accept(self, listener: socket.socket) -> None:
        """Accept a few connections; the loop calls again while there are more."""
        for _ in range(_ACCEPT_BATCH):
            try:
                accepted, _ = listener.accept()
            except (BlockingIOError, ConnectionAbortedError):
                return
            except OSError as error:
                # No descriptor or memory left. The connection stays in the queue: it is next if
                # one here could be closed for it, else rest instead of being woken on and on.
                if self._make_room():
                    continue
                log.warning("cannot accept connections for a moment: %s", error.strerror)
                self.loop.remove_reader(listener)
                self.loop.call_later(_ACCEPT_PAUSE, self.listen, listener)
                return
            if len(self.waiting) + len(self.answering) >= self.limits.connections:
                self._make_room()
            _Connection(accepted, self)

    def _make_room(self) -> bool:
        """Close the connection that has been longest in the state that most are in, if any."""
        most = self.waiting if len(self.waiting) >= len(self.answering) else self.answering
        oldest = next(iter(most), None)
        if oldest:
            oldest.close()
        return oldest is not None

    async def disperse(self, timeout: float) -> None:
        """Close the connections: those that are being answered get ``timeout`` seconds."""
        deadline = time.monotonic() + timeout
        while self.answering and time.monotonic() < deadline:
            await asyncio.sleep(_STOP_POLL)
        for connection in (*self.waiting, *self.answering):
            connection.close()


class _Connection(HTTPServerConnectionDelegate, HTTPMessageDelegate):
    """One connection and, one after another, its requests."""

    def __init__(self, accepted: socket.socket, crowd: _Crowd) -> None:
        self._crowd = crowd
        self._stream = IOStream(accepted, max_buffer_size=_READ_BUFFER)
        self._timer: asyncio.TimerHandle | None = None
        self._patience = crowd.limits.head
        self._wait()
        parameters = HTTP1ConnectionParameters(max_header_size=_MAX_HEAD, max_body_size=_MAX_BODY)
        HTTP1ServerConnection(self._stream, parameters).start_serving(self)

    def close(self) -> None:
        """Close the connection, whatever it is doing."""
        self._leave()
        self._stream.close()

    def start_request(
        self, server_conn: object, request_conn: HTTPConnection
    ) -> HTTPMessageDelegate:
        """Wait for a request: Tornado is done with the last one, its answer is sent."""
        self._exchange = cast(HTTP1Connection, request_conn)
        self._wait()
        self._patience = self._crowd.limits.idle
        return self

    def headers_received(
        self, start_line: RequestStartLine | ResponseStartLine, headers: HTTPHeaders
    ) -> Awaitable[None] | None:
        """Keep what the application wants to know."""
        method, target, _ = cast(RequestStartLine, start_line)
        self._request = Request(
            method,
            target,
            headers.get("Accept", ""),
            headers.get("Accept-Encoding", ""),
            len(target) + sum(len(name) + len(value) + 4 for name, value in headers.get_all()),
        )
        return None

    def finish(self) -> None:
        """Answer: the request is complete."""
        self._leave()
        self._crowd.answering[self] = None
        self._expire_in(self._crowd.limits.answer)
        self._task = self._crowd.loop.create_task(self._answer(self._exchange, self._request))
        self._exchange.set_close_callback(self._abandon)

    def on_close(self, server_conn: object) -> None:
        """Forget the connection: Tornado has closed it."""
        self.close()

    def _abandon(self) -> None:
        """Give up the answer: its reader has gone."""
        self._task.cancel()

    async def _answer(self, exchange: HTTP1Connection, request: Request) -> None:
        answer = await self._crowd.app.answer(request)
        headers = HTTPHeaders(answer.headers)
        headers["Date"] = format_timestamp(time.time())
        status = ResponseStartLine("", answer.status, HTTPStatus(answer.status).phrase)
        # The body is written apart from the head: together they would be copied.
        exchange.write_headers(status, headers)
        exchange.write(b"" if request.method == "HEAD" else answer.body)
        exchange.finish()

    def _wait(self) -> None:
        self._leave()
        self._crowd.waiting[self] = None
        self._expire_in(self._patience)

    def _expire_in(self, seconds: float) -> None:
        self._timer = self._crowd.loop.call_later(seconds, self.close)

    def _leave(self) -> None:
        """Leave the present state and its deadline."""
        if self._timer:
            self._timer.cancel()
        self._crowd.waiting.pop(self, None)
        self._crowd.answering.pop(self, None)


def _bind_all(listen: Sequence[str]) -> list[tuple[ListenAddress, socket.socket]]:
    """Bind every address, or none."""
    bound: list[tuple[ListenAddress, socket.socket]] = []
    seen: set[ListenAddress] = set()
    try:
        for text in listen:
            try:
                wanted = parse_address(text)
            except ValueError as error:
                raise ListenError(text, str(error)) from None
            if wanted in seen:
                raise ListenError(text, "it is given twice")
            seen.add(wanted)
            try:
                _bind(wanted, bound)
            except OSError as error:
                raise ListenError(text, _reason(error, wanted)) from error
    except ListenError:
        for _, listener in bound:
            listener.close()
        raise
    return bound


def _bind(wanted: ListenAddress, bound: list[tuple[ListenAddress, socket.socket]]) -> None:
    """Bind the sockets of one address; a host name may stand for several."""
    if not wanted.host:
        dual = socket.has_dualstack_ipv6()
        listener = socket.create_server(
            ("", wanted.port),
            family=socket.AF_INET6 if dual else socket.AF_INET,
            backlog=_BACKLOG,
            dualstack_ipv6=dual,
        )
        listener.setblocking(False)
        bound.append((ListenAddress("", listener.getsockname()[1]), listener))
        return
    found = socket.getaddrinfo(wanted.host, wanted.port, type=socket.SOCK_STREAM)
    for family, name in dict.fromkeys((family, name) for family, *_, name in found):
        listener = socket.create_server(
            (str(name[0]), int(name[1])), family=family, backlog=_BACKLOG
        )
        listener.setblocking(False)
        bound.append((ListenAddress(*listener.getsockname()[:2]), listener))


def _reason(error: OSError, wanted: ListenAddress) -> str:
    """Say in a few words why an address could not be bound."""
    if isinstance(error, socket.gaierror):
        return f"the host name cannot be resolved ({error.strerror})"
    if error.errno == errno.EADDRINUSE:
        return "the address is already in use"
    if error.errno == errno.EADDRNOTAVAIL:
        return "this machine has no such address"
    if error.errno in (errno.EACCES, errno.EPERM) and wanted.port < _PRIVILEGED:
        return f"a port below {_PRIVILEGED} needs root or CAP_NET_BIND_SERVICE"
    return os.strerror(error.errno) if error.errno else str(error)
