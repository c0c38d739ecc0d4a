"""``make demo`` and ``make demo-backup``: the operator's main jobs on a real cluster."""

from __future__ import annotations

import os
import sys

from rich.console import Console

import backup_story
from devcluster.errors import DevclusterError
from devcluster.progress import Progress
from devcluster.target import select_target
from story import NAMESPACE, Story


def main() -> int:
    """Run the demo. Return 0 if each step has its expected result."""
    console = Console(highlight=False, width=None if sys.stdout.isatty() else 120)
    progress = Progress(console)
    shows_backup = sys.argv[1:] == ["backup"]
    namespace = backup_story.NAMESPACE if shows_backup else NAMESPACE
    try:
        target = select_target(progress)
        story = backup_story.BackupStory(target, progress) if shows_backup else Story(target, progress)
        story.tell()
    except DevclusterError as error:
        console.print(f"\n[bold red]The demo failed:[/] {error}", soft_wrap=True)
        console.print(
            "Look at: kubectl --namespace steersman-databases-system logs deployment/steersman-databases\n"
            f"         kubectl --namespace {namespace} describe pg,my,dbu,db\n"
            "         make cluster        (prints where kubectl, the kubeconfig and the logs are)"
        )
        return 1
    except KeyboardInterrupt:
        console.print(
            "\nInterrupted. Run it again to start from the beginning; `make cluster-down` removes the cluster."
        )
        return 130
    return 0


if __name__ == "__main__":
    os.environ.setdefault("CLUSTER", "devcluster")
    sys.exit(main())
