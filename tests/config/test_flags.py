"""The command line."""

from pathlib import Path

import pytest

from exporter import __version__
from exporter.config import ConfigError, Invocation, settings
from exporter.flags import COMMANDS, EXIT_STATUSES, parse

from .collectors import COLLECTORS


def test_nothing_given() -> None:
    """Without a command the exporter serves."""
    assert Invocation("serve", {}, None, "table") == parse([], COLLECTORS)


@pytest.mark.parametrize("command", [*(COMMANDS.keys() - {"leak-check"})])
def test_flags_on_either_side(command: str) -> None:
    """Flags stand before or behind the command."""
    expected = Invocation(command, {"poll.interval": "5s", "log.level": "debug"})

    assert expected == parse([command, "--poll.interval", "5s", "--log.level=debug"], COLLECTORS)
    assert expected == parse(["--poll.interval", "5s", "--log.level=debug", command], COLLECTORS)
    assert expected == parse(["--poll.interval", "5s", command, "--log.level=debug"], COLLECTORS)


def test_leak_check() -> None:
    """It takes a file, or a Prometheus and how far back, with flags on either side."""
    file = Invocation("leak-check", {}, None, "json", Path("x.csv"))

    assert file == parse(["leak-check", "--format", "json", "x.csv"], COLLECTORS)
    assert file == parse(["leak-check", "x.csv", "--format", "json"], COLLECTORS)
    asked = parse(["leak-check", "--prometheus", "http://p:9090", "--since", "2h"], COLLECTORS)
    assert (None, "http://p:9090", 7200.0) == (asked.recording, asked.prometheus, asked.since)
    assert 86_400.0 == parse(["leak-check", "--prometheus", "http://p"], COLLECTORS).since


def test_flags_without_a_command() -> None:
    """A service file needs no command."""
    expected = Invocation("serve", {"poll.interval": "5s"})

    assert expected == parse(["--poll.interval", "5s"], COLLECTORS)


def test_repeated_flags() -> None:
    """Addresses add up; of any other flag the last wins."""
    argv = ["--web.listen-address=:1", "--web.listen-address=:2", "--sources=a", "--sources=b"]

    assert {"web.listen-address": [":1", ":2"], "sources": "b"} == parse(argv, COLLECTORS).flags


def test_switches() -> None:
    """Every switch has a negation, so that a flag can win over the file both ways."""
    argv = ["--collector.processes", "--no-collector.xgmi", "--no-web.enable-lifecycle"]
    expected = {
        "collector.processes": True,
        "collector.xgmi": False,
        "web.enable-lifecycle": False,
    }

    assert expected == parse(argv, COLLECTORS).flags


def test_support() -> None:
    """`support` prints a table or JSON."""
    assert Invocation("support", format="json") == parse(["support", "--format=json"], COLLECTORS)
    assert Invocation("support", format="table") == parse(["support"], COLLECTORS)


def test_config_file() -> None:
    """The file is no setting of its own."""
    assert Invocation(file=Path("/x.yml")) == parse(["--config.file", "/x.yml"], COLLECTORS)


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (
            ["--poll.intervall", "5s"],
            "unknown flag '--poll.intervall'; did you mean --poll.interval?",
        ),
        (["--poll.intervall=5s"], "unknown flag '--poll.intervall'; did you mean --poll.interval?"),
        (["--poll"], "unknown flag '--poll'"),
        (["-x"], "unknown flag '-x'"),
        (["--versio"], "unknown flag '--versio'; did you mean --version?"),
        (
            ["--no-collector.xgmii"],
            "unknown collector 'xgmii'; did you mean xgmi?; there are temperature, xgmi, processes",
        ),
        (["--collector.disable-default"], "did you mean disable-defaults?"),
        (["sreve"], "unknown command 'sreve'; did you mean serve?; there are serve, once"),
        (["serve", "more"], "unexpected argument 'more'"),
        (["--poll.interval"], "--poll.interval: expected one argument"),
        (["--format", "json"], "--format: goes with the commands support and leak-check alone"),
        (["leak-check"], "leak-check: expected either a FILE or --prometheus URL"),
        (["leak-check", "x", "--prometheus", "y"], "leak-check: expected either a FILE or"),
        (["leak-check", "x", "--since", "1h"], "--since: goes with --prometheus alone"),
        (["leak-check", "--prometheus", "x", "--since", "9"], "--since: "),
        (["once", "--since", "1h"], "--since: goes with the command leak-check alone"),
        (["once", "x.csv"], "unexpected argument 'x.csv'"),
        (["support", "--format", "xml"], "--format: invalid choice: 'xml'"),
        (
            ["--web.enable-lifecycle=true"],
            "takes no value, got 'true'; --web.enable-lifecycle switches it on, --no-web.enable-",
        ),
        (["--no-collector.xgmi=no"], "--collector.xgmi: takes no value, got 'no'"),
        (["--help=all"], "--help: takes no value, got 'all'"),
        (["--config.file", ""], "--config.file: expected a value, got ''"),
        (["leak-check", ""], "leak-check: expected a FILE, got ''"),
        (["leak-check", "--prometheus="], "--prometheus: expected a value, got ''"),
        (["--simulation", "x"], "unknown flag '--simulation'"),
        (["--temperature.hbm.warning", "9"], "unknown flag '--temperature.hbm.warning'"),
    ],
)
def test_bad_usage(argv: list[str], message: str) -> None:
    """Bad usage is one line that names the flag, and what may have been meant."""
    with pytest.raises(ConfigError) as caught:
        parse(argv, COLLECTORS)

    assert message in str(caught.value)
    assert 1 == len(str(caught.value).splitlines())


def test_help(capsys: pytest.CaptureFixture[str]) -> None:
    """Help names every flag with its default, every command and every exit status."""
    with pytest.raises(SystemExit) as caught:
        parse(["--help"], COLLECTORS)
    text = " ".join(capsys.readouterr().out.split())

    assert 0 == caught.value.code
    for setting in settings(COLLECTORS).values():
        expected = f"{setting.help} (default: {setting.default_text})"
        assert setting.flag == (f"--{setting.name}" in text)
        assert setting.flag == (" ".join(expected.split()) in text)
    for name in ("temperature.SENSOR.warning", "simulation", "docs/configuration.md"):
        assert f" {name} " in text.replace(",", " ")
    for row in (*COMMANDS.items(), *EXIT_STATUSES.items()):
        assert f"{row[0]} {row[1]}" in text


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    """The version goes to stdout."""
    with pytest.raises(SystemExit) as caught:
        parse(["--version"], COLLECTORS)

    assert 0 == caught.value.code
    assert f"amdgpu-exporter {__version__}\n" == capsys.readouterr().out
