"""``steersman top``: the load of a running operator."""

from steersman_cli.top.command import top

__all__ = ["top"]
