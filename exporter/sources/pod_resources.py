"""Which containers the kubelet gave devices to, by its pod-resources socket; also idle ones.

The service is `v1.PodResourcesLister` (k8s.io/kubelet/pkg/apis/podresources/v1/api.proto). Of its
answer three nested messages of strings are wanted, so they are taken apart here: that needs no
generated code, and no protobuf beside grpcio whose version would have to fit.

Assumption, from AMD's device plugin for Kubernetes (ROCm/k8s-device-plugin): the ids of its devices
are PCI addresses, and for the partitions of a device but the first the names of their platform
devices, `amdgpu_xcp_3`. Devices that are given by Dynamic Resource Allocation are not looked at.
"""

from __future__ import annotations

import importlib
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from exporter.sources.files import Files
from exporter.sources.guard import label
from exporter.sources.session import SLOW, DeviceKey, Memo, UnavailableError
from exporter.sources.sysfs import ADDRESS, bound_addresses, kfd_nodes, places, runtime_suspended
from exporter.values import ERROR, NO_ANSWER, NOT_PERMITTED, Absent, Value

DEADLINE = 1.0
"""Seconds that the kubelet gets for an answer: less than any device gets."""
_LIST = "/v1.PodResourcesLister/List"
_LONGEST = 16 << 20
_VENDOR = "amd.com/"
_PLATFORM = re.compile(r"amdgpu_xcp_\d+")


@dataclass(frozen=True, slots=True)
class Given:
    """A device that a container was given; names as in Kubernetes."""

    namespace: str
    pod: str
    container: str
    device: str


class Lister(Protocol):
    """Asks the kubelet."""

    def __call__(self) -> bytes | Absent:
        """The answer to a List request as it came, or why there is none."""


def kubelet(socket: str) -> Lister:
    """Ask over a unix socket.

    Raises:
        UnavailableError: the extra is not installed.
    """
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")  # it would write to standard error
    try:
        grpc: Any = importlib.import_module("grpc")
    except ImportError as error:
        raise UnavailableError(
            f"grpcio can't be imported: {error}", "pip install 'amdgpu-exporter[kubernetes]'"
        ) from error
    channel = grpc.insecure_channel(
        f"unix://{os.path.abspath(socket)}",
        options=[("grpc.max_receive_message_length", _LONGEST), ("grpc.enable_http_proxy", 0)],
    )
    call = channel.unary_unary(_LIST)
    reasons = {"PERMISSION_DENIED": NOT_PERMITTED, "DEADLINE_EXCEEDED": NO_ANSWER}

    def ask() -> bytes | Absent:
        try:
            answer: bytes = call(b"", timeout=DEADLINE)
        except grpc.RpcError as error:
            code, details = error.code().name, " ".join(str(error.details()).split())
            return Absent(reasons.get(code, ERROR), f"{socket}: {code}: {details}"[:200])
        return answer

    return ask


def _fields(message: bytes) -> Iterator[tuple[int, bytes]]:
    """The fields of a protobuf message that have a length: their numbers and contents.

    Raises:
        ValueError: it is none.
    """
    at = 0

    def varint() -> int:
        nonlocal at
        value = shift = 0
        while True:
            if at >= len(message) or shift > 63:
                raise ValueError("a number without an end")
            byte = message[at]
            at += 1
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value
            shift += 7

    while at < len(message):
        key = varint()
        kind = key & 7
        if kind == 0:
            varint()
            continue
        length = {1: 8, 5: 4}.get(kind, -1)
        if kind == 2:
            length = varint()
        if length < 0 or at + length > len(message):
            raise ValueError(f"a field of kind {kind} that goes beyond the end")
        if kind == 2:
            yield key >> 3, message[at : at + length]
        at += length


def _texts(message: bytes, number: int) -> list[str]:
    return [
        value.decode("utf-8", "replace") for field, value in _fields(message) if field == number
    ]


def parse(answer: bytes) -> Iterator[Given]:
    """The vendor's devices that containers were given, by a List response.

    Raises:
        ValueError: it is no such message.
    """
    for _, pod in (field for field in _fields(answer) if field[0] == 1):
        name, namespace = (next(iter(_texts(pod, number)), "") for number in (1, 2))
        for _, container in (field for field in _fields(pod) if field[0] == 3):
            own = next(iter(_texts(container, 1)), "")
            for _, devices in (field for field in _fields(container) if field[0] == 2):
                if next(iter(_texts(devices, 1)), "").startswith(_VENDOR):
                    for device in _texts(devices, 2):
                        yield Given(namespace, name, own, device)


