"""From plain data to Grafana's JSON, by the builders of grafana-foundation-sdk."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from string import ascii_uppercase

from grafana_foundation_sdk.builders import (
    bargauge,
    common,
    prometheus,
    stat,
    statetimeline,
    table,
    timeseries,
)
from grafana_foundation_sdk.builders import dashboard as builder
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.models import common as types
from grafana_foundation_sdk.models import dashboard as model
from grafana_foundation_sdk.models.prometheus import PromQueryFormat

from dashboards.model import (
    Annotation,
    Colour,
    Dashboard,
    Names,
    Panel,
    Query,
    Thresholds,
    panel_id,
)

_SOURCE = model.DataSourceRef("prometheus", "${datasource}")
_TAG = "amdgpu"
_ALL = model.VariableOption(selected=True, text="All", value="$__all")
_NONE = "–"
"""Shown where a query finds nothing: on these dashboards that is mostly the good case."""

_Visual = timeseries.Panel | stat.Panel | table.Panel | bargauge.Panel | statetimeline.Panel


def rendered(dashboard: Dashboard) -> str:
    """The JSON of a dashboard, as it is checked in."""
    built = _dashboard(dashboard).build()
    return json.dumps(built, cls=JSONEncoder, sort_keys=True, indent=2) + "\n"


def _dashboard(dashboard: Dashboard) -> builder.Dashboard:
    made = (
        builder.Dashboard(dashboard.title)
        .uid(dashboard.uid)
        .description(dashboard.description)
        .tags([_TAG])
        .readonly()
        .timezone("browser")
        .time(dashboard.span, "now")
        .refresh("1m")
        .tooltip(model.DashboardCursorSync.CROSSHAIR)
        .link(
            builder.DashboardLink("AMD GPU")
            .type(model.DashboardLinkType.DASHBOARDS)
            .tags([_TAG])
            .as_dropdown(True)
            .include_vars(True)
            .keep_time(True)
        )
    )
    for variable in _variables(dashboard):
        made.with_variable(variable)
    for annotation in dashboard.annotations:
        made.annotation(_annotation(annotation))
    for row in dashboard.rows:
        made.with_row(builder.Row(row.title).id(panel_id(f"row {row.title}")))
        for panel in row.panels:
            made.with_panel(_panel(panel))
    return made


# ------------------------------------------------------------------------------- variables

_Variable = builder.DatasourceVariable | builder.QueryVariable | builder.TextBoxVariable


def _variables(dashboard: Dashboard) -> list[_Variable]:
    listed: list[_Variable] = [
        builder.DatasourceVariable("datasource").label("Data source").type("prometheus"),
        # `.*` and not `.+`: a site without the label cluster is one cluster
        _chosen("cluster", "Cluster", "amdgpu_up", all_value=".*"),
        _chosen("job", "Job", 'amdgpu_up{cluster=~"$cluster"}'),
        _chosen(
            "instance",
            "Instance",
            'amdgpu_up{cluster=~"$cluster", job=~"$job"}',
            many=dashboard.instances == "many",
        ),
    ]
    if dashboard.gpus is not None:
        matchers = 'cluster=~"$cluster", job=~"$job", instance=~"$instance"'
        many = dashboard.gpus == "many"
        listed.append(_chosen("gpu", "GPU", f"amdgpu_up{{{matchers}}}", many=many))
    if dashboard.price:
        listed.append(
            builder.TextBoxVariable("price")
            .label("Price of a kWh")
            .description("In any currency; costs are shown in the same.")
            .default_value("0.25")
        )
    return listed


def _chosen(
    name: str, label: str, series: str, *, many: bool = True, all_value: str = ".+"
) -> builder.QueryVariable:
    variable = (
        builder.QueryVariable(name)
        .label(label)
        .datasource(_SOURCE)
        .query(f"label_values({series}, {name})")
        .refresh(model.VariableRefresh.ON_TIME_RANGE_CHANGED)
        .sort(
            model.VariableSort.NUMERICAL_ASC
            if name == "gpu"
            else model.VariableSort.ALPHABETICAL_ASC
        )
        .multi(many)
        .include_all(many)
    )
    return variable.all_value(all_value).current(_ALL) if many else variable


def _annotation(annotation: Annotation) -> builder.AnnotationQuery:
    return (
        builder.AnnotationQuery()
        .name(annotation.name)
        .datasource(_SOURCE)
        .enable(True)
        .icon_color(annotation.colour)
        .expr(annotation.expression)
    )


# ------------------------------------------------------------------------------- panels


def _panel(panel: Panel) -> _Visual:
    made = _visual(panel)
    (
        made.id(panel.id)
        .title(panel.title)
        .description(panel.description)
        .datasource(_SOURCE)
        .span(panel.width)
        .height(panel.height)
        .unit(panel.unit)
        .no_value(_NONE)
        .thresholds(_thresholds(panel.thresholds))
    )
    if panel.low is not None:
        made.min(panel.low)
    if panel.high is not None:
        made.max(panel.high)
    if panel.decimals is not None:
        made.decimals(panel.decimals)
    if panel.names:
        made.mappings([_named(panel.names)])
    if panel.see is not None:
        made.links([_link("Read next", _everything(panel.see.path))])
    at_once = panel.kind in ("table", "matrix", "stat", "bargauge")
    for letter, query in _lettered(panel):
        made.with_target(_target(panel, query, letter, instant=at_once))
    if panel.drill is not None and panel.kind != "table":
        made.data_links([_link("Open", _drill(panel, "__field.labels."))])
    return made


def _lettered(panel: Panel) -> Iterator[tuple[str, Query]]:
    """The queries with the names by which the panel's parts refer to them."""
    return zip(ascii_uppercase, panel.queries, strict=False)


