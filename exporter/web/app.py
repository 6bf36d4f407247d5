"""The application: which answer a request gets, whatever server carries it."""

from __future__ import annotations

import asyncio
import logging
import re
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Protocol
from urllib.parse import parse_qs

log = logging.getLogger(__name__)

_HEALTHY = "/-/healthy"
_READY = "/-/ready"
_RELOAD = "/-/reload"
_SNAPSHOT = "/api/v1/snapshot"
_LANDING = "/"

_ABSOLUTE = re.compile(r"\Ahttps?://[^/?]*", re.IGNORECASE)
_PATH = re.compile(r"/[A-Za-z0-9._~/-]*")
_QVALUE = re.compile(r"0(\.[0-9]{0,3})?|1(\.0{0,3})?")
_OPEN_METRICS, _TEXT = "application/openmetrics-text", "text/plain"
_VERSIONS = {_OPEN_METRICS: ("", "0.0.1", "1.0.0"), _TEXT: ("", "0.0.4", "1.0.0")}
_MAX_HEAD = 16 * 1024
_MAX_PARAMETERS = 200
_MAX_RELOADS = 4
_RENDERERS = 2

_COMMON_HEADERS = {
    "Cache-Control": "no-store",
    "Content-Security-Policy": (
        "default-src 'none'; style-src 'unsafe-inline'; img-src data:; "
        "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}


@dataclass(frozen=True, slots=True)
class Page:
    """The body of one HTTP answer, ready to send; ``encoding`` is its Content-Encoding."""

    status: int
    content_type: str
    body: bytes
    encoding: str | None = None


class Site(Protocol):
    """What the application serves; every method but ``ready`` is called from a worker thread."""

    def metrics(
        self, accept: str, accept_gzip: bool, collect: tuple[str, ...], exclude: tuple[str, ...]
    ) -> Page:
        """Return the metrics; an unknown collector's name is a page with status 400."""

    def landing(self) -> Page:
        """Return the page for people."""

    def snapshot(self) -> Page:
        """Return the state as JSON."""

    def ready(self) -> str | None:
        """Return None when ready, else the reason why not; called in the loop, so at once."""

    def reload(self) -> str | None:
        """Load the configuration again: None when done, else the error in one line."""


@dataclass(frozen=True, slots=True)
class Request:
    """What the application needs to know of a request; headers that are absent are empty.

    ``head_bytes`` is how long the target and the headers are together.
    """

    method: str
    target: str
    accept: str
    accept_encoding: str
    head_bytes: int = 0


@dataclass(frozen=True, slots=True)
class Answer:
    """A whole answer; the server leaves the body out when the request was a HEAD."""

    status: int
    headers: Mapping[str, str]
    body: bytes


class Application:
    """Routes requests to a site and keeps the site's work off the server's loop.

    The site is called in a small pool of threads: the loop goes on accepting, sending and timing
    out while a page is rendered. Two renderers are enough, as they share one interpreter lock and
    every thread costs memory; reloads have a thread and places of their own, one after another,
    so that a long one holds up no scrape. ``max_requests`` bounds the other calls that wait or run
    at once (0: no bound); the answers' way to slow readers does not count. Whether the process
    lives and is ready is told in the loop itself, so that no flood of scrapes makes it look dead.
    """

    def __init__(
        self, site: Site, *, telemetry_path: str, max_requests: int, enable_lifecycle: bool
    ) -> None:
        reserved = (_HEALTHY, _READY, _RELOAD, _SNAPSHOT)
        if not _PATH.fullmatch(telemetry_path) or telemetry_path in reserved:
            raise ValueError(f"{telemetry_path!r} cannot be the path of the metrics")
        if max_requests < 0:
            raise ValueError(f"the limit of requests cannot be {max_requests}")
        self.rejected = 0
        self._site = site
        self._telemetry_path = telemetry_path
        self._enable_lifecycle = enable_lifecycle
        self._slots = threading.BoundedSemaphore(max_requests) if max_requests else None
        self._reload_slots = threading.BoundedSemaphore(_MAX_RELOADS)
        self._renderers = ThreadPoolExecutor(_RENDERERS, "web-render")
        self._reloader = ThreadPoolExecutor(1, "web-reload")

    def close(self) -> None:
        """Drop the calls that have not begun and wait for those that have."""
        for pool in (self._renderers, self._reloader):
            pool.shutdown(wait=False, cancel_futures=True)
        for pool in (self._renderers, self._reloader):
            pool.shutdown()

    async def answer(self, request: Request) -> Answer:
        """Answer one request; never raises but when cancelled."""
        if request.head_bytes > _MAX_HEAD:
            return _text(431, f"More than {_MAX_HEAD >> 10} KiB of headers.")
        path, _, query = _ABSOLUTE.sub("", request.target, count=1).partition("?")
        path = path or _LANDING  # of an address that ends with its host
        known = (self._telemetry_path, _LANDING, _HEALTHY, _READY, _RELOAD, _SNAPSHOT)
        if path not in known:
            return _text(404, "Not found.")
        allowed = ("POST",) if path == _RELOAD else ("GET", "HEAD")
        if request.method not in allowed:
            return _text(405, "Method not allowed.", {"Allow": ", ".join(allowed)})
        if path == self._telemetry_path:
            return await self._metrics(request, query)
        if path == _LANDING:
            return await self._call(
                self._renderers, self._slots, lambda: _page(self._site.landing())
            )
        if path == _SNAPSHOT:
            return await self._call(
                self._renderers, self._slots, lambda: _page(self._site.snapshot())
            )
        if path == _READY:
            return self._ready()
        if path == _RELOAD:
            return await self._reload()
        return _text(200, "Healthy.")

    async def _metrics(self, request: Request, query: str) -> Answer:
        try:
            parameters = parse_qs(query, keep_blank_values=True, max_num_fields=_MAX_PARAMETERS)
        except ValueError:
            return _text(400, f"More than {_MAX_PARAMETERS} query parameters.")
        collect = tuple(parameters.get("collect[]", ()))
        exclude = tuple(parameters.get("exclude[]", ()))
        if collect and exclude:
            return _text(400, "collect[] and exclude[] cannot be used together.")
        gzip = accepts_gzip(request.accept_encoding)
        accept = preferred_formats(request.accept)
        return await self._call(
            self._renderers,
            self._slots,
            lambda: _page(
                self._site.metrics(accept, gzip, collect, exclude),
                {"Vary": "Accept, Accept-Encoding"},
            ),
        )

    def _ready(self) -> Answer:
        try:
            reason = self._site.ready()
        except Exception:
            return _failed()
        return _text(200, "Ready.") if reason is None else _text(503, reason)

    async def _reload(self) -> Answer:
        if not self._enable_lifecycle:
            return _text(403, "Reloading over HTTP is not enabled.")
        return await self._call(self._reloader, self._reload_slots, self._reloaded)

    def _reloaded(self) -> Answer:
        error = self._site.reload()
        return _text(200, "Reloaded.") if error is None else _text(500, error)

    async def _call(
        self,
        pool: ThreadPoolExecutor,
        slots: threading.BoundedSemaphore | None,
        work: Callable[[], Answer],
    ) -> Answer:
        """Have a thread do the work, unless too many requests are being answered."""
        if slots and not slots.acquire(blocking=False):
            self.rejected += 1
            return _text(503, "Too many requests at once.", {"Retry-After": "1"})
        call = pool.submit(work)
        if slots:
            call.add_done_callback(lambda _: slots.release())
        try:
            return await asyncio.wrap_future(call)
        except Exception:
            return _failed()


def accepts_gzip(accept_encoding: str) -> bool:
    """Tell whether an Accept-Encoding header allows gzip and does not prefer no encoding.

    An element that is malformed allows nothing.
    """
    weights: dict[str, float] = {}
    for element in accept_encoding.lower().split(","):
        coding, *parameters = (part.strip() for part in element.split(";"))
        weights[coding] = _weight(parameters)
    gzip = weights.get("gzip", weights.get("x-gzip", weights.get("*", 0.0)))
    return gzip > 0.0 and gzip >= weights.get("identity", 0.0)


def preferred_formats(accept: str) -> str:
    """Those formats of the metrics that an Accept header likes best, without their weights.

    A format of weight 0 is left out, and OpenMetrics where plain text has a greater weight, be it
    by a wildcard. What is malformed, or a version that is not known, allows nothing. Where
    nothing is left, plain text is served.
    """
    wanted: list[tuple[float, str, str]] = []
    weights: dict[str, float] = {}
    for element in accept.split(","):
        media, *parameters = (part.strip() for part in element.split(";"))
        media = media.lower()
        named = dict(parameter.lower().partition("=")[::2] for parameter in parameters)
        weight = named.pop("q", "1")
        if not _QVALUE.fullmatch(weight):
            continue
        weights[media] = max(float(weight), weights.get(media, 0.0))
        if named.get("version", "") in _VERSIONS.get(media, ()):
            rest = (f"{name}={value}" for name, value in named.items())
            wanted.append((float(weight), media, ";".join((media, *rest))))
    any_weight = weights.get("*/*", 0.0)
    text = weights.get(_TEXT, weights.get("text/*", any_weight))
    if not text and _OPEN_METRICS not in weights and weights.get("application/*", any_weight):
        return _OPEN_METRICS
    best = sorted((w for w in wanted if w[0] and w[0] >= text), key=lambda w: -w[0])
    return ",".join(full for _, _, full in best)


def _weight(parameters: list[str]) -> float:
    """Return the q-value among an element's parameters: 1 without one, 0 when malformed."""
    if not parameters:
        return 1.0
    name, _, value = parameters[0].partition("=")
    if len(parameters) > 1 or name != "q" or not _QVALUE.fullmatch(value):
        return 0.0
    return float(value)


def _failed() -> Answer:
    """Answer for what raised: the log has the exception, the client has no detail."""
    log.exception("an HTTP request failed")
    return _text(500, "Internal error; the exporter's log has the details.")


def _page(page: Page, extra: Mapping[str, str] | None = None) -> Answer:
    """Make the answer that carries a page."""
    headers = {
        "Content-Type": page.content_type,
        "Content-Length": str(len(page.body)),
        **_COMMON_HEADERS,
        **(extra or {}),
    }
    if page.encoding:
        headers["Content-Encoding"] = page.encoding
    return Answer(page.status, headers, page.body)


def _text(status: int, line: str, extra: Mapping[str, str] | None = None) -> Answer:
    """Make an answer of one plain line."""
    return _page(Page(status, "text/plain; charset=utf-8", f"{line}\n".encode()), extra)
