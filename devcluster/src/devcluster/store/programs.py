"""versitygw and toxiproxy, built from a Go module on first use."""

from dataclasses import dataclass
from pathlib import Path

from devcluster.go_module import GoModule
from devcluster.progress import Progress

MODULE = GoModule(Path(__file__).parents[3] / "store", "the object store", "store")
VERSITYGW = "github.com/versity/versitygw"
TOXIPROXY = "github.com/Shopify/toxiproxy/v2"

COLD_BUILD = "about 2 minutes on 2 cores, once"


@dataclass(frozen=True)
class Programs:
    """Paths of the programs in the cache."""

    directory: Path

    @property
    def versitygw(self) -> Path:
        return self.directory / "versitygw"

    @property
    def toxiproxy(self) -> Path:
        return self.directory / "toxiproxy"


def ensure(progress: Progress | None = None) -> Programs:
    """Build the programs if necessary.

    Raises Unsupported without a Go that can build them, CommandFailed with the compiler's output.
    """
    return Programs(MODULE.ensure(_build, progress or Progress()))


def are_built() -> bool:
    """Return True if `ensure` would not build. Tests that need the programs are skipped otherwise."""
    return MODULE.is_built()


def _build(directory: Path, progress: Progress) -> None:
    packages = (f"{VERSITYGW}/cmd/versitygw", f"{TOXIPROXY}/cmd/server")
    versions = f"versitygw {MODULE.version(VERSITYGW)} and toxiproxy {MODULE.version(TOXIPROXY)}"
    with progress.step("Fetch the Go modules (1 minute at most)"):
        total = MODULE.count_packages(*packages)
    with progress.step(f"Build {versions} ({COLD_BUILD})", total=total) as step:
        MODULE.compile(directory, "-s -w", packages, step)
    (directory / "server").rename(directory / "toxiproxy")  # go names a program after its directory
