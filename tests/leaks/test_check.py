"""`leak-check`: what it prints and returns for files and for a Prometheus."""

from __future__ import annotations

import io
import json
import random
import threading
import urllib.parse
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from exporter.leaks import ProcessUse, Sample
from exporter.leaks.check import run
from exporter.leaks.recorded import HEADER, InputError, Query, read_csv, read_prometheus
from tests.leaks.traces import make

ROW = "1700000000,0,1000000,5000,0.5,17:5:4000"


def write(path: Path, devices: dict[str, Sequence[Sample]], seed: int = 1) -> Path:
    """A file with the samples of devices, its rows in any order."""
    rows = [
        ",".join(
            (
                str(s.time_seconds),
                name,
                str(s.vram_total_bytes),
                str(s.vram_used_bytes),
                "" if s.gfx_activity_ratio is None else f"{s.gfx_activity_ratio:.4f}",
                ";".join(f"{u.pid}:{u.start_time}:{u.vram_bytes}" for u in s.processes or ()),
            )
        )
        for name, samples in devices.items()
        for s in samples
    ]
    random.Random(seed).shuffle(rows)  # noqa: S311 - to be repeated
    path.write_text("\n".join((",".join(HEADER), *rows)) + "\n")
    return path


def check(source: Path | Query, format: str = "table") -> tuple[int, str, str]:
    """Exit status, and what was written to both."""
    out, err = io.StringIO(), io.StringIO()
    return run(source, out, err, format), out.getvalue(), err.getvalue()


def test_file_as_json(tmp_path: Path) -> None:
    """One object per GPU, by number; a leak makes the status 1."""
    leak = make("linear_one_percent", 1, 64, 300.0, 1)
    path = write(
        tmp_path / "leaks.csv",
        {
            "10": make("zombie", 2, 64, 300.0, 1).samples,
            "2": leak.samples,
            "1": make("kv_cache", 3, 64, 300.0, 1).samples,
            "0": make("kv_cache", 3, 64, 300.0, 0.05).samples,
        },
    )
    status, out, err = check(path, "json")
    rows = json.loads(out)
    assert (1, "") == (status, err)
    assert [0, 1, 2, 10] == [row["gpu"] for row in rows]
    assert ["none", "none", "process", "residue"] == [row["kind"] for row in rows]
    assert {
        "gpu": 0,
        "kind": "none",
        "since_seconds": None,
        "bytes_per_second": None,
        "pid": None,
        "evidence": "insufficient",
    } == rows[0]
    assert leak.pid == rows[2]["pid"]
    assert rows[2]["since_seconds"] == pytest.approx(leak.onset, abs=3600)
    assert rows[2]["bytes_per_second"] == pytest.approx(0.01 * (64 << 30) / 3600, rel=0.1)


def test_file_as_table(tmp_path: Path) -> None:
    """For people: a row per GPU; no leak is status 0."""
    path = write(tmp_path / "good.csv", {"0": make("idle", 1, 64, 300.0, 1).samples})
    table = (
        "gpu  kind  since  MiB per hour  pid  evidence\n"
        "0    none  -      -             -    no floor rises steadily, and what is in use has an "
        "owner\n"
    )
    assert (0, table, "") == check(path)