def _visual(panel: Panel) -> _Visual:
    if panel.kind == "timeseries":
        return _timeseries(panel)
    if panel.kind == "stat":
        return (
            stat.Panel()
            .graph_mode(types.BigValueGraphMode.NONE)
            .color_mode(types.BigValueColorMode.VALUE)
            .reduce_options(_last())
            .color_scheme(_coloured(model.FieldColorModeId.THRESHOLDS))
        )
    if panel.kind == "bargauge":
        return (
            bargauge.Panel()
            .orientation(types.VizOrientation.HORIZONTAL)
            .display_mode(types.BarGaugeDisplayMode.BASIC)
            .reduce_options(_last())
            .color_scheme(_coloured(model.FieldColorModeId.THRESHOLDS))
        )
    if panel.kind == "statetimeline":
        return (
            statetimeline.Panel()
            .line_width(0)
            .fill_opacity(70)
            .merge_values(True)
            .show_value(types.VisibilityMode.AUTO)
            .color_scheme(_coloured(model.FieldColorModeId.THRESHOLDS))
        )
    return _matrix(panel) if panel.kind == "matrix" else _table(panel)


def _timeseries(panel: Panel) -> timeseries.Panel:
    made = (
        timeseries.Panel()
        .line_width(1)
        .fill_opacity(30 if panel.stacked else 0)
        .show_points(types.VisibilityMode.AUTO)  # errors may be single points
        .legend(
            common.VizLegendOptions()
            .show_legend(True)
            .display_mode(types.LegendDisplayMode.LIST)
            .placement(types.LegendPlacement.BOTTOM)
        )
        .tooltip(
            common.VizTooltipOptions()
            .mode(types.TooltipDisplayMode.MULTI)
            .sort(types.SortOrder.DESCENDING)
        )
        .color_scheme(_coloured(model.FieldColorModeId.PALETTE_CLASSIC_BY_NAME))
    )
    if panel.thresholds.steps:
        made.thresholds_style(
            common.GraphThresholdsStyleConfig().mode(types.GraphTresholdsStyleMode.DASHED)
        )
    if panel.stacked:
        made.stacking(common.StackingConfig().mode(types.StackingMode.NORMAL).group("A"))
    for letter, query in _lettered(panel):
        if query.dashed:
            made.override_by_query(
                letter,
                [
                    model.DynamicConfigValue(
                        "custom.lineStyle", {"fill": "dash", "dash": [10, 10]}
                    ),
                    model.DynamicConfigValue("custom.stacking", {"mode": "none"}),
                ],
            )
    return made


