"""``python scripts/generate_api``: writes the built-in kinds from OpenAPI v3 documents.

Without arguments the documents come from the Go module ``k8s.io/kubernetes`` in the version that the devcluster
runs. ``--kubectl`` reads them from a running API server instead, ``--documents`` from a directory.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from pathlib import Path

import documents
import excerpt
import model
import protobuf
import published
import render

ROOT = Path(__file__).resolve().parents[2]


def main() -> None:
    parser = argparse.ArgumentParser(prog="generate_api", description=__doc__)
    parser.add_argument("--documents", type=Path, help="directory of OpenAPI documents, named as in Kubernetes")
    parser.add_argument("--kubectl", metavar="PATH", help="read from the server of this kubectl's configuration")
    parser.add_argument(
        "--output", type=Path, default=ROOT / "packages/steersman/src/steersman/api", help="where the modules go"
    )
    parser.add_argument("--only", nargs="*", metavar="MODULE", help="write only these, such as core_v1")
    parser.add_argument("--save-excerpt", type=Path, help="write what was read, without what is not needed, here")
    parser.add_argument("--save-published", type=Path, help="write what the API server in memory publishes, here")
    parser.add_argument("--save-protobuf", type=Path, help="write how kinds are written in protobuf, here")
    parser.add_argument("--check", action="store_true", help="write nothing; fail if a file would change")
    options = parser.parse_args()

    if options.save_protobuf:
        protobuf.save_protobuf_table(options.save_protobuf)
        return
    if options.kubectl:
        found = documents.from_server(options.kubectl)
    else:
        found = documents.from_directory(options.documents or documents.go_module_directory())
    if options.save_excerpt:
        excerpt.save(found, options.save_excerpt, options.only)
        return
    if options.save_published:
        published.save(found, options.save_published)
        return
    api = model.build_model(found)
    changed: list[Path] = []
    for module in api.modules:
        if options.only and module.name not in options.only:
            continue
        for path, source in render.render_modules(module, api):
            text = _format(source)
            target = options.output / path
            if target.exists() and target.read_text() == text:
                continue
            changed.append(target)
            if not options.check:
                target.parent.mkdir(parents=True, exist_ok=True)
                target.write_text(text)
    for target in changed:
        sys.stdout.write(f"{'differs' if options.check else 'written'}: {target}\n")
    sys.exit(1 if options.check and changed else 0)


def _format(source: str) -> str:
    command = [sys.executable, "-m", "ruff", "format", "--quiet", "--config", str(ROOT / "pyproject.toml"), "-"]
    return subprocess.run(command, input=source, capture_output=True, text=True, check=True).stdout


main()
