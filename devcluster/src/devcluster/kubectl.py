"""kubectl for this cluster only; it ignores the caller's environment."""

from collections.abc import Sequence
from pathlib import Path

from devcluster import layout
from devcluster.process import run


def kubectl(
    binaries: Path,
    arguments: Sequence[str],
    *,
    kubeconfig: Path = layout.KUBECONFIG,
    stdin: str = "",
    seconds: float = 60,
) -> str:
    """Run kubectl to its end and return its output.

    Raises CommandFailed with kubectl's output, also when it takes longer than `seconds`.
    """
    command = [
        str(binaries / "kubectl"),
        f"--kubeconfig={kubeconfig}",
        f"--cache-dir={layout.STATE / 'kubectl'}",
        *arguments,
    ]
    return run(command, stdin=stdin, seconds=seconds, extra={"KUBECTL_KUBERC": "false"})
