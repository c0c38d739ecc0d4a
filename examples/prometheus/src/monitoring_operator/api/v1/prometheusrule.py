"""API types of PrometheusRule in monitoring.coreos.com/v1."""

from __future__ import annotations

from typing import Annotated

from msgspec import field
from steersman import Field, FrozenDict, FrozenStruct, Resource, Spec, resource
from steersman.meta import schema

from monitoring_operator.api.v1.scraping import CRD_LABELS, ConfigurationResourceStatus, Duration


class Rule(FrozenStruct):
    """A recording rule or an alert."""

    record: str | None = None
    """Name of the recorded series."""
    alert: str | None = None
    """Name of the alert."""
    expr: int | str
    """Expression in PromQL."""
    for_: Duration | None = field(name="for", default=None)
    """Time for which the expression must be true before the alert fires."""
    keep_firing_for: Duration | None = field(name="keep_firing_for", default=None)
    """Time for which the alert fires after the expression became false."""
    labels: FrozenDict[str, str] = FrozenDict()
    annotations: FrozenDict[str, str] = FrozenDict()


@schema(preserve_unknown=True)
class RuleGroup(FrozenStruct):
    """Rules that are evaluated together, in order."""

    name: Annotated[str, Field(min_length=1)]
    interval: Duration | None = None
    """Defaults to the evaluationInterval of the Prometheus."""
    query_offset: Duration | None = field(name="query_offset", default=None)
    limit: int | None = None
    """Maximum number of series or alerts of a rule."""
    labels: FrozenDict[str, str] = FrozenDict()
    rules: tuple[Rule, ...] = ()


@schema(preserve_unknown=True)
class PrometheusRuleSpec(Spec):
    """Desired state of a PrometheusRule."""

    groups: Annotated[tuple[RuleGroup, ...], Field(list_map_keys=("name",))] = ()


@resource(
    group="monitoring.coreos.com",
    version="v1",
    short_names=["promrule"],
    labels=CRD_LABELS,
)
class PrometheusRule(Resource[PrometheusRuleSpec, ConfigurationResourceStatus]):
    """A PrometheusRule contains recording rules and alerts."""
