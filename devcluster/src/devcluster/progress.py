"""Progress output: live bars on a terminal, plain lines in a log."""

import threading
import time
from collections.abc import Generator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, SpinnerColumn, TaskID, TextColumn, TimeElapsedColumn
from rich.progress import Progress as Bars

LOG_LINE_INTERVAL_SECONDS = 20.0  # seconds between two log lines of one step


class Step:
    """A running step. Steps may run in several threads."""

    def __init__(self, title: str, total: int | None, console: Console, bars: Bars | None) -> None:
        self._title = title
        self._total = total
        self._console = console
        self._bars = bars
        self._done = 0
        self._next_line_at = time.monotonic() + LOG_LINE_INTERVAL_SECONDS
        self._task: TaskID | None = None if bars is None else bars.add_task(title, total=total)

    def advance(self, by: int = 1) -> None:
        """Advance the step by `by` of its `total`."""
        self._done += by
        if self._bars is not None and self._task is not None:
            self._bars.update(self._task, completed=self._done)
        elif self._total and time.monotonic() > self._next_line_at:
            self._next_line_at = time.monotonic() + LOG_LINE_INTERVAL_SECONDS
            self._console.print(
                f"  … {self._title}: {min(99, 100 * self._done // self._total)} %", soft_wrap=True, markup=False
            )

    def finish(self) -> None:
        """Remove the step's bar."""
        if self._bars is not None and self._task is not None:
            self._bars.remove_task(self._task)


class Progress:
    """Displays steps with their duration in seconds."""

    def __init__(self, console: Console | None = None) -> None:
        self.console = console or Console(highlight=False)
        self._bars: Bars | None = None
        self._active_steps = 0
        self._lock = threading.Lock()

    def note(self, text: str) -> None:
        """Show a line that stays."""
        self.console.print(text, soft_wrap=True)

    @contextmanager
    def step(self, title: str, total: int | None = None) -> Generator[Step]:
        """Show a step while the block runs.

        `total` is what `Step.advance` counts up to; without it there is no percentage.
        """
        started_at = time.monotonic()
        step = Step(title, total, self.console, self._acquire_bars())
        if not self.console.is_terminal:
            self.console.print(f"  · {title}", soft_wrap=True, markup=False)
        try:
            yield step
        except BaseException:
            self.console.print(f"  ✗ {title} ({time.monotonic() - started_at:.1f} s)", soft_wrap=True, markup=False)
            raise
        else:
            self.console.print(f"  ✓ {title} ({time.monotonic() - started_at:.1f} s)", soft_wrap=True, markup=False)
        finally:
            step.finish()
            self._release_bars()

    def _acquire_bars(self) -> Bars | None:
        if not self.console.is_terminal:
            return None
        with self._lock:
            if self._bars is None:
                columns = (SpinnerColumn(), TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn())
                self._bars = Bars(*columns, console=self.console, transient=True)
                self._bars.start()
            self._active_steps += 1
            return self._bars

    def _release_bars(self) -> None:
        with self._lock:
            self._active_steps -= 1
            if self._active_steps <= 0 and self._bars is not None:
                self._bars.stop()
                self._bars = None
                self._active_steps = 0