def test_leak_of_a_process_that_has_ended_counts(tmp_path: Path) -> None:
    """After the fact one wants to know that it leaked until it was killed."""
    trace = make("until_killed", 5, 64, 300.0)
    status, out, _ = check(write(tmp_path / "killed.csv", {"0": trace.samples}), "json")
    (row,) = json.loads(out)
    assert (1, "process", trace.pid) == (status, row["kind"], row["pid"])
    assert row["evidence"].endswith(", until it ended")


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        ([], "line 1: expected the header time_seconds,gpu,"),
        (["gpu,time_seconds"], "line 1: expected the header time_seconds,gpu,"),
        ([",".join(HEADER)], "line 1: no samples follow the header"),
        ([",".join(HEADER), ROW, "1,2,3"], "line 3: expected 6 columns, got 3"),
        ([",".join(HEADER), ROW.replace("1700000000", "soon")], "line 2: time_seconds: expected"),
        ([",".join(HEADER), ROW.replace("1700000000", "nan")], "line 2: time_seconds: expected"),
        (
            [",".join(HEADER), ROW.replace("5000", "-5")],
            "line 2: vram_used_bytes: expected a whole",
        ),
        ([",".join(HEADER), ROW.replace("5000", "1.5")], "line 2: vram_used_bytes: expected a who"),
        ([",".join(HEADER), ROW.replace("5000", "5e6")], "line 2: vram_used_bytes: more than"),
        (
            [",".join(HEADER), ROW.replace("1000000", "0")],
            "line 2: vram_total_bytes: expected more",
        ),
        (
            [",".join(HEADER), ROW.replace("0.5", "1.5")],
            "line 2: gfx_activity_ratio: expected 0 to",
        ),
        ([",".join(HEADER), ROW.replace("17:5:", "17:")], "line 2: processes: expected pid:start_"),
        ([",".join(HEADER), ROW.replace("17:", "x:")], "line 2: pid: expected a number, got 'x'"),
        ([",".join(HEADER), ROW, ROW.replace(",0,", ",,")], "line 3: gpu: expected a name, got ''"),
        ([",".join(HEADER), ROW, '"'], "line 3: unexpected end of data"),
    ],
)
def test_wrong_file_is_told_by_line(tmp_path: Path, lines: list[str], said: str) -> None:
    """Status 2, nothing on the output, and one line that names the file and the line."""
    path = tmp_path / "wrong.csv"
    path.write_text("\n".join(lines))
    status, out, err = check(path)
    assert (2, "") == (status, out)
    assert err.startswith(f"amdgpu-exporter: {path}: {said}")
    assert 1 == err.count("\n")


def test_file_that_is_no_text_or_not_there(tmp_path: Path) -> None:
    """Said as it is."""
    path = tmp_path / "odd.csv"
    assert (2, "", f"amdgpu-exporter: {path}: No such file or directory\n") == check(path)
    path.write_bytes(b"\xff\xfe\x00")
    assert (2, "", f"amdgpu-exporter: {path}: no UTF-8 text (invalid start byte)\n") == check(path)


def test_cells_as_other_programs_write_them(tmp_path: Path) -> None:
    """Blanks, a mark at the start, CRLF, quotes, bytes as floats, and empty cells."""
    path = tmp_path / "odd.csv"
    path.write_bytes(
        b"\xef\xbb\xbf" + ",".join(HEADER).encode() + b"\r\n"
        b'2.5, 0 ,"1000000",5e3,,\r\n\r\n1,0,1000000,5000.0,1,17:5.5:4000;18:6:0\r\n'
    )
    uses = (ProcessUse(17, 5.5, 4000), ProcessUse(18, 6.0, 0))
    assert {
        "0": [Sample(1.0, 1_000_000, 5000, 1.0, uses), Sample(2.5, 1_000_000, 5000, None, ())]
    } == read_csv(path)


# ---- Prometheus ------------------------------------------------------------------------------

Series = dict[str, list[tuple[dict[str, str], dict[float, float]]]]


