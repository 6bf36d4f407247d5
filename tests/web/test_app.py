"""Routes, methods, negotiation and limits, over real connections."""

from __future__ import annotations

import logging
import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.exposition import choose_encoder

from exporter.web.app import Application, accepts_gzip, preferred_formats
from tests.web.fake import BODY, PACKED, TEXT, FakeSite, ask, closing_client, fetch, serving


@pytest.mark.parametrize(
    ("method", "target", "status", "body"),
    [
        ("GET", "/metrics", 200, BODY),
        ("GET", "/metrics?other=1", 200, BODY),
        ("GET", "/", 200, b"<h1>GPUs</h1>"),
        ("GET", "/api/v1/snapshot", 200, b"{}"),
        ("GET", "/-/healthy", 200, b"Healthy.\n"),
        ("GET", "/-/ready", 200, b"Ready.\n"),
        ("POST", "/-/reload", 200, b"Reloaded.\n"),
        ("HEAD", "/metrics", 200, b""),
        ("GET", "http://node:10450/metrics?other=1", 200, BODY),
        ("GET", "HTTP://node/-/healthy", 200, b"Healthy.\n"),
        ("GET", "https://[::1]:10450/-/ready", 200, b"Ready.\n"),
        ("GET", "http://node", 200, b"<h1>GPUs</h1>"),
        ("GET", "http://node?a=b", 200, b"<h1>GPUs</h1>"),
        ("GET", "http://node/metrics/", 404, b"Not found.\n"),
        ("GET", "ftp://node/metrics", 404, b"Not found.\n"),
        ("GET", "/metrics/", 404, b"Not found.\n"),
        ("POST", "/favicon.ico", 404, b"Not found.\n"),
        ("POST", "/metrics", 405, b"Method not allowed.\n"),
        ("DELETE", "/-/healthy", 405, b"Method not allowed.\n"),
        ("GET", "/-/reload", 405, b"Method not allowed.\n"),
    ],
)
def test_routes(method: str, target: str, status: int, body: bytes) -> None:
    """Each path answers the methods it has, and nothing else is there."""
    with serving(FakeSite()) as server:
        reply = fetch(server, target, method)
    assert (status, body) == (reply.status, reply.body)


@pytest.mark.parametrize(("path", "allow"), [("/metrics", "GET, HEAD"), ("/-/reload", "POST")])
def test_a_wrong_method_is_told_the_right_ones(path: str, allow: str) -> None:
    """A 405 names the allowed methods."""
    with serving(FakeSite()) as server:
        reply = fetch(server, path, "PUT")
    assert (405, allow) == (reply.status, reply.headers["Allow"])


def test_a_head_has_the_headers_of_the_get() -> None:
    """HEAD differs from GET in nothing but the body, the length of which it tells."""
    with serving(FakeSite()) as server:
        got, head = fetch(server), fetch(server, method="HEAD")
    assert {**got.headers, "Date": ""} == {**head.headers, "Date": ""}
    assert str(len(BODY)) == head.headers["Content-Length"]


def test_headers_protect_and_tell_no_version() -> None:
    """An answer forbids guessing, framing and storing, and doesn't say what software sent it."""
    with serving(FakeSite()) as server:
        headers = fetch(server, "/").headers
    assert {
        "Cache-Control",
        "Content-Length",
        "Content-Security-Policy",
        "Content-Type",
        "Date",
        "Referrer-Policy",
        "X-Content-Type-Options",
        "X-Frame-Options",
    } == set(headers)


@pytest.mark.parametrize("path", ["/", "/gpu/metrics"])
def test_the_telemetry_path_is_configurable(path: str) -> None:
    """The metrics are where they were asked to be, even instead of the landing page."""
    with serving(FakeSite(), telemetry_path=path) as server:
        assert (BODY, 404) == (fetch(server, path).body, fetch(server, "/metrics").status)


def test_a_limit_below_zero_is_refused() -> None:
    """Zero means no limit; less means nothing."""
    with pytest.raises(ValueError, match="the limit of requests cannot be -1"):
        Application(FakeSite(), telemetry_path="/m", max_requests=-1, enable_lifecycle=False)


@pytest.mark.parametrize("path", ["", "metrics", "/a?b", "/a b", "/-/ready", "/api/v1/snapshot"])
def test_an_impossible_telemetry_path_is_refused(path: str) -> None:
    """A path that could not be requested, or that has another meaning, is an error at once."""
    with pytest.raises(ValueError, match="cannot be the path of the metrics"):
        Application(FakeSite(), telemetry_path=path, max_requests=0, enable_lifecycle=False)


@pytest.mark.parametrize(
    ("query", "collect", "exclude"),
    [
        ("", (), ()),
        ("?collect[]=power&collect%5B%5D=clock", ("power", "clock"), ()),
        ("?exclude[]=xgmi&x=1", (), ("xgmi",)),
        ("?collect[]=", ("",), ()),
    ],
)
def test_names_reach_the_site(
    query: str, collect: tuple[str, ...], exclude: tuple[str, ...]
) -> None:
    """Repeated names arrive in order, with or without the brackets escaped."""
    site = FakeSite()
    with serving(site) as server:
        fetch(server, f"/metrics{query}", Accept="text/plain")
    assert [("metrics", "text/plain", False, collect, exclude)] == site.calls


