"""``python scripts/generate_api``: generates the types of the built-in kinds from OpenAPI v3 documents.

The documents default to those of the Go module ``k8s.io/kubernetes``, in the version that the devcluster runs.
``--kubectl`` reads them from a running API server, ``--documents`` from a directory.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import documents
import excerpt
import model
import protobuf
import published
import render

from steersman_cli.codegen.formatting import format_modules

ROOT = Path(__file__).resolve().parents[2]
_LINE_LENGTH = 118


def main() -> None:
    parser = argparse.ArgumentParser(prog="generate_api", description=__doc__)
    parser.add_argument(
        "--documents", type=Path, help="directory of OpenAPI documents, with the file names of Kubernetes"
    )
    parser.add_argument(
        "--kubectl", metavar="PATH", help="read from the API server of the current context of this kubectl"
    )
    parser.add_argument(
        "--output", type=Path, default=ROOT / "packages/steersman/src/steersman/api", help="directory of the modules"
    )
    parser.add_argument("--only", nargs="*", metavar="MODULE", help="generate only these modules, such as core_v1")
    parser.add_argument(
        "--save-excerpt", type=Path, help="save the parts of the documents that the generator reads to this directory"
    )
    parser.add_argument(
        "--save-published", type=Path, help="save the schemas that the in-memory API server publishes to this file"
    )
    parser.add_argument("--save-protobuf", type=Path, help="save the protobuf fields of the kinds to this file")
    parser.add_argument("--check", action="store_true", help="write no modules; fail if one would change")
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
    modules = [m for m in api.modules if not options.only or m.name in options.only]
    sources = dict(file for module in modules for file in render.render_modules(module, api))
    changed: list[Path] = []
    for path, source in format_modules(sources, _LINE_LENGTH).items():
        text = f"{render.HEADER}\n{source}"
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


main()