@contextmanager
def prometheus(series: Series, status: int = 200, body: bytes | None = None) -> Iterator[str]:
    """A server that answers range queries for metrics by name."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            query = urllib.parse.parse_qs(urllib.parse.urlsplit(self.path).query)
            (expression,) = query["query"]
            result: list[Any] = [
                {"metric": labels, "values": [[t, str(v)] for t, v in points.items()]}
                for name, each in series.items()
                if name in expression
                for labels, points in each
            ]
            answer = {"status": "success", "data": {"resultType": "matrix", "result": result}}
            self.send_response(status)
            self.end_headers()
            self.wfile.write(json.dumps(answer).encode() if body is None else body)

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def series_of(samples: Sequence[Sample], labels: dict[str, str]) -> Series:
    """What a Prometheus would hold of them."""
    pids = {use.pid for s in samples for use in s.processes or ()}
    found: Series = {
        "amdgpu_vram_total_bytes": [
            (labels, {s.time_seconds: s.vram_total_bytes for s in samples})
        ],
        "amdgpu_vram_used_bytes": [(labels, {s.time_seconds: s.vram_used_bytes for s in samples})],
        "amdgpu_gfx_activity_ratio": [
            (labels, {s.time_seconds: s.gfx_activity_ratio or 0.0 for s in samples})
        ],
        "amdgpu_processes": [
            (labels, {s.time_seconds: len(s.processes or ()) for s in samples}),
        ],
        "amdgpu_process_vram_bytes": [],
    }
    for pid in pids:
        points = {
            s.time_seconds: float(use.vram_bytes)
            for s in samples
            for use in s.processes or ()
            if use.pid == pid
        }
        found["amdgpu_process_vram_bytes"].append(({**labels, "pid": str(pid)}, points))
    return found


def merged(*parts: Series) -> Series:
    """All of them together."""
    return {name: [each for part in parts for each in part[name]] for name in parts[0]}


def test_prometheus_of_one_node() -> None:
    """The same verdicts as from a file; the series are joined by device."""
    leak = make("one_of_many", 1, 64, 300.0, 1)
    held = merged(
        series_of(leak.samples, {"instance": "a:1", "gpu": "0"}),
        series_of(make("kv_cache", 1, 64, 300.0, 1).samples, {"instance": "a:1", "gpu": "1"}),
    )
    with prometheus(held) as url:
        status, out, err = check(Query(url, 86_400, 1_700_086_400), "json")
    assert (1, "") == (status, err)
    assert [(0, "process", leak.pid), (1, "none", None)] == [
        (row["gpu"], row["kind"], row["pid"]) for row in json.loads(out)
    ]


def test_prometheus_names_nodes_and_partitions_apart() -> None:
    """Two nodes have a GPU 0 each, and what the partitions share is no partition."""
    samples = make("idle", 1, 64, 300.0, 0.1).samples
    held = merged(
        series_of(samples, {"instance": "b", "gpu": "0"}),
        series_of(samples, {"instance": "a", "gpu": "0", "partition": "1"}),
        series_of(samples, {"instance": "a", "gpu": "0", "partition": "shared"}),
    )
    with prometheus(held) as url:
        assert {"b/0", "a/0/1"} == set(read_prometheus(Query(url, 86_400, 1_700_086_400)))


def test_prometheus_without_owners_or_start_times() -> None:
    """No owners is not nobody; a pid that was away is another process; the rest is a sum."""
    labels = {"instance": "a", "gpu": "0"}
    held: Series = {
        "amdgpu_vram_total_bytes": [(labels, dict.fromkeys((0.0, 1.0, 2.0, 3.0), 100.0))],
        "amdgpu_vram_used_bytes": [(labels, dict.fromkeys((0.0, 1.0, 2.0, 3.0), 50.0))],
    }
    with prometheus(held) as url:
        assert [None] * 4 == [
            s.processes for s in read_prometheus(Query(url, 3600, 1_700_000_000))["0"]
        ]
    held["amdgpu_process_vram_bytes"] = [
        ({**labels, "pid": "7"}, {0.0: 10.0, 1.0: 10.0, 3.0: 20.0}),
        ({**labels, "pid": "other"}, {3.0: 5.0}),
    ]
    with prometheus(held) as url:
        assert [
            (ProcessUse(7, 0.0, 10),),
            (ProcessUse(7, 0.0, 10),),
            (),
            (ProcessUse(7, 3.0, 20), ProcessUse(0, 3.0, 5)),
        ] == [s.processes for s in read_prometheus(Query(url, 3600, 1_700_000_000))["0"]]


@pytest.mark.parametrize(
    ("status", "body", "said"),
    [
        (200, b"<html>", "no answer of a Prometheus"),
        (200, b'{"status": "error", "error": "query timed out"}', "query timed out"),
        (200, b'{"status": "success", "data": {"result": [{"metric": {}}]}}', "no answer of"),
        (200, None, "no amdgpu_vram_total_bytes with amdgpu_vram_used_bytes in this time"),
        (422, b'{"status": "error", "error": "too many points"}', "422 Unprocessable"),
        (422, b'{"status": "error", "error": "too many points"}', ": too many points"),
        (500, b"\xff", "500 Internal Server Error"),
    ],
)
def test_prometheus_that_refuses(status: int, body: bytes | None, said: str) -> None:
    """Status 2, and the reason in one line."""
    with prometheus({}, status, body) as url:
        given, out, err = check(Query(url, 86_400, 1_700_086_400))
        assert (2, "") == (given, out)
        assert err.startswith(f"amdgpu-exporter: {url}: ")
        assert said in err


@pytest.mark.parametrize("url", ["file:///etc/passwd", "localhost:9090", "http://127.0.0.1:1"])
def test_prometheus_that_is_not_there(url: str) -> None:
    """No file is read, and a refused connection is said."""
    with pytest.raises(InputError, match=r"expected http://|refused"):
        read_prometheus(Query(url, 86_400, 1_700_086_400))
