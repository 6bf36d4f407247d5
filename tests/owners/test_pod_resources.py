"""Who the kubelet gave devices to, against a real gRPC server on a unix socket."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exporter.collectors import COLLECTORS
from exporter.config import Invocation, load
from exporter.daemon import Reader
from exporter.exposition.families import Status
from exporter.exposition.page import MetricsPage
from exporter.snapshot import Snapshot
from exporter.sources.pod_resources import (
    Given,
    PodResourcesGpu,
    PodResourcesSession,
    kubelet,
    parse,
)
from exporter.sources.session import UnavailableError
from exporter.sources.supervisor import Limits
from exporter.values import ERROR, NO_ANSWER, NOT_PERMITTED, Absent
from tests.core.nodes import ADDRESS, OTHER, kfd_files, node_files, reason
from tests.golden.page import samples
from tests.kernel.launch import launcher
from tests.kernel.node import MIB, Node
from tests.owners.kubelet import Pods, answer, serving
from tests.owners.node import Files

WORKER = ("research", "trainer-0", "worker")
GPU = "amd.com/gpu"


def views(pods: Pods, files: Files, address: str = ADDRESS) -> list[PodResourcesGpu]:
    """The views of a device where a kubelet answers so."""
    session = PodResourcesSession(lambda: answer(pods), files)
    return list(session.views(address, per_partition=True))


def two_gpus() -> Files:
    """A node with two whole GPUs."""
    made = node_files(addresses=(ADDRESS, OTHER))
    return Files(made.files, made.links)


def test_a_real_server(tmp_path: Path) -> None:
    """Asked over its socket, once in 30 seconds however often the exporter polls."""
    with serving(tmp_path / "s", lambda: answer({WORKER: {GPU: [ADDRESS]}})) as asked:
        session = PodResourcesSession(kubelet(str(tmp_path / "s")), two_gpus())
        for now in range(0, 60, 5):
            session.begin(float(now))
            (first,) = session.views(ADDRESS, per_partition=True)
            (second,) = session.views(OTHER, per_partition=False)
            assert (("research/trainer-0/worker",), ()) == (first.containers(), second.containers())

    assert [0, 0] == asked
    assert [(ADDRESS, 0), (OTHER, 1)] == list(session.devices())


def test_a_server_that_comes_to_refuse(tmp_path: Path) -> None:
    """The reason is told; when it answers again, so does the source."""
    answers = [answer({WORKER: {GPU: [ADDRESS]}})]

    def told() -> bytes:
        if not answers:
            raise PermissionError("not you")
        return answers[0]

    with serving(tmp_path / "s", told):
        session = PodResourcesSession(kubelet(str(tmp_path / "s")), two_gpus())
        (view,) = session.views(ADDRESS, per_partition=True)
        assert ("research/trainer-0/worker",) == view.containers()
        kept = answers.pop()
        session.begin(31.0)
        assert NOT_PERMITTED == reason(view.containers())
        assert "not you" in str(view.containers())
        assert NOT_PERMITTED == reason(view.unmapped())
        answers.append(kept)
        session.begin(62.0)
        assert ("research/trainer-0/worker",) == view.containers()


def test_a_server_that_hangs(tmp_path: Path) -> None:
    """It has a second; then the source goes on without it."""

    def slow() -> bytes:
        time.sleep(3)
        return b""

    with serving(tmp_path / "s", slow):
        asking = kubelet(str(tmp_path / "s"))
        began = time.monotonic()
        told = asking()
    assert isinstance(told, Absent)
    assert NO_ANSWER == told.reason
    assert time.monotonic() - began < 10


def test_no_server(tmp_path: Path) -> None:
    """No socket: the source is not there, and says what to do."""
    with pytest.raises(UnavailableError, match="pod-resources"):
        PodResourcesSession(kubelet(str(tmp_path / "none")), two_gpus())


def test_who_holds_what() -> None:
    """By PCI address, in any case of letters; other vendors' devices and unknown ids are left."""
    pods: Pods = {
        WORKER: {GPU: [ADDRESS.upper(), ADDRESS], "cpu/x": [OTHER]},
        ("research", "trainer-0", "side"): {},
        ("web", "a", "b"): {"amd.com/cpx_nps1": [OTHER, "0000:ff:00.0", "what"]},
        ("web", "c", "d"): {GPU: [OTHER, "amdgpu_xcp_99"]},
    }
    (first,) = views(pods, two_gpus())
    (second,) = views(pods, two_gpus(), OTHER)

    assert ("research/trainer-0/worker",) == first.containers()
    assert ("web/a/b", "web/c/d") == second.containers()
    assert 3 == first.unmapped()


