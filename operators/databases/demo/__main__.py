"""`make demo`: clusters of PostgreSQL and MySQL under load, and a user whose password rotates, on the operator."""

from __future__ import annotations

import os
import sys

from rich.console import Console

from devcluster.errors import DevclusterError
from devcluster.progress import Progress
from devcluster.target import select_target
from story import NAMESPACE, Story


def main() -> int:
    """Tells the story; 0 when all of it came true."""
    console = Console(highlight=False, width=None if sys.stdout.isatty() else 120)
    progress = Progress(console)
    try:
        story = Story(select_target(progress), progress)
        story.tell()
    except DevclusterError as error:
        console.print(f"\n[bold red]The demo failed:[/] {error}", soft_wrap=True)
        console.print(
            "Look at: kubectl --namespace steersman-databases-system logs deployment/steersman-databases\n"
            f"         kubectl --namespace {NAMESPACE} describe pg,my,dbu,db\n"
            "         make cluster        (prints where kubectl, the kubeconfig and the logs are)"
        )
        return 1
    except KeyboardInterrupt:
        console.print("\nInterrupted. `make demo` starts anew; `make cluster-down` removes the cluster.")
        return 130
    return 0


if __name__ == "__main__":
    os.environ.setdefault("CLUSTER", "devcluster")
    sys.exit(main())
