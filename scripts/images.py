"""Generate ``operators/databases/images.txt``: all images of an installation, one a line.

Tools that mirror images read it. ``--check`` writes nothing, and exits with 1 if the file is outdated.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from devcluster.images import OPERATOR
from steersman_databases.engines.versions import SUPPORTED_VERSIONS, UPGRADE_IMAGES

FILE = Path(__file__).parents[1] / "operators" / "databases" / "images.txt"


def image_list() -> str:
    """Return the text of the file."""
    catalogs = (*SUPPORTED_VERSIONS.values(), *UPGRADE_IMAGES.values())
    servers = {image for versions in catalogs for image in versions.values()}
    return "".join(f"{image}\n" for image in sorted({OPERATOR.reference, *servers}))


def main(file: Path = FILE) -> None:
    """Write or check the file."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing; exit 1 if the file is outdated")
    check = parser.parse_args().check
    if file.exists() and file.read_text() == image_list():
        return
    if check:
        sys.exit(f"{file.name} differs from the supported versions: run make manifests")
    file.write_text(image_list())


if __name__ == "__main__":
    main()