@pytest.mark.parametrize(
    ("query", "body"),
    [
        ("collect[]=a&exclude[]=b", b"collect[] and exclude[] cannot be used together.\n"),
        ("collect[]=nonsense", b"unknown collector: nonsense\n"),
        ("&".join(["collect[]=a"] * 201), b"More than 200 query parameters.\n"),
    ],
)
def test_an_impossible_choice_is_a_bad_request(query: str, body: bytes) -> None:
    """The client is told in one sentence why its choice of collectors cannot be served."""
    with serving(FakeSite()) as server:
        reply = fetch(server, f"/metrics?{query}")
    assert (400, body) == (reply.status, reply.body)


@pytest.mark.parametrize(
    ("header", "expected"),
    [
        ("gzip", True),
        ("deflate, gzip;q=1.0, *;q=0.5", True),
        ("GZIP ; Q=0.001", True),
        ("x-gzip", True),
        ("*", True),
        ("gzip;q=0.5, identity;q=0.5", True),
        ("", False),
        ("identity", False),
        ("br, deflate", False),
        ("gzip;q=0", False),
        ("gzip;q=0.000, *", False),
        ("*;q=0", False),
        ("gzip;q=0.5, identity", False),
        ("gzip;q=2", False),
        ("gzip;q=-1", False),
        ("gzip;q=nan", False),
        ("gzip;q", False),
        ("gzip;level=9;q=1", False),
    ],
)
def test_gzip_is_negotiated(header: str, expected: bool) -> None:
    """Weights decide: zero forbids, a named preference for no encoding wins, nonsense is a no."""
    assert expected == accepts_gzip(header)


@given(st.integers(0, 1000), st.lists(st.sampled_from(["br", "deflate;q=0.7", "zstd;q=0"])))
def test_only_the_weight_of_gzip_itself_decides(weight: int, others: list[str]) -> None:
    """Whatever other codings are named before or after, gzip is used when its weight isn't 0."""
    elements = [*others, f"gzip;q={weight / 1000:.3f}", *others]
    assert (weight > 0) == accepts_gzip(", ".join(elements))


@given(st.text())
def test_any_accept_encoding_is_a_yes_or_a_no(header: str) -> None:
    """No header, however malformed, is an error; spaces around it change nothing."""
    assert accepts_gzip(header) == accepts_gzip(f" {header} ")


def test_the_answer_says_how_it_was_negotiated() -> None:
    """A packed page is labelled, a plain one is not, and caches learn that there are both."""
    with serving(FakeSite()) as server:
        packed, plain = fetch(server, Accept_Encoding="gzip"), fetch(server)
    assert (PACKED, "gzip") == (packed.body, packed.headers["Content-Encoding"])
    assert (BODY, TEXT) == (plain.body, plain.headers["Content-Type"])
    assert "Content-Encoding" not in plain.headers
    assert ["Accept, Accept-Encoding"] * 2 == [r.headers["Vary"] for r in (packed, plain)]


def test_not_ready_is_a_503_with_the_reason() -> None:
    """Readiness follows the site; health doesn't."""
    with serving(FakeSite(not_ready="no poll has ended yet")) as server:
        ready, healthy = fetch(server, "/-/ready"), fetch(server, "/-/healthy")
    assert (503, b"no poll has ended yet\n") == (ready.status, ready.body)
    assert 200 == healthy.status


def test_a_failed_reload_is_a_500_with_the_error() -> None:
    """Who reloads learns what is wrong with the configuration."""
    with serving(FakeSite(reload_error="line 3: unknown key")) as server:
        reply = fetch(server, "/-/reload", "POST")
    assert (500, b"line 3: unknown key\n") == (reply.status, reply.body)


def test_reload_is_forbidden_unless_enabled() -> None:
    """Without the lifecycle the site isn't called, and the client is told why."""
    site = FakeSite()
    with serving(site, enable_lifecycle=False) as server:
        reply = fetch(server, "/-/reload", "POST")
    assert (403, b"Reloading over HTTP is not enabled.\n") == (reply.status, reply.body)
    assert [] == site.calls


@pytest.mark.parametrize(
    ("target", "method"),
    [
        ("/metrics", "GET"),
        ("/", "GET"),
        ("/api/v1/snapshot", "GET"),
        ("/-/ready", "GET"),
        ("/-/reload", "POST"),
    ],
)
def test_an_exception_is_one_plain_line_and_one_record(
    target: str, method: str, caplog: pytest.LogCaptureFixture
) -> None:
    """The client sees no traceback, the log has it once, and the connection goes on."""
    site = FakeSite(failure=RuntimeError("secret detail"))
    with serving(site) as server, closing_client(server.addresses[0]) as client:
        reply = ask(client, target, method)
        site.failure = None
        assert 200 == ask(client).status
    assert (500, b"Internal error; the exporter's log has the details.\n") == (
        reply.status,
        reply.body,
    )
    assert ["an HTTP request failed"] == [
        record.message for record in caplog.records if record.levelno >= logging.WARNING
    ]


