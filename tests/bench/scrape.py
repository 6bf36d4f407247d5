"""Scrapes over HTTP and how long they take; loopback only, and bounded."""

from __future__ import annotations

import asyncio
import contextlib
import gzip
import time
from dataclasses import dataclass, field

HOST = "127.0.0.1"
TIMEOUT = 30.0
REQUEST = (
    b"GET /metrics HTTP/1.1\r\nHost: bench\r\nConnection: close\r\n"
    b"Accept: text/plain\r\nAccept-Encoding: gzip\r\n\r\n"
)


@dataclass(slots=True)
class Scrapes:
    """What came of a number of scrapes.

    Attributes:
        seconds: how long each good one took, from connecting to the last byte.
        failed: how many were not answered with status 200 and a whole page.
        body: of the last good one.
    """

    seconds: list[float] = field(default_factory=list)
    failed: int = 0
    body: bytes = b""

    def percentile(self, share: float) -> float:
        """The time within which this share of the good ones was done."""
        ordered = sorted(self.seconds) or [float("nan")]
        return ordered[min(int(share * len(ordered)), len(ordered) - 1)]


async def _ask(port: int) -> bytes:
    reader, writer = await asyncio.open_connection(HOST, port)
    try:
        writer.write(REQUEST)
        return await reader.read(-1)
    finally:
        writer.close()


async def _scrape(port: int, done: Scrapes) -> None:
    begin = time.perf_counter()
    try:
        answer = await asyncio.wait_for(_ask(port), TIMEOUT)
    except (OSError, asyncio.TimeoutError):
        done.failed += 1
        return
    spent = time.perf_counter() - begin
    head, _, body = answer.partition(b"\r\n\r\n")
    if not head.startswith(b"HTTP/1.1 200 "):
        done.failed += 1
        return
    done.seconds.append(spent)
    done.body = body


async def _scrapes(port: int, count: int, at_a_time: int) -> Scrapes:
    done = Scrapes()
    left = iter(range(count))

    async def client() -> None:
        for _ in left:
            await _scrape(port, done)

    await asyncio.gather(*(client() for _ in range(at_a_time)))
    done.body = gzip.decompress(done.body) if done.body else b""
    return done


async def _idle(port: int) -> None:
    """Connect and say nothing."""
    with contextlib.suppress(OSError):
        reader, writer = await asyncio.open_connection(HOST, port)
        try:
            await reader.read(1)
        finally:
            writer.close()


async def _slow(port: int) -> None:
    """Connect and ask at one byte per second."""
    with contextlib.suppress(OSError):
        _, writer = await asyncio.open_connection(HOST, port)
        try:
            for byte in REQUEST:
                writer.write(bytes((byte,)))
                await asyncio.sleep(1)
        finally:
            writer.close()


async def _load(port: int, count: int, at_a_time: int, idle: int, slow: int) -> Scrapes:
    crowd = [asyncio.create_task(_idle(port)) for _ in range(idle)]
    crowd += [asyncio.create_task(_slow(port)) for _ in range(slow)]
    await asyncio.sleep(1)  # until all of them have connected
    try:
        return await _scrapes(port, count, at_a_time)
    finally:
        for task in crowd:
            task.cancel()
        await asyncio.gather(*crowd, return_exceptions=True)


def scrape(
    port: int, count: int = 1, at_a_time: int = 1, *, idle: int = 0, slow: int = 0
) -> Scrapes:
    """Scrape the page, while so many other clients idle, or send a byte per second."""
    if idle or slow:
        return asyncio.run(_load(port, count, at_a_time, idle, slow))
    return asyncio.run(_scrapes(port, count, at_a_time))