def test_partitions() -> None:
    """The first by its PCI address, the others by the name of their platform device."""
    made = node_files(elsewhere=kfd_files(1, 1))
    files = Files(made.files, made.links)
    for number, minor in ((1, 128), (2, 129)):
        path = f"/sys/class/kfd/kfd/topology/nodes/{number}/properties"
        files.files[path] = f"{files.files[path]}drm_render_minor {minor}\n"
    files.files["/sys/devices/platform/amdgpu_xcp_0/drm/renderD129/dev"] = "226:129"
    files.files["/sys/devices/platform/amdgpu_xcp_1/drm/card9/dev"] = "226:9"
    found = views(
        {
            ("n", "p", "first"): {GPU: [ADDRESS]},
            ("n", "p", "second"): {GPU: ["amdgpu_xcp_0", "amdgpu_xcp_1"]},
        },
        files,
    )

    assert [("0", ("n/p/first",)), ("1", ("n/p/second",))] == [
        (view.partition, view.containers()) for view in found
    ]
    assert 1 == found[0].unmapped()


def test_hostile_names() -> None:
    """Names are short and of one line, and three parts stay three."""
    bad = 'a/b\n"\\' + "x" * 4096
    (view,) = views({(bad, "/proc/1", "\x00"): {GPU: [ADDRESS]}}, two_gpus())
    told = view.containers()
    assert not isinstance(told, Absent)
    parts = told[0].split("/")

    assert 3 == len(parts)
    assert max(map(len, parts)) <= 128
    assert "proc_1" == parts[1]


@pytest.mark.parametrize(
    "raw", [b"\x0a\x05ab", b"\xff", b"\x0b", b"\x80" * 11, b"\x0a\xff\xff\x7f"]
)
def test_no_such_message(raw: bytes) -> None:
    """What is no protobuf is an error with a reason, not an answer."""
    with pytest.raises(UnavailableError, match="answer"):
        PodResourcesSession(lambda: raw, two_gpus())


@given(st.binary(max_size=200))
def test_any_bytes(raw: bytes) -> None:
    """Any bytes are a message or a ValueError."""
    try:
        list(parse(raw))
    except ValueError:
        return


NAMES = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)


@given(st.lists(st.tuples(NAMES, NAMES, NAMES, NAMES), max_size=5, unique_by=lambda n: n[:3]))
def test_what_is_told_is_read(told: list[tuple[str, str, str, str]]) -> None:
    """Whatever the names are, and however long."""
    pods = {(n, p, c): {GPU: [device]} for n, p, c, device in told}
    assert [Given(*entry) for entry in told] == list(parse(answer(pods)))


# ------------------------------------------------------------------------- the whole exporter


def page(
    reader: Reader, until: int = 2
) -> tuple[Snapshot, list[tuple[str, dict[str, str], float]]]:
    """The samples after so many polls."""
    for _ in range(until):
        snapshot = reader.poll()
    made = MetricsPage(snapshot, reader.picture.collectors, lambda: Status(True, 0), process=False)
    return snapshot, samples(made.render()[1].decode())


CONTAINER = "0123456789abcdef" * 4
IN_POD = f"0::/kubepods.slice/kubepods-pod{'1' * 32}.slice/cri-containerd-{CONTAINER}.scope"


