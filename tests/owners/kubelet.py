"""A kubelet's pod-resources service: a real gRPC server on a unix socket."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import grpc  # type: ignore[import-untyped]  # has no types

Pods = Mapping[tuple[str, str, str], Mapping[str, Sequence[str]]]
"""Namespace, pod and container to its devices by resource."""


def _varint(value: int) -> bytes:
    low, rest = value & 0x7F, value >> 7
    return bytes([low | 0x80]) + _varint(rest) if rest else bytes([low])


def field(number: int, content: bytes | str) -> bytes:
    """A protobuf field that has a length."""
    raw = content.encode() if isinstance(content, str) else content
    return _varint(number << 3 | 2) + _varint(len(raw)) + raw


def answer(pods: Pods) -> bytes:
    """A ListPodResourcesResponse, with fields that the exporter has no use for."""
    message = b""
    for (namespace, pod, container), devices in pods.items():
        inner = field(1, container)
        for resource, ids in devices.items():
            topology = field(3, field(1, b"\x08\x01"))
            inner += field(2, field(1, resource) + b"".join(field(2, i) for i in ids) + topology)
        inner += b"\x18\x07" + field(4, field(1, "hugepages"))  # a cpu_id, and memory
        message += field(1, field(1, pod) + field(2, namespace) + field(3, inner))
    return message + b"\x99\x06" + b"\0" * 8 + b"\x95\x06" + b"\0" * 4  # fixed64, fixed32


@contextmanager
def serving(path: Path, list_: Callable[[], bytes]) -> Iterator[list[int]]:
    """Serve on a socket; gives the list that grows by the length of each request."""
    asked: list[int] = []

    def handle(request: bytes, context: Any) -> bytes:
        asked.append(len(request))
        try:
            return list_()
        except PermissionError as error:
            context.abort(grpc.StatusCode.PERMISSION_DENIED, str(error))
            raise

    server = grpc.server(ThreadPoolExecutor(2))
    handler = grpc.unary_unary_rpc_method_handler(handle)
    service = grpc.method_handlers_generic_handler("v1.PodResourcesLister", {"List": handler})
    server.add_generic_rpc_handlers((service,))
    assert server.add_insecure_port(f"unix:{path}")
    server.start()
    try:
        yield asked
    finally:
        server.stop(None).wait()