def _table(panel: Panel) -> table.Panel:
    """Labels first, then one column of values per query; everything else is hidden."""
    made = table.Panel().show_header(True).cell_height(types.TableCellHeight.SM)
    values = (
        ["Value"]
        if len(panel.queries) == 1
        else [f"Value #{letter}" for letter, _ in _lettered(panel)]
    )
    if len(values) > 1:
        made.with_transformation(model.DataTransformerConfig("merge", options={}))
    columns = [*panel.labels, *values]
    made.with_transformation(
        model.DataTransformerConfig("filterFieldsByName", options={"include": {"names": columns}})
    )
    made.with_transformation(
        model.DataTransformerConfig(
            "organize",
            options={
                "indexByName": {name: place for place, name in enumerate(columns)},
                "renameByName": {
                    name: query.legend for name, query in zip(values, panel.queries, strict=True)
                },
            },
        )
    )
    for query in panel.queries:
        made.override_by_name(query.legend, _column(panel, query))
    if panel.drill is not None:
        made.override_by_name(
            panel.labels[0],
            [
                model.DynamicConfigValue(
                    "links",
                    [{"title": "Open", "url": _drill(panel, "__data.fields.")}],
                )
            ],
        )
    if panel.sort is not None:
        column = panel.sort.removeprefix("-")
        falling = not panel.sort.startswith("-")
        made.sort_by([common.TableSortByFieldState().display_name(column).desc(falling)])
    return made


def _column(panel: Panel, query: Query) -> list[model.DynamicConfigValue]:
    thresholds = query.thresholds or panel.thresholds
    made = [model.DynamicConfigValue("unit", query.unit or panel.unit)]
    if query.thresholds is not None:
        made.append(
            model.DynamicConfigValue("thresholds", _thresholds(thresholds).build().to_json())
        )
    if query.names:
        made.append(model.DynamicConfigValue("mappings", [_named(query.names).to_json()]))
    if thresholds.steps:
        made.append(model.DynamicConfigValue("custom.cellOptions", {"type": "color-text"}))
    return made


def _matrix(panel: Panel) -> table.Panel:
    """A table with a line per first label and a column per second."""
    row, column = panel.labels
    return (
        table.Panel()
        .show_header(True)
        .color_scheme(_coloured(model.FieldColorModeId.THRESHOLDS))
        .with_transformation(
            model.DataTransformerConfig(
                "groupingToMatrix",
                options={
                    "rowField": row,
                    "columnField": column,
                    "valueField": "Value",
                    "emptyValue": "null",
                },
            )
        )
        .override_by_regexp(
            "^GPU .*",
            [
                model.DynamicConfigValue(
                    "custom.cellOptions", {"type": "color-background", "mode": "basic"}
                )
            ],
        )
    )


def _target(panel: Panel, query: Query, letter: str, *, instant: bool) -> prometheus.Dataquery:
    made = (
        prometheus.Dataquery()
        .ref_id(letter)
        .datasource(_SOURCE)
        .expr(query.expression)
        .legend_format(query.legend)
    )
    if panel.kind in ("table", "matrix"):
        made.format(PromQueryFormat.TABLE)
    return made.instant() if instant else made.range()


def _drill(panel: Panel, fields: str) -> str:
    """The address that a click on a series, or on a line of a table, leads to."""
    labels = {name for name in ("instance", "gpu") if _tells(panel, name)}
    chosen = "".join(f"&var-{name}=${{{fields}{name}}}" for name in sorted(labels, reverse=True))
    others = "${datasource:queryparam}&${cluster:queryparam}&${job:queryparam}"
    return f"/d/{panel.drill}?{others}&${{__url_time_range}}{chosen}"


def _tells(panel: Panel, label: str) -> bool:
    """Whether the panel's series have a label."""
    if panel.labels:
        return label in panel.labels
    return all(f"{{{{{label}}}}}" in query.legend for query in panel.queries)


def _everything(path: str) -> str:
    """A path with the variables and the time of the dashboard it is on."""
    return f"{path}{'&' if '?' in path else '?'}${{__all_variables}}&${{__url_time_range}}"


def _link(title: str, url: str) -> builder.DashboardLink:
    return builder.DashboardLink(title).type(model.DashboardLinkType.LINK).url(url)


def _named(names: Names) -> model.ValueMap:
    return model.ValueMap(
        {
            str(value): model.ValueMappingResult(text=text, color=colour)
            for value, (text, colour) in names.items()
        }
    )


def _last() -> common.ReduceDataOptions:
    return common.ReduceDataOptions().calcs(["lastNotNull"])


def _coloured(mode: model.FieldColorModeId) -> builder.FieldColor:
    return builder.FieldColor().mode(mode)


def _thresholds(thresholds: Thresholds) -> builder.ThresholdsConfig:
    steps: Sequence[tuple[float | None, Colour]] = ((None, thresholds.base), *thresholds.steps)
    return (
        builder.ThresholdsConfig()
        .mode(model.ThresholdsMode.ABSOLUTE)
        .steps([model.Threshold(value=value, color=colour) for value, colour in steps])
    )
