"""Configuration of Prometheus as a pure function of monitors, rules and credentials."""

from monitoring_operator.configuration.build import DeclaredConfiguration, Inputs, build
from monitoring_operator.configuration.credentials import Contents, Monitor, SourceObject, source_objects
from monitoring_operator.configuration.ignored import ignored_fields
from monitoring_operator.configuration.model import compress
from monitoring_operator.configuration.problems import InvalidObject
from monitoring_operator.configuration.selection import matches, select

__all__ = [
    "Contents",
    "DeclaredConfiguration",
    "Inputs",
    "InvalidObject",
    "Monitor",
    "SourceObject",
    "build",
    "compress",
    "ignored_fields",
    "matches",
    "select",
    "source_objects",
]
