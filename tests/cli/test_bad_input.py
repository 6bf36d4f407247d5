"""Bad input: one clear line on standard error, exit status 2, no traceback."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest

from exporter.flags import COMMANDS

from .command import one_line, run


@pytest.mark.parametrize(
    ("arguments", "parts"),
    [
        (["--poll.intervall=5s"], ["unknown flag '--poll.intervall'", "mean --poll.interval?"]),
        (["--collector.xgmii"], ["unknown collector 'xgmii'", "did you mean xgmi?"]),
        (["--no-collector.nonsense"], ["unknown collector 'nonsense'", "temperature"]),
        (["--sources=amdsmi,amdsmy"], ["--sources", "unknown source 'amdsmy'", "amdsmi?"]),
        (["--sources=simulated,sysfs"], ["--sources", "goes alone"]),
        (["--sources=sysfs,sysfs"], ["--sources", "named twice"]),
        (["--poll.interval=5"], ["--poll.interval", "a unit is missing"]),
        (["--poll.interval=999ms"], ["--poll.interval", "at least 1s"]),
        (["--poll.interval"], ["--poll.interval", "expected one argument"]),
        (["--web.listen-address=10450"], ["--web.listen-address", "no port"]),
        (["--web.listen-address=:70000"], ["--web.listen-address", "no"]),
        (["--web.listen-address=::1:9"], ["--web.listen-address", "needs brackets"]),
        (
            ["--web.listen-address=:9", "--web.listen-address=:09"],
            ["--web.listen-address", "same address"],
        ),
        (["--web.telemetry-path=metrics"], ["--web.telemetry-path", "/metrics"]),
        (["--web.max-requests=-1"], ["--web.max-requests", "whole number"]),
        (["--expected-gpus=many"], ["--expected-gpus", "whole number"]),
        (["--log.level=loud"], ["--log.level", "debug or info"]),
        (["--log.format=xml"], ["--log.format", "logfmt or json"]),
        (["--config.file=/nonexistent/x.yml"], ["/nonexistent/x.yml", "No such file"]),
        (["--config.file=/"], ["/: Is a directory"]),
        (["sreve"], ["unknown command 'sreve'", "serve"]),
        (["once", "more"], ["unexpected argument 'more'"]),
        (["--format=json"], ["--format", "support and leak-check alone"]),
        (["--web.enable-lifecycle=yes"], ["--web.enable-lifecycle: takes no value", "--no-web."]),
        (["--config.file="], ["--config.file: expected a value"]),
        (
            ["check-config", "--web.listen-address=:1", "--web.listen-address=0.0.0.0:1"],
            ["--web.listen-address: 0.0.0.0:1 is a part of :1"],
        ),
    ],
    ids=lambda value: " ".join(value)[:60],
)
def test_command_line(arguments: list[str], parts: list[str]) -> None:
    """A flag, source, collector, duration or address that is none."""
    line = one_line(run(*arguments))

    assert [] == [part for part in parts if part not in line], line


@pytest.mark.parametrize(
    ("text", "place", "parts"),
    [
        ("poll:\n  intervall: 5s\n", "2:3", ["unknown setting 'poll.intervall'"]),
        ("polls: {}\n", "1:1", ["unknown setting 'polls'"]),
        ("poll: {interval: 5}\n", "1:8", ["poll.interval", "a duration such as 5s"]),
        ("web:\n  max-requests: many\n", "2:3", ["web.max-requests", "whole number"]),
        ("web:\n  enable-lifecycle: 'yes'\n", "2:3", ["true or false"]),
        ("collector: {xgmi: 1}\n", "1:13", ["collector.xgmi", "true or false"]),
        ("collector: {xgmii: true}\n", "1:13", ["unknown collector 'xgmii'"]),
        ("web: [1]\n", "1:6", ["expected a mapping"]),
        ("log: {level: info}\nlog: {level: info}\n", "2:1", ["'log' is there twice"]),
        ("a: [\n", "", [""]),
        ("simulation: {model: MI9000}\n", "1:14", ["model: 'MI9000' is none of", "MI300X"]),
        (
            "simulation: {scenarios: [fire]}\n",
            "1:26",
            ["scenarios[0]: 'fire' is none of", "training"],
        ),
        ("simulation: {gpus: 99}\n", "1:14", ["gpus: 99"]),
        ("simulation:\n  gpus: 2\n  gpu: 1\n", "3:3", ["unknown key 'gpu'"]),
        (
            "temperature: {hbm: {warning: 99, critical: 90}}\n",
            "1:",
            ["warning limit 99 is above"],
        ),
    ],
    ids=lambda value: str(value)[:40].replace("\n", " "),
)
def test_file(tmp_path: Path, text: str, place: str, parts: list[str]) -> None:
    """What is wrong in the file is named with its line and column."""
    path = tmp_path / "x.yml"
    path.write_text(text)
    line = one_line(run("check-config", f"--config.file={path}"))

    assert line.startswith(f"{path}:{place}"), line
    assert [] == [part for part in parts if part not in line], line


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_checks_the_file(tmp_path: Path, name: str) -> None:
    """None starts with settings that are wrong."""
    path = tmp_path / "x.yml"
    path.write_text("poll: {interval: 5}\n")

    arguments = ["recording.csv"] if name == "leak-check" else []

    assert f"{path}:1:8: poll.interval" in one_line(run(name, *arguments, f"--config.file={path}"))


def test_a_port_in_use() -> None:
    """Named with its address; nothing has been started."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        line = one_line(run("--sources=simulated", f"--web.listen-address={address}"))

    assert f"cannot listen on {address}: the address is already in use" == line


def test_an_address_that_is_not_of_this_machine() -> None:
    """The same."""
    line = one_line(run("--sources=simulated", "--web.listen-address=192.0.2.1:9"))

    assert "cannot listen on 192.0.2.1:9: this machine has no such address" == line


def test_a_file_that_may_not_be_read(tmp_path: Path) -> None:
    """A device of the wrong kind, or one that is too long."""
    long = tmp_path / "long.yml"
    long.write_text("#" * (1 << 20))

    assert "longer than" in one_line(run("check-config", f"--config.file={long}"))
    assert "not UTF-8" in one_line(run("check-config", f"--config.file={_binary(tmp_path)}"))


def test_a_pipe_is_no_file_of_settings(tmp_path: Path) -> None:
    """It is refused, not waited for."""
    path = tmp_path / "pipe"
    os.mkfifo(path)

    assert f"{path}: no regular file" == one_line(run("check-config", f"--config.file={path}"))


def _binary(directory: Path) -> Path:
    path = directory / "binary.yml"
    path.write_bytes(b"log:\n  level: \xff\n")
    return path
