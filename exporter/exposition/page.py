"""The metrics page: text or OpenMetrics, whole or filtered, rendered at most once per poll."""

from __future__ import annotations

import gzip
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from prometheus_client import CollectorRegistry, ProcessCollector
from prometheus_client.exposition import choose_encoder
from prometheus_client.metrics_core import Metric as Family
from prometheus_client.registry import Collector as FamilyCollector

from exporter.collectors.base import Collector
from exporter.exposition.families import Status, families
from exporter.snapshot import Snapshot

GZIP_LEVEL = 1
"""Level 9 takes ten times as long for a page that is a tenth smaller."""
KEPT = 16
"""Rendered pages kept per poll; filters come from outside, so their number is bounded."""


class FilterError(ValueError):
    """The filters of a request make no sense; the message says why."""


class _Families(FamilyCollector):
    """A fixed list of families in the shape that the encoders take."""

    def __init__(self, listed: tuple[Family, ...]) -> None:
        self._listed = listed

    def collect(self) -> Iterator[Family]:
        return iter(self._listed)


class MetricsPage:
    """Renders one snapshot, keeping what it rendered.

    Args:
        snapshot, collectors: what is shown.
        status: asked at every request; a reload is shown at once, the rest with the next poll.
        process: whether the page carries the daemon's own process_* families.
    """

    def __init__(
        self,
        snapshot: Snapshot,
        collectors: Sequence[Collector[Any]],
        status: Callable[[], Status],
        *,
        process: bool = True,
    ) -> None:
        self._snapshot = snapshot
        self._collectors = tuple(collectors)
        self._status = status
        self._process = process
        self._kept: dict[tuple[object, ...], bytes] = {}

    def render(
        self,
        accept: str = "",
        *,
        compress: bool = False,
        collect: Sequence[str] = (),
        exclude: Sequence[str] = (),
    ) -> tuple[str, bytes]:
        """Content type and body.

        Args:
            accept: the header of the request.
            compress: whether the body is compressed with gzip.
            collect: only these collectors; exclude: all but these.

        Raises:
            FilterError: both filters at once, or a collector that is not on.
        """
        chosen = self._choose(collect, exclude)
        encode, content_type = choose_encoder(accept)
        status = self._status()
        reload = (status.reload_successful, status.reload_timestamp)
        key = (content_type, compress, tuple(c.name for c in chosen), reload)
        body = self._kept.get(key)
        if body is None:
            body = encode(_registry(self._families(chosen, status)))
            if compress:
                body = gzip.compress(body, GZIP_LEVEL, mtime=0)
            if len(self._kept) < KEPT:
                self._kept[key] = body
        return content_type, body

    def _choose(self, collect: Sequence[str], exclude: Sequence[str]) -> tuple[Collector[Any], ...]:
        if collect and exclude:
            raise FilterError("collect[] and exclude[] can't be combined")
        names = [collector.name for collector in self._collectors]
        for name in (*collect, *exclude):
            if name not in names:
                raise FilterError(
                    f"there is no collector {name[:40]!r}; there are: {', '.join(names)}"
                )
        return tuple(
            c
            for c in self._collectors
            if (not collect or c.name in collect) and c.name not in exclude
        )

    def _families(self, chosen: Sequence[Collector[Any]], status: Status) -> Iterator[Family]:
        for family in families(self._snapshot, status, chosen):
            if family.samples:
                yield family
        if self._process:
            yield from ProcessCollector(registry=None).collect()


def _registry(listed: Iterator[Family]) -> CollectorRegistry:
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Families(tuple(listed)))
    return registry
