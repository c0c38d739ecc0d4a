"""Programs built from a Go module and cached by source digest."""

import hashlib
import os
import re
import shutil
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from devcluster import layout, lock
from devcluster.errors import CommandFailed, Unsupported
from devcluster.progress import Progress, Step


@dataclass(frozen=True)
class GoModule:
    """A directory with a go.mod.

    `purpose` completes "Go … is needed to build …"; `kept` is a directory of the cache.
    """

    directory: Path
    purpose: str
    cache_name: str

    def require_go(self) -> str:
        """The Go version. Raises Unsupported if there is no Go, or one that is too old."""
        required = re.search(r"^go (\d+)\.(\d+)", self._read_go_mod(), re.MULTILINE)
        if required is None:
            raise CommandFailed(f"{self.directory / 'go.mod'} names no Go version")
        message = f"Go {required[1]}.{required[2]} or newer is needed to build {self.purpose}"
        try:
            version = self.output("go", "env", "GOVERSION")
        except FileNotFoundError:
            raise Unsupported(f"{message}: go.dev/dl") from None
        found = re.match(r"go(\d+)\.(\d+)", version)
        if found is not None and (int(found[1]), int(found[2])) < (int(required[1]), int(required[2])):
            raise Unsupported(f"{message}; this is {version}")
        return version

    def version(self, required: str) -> str:
        """The version of a module that it requires, as in `v1.36.3`."""
        found = re.search(
            rf"^(?:require|\t) ?{re.escape(required)} (v\S+)(?: // indirect)?$", self._read_go_mod(), re.MULTILINE
        )
        if found is None:
            raise CommandFailed(f"{self.directory / 'go.mod'} does not require {required}")
        return found[1]

    def output(self, *command: str) -> str:
        """Run a command in the module's directory and return its output."""
        done = subprocess.run(command, cwd=self.directory, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise CommandFailed(f"{' '.join(command)}: {done.stderr.strip()}")
        return done.stdout.strip()

    def key(self) -> str:
        """Return a digest of Go sources, modules and Go version."""
        digest = hashlib.sha256(self.require_go().encode())
        sources = sorted([self.directory / "go.mod", self.directory / "go.sum", *self.directory.rglob("*.go")])
        for source in sources:
            content = source.read_bytes()
            digest.update(f"{source.relative_to(self.directory)} {len(content)}\n".encode() + content)
        return digest.hexdigest()[:16]

    def ensure(self, build: Callable[[Path, Progress], None], progress: Progress) -> Path:
        """Return the directory of the programs, built if needed.

        Raises Unsupported without a Go that can build them, CommandFailed with the compiler's words.
        """
        ready = self._program_directory()
        directory = ready.parent
        cache_directory = directory.parent
        if ready.is_dir():
            return ready

        def notify_waiting() -> None:
            progress.note("Another process builds the binaries; waiting for it.")

        with lock.exclusive(cache_directory / ".lock", notify_waiting):
            if not ready.is_dir():
                unfinished = cache_directory / f"{directory.name}.unfinished"
                shutil.rmtree(unfinished, ignore_errors=True)
                (unfinished / "bin").mkdir(parents=True)
                build(unfinished / "bin", progress)
                unfinished.rename(directory)
        return ready

    def is_built(self) -> bool:
        """Return True if `ensure` would not build; False without Go."""
        try:
            return self._program_directory().is_dir()
        except Unsupported:
            return False

    def count_packages(self, *patterns: str) -> int:
        """Return the number of Go packages of a build. Raises CommandFailed."""
        return len(self.output("go", "list", "-deps", *patterns).splitlines())

    def compile(self, directory: Path, flags: str, patterns: tuple[str, ...], step: Step) -> None:
        """Run `go build`, with `flags` for the linker. Raises CommandFailed.

        With -v it writes a line to standard error for each package, and for each error.
        """
        command = ["go", "build", "-v", "-trimpath", "-ldflags", flags, "-o", f"{directory}/", *patterns]
        environment = {**os.environ, "CGO_ENABLED": "0"}
        output_lines: list[str] = []
        with subprocess.Popen(command, cwd=self.directory, env=environment, stderr=subprocess.PIPE, text=True) as go:
            for line in go.stderr or ():
                output_lines.append(line)
                step.advance()
        if go.returncode != 0:
            raise CommandFailed(f"go build failed:\n{''.join(output_lines[-30:])}")

    def _program_directory(self) -> Path:
        return layout.cache_directory() / self.cache_name / self.key() / "bin"

    def _read_go_mod(self) -> str:
        return (self.directory / "go.mod").read_text()
