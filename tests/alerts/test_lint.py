"""The checks of pint (0.87) that need no running Prometheus, as far as they are of use here.

Left out, since they ask a live Prometheus: alerts/count, alerts/external_labels, promql/features,
promql/offset, promql/range_query, promql/rate, promql/series, query/cost. Left out, since they are
a site's own policy: rule/owner, rule/reject, rule/report, ignore/file, pint/comment. promql/nan:
no divisor here is a series that may be 0, but for the bad page threshold, which is guarded.
rule/dependency and promql/series are in test_contract.py.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any

import promql_parser as promql
import pytest

from alerts.generate import HERE, THRESHOLDS, groups
from alerts.model import Settings
from alerts.registry import ALERTS
from exporter.collectors import COLLECTORS
from tests.alerts.selectors import FROM_PROMETHEUS, children, selectors, served, walk

RULES = [
    rule
    for several in groups(Settings.read(THRESHOLDS.read_text())).values()
    for group in several
    for rule in group["rules"]
]
ALERTING = {rule["alert"]: rule for rule in RULES if "alert" in rule}
RECORDING = {rule["record"]: rule for rule in RULES if "record" in rule}
EXPRESSIONS = {rule.get("alert") or rule["record"]: rule["expr"] for rule in RULES}
NO_COMPARISON = {"AmdGpuWatchdog": "it always fires", "AmdGpuExporterAbsent": "absent() is one"}
SETS = ("and", "or", "unless")
COMPARISONS = ("==", "!=", ">", "<", ">=", "<=")
OF_COUNTERS = ("rate", "irate", "increase")


def nodes(expression: str) -> Iterator[Any]:
    """All nodes of an expression."""
    yield from walk(promql.parse(expression))


def labels(node: Any) -> frozenset[str]:
    """The labels that the result may have."""
    if isinstance(node, promql.VectorSelector):
        name = node.name or ""
        return _recorded(name) if name in RECORDING else FROM_PROMETHEUS | _told(name)
    if isinstance(node, promql.MatrixSelector):
        return labels(node.vector_selector)
    if isinstance(node, promql.AggregateExpr):
        kept = frozenset(node.modifier.labels) if node.modifier else frozenset[str]()
        return kept & labels(node.expr)
    if isinstance(node, promql.Call):
        found: frozenset[str] = frozenset()
        return found.union(*(labels(argument) for argument in node.args))
    if isinstance(node, promql.BinaryExpr):
        return _of_two(node)
    if isinstance(node, (promql.ParenExpr, promql.UnaryExpr, promql.SubqueryExpr)):
        return labels(node.expr)
    return frozenset()


def _told(name: str) -> frozenset[str]:
    """Of a metric: those on the golden pages, else those that its collector declares."""
    found = {label for series in served().get(name, []) for label in series}
    if not found:
        found = {
            label
            for collector in COLLECTORS
            for metric in collector.metrics
            if metric.name == name
            for label in ("gpu", "pci_address", "partition", *metric.labels)
        }
    return frozenset(found)


@cache
def _recorded(name: str) -> frozenset[str]:
    # a rule that reads itself has the labels of the rest
    return labels(promql.parse(RECORDING[name]["expr"].replace(name, "amdgpu_up")))


def _of_two(node: Any) -> frozenset[str]:
    left, right = labels(node.lhs), labels(node.rhs)
    operation = str(node.op)
    if operation == "or":
        return left | right
    if operation in SETS or not right:
        return left
    if not left:
        return right
    modifier = node.modifier
    if str(modifier.card).endswith("OneToOne") and modifier.matching is not None:
        return left & frozenset(modifier.matching.labels)
    return left


@pytest.mark.parametrize("name", EXPRESSIONS)
def test_expression(name: str) -> None:
    """promql/syntax, vector_matching, counter, aggregate, regexp, in this order."""
    found: list[str] = []
    for node in nodes(EXPRESSIONS[name]):
        if isinstance(node, promql.BinaryExpr):
            vectors = labels(node.lhs) and labels(node.rhs)
            if vectors and (node.modifier is None or node.modifier.matching is None):
                found.append(f"{node.op} between vectors without on()")
        if isinstance(node, promql.Call):
            inner = [s.name or "" for a in node.args for s in selectors(a.prettify())]
            counts = node.func.name in OF_COUNTERS
            if counts and not all(inside.endswith("_total") for inside in inner):
                found.append(f"{node.func.name} of a gauge: {inner}")
        if isinstance(node, promql.AggregateExpr) and "without" in node.prettify():
            found.append("without(): labels that a later version adds would stay")
        if isinstance(node, promql.VectorSelector):
            found += [
                f"{m.name} is matched as a regular expression and is none"
                for m in node.matchers.matchers
                if m.op in (promql.MatchOp.Re, promql.MatchOp.NotRe)
                and re.fullmatch(r"[\w ]*", m.value)
            ]
    bare = _bare_counters(promql.parse(EXPRESSIONS[name]))

    assert ([], []) == (found, [*bare])


def _bare_counters(node: object) -> Iterator[str]:
    """Counters whose level is used, which a reset would change."""
    if isinstance(node, promql.Call) and node.func.name in OF_COUNTERS:
        return
    if isinstance(node, promql.VectorSelector) and (node.name or "").endswith("_total"):
        yield node.name or ""
    for child in children(node):
        yield from _bare_counters(child)


@pytest.mark.parametrize("name", ALERTING)
def test_alert(name: str) -> None:
    """alerts/annotation, comparison, template; labels/conflict; rule/label, link, name, for."""
    rule = ALERTING[name]
    result = labels(promql.parse(rule["expr"]))
    texts = " ".join(rule["annotations"].values())
    used = set(re.findall(r"\$labels\.(\w+)", texts))
    operations = {str(n.op) for n in nodes(rule["expr"]) if isinstance(n, promql.BinaryExpr)}
    needed = {"gpu": {"instance", "gpu", "pci_address"}, "node": {"instance"}, "fleet": set()}
    scope: set[str] = needed[ALERTS[name].scope]

    assert (
        [],
        set(),
        {"severity", "domain"},
        {"summary", "description", "runbook_url", "dashboard_url"},
        True,
        True,
        set(),
    ) == (
        [*(used - result)],
        {*rule["labels"]} & result,
        {*rule["labels"]},
        {key for key, text in rule["annotations"].items() if text},
        bool(operations & {*COMPARISONS}) or name in NO_COMPARISON,
        re.fullmatch(r"AmdGpu([A-Z][a-z]+)+", name) is not None,
        scope - result,
    )


@pytest.mark.parametrize("name", RECORDING)
def test_recording_rule(name: str) -> None:
    """rule/name and promql/aggregate: level:metric:operation, and the level's labels are left."""
    level, metric, operation = name.split(":")
    needed = {
        "cluster": {"cluster"},
        "instance": {"cluster", "instance"},
        "gpu": {"cluster", "instance", "gpu", "pci_address"},
        "link": {"cluster", "instance", "gpu", "pci_address", "link", "peer"},
    }[level]
    result = _recorded(name)

    assert (set(), True, True) == (
        needed - result,
        metric.startswith("amdgpu_"),
        re.fullmatch(r"[a-z0-9_]+", operation) is not None,
    )


def test_no_rule_is_there_twice() -> None:
    """rule/duplicate: of names, and of expressions."""
    names = Counter(rule.get("alert") or rule["record"] for rule in RULES)
    expressions = Counter(rule["expr"] for rule in RULES)

    assert ([], []) == (
        [name for name, count in names.items() if count > 1],
        [expression for expression, count in expressions.items() if count > 1],
    )


def test_every_runbook_has_its_sections() -> None:
    """rule/link: the page that `runbook_url` names exists and says all that is needed."""
    sections = ["## Meaning", "## Impact", "## Diagnosis", "## Mitigation"]
    missing: Mapping[str, list[str]] = {
        name: [s for s in sections if s not in text]
        for name in ALERTING
        for text in [(HERE.parent / "docs" / "runbooks" / f"{name}.md").read_text()]
        if not all(s in text for s in sections)
    }

    assert {} == missing


def test_every_diagnosis_has_a_command() -> None:
    """Something to copy: a command or a query."""
    assert [] == [n for n, a in ALERTS.items() if "```" not in a.runbook.diagnosis]
