"""The daemon under the load that it was built for, as a process of its own."""

from __future__ import annotations

import socket
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tests.cli.command import serving

IDLE, SLOW, SCRAPES, AT_ONCE = 200, 50, 2000, 20


def test_every_scrape_is_answered(tmp_path: Path) -> None:
    """200 idle connections, 50 clients that send a byte a second, 2,000 scrapes, 20 at a time."""
    stop = threading.Event()
    with serving(tmp_path, "--sources=simulated") as daemon:
        idle = [socket.create_connection(daemon.addresses[0]) for _ in range(IDLE)]
        slow = [socket.create_connection(daemon.addresses[0]) for _ in range(SLOW)]

        def drip() -> None:
            for byte in b"GET /metrics HTTP/1.1\r\nX: " + b"x" * 1000:
                for client in slow:
                    try:
                        client.send(bytes([byte]))
                    except OSError:
                        continue
                if stop.wait(1):
                    return

        dripping = threading.Thread(target=drip)
        dripping.start()
        try:
            with ThreadPoolExecutor(AT_ONCE) as pool:
                replies = list(pool.map(lambda _: daemon.ask(), range(SCRAPES)))
            rejected = daemon.value("amdgpu_exporter_rejected_requests_total")
        finally:
            stop.set()
            dripping.join()
            for client in (*idle, *slow):
                client.close()

        assert [200] * SCRAPES == [reply.status for reply in replies]
        assert [True] * SCRAPES == ["\namdgpu_up{" in reply.body for reply in replies]
        assert 0.0 == rejected
        assert "Traceback" not in daemon.log()
