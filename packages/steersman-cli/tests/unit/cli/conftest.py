"""Fixtures of the commands' tests."""

from framework_support.project_fixtures import pristine, project

__all__ = ["pristine", "project"]
