"""Sockets, connections and the thread: what hostile or careless clients can't do."""

from __future__ import annotations

import socket
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from exporter.web.address import ListenAddress, parse_address
from exporter.web.server import ListenError, WebServer
from tests.web.fake import (
    BODY,
    FakeSite,
    ask,
    closing_client,
    connect,
    ended,
    fetch,
    serving,
)


def web_threads() -> list[str]:
    """Name the threads of web servers that are alive."""
    return [thread.name for thread in threading.enumerate() if thread.name.startswith("web")]


def accepts(server: WebServer) -> bool:
    """Tell whether a server can be connected to."""
    try:
        connect(server).close()
    except (ConnectionRefusedError, ConnectionResetError):
        return False
    return True


def build(*listen: str) -> WebServer:
    """Make a server that is not started."""
    return WebServer(FakeSite(), listen=listen, max_requests=0, enable_lifecycle=False)


def refusal(*listen: str) -> ListenError:
    """Start a server that cannot listen, and give its error."""
    server = build(*listen)
    with pytest.raises(ListenError) as caught:
        server.start()
    return caught.value


def test_every_scrape_is_answered_among_idle_and_slow_clients() -> None:
    """More idle and dripping connections than the limit allows keep no scrape from its answer."""
    stop = threading.Event()
    with serving(FakeSite(), max_connections=32) as server:
        idle = [connect(server) for _ in range(40)]
        slow = [connect(server) for _ in range(20)]

        def drip() -> None:
            for byte in b"GET /metrics HTTP/1.1\r\nX: " + b"x" * 1000:
                for client in slow:
                    try:
                        client.send(bytes([byte]))
                    except OSError:
                        continue
                if stop.wait(0.02):
                    return

        dripping = threading.Thread(target=drip)
        dripping.start()
        with ThreadPoolExecutor(8) as pool:
            replies = list(pool.map(lambda _: fetch(server), range(200)))
        stop.set()
        dripping.join()
        for client in (*idle, *slow):
            client.close()
    assert [(200, BODY)] * 200 == [(reply.status, reply.body) for reply in replies]


def test_scrapes_on_kept_connections_are_answered() -> None:
    """One connection serves scrape after scrape."""
    with serving(FakeSite()) as server, closing_client(server.addresses[0]) as client:
        assert [200] * 50 == [ask(client).status for _ in range(50)]


def test_the_oldest_idle_connection_makes_room_for_a_new_one() -> None:
    """Beyond the limit the connection that has been idle for longest is closed, and only it."""
    with (
        serving(FakeSite(), max_connections=2) as server,
        connect(server) as oldest,
        closing_client(server.addresses[0]) as kept,
    ):
        ask(kept)
        assert 200 == fetch(server).status
        assert ended(oldest)
        assert 200 == ask(kept).status


def test_readers_that_never_read_make_room_too() -> None:
    """Clients that ask and don't take the answers can't fill the server."""
    with serving(FakeSite(), max_connections=4) as server:
        stuck = [socket.socket() for _ in range(8)]
        for client in stuck:
            client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            client.connect((server.addresses[0].host, server.addresses[0].port))
            client.sendall(b"GET /metrics HTTP/1.1\r\n\r\n" * 50)
        assert [200] * 10 == [fetch(server).status for _ in range(10)]
        for client in stuck:
            client.close()


@pytest.mark.parametrize("sent", [b"", b"GET /metrics HT", b"POST / HTTP/1.1\r\nContent-Length: 9"])
def test_a_request_that_is_never_completed_is_given_up(sent: bytes) -> None:
    """A connection without a whole request in time is closed."""
    with serving(FakeSite(), head_timeout=0.2) as server, connect(server) as client:
        client.sendall(sent)
        assert ended(client)


def test_dripping_does_not_extend_the_time_for_a_request() -> None:
    """A byte now and then keeps no connection open."""
    with serving(FakeSite(), head_timeout=0.5) as server, connect(server) as client:
        client.settimeout(0.05)
        closed = False
        while not closed:
            try:
                client.send(b"G")
                closed = client.recv(1) == b""
            except TimeoutError:
                continue
            except OSError:
                closed = True
        assert closed


def test_an_idle_kept_connection_is_closed_in_the_end() -> None:
    """After an answer the client has the idle time, not that for a first request."""
    with (
        serving(FakeSite(), head_timeout=0.2, idle_timeout=1) as server,
        closing_client(server.addresses[0]) as client,
    ):
        ask(client)
        time.sleep(0.4)
        assert 200 == ask(client).status
        assert ended(client.sock)


def test_an_answer_nobody_reads_is_given_up() -> None:
    """The time for taking an answer is bounded."""
    with serving(FakeSite(), answer_timeout=0.3) as server, socket.socket() as client:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        client.connect((server.addresses[0].host, server.addresses[0].port))
        client.settimeout(20)
        client.sendall(b"GET /metrics HTTP/1.1\r\n\r\n" * 50)
        time.sleep(1)
        assert ended(client)


