"""Expressions taken apart, with a parser of PromQL."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from functools import cache

import promql_parser as promql
from prometheus_client.parser import text_string_to_metric_families

from tests.golden.page import PAGES

FROM_PROMETHEUS = frozenset({"cluster", "instance", "job"})
"""Labels that a page does not have, and a series in Prometheus has."""


def children(node: object) -> list[object]:
    """What stands directly below a node."""
    if isinstance(node, promql.BinaryExpr):
        return [node.lhs, node.rhs]
    if isinstance(node, promql.AggregateExpr):
        return [node.expr, *([node.param] if node.param is not None else [])]
    if isinstance(node, (promql.ParenExpr, promql.UnaryExpr, promql.SubqueryExpr)):
        return [node.expr]
    if isinstance(node, promql.Call):
        return [*node.args]
    if isinstance(node, promql.MatrixSelector):
        return [node.vector_selector]
    return []


def walk(node: object) -> Iterator[object]:
    """The node and all below it."""
    yield node
    for child in children(node):
        yield from walk(child)


def selectors(expression: str) -> Iterator[promql.VectorSelector]:
    """Every selector of an expression."""
    for node in walk(promql.parse(expression)):
        if isinstance(node, promql.VectorSelector):
            yield node


@cache
def served() -> Mapping[str, list[Mapping[str, str]]]:
    """By name, the labels of every series on the golden pages."""
    found: dict[str, list[Mapping[str, str]]] = {}
    for page in sorted(PAGES.rglob("*.prom")):
        for family in text_string_to_metric_families(page.read_text()):
            for sample in family.samples:
                found.setdefault(sample.name, []).append(sample.labels)
    return found


def matches(selector: promql.VectorSelector, labels: Mapping[str, str]) -> bool:
    """Whether a series is selected, as far as the labels of a page tell."""
    for matcher in selector.matchers.matchers:
        value = labels.get(matcher.name, "")
        if matcher.name in FROM_PROMETHEUS:
            continue
        if matcher.op == promql.MatchOp.Equal:
            fits = value == matcher.value
        elif matcher.op == promql.MatchOp.NotEqual:
            fits = value != matcher.value
        elif matcher.op == promql.MatchOp.Re:
            fits = re.fullmatch(matcher.value, value) is not None
        else:
            fits = re.fullmatch(matcher.value, value) is None
        if not fits:
            return False
    return True
