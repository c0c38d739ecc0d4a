"""The ``steersman`` command."""

from steersman.cli.app import app, main

__all__ = ["app", "main"]
