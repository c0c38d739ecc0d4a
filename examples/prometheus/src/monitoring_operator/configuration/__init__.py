"""Configuration of Prometheus as a pure function of monitors, rules and credentials."""

from monitoring_operator.configuration.build import DeclaredConfiguration, Inputs, build
from monitoring_operator.configuration.credentials import Contents, Monitor, SourceObject, source_objects
from monitoring_operator.configuration.ignored import ignored_fields
from monitoring_operator.configuration.problems import InvalidMonitor
from monitoring_operator.configuration.selection import matches, select

__all__ = [
    "Contents",
    "DeclaredConfiguration",
    "Inputs",
    "InvalidMonitor",
    "Monitor",
    "SourceObject",
    "build",
    "ignored_fields",
    "matches",
    "select",
    "source_objects",
]