@dataclass(frozen=True, slots=True)
class _Answer:
    """What the kubelet told: the containers of each device, and ids that lead to none."""

    containers: Mapping[DeviceKey, Sequence[str]]
    unmapped: int


@dataclass(frozen=True, slots=True)
class PodResourcesGpu:
    """One device, or one partition of it, as the collectors read it."""

    session: PodResourcesSession
    address: str
    partition: str | None

    def containers(self) -> tuple[str, ...] | Absent:
        """Who holds it, as `namespace/pod/container`, or why that is not known."""
        answer = self.session.answer()
        if isinstance(answer, Absent):
            return answer
        return tuple(answer.containers.get(DeviceKey(self.address, self.partition), ()))

    def unmapped(self) -> int | Absent:
        """How many ids of the vendor's devices on the node lead to no device."""
        answer = self.session.answer()
        return answer if isinstance(answer, Absent) else answer.unmapped


class PodResourcesSession:
    """The kubelet as a source; see `exporter.sources.session.Session`.

    Raises:
        UnavailableError: it does not answer.
    """

    def __init__(self, lister: Lister, files: Files) -> None:
        self._lister = lister
        self._files = files
        self._memo = Memo()
        self._addresses = bound_addresses(files)
        self._nodes = kfd_nodes(files)
        _, self._minors = places(files, self._addresses, self._nodes)
        self._first: _Answer | Absent | None = None
        first = self._ask()
        if isinstance(first, Absent):
            raise UnavailableError(
                f"the kubelet does not tell its allocations: {first.detail}",
                "mount the folder of its socket (/var/lib/kubelet/pod-resources), see that the "
                "user may open it, or switch off --collector.allocations",
            )
        self._first = first

    def answer(self) -> _Answer | Absent:
        """What the kubelet told last; asked anew on the slow clock, whatever it answered."""
        return self._memo.get("list", SLOW, lambda: (self._due(),))[0]

    def _due(self) -> _Answer | Absent:
        first, self._first = self._first, None
        return self._ask() if first is None else first

    def _ask(self) -> _Answer | Absent:
        told = self._lister()
        if isinstance(told, Absent):
            return told
        containers: dict[DeviceKey, list[str]] = {}
        unmapped = 0
        try:
            for given in parse(told):
                place = self._place(given.device)
                if place is None:
                    unmapped += 1
                    continue
                names = (given.namespace, given.pod, given.container)
                name = "/".join(label(part).replace("/", "_") for part in names)
                holders = containers.setdefault(place, [])
                if name not in holders:
                    holders.append(name)
        except ValueError as error:
            return Absent(ERROR, f"the kubelet's answer: {error}")
        return _Answer(containers, unmapped)

    def _place(self, device: str) -> DeviceKey | None:
        if ADDRESS.fullmatch(device.lower()):
            address = device.lower()
            if address not in self._addresses:
                return None
            partitioned = len(self._nodes.get(address, ())) > 1
            return DeviceKey(address, "0" if partitioned else None)
        if _PLATFORM.fullmatch(device):
            try:
                names = self._files.list(f"/sys/devices/platform/{device}/drm")
            except OSError:
                return None
            for name in names:
                if (minor := name.removeprefix("renderD")).isdigit():
                    return self._minors.get(int(minor))
        return None

    def node(self) -> Mapping[str, Value]:
        return {}

    def begin(self, now: float) -> None:
        self._memo.now = now

    def changed(self) -> bool:
        return bound_addresses(self._files) != self._addresses

    def devices(self) -> Sequence[tuple[str, int]]:
        return [(address, index) for index, address in enumerate(self._addresses)]

    def suspended(self, address: str) -> bool:
        return runtime_suspended(self._files, address)

    def views(self, address: str, *, per_partition: bool) -> Sequence[PodResourcesGpu]:
        count = len(self._nodes.get(address, ()))
        if not per_partition or count < 2:
            return (PodResourcesGpu(self, address, None),)
        return tuple(PodResourcesGpu(self, address, str(number)) for number in range(count))
