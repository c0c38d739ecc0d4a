"""The ``steersman`` command."""

from steersman_cli.app import app, main

__all__ = ["app", "main"]
