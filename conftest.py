"""The project's own pytest plugin, also in a checkout that was installed before there was one."""

from __future__ import annotations

# As users have it, it comes with the package, by an entry point of the same name: then this does nothing.
pytest_plugins = ["steersman.pytest_plugin"]
