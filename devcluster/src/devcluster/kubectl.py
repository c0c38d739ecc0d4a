"""kubectl against this cluster and no other: its kubeconfig is always given, the caller's environment is not seen."""

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

    Raises CommandFailed with kubectl's words, also when it takes longer than `seconds`.
    """
    command = [
        str(binaries / "kubectl"),
        f"--kubeconfig={kubeconfig}",
        f"--cache-dir={layout.STATE / 'kubectl'}",
        *arguments,
    ]
    return run(command, stdin=stdin, seconds=seconds, extra={"KUBECTL_KUBERC": "false"})
