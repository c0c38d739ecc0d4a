"""``steersman dev``: the operator with an API server on this machine."""

from steersman_cli.dev.command import dev

__all__ = ["dev"]