@pytest.mark.parametrize(
    "sent",
    [
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n",
        b"nonsense\r\n\r\n",
        b"GET / HTTP/1.1\r\nX: " + b"x" * 40_000 + b"\r\n\r\n",
        b"POST /-/reload HTTP/1.1\r\nContent-Length: 99999999\r\n\r\n",
        b"POST / HTTP/1.1\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n",
    ],
)
def test_what_is_not_a_request_ends_the_connection_quietly(
    sent: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    """Garbage, and requests that are too large, are cut off without a word in the log."""
    with serving(FakeSite()) as server:
        with connect(server) as client:
            client.sendall(sent)
            assert ended(client)
        assert 200 == fetch(server).status
    assert [] == caplog.records


def test_headers_that_are_too_long_are_told_so() -> None:
    """20 KB of them get a 431, and the connection goes on."""
    with serving(FakeSite()) as server, closing_client(server.addresses[0]) as client:
        reply = ask(client, X="x" * 20_000)
        long = ask(client, "/metrics?" + "x" * 20_000)
        assert (431, b"More than 16 KiB of headers.\n") == (reply.status, reply.body)
        assert 431 == long.status
        assert 200 == ask(client, X="x" * 15_000).status


def test_the_request_of_a_client_that_has_gone_is_dropped() -> None:
    """The site renders nothing for clients that gave up while they waited for a thread."""
    site = FakeSite()
    site.gate.clear()
    with serving(site) as server:
        clients = [connect(server) for _ in range(10)]
        for client in clients:
            client.sendall(b"GET /metrics HTTP/1.1\r\n\r\n")
        for _ in range(2):
            site.entered.acquire(timeout=20)
        for client in clients:
            client.close()
        for _ in range(5):  # meanwhile the server has seen that they are gone
            fetch(server, "/-/healthy")
        site.gate.set()
        fetch(server, Accept="text/plain")
        assert [("metrics", "", False, (), ())] * 2 + [
            ("metrics", "text/plain", False, (), ())
        ] == site.calls


OUT_OF_DESCRIPTORS = """
import resource, sys
from exporter.web.server import WebServer
from tests.web.fake import FakeSite
resource.setrlimit(resource.RLIMIT_NOFILE, (40, 40))
server = WebServer(
    FakeSite(), listen=["127.0.0.1:0"], max_requests=0, enable_lifecycle=False
)
server.start()
print(server.addresses[0], flush=True)
sys.stdin.read()
server.stop(5)
"""


OUT_OF_DESCRIPTORS_AT_START = """
import os, resource
from exporter.web.server import WebServer
from tests.web.fake import FakeSite
server = WebServer(
    FakeSite(), listen=["127.0.0.1:0"], max_requests=0, enable_lifecycle=False
)
first_free = os.dup(0)
os.close(first_free)
resource.setrlimit(resource.RLIMIT_NOFILE, (first_free + 1, first_free + 1))
try:
    server.start()
except OSError as error:
    print(error.strerror)
server.stop(5)
"""


def test_a_loop_that_cannot_be_had_is_an_error_at_the_start() -> None:
    """A failure in the thread before it serves is raised where it was started."""
    child = subprocess.run(
        [sys.executable, "-c", OUT_OF_DESCRIPTORS_AT_START],
        check=True,
        capture_output=True,
        text=True,
        timeout=20,
    )
    assert "Too many open files\n" == child.stdout  # asyncio has its own complaints in stderr


FAILING = """
import os, threading
from exporter.web.server import WebServer
from tests.web.fake import FakeSite
failed = threading.Event()
server = WebServer(
    FakeSite(), listen=["127.0.0.1:0"], max_requests=0, enable_lifecycle=False,
    on_failure=failed.set,
)
server.start()
(poll,) = [fd for fd in os.listdir("/proc/self/fd")
           if os.path.lexists(f"/proc/self/fd/{fd}")
           and os.readlink(f"/proc/self/fd/{fd}") == "anon_inode:[eventpoll]"]
os.dup2(os.open("/dev/null", os.O_RDONLY), int(poll))
import socket
try:
    socket.create_connection((server.addresses[0].host, server.addresses[0].port)).close()
    server._loop.call_soon_threadsafe(lambda: None)
except (OSError, RuntimeError):
    pass  # the connection alone was enough: the loop has ended already
print(failed.wait(15), server.failure)
server.stop(1)
"""


def test_a_thread_that_dies_is_told() -> None:
    """Its loop fails under it: whoever started it is called, with the reason."""
    child = subprocess.run(
        [sys.executable, "-c", FAILING], check=True, capture_output=True, text=True, timeout=20
    )
    assert child.stdout.startswith("True OSError: "), child.stderr


def test_without_descriptors_left_scrapes_are_answered() -> None:
    """A process that can open nothing more closes idle clients, and needn't be restarted."""
    with subprocess.Popen(
        [sys.executable, "-c", OUT_OF_DESCRIPTORS],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as child:
        assert child.stdout is not None
        address = parse_address(child.stdout.readline().strip())
        idle = [socket.create_connection((address.host, address.port)) for _ in range(80)]
        for _ in range(20):
            with closing_client(address) as client:
                assert 200 == ask(client).status
        for each in idle:
            each.close()
        assert ("", "") == child.communicate(timeout=20)
    assert 0 == child.returncode


def test_one_address_serves_both_families() -> None:
    """An address without a host answers over IPv4 and over IPv6."""
    with serving(FakeSite(), ":0") as server:
        port = server.addresses[0].port
        assert ListenAddress("", port) == server.addresses[0]
        for host in ("127.0.0.1", "::1"):
            with closing_client(ListenAddress(host, port)) as client:
                assert 200 == ask(client).status


def test_several_addresses_are_served() -> None:
    """Each address is bound, and told with the port it got."""
    server = build("127.0.0.1:0", "[::1]:0")
    server.start()
    assert ["127.0.0.1", "::1"] == [address.host for address in server.addresses]
    for address in server.addresses:
        with closing_client(address) as client:
            assert 200 == ask(client).status
    server.stop(5)


@pytest.mark.parametrize(
    ("listen", "line"),
    [
        (["x"], "cannot listen on x: 'x' has no port: write ':10450' or 'host:10450'"),
        (["127.0.0.1:0", "127.0.0.1:0"], "cannot listen on 127.0.0.1:0: it is given twice"),
        (["192.0.2.1:0"], "cannot listen on 192.0.2.1:0: this machine has no such address"),
    ],
)
def test_an_address_that_cannot_be_had_is_one_clear_line(listen: list[str], line: str) -> None:
    """The error names the address and the reason."""
    assert line == str(refusal(*listen))


def test_a_name_that_is_nobodys_is_told() -> None:
    """A host name that doesn't resolve is named as the reason."""
    assert refusal("no-such-host.invalid:0").reason.startswith("the host name cannot be resolved")


def test_a_port_in_use_leaves_nothing_bound() -> None:
    """When one address is taken the error says so and the others are free again."""
    with socket.create_server(("127.0.0.1", 0)) as taken, socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        free = f"127.0.0.1:{other.getsockname()[1]}"
        other.close()
        used = f"127.0.0.1:{taken.getsockname()[1]}"
        error = refusal(free, used)
        assert (used, "the address is already in use") == (error.address, error.reason)
        server = build(free)
        server.start()
        server.stop(5)


def test_no_address_is_an_error() -> None:
    """A server must listen somewhere."""
    with pytest.raises(ValueError, match="no address"):
        build()


def test_stopping_leaves_no_thread_and_no_listener() -> None:
    """After the end the port is free, idle clients are let go and every thread has ended."""
    with serving(FakeSite()) as server:
        idle = connect(server)
        fetch(server)
        server.stop(5)
        assert ended(idle)
        idle.close()
        assert not accepts(server)
    assert [] == web_threads()


def test_an_answer_under_way_is_finished_before_the_end() -> None:
    """Stopping waits for the scrape that is being answered."""
    site = FakeSite()
    site.gate.clear()
    with serving(site) as server, ThreadPoolExecutor(2) as pool:
        reply = pool.submit(fetch, server)
        site.entered.acquire(timeout=20)
        stopping = pool.submit(server.stop, 20)
        while accepts(server):
            time.sleep(0.01)
        site.gate.set()
        stopping.result()
        assert (200, BODY) == (reply.result().status, reply.result().body)
    assert [] == web_threads()


def test_stopping_does_not_wait_for_ever(caplog: pytest.LogCaptureFixture) -> None:
    """A page that never gets done doesn't keep the daemon from ending, and is reported."""
    site = FakeSite()
    site.gate.clear()
    with serving(site) as server, connect(server) as client:
        client.sendall(b"GET /metrics HTTP/1.1\r\n\r\n")
        site.entered.acquire(timeout=20)
        server.stop(0)
        assert ended(client)
    assert ["the web server did not end in time: a page is still being rendered"] == [
        record.message for record in caplog.records
    ]
    for thread in threading.enumerate():
        if thread.name.startswith("web"):
            thread.join(20)
    assert [] == web_threads()


def test_a_stopped_server_can_be_stopped_again() -> None:
    """Stopping twice, or without a start, is nothing."""
    server = build("127.0.0.1:0")
    server.stop(1)
    server.start()
    server.stop(5)
    server.stop(5)
    assert [] == web_threads()
