"""The files made from the registry are those that it makes, and thresholds reach them all."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

from alerts.generate import HERE, THRESHOLDS, files, groups, main
from alerts.model import Settings, divided
from alerts.registry import ALERTS, RECORDINGS, causes

SETTINGS = Settings.read(THRESHOLDS.read_text())
FILES = dict(files(SETTINGS))


@pytest.mark.parametrize("name", FILES)
def test_file_is_fresh(name: str) -> None:
    """A file that was not regenerated after a change fails; `make alerts` mends it."""
    assert FILES[name] == (HERE.parent / name).read_text()


def test_no_file_is_left_over() -> None:
    """A renamed alert leaves no page, and a renamed domain no rules."""
    found = {
        str(path.relative_to(HERE.parent))
        for folder in (HERE / "rules", HERE.parent / "docs" / "runbooks")
        for path in folder.iterdir()
    }
    assert found <= {*FILES}


def test_every_section_belongs_to_a_rule() -> None:
    """A setting for an alert that does not exist is a mistake."""
    assert set() == {*SETTINGS.sections} - {"common", *ALERTS}


def test_all_settings_are_used() -> None:
    """Each stands in its alert's expression or text, or is how long the alert waits."""
    texts = {name: f"{alert.expr}\n{alert.description}\n" for name, alert in ALERTS.items()}
    everything = "\n".join(rule.expr for group in RECORDINGS for rule in group.rules)
    everything += "".join(texts.values())
    unused = []
    for section, settings in SETTINGS.sections.items():
        own = texts.get(section, everything)
        for name in settings:
            known = name in ("for", "keep", "runbooks", "dashboards")
            if not known and not re.search(rf"@{name}(_seconds)?\b", own):
                unused.append(f"{section}.{name}")

    assert [] == unused


def test_no_expression_holds_a_duration_of_its_own() -> None:
    """Else changing thresholds.yaml, or the divisor, would not change all."""
    expressions = [alert.expr for alert in ALERTS.values()]
    expressions += [rule.expr for group in RECORDINGS for rule in group.rules]

    assert [] == [e for e in expressions if re.search(r"\[\d|offset \d", e)]


def test_divisor_divides_every_duration() -> None:
    """With 60, an hour is a minute; what hardware counts in its own seconds is left alone."""
    faster = groups(Settings.read(THRESHOLDS.read_text(), 60))
    (prochot,) = (r for r in faster["heat"][0]["rules"] if r["alert"] == "AmdGpuProchot")
    (degraded,) = (r for r in faster["pcie"][0]["rules"] if r["alert"] == "AmdGpuPcieDegraded")

    assert ("30000ms", "15000ms", True, True, True) == (
        prochot["keep_firing_for"],
        degraded["for"],
        "[5000ms]" in prochot["expr"],
        "/ 300 >" in prochot["expr"],
        "[30000ms]" in degraded["expr"],
    )


@pytest.mark.parametrize(
    ("duration", "divisor", "expected"),
    [("15m", 1, "15m"), ("15m", 60, "15000ms"), ("1s", 3, "333ms"), ("1ms", 5, "1ms")],
)
def test_divided(duration: str, divisor: int, expected: str) -> None:
    """Milliseconds, never none."""
    assert expected == divided(duration, divisor)


def test_other_thresholds_and_another_folder(tmp_path: Path) -> None:
    """A user's own file and folder; the files are the same, the margin is theirs."""
    own = tmp_path / "mine.yaml"
    own.write_text(THRESHOLDS.read_text().replace("\n  margin: 5\n", "\n  margin: 9\n"))
    main(["--thresholds", str(own), "--output", str(tmp_path / "out")])
    made = {str(p.relative_to(tmp_path / "out")) for p in (tmp_path / "out").rglob("*.*")}

    assert ({*FILES}, True) == (
        made,
        "- 9" in (tmp_path / "out" / "alerts" / "rules" / "heat.yaml").read_text(),
    )


def test_prometheusrule_holds_the_same_rules() -> None:
    """The operator's object has every group of the rule files, in the same words."""
    document = yaml.safe_load(FILES["alerts/prometheusrule.yaml"])
    expected = [group for several in groups(SETTINGS).values() for group in several]

    assert ("PrometheusRule", expected) == (document["kind"], document["spec"]["groups"])


def test_causes_exist_and_do_not_silence_each_other() -> None:
    """A cause is in the registry, and no alert silences itself, however far around."""
    direct = {name: {*causes(alert)} for name, alert in ALERTS.items()}
    unknown = {cause for found in direct.values() for cause in found} - {*ALERTS}
    circles = []
    for name in ALERTS:
        seen, level = set[str](), direct[name]
        while level:
            seen |= level
            level = {further for cause in level for further in direct[cause]} - seen
        if name in seen:
            circles.append(name)

    assert (set(), []) == (unknown, circles)