def test_a_flood_of_scrapes_makes_it_look_neither_dead_nor_unready() -> None:
    """With every place and every thread taken, health and readiness are told, and a reload goes."""
    site = FakeSite(held=("metrics",))
    site.gate.clear()
    with serving(site, max_requests=2) as server:
        inside = [threading.Thread(target=fetch, args=(server,)) for _ in range(2)]
        for thread in inside:
            thread.start()
            site.entered.acquire(timeout=20)
        turned_away = [fetch(server, path).status for path in ("/metrics", "/", "/api/v1/snapshot")]
        told = [fetch(server, path).status for path in ("/-/healthy", "/-/ready")]
        reloaded = fetch(server, "/-/reload", "POST").status
        site.gate.set()
        for thread in inside:
            thread.join()
    assert ([503] * 3, [200] * 2, 200) == (turned_away, told, reloaded)


OPEN, PLAIN = "application/openmetrics-text", "text/plain"


@pytest.mark.parametrize(
    ("header", "expected"),
    [
        ("", ""),
        ("*/*", ""),
        (PLAIN, PLAIN),
        (OPEN, OPEN),
        (f"{OPEN};q=0,{PLAIN}", PLAIN),
        (f"{OPEN};q=0", ""),
        (f"{OPEN};q=0.5,{PLAIN}", PLAIN),
        (f"{OPEN};q=0.5,text/*", ""),
        (f"{OPEN};q=0.5,*/*", ""),
        (f"{PLAIN};q=0.4,{OPEN};q=0.5", f"{OPEN},{PLAIN}"),
        (f"{OPEN};q=0.5,{PLAIN};q=0.4,*/*;q=0.9", f"{OPEN},{PLAIN}"),
        (f"{PLAIN};q=0,*/*", OPEN),
        (f"{PLAIN};q=0,{OPEN};q=0,*/*", ""),
        (
            f"{OPEN};version=0.0.1;q=0.5,{OPEN};version=1.0.0;q=0.9",
            f"{OPEN};version=1.0.0,{OPEN};version=0.0.1",
        ),
        (f"{OPEN};version=abc", ""),
        (f"{OPEN};version=9.9,{PLAIN};version=x", ""),
        (f"{OPEN};q=2,{PLAIN};q=x", ""),
        (
            f"{OPEN};version=1.0.0;escaping=u;q=0.6,{PLAIN};version=1.0.0;q=0.4,*/*;q=0.2",
            f"{OPEN};version=1.0.0;escaping=u,{PLAIN};version=1.0.0",
        ),
    ],
)
def test_the_format_is_negotiated(header: str, expected: str) -> None:
    """Weights count, 0 forbids, and what a Prometheus sends gets it OpenMetrics."""
    assert expected == preferred_formats(header)


@given(
    st.lists(
        st.text("aqtx/*;=,.01 \t", max_size=12)
        | st.sampled_from([OPEN, PLAIN, ";q=0.5", ";q=0", ";version=", "1.0.0", ",", "*/*"])
    ).map("".join)
)
def test_any_accept_gets_a_format(header: str) -> None:
    """Whatever the header is, the library that renders the page can take what is made of it."""
    assert choose_encoder(preferred_formats(header))[1].startswith((OPEN, PLAIN))


def test_the_site_gets_the_formats_without_weights() -> None:
    """OpenMetrics that is forbidden does not reach whoever renders."""
    site = FakeSite()
    with serving(site) as server:
        fetch(server, Accept=f"{OPEN};q=0,{PLAIN};q=0.5")
    assert [("metrics", PLAIN, False, (), ())] == site.calls


def test_requests_beyond_the_limit_are_turned_away_and_counted() -> None:
    """With every place taken the next request gets a 503 at once; then there are places again."""
    site = FakeSite()
    site.gate.clear()
    with serving(site, max_requests=2) as server:
        inside = [threading.Thread(target=fetch, args=(server,)) for _ in range(2)]
        for thread in inside:
            thread.start()
            site.entered.acquire(timeout=20)
        reply = fetch(server)
        healthy = fetch(server, "/-/healthy")
        site.gate.set()
        for thread in inside:
            thread.join()
        after = fetch(server)
        assert 1 == server.rejected
    assert (503, "1") == (reply.status, reply.headers["Retry-After"])
    assert (200, 200) == (healthy.status, after.status)


def test_a_reload_that_takes_long_holds_up_no_scrape() -> None:
    """While one reload is under way and others wait for it, metrics are served."""
    site = FakeSite(held=("reload",))
    site.gate.clear()
    with serving(site) as server:
        reloads = [
            threading.Thread(target=fetch, args=(server, "/-/reload", "POST")) for _ in range(4)
        ]
        for thread in reloads:
            thread.start()
        site.entered.acquire(timeout=20)
        scraped = fetch(server)
        site.gate.set()
        for thread in reloads:
            thread.join()
    assert 200 == scraped.status
    assert 4 == site.calls.count(("reload",))