def test_allocations_of_a_node(tmp_path: Path) -> None:
    """Over AMD SMI, on a simulated kernel: pods with and without processes, and a Slurm job."""
    node = Node.create(tmp_path / "tree", "MI300X", 4)
    node.process(4201, {0: 512 * MIB}, cgroup=IN_POD)
    node.process(4202, {2: 256 * MIB}, cgroup="0::/system.slice/slurmstepd.scope/job_7/step_0")
    node.process(4203, {3: 64 * MIB}, cgroup=IN_POD)
    bdfs = [gpu.bdf for gpu in node.gpus]
    pods: Pods = {
        WORKER: {GPU: bdfs[:2]},
        ("web", "a", "b"): {GPU: [bdfs[3]]},
        ("web", "a", "c"): {GPU: [bdfs[3]]},
    }
    with TemporaryDirectory() as short, serving(Path(short) / "s", lambda: answer(pods)) as asked:
        flags: dict[str, object] = {
            "collector.allocations": True,
            "sources": "amdsmi,sysfs",
            "kubelet.pod-resources-socket": f"{short}/s",
        }
        config = load(Invocation(flags=flags), COLLECTORS, environment={})
        reader = Reader(config, launcher("sid", node.root), limits=Limits(60.0))
        try:
            snapshot, found = page(reader)
            off = replace(config, collectors=("memory", "processes"))
            reader.apply(off)
            _, without = page(reader, 1)
            reader.apply(config)
            again = reader.poll()
        finally:
            reader.stop()

    told = [
        (name.removeprefix("amdgpu_allocation_"), int(labels["gpu"]), labels["pod"],
         labels["container"], labels["job_id"], value)
        for name, labels, value in found if name.startswith("amdgpu_allocation")
    ]  # fmt: skip
    assert [
        ("info", 0, "trainer-0", "worker", "", 1.0),
        ("info", 1, "trainer-0", "worker", "", 1.0),
        ("info", 2, "", "", "7", 1.0),
        ("info", 3, "a", "b", "", 1.0),
        ("info", 3, "a", "c", "", 1.0),
        ("vram_bytes", 0, "trainer-0", "worker", "", 512.0 * MIB),
        ("vram_bytes", 1, "trainer-0", "worker", "", 0.0),
        ("vram_bytes", 2, "", "", "7", 256.0 * MIB),
        # of GPU 3 nobody knows which of the two containers the process is in
    ] == told
    who = {
        labels["pid"]: (labels["namespace"], labels["pod"], labels["container"])
        for name, labels, _ in found if name == "amdgpu_process_info"
    }  # fmt: skip
    assert {"4201": WORKER, "4202": ("", "", ""), "4203": ("", "", "")} == who
    assert ["amdsmi", "sysfs", "pod_resources"] == [report.name for report in snapshot.sources]
    assert [] == [name for name, _, _ in without if "allocation" in name]
    assert ["amdsmi", "sysfs", "pod_resources"] == [report.name for report in again.sources]
    assert 2 == len(asked)  # each time that the source was switched on


def test_a_node_without_kubelet(tmp_path: Path) -> None:
    """The source is down with a reason; no device is, and all else is told."""
    node = Node.create(tmp_path / "tree", "MI300X", 1)
    node.process(4201, {0: 512 * MIB})
    flags: dict[str, object] = {
        "collector.allocations": True,
        "sources": "sysfs",
        "kubelet.pod-resources-socket": f"{tmp_path}/none",
    }
    config = load(Invocation(flags=flags), COLLECTORS, environment={})
    reader = Reader(config, launcher("sid", node.root), limits=Limits(60.0))
    try:
        snapshot, found = page(reader, 1)
    finally:
        reader.stop()

    assert [(True, ""), (False, True)] == [
        (snapshot.sources[0].up, snapshot.sources[0].reason),
        (snapshot.sources[1].up, "kubelet" in snapshot.sources[1].reason),
    ]
    assert [True] == [device.up for device in snapshot.devices]
    assert 1 == sum(name == "amdgpu_process_info" for name, _, _ in found)


def test_the_extra_is_not_installed(tmp_path: Path) -> None:
    """It is said what to install."""
    (tmp_path / "grpc.py").write_text("raise ImportError('none')\n")
    code = (
        "from exporter.sources.pod_resources import kubelet\n"
        "from exporter.sources.session import UnavailableError\n"
        "try: kubelet('/x')\n"
        "except UnavailableError as error: print(error.remedy)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "PYTHONPATH": f"{tmp_path}:{os.getcwd()}"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert "pip install 'amdgpu-exporter[kubernetes]'\n" == done.stdout


def test_reason_of_a_wild_answer() -> None:
    """An answer that can't be read, later, is absent with an error."""
    answers = [answer({}), b"\xff"]
    session = PodResourcesSession(lambda: answers.pop(0), two_gpus())
    (view,) = session.views(ADDRESS, per_partition=True)
    assert () == view.containers()
    session.begin(31.0)

    assert ERROR == reason(view.containers())
