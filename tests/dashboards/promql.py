"""What is inside a query: selectors and function calls, by promql-parser."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import promql_parser as promql

_OPERATORS = {
    "MatchOp.Equal": "=",
    "MatchOp.NotEqual": "!=",
    "MatchOp.Re": "=~",
    "MatchOp.NotRe": "!~",
}


@dataclass(frozen=True, slots=True)
class Matcher:
    """One condition on a label."""

    label: str
    operator: str
    value: str

    def meets(self, labels: Mapping[str, str]) -> bool:
        """Whether a series meets it; a label that it has not is empty."""
        given = labels.get(self.label, "")
        if self.operator in ("=", "!="):
            return (given == self.value) == (self.operator == "=")
        return bool(re.fullmatch(self.value, given)) == (self.operator == "=~")


@dataclass(frozen=True, slots=True)
class Selector:
    """One selector, and the functions that it stands in, from the inside."""

    metric: str
    matchers: tuple[Matcher, ...]
    ranged: bool
    within: tuple[str, ...] = field(default=(), compare=False)

    def meets(self, labels: Mapping[str, str], without: frozenset[str] = frozenset()) -> bool:
        """Whether a series of the metric is selected, some labels left out of account."""
        return all(m.meets(labels) for m in self.matchers if m.label not in without)


def selectors(text: str) -> list[Selector]:
    """All selectors of a query.

    Raises:
        ValueError: it is no PromQL.
    """
    return list(_walk(promql.parse(text), ()))


def _walk(node: promql.Expr, within: tuple[str, ...]) -> Iterator[Selector]:
    if isinstance(node, promql.VectorSelector):
        yield _selector(node, within, ranged=False)
    elif isinstance(node, promql.MatrixSelector):
        yield _selector(node.vector_selector, within, ranged=True)
    elif isinstance(node, promql.Call):
        for argument in node.args:
            yield from _walk(argument, (node.func.name, *within))
    elif isinstance(node, promql.BinaryExpr):
        yield from _walk(node.lhs, within)
        yield from _walk(node.rhs, within)
    elif isinstance(node, promql.AggregateExpr):
        if node.param is not None:
            yield from _walk(node.param, within)
        yield from _walk(node.expr, within)
    elif isinstance(node, (promql.ParenExpr, promql.UnaryExpr, promql.SubqueryExpr)):
        yield from _walk(node.expr, within)


def _selector(node: promql.VectorSelector, within: tuple[str, ...], *, ranged: bool) -> Selector:
    matchers = tuple(
        Matcher(matcher.name, _OPERATORS[str(matcher.op)], matcher.value)
        for matcher in node.matchers.matchers
    )
    return Selector(node.name or "", matchers, ranged, within)
