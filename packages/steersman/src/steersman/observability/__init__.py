"""What makes a running operator visible, and the seams that make it testable.

``runtime`` carries the clock, the randomness and task spawning; ``metrics`` the Prometheus registry with
controller-runtime's names; ``logging`` structured logs.
"""

import sys
from importlib import import_module


def _import_structlog_without_rich() -> None:
    """structlog draws in rich where it is installed: a third of its import, for tracebacks that show local variables,
    which nobody may see here (see ``logging``)."""
    if "rich" in sys.modules or "structlog" in sys.modules:
        return
    # What is None there cannot be imported, for the moment.
    sys.modules["rich"] = None  # type: ignore[assignment]
    try:
        import_module("structlog")
    finally:
        del sys.modules["rich"]


_import_structlog_without_rich()
