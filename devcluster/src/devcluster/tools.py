"""Programs for some tests only, built from a separate Go module.

They are not part of the cluster, so a new version of them does not replace it.
"""

from pathlib import Path

from devcluster.go_module import GoModule
from devcluster.progress import Progress

MODULE = GoModule(Path(__file__).parents[2] / "tools", "helm", "tools")
HELM = "helm.sh/helm/v4"

COLD_BUILD = "about 2 minutes on 2 cores, once"


def helm(progress: Progress | None = None) -> Path:
    """The helm program, built first if need be.

    Raises Unsupported without a Go that can build it, CommandFailed with the compiler's words.
    """
    return MODULE.ensure(_build, progress or Progress()) / "helm"


def _build(directory: Path, progress: Progress) -> None:
    version = MODULE.version(HELM)
    package = f"{HELM}/cmd/helm"
    with progress.step("Fetch the Go modules (1 minute at most)"):
        total = MODULE.count_packages(package)
    flags = f"-s -w -X {HELM}/internal/version.version={version}"
    with progress.step(f"Build helm {version} ({COLD_BUILD})", total=total) as step:
        MODULE.compile(directory, flags, (package,), step)
