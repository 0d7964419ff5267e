"""A status as a live display, a step as one line."""

from types import TracebackType
from typing import Self

from rich import box
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.panel import Panel
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from sestina.core.units import Seconds
from sestina.telemetry.status import Status, StepSummary

QUIET_S = 10.0
"""A status older than this is shown with its age."""

_STATE_STYLES = {"starting": "cyan", "running": "green", "finished": "bold green", "stopped": "yellow", "failed": "red"}


def duration(seconds: Seconds) -> str:
    """Return a span as people say it: 3.4s, 1m35s, 2h05m."""
    if seconds < 9.95:  # noqa: PLR2004 - what still rounds to one digit before the point
        return f"{seconds:.1f}s"
    whole = round(seconds)
    minutes, rest = divmod(whole, 60)
    if not minutes:
        return f"{rest}s"
    hours, minutes = divmod(minutes, 60)
    return f"{hours}h{minutes:02d}m" if hours else f"{minutes}m{rest:02d}s"


def plain_line(summary: StepSummary) -> str:
    """Return what is printed of a step where there is no terminal."""
    s = summary
    parts = [
        f"step {s.step}/{s.num_steps}",
        f"reward {_number(s.reward)}",
        *([] if s.accuracy is None else [f"accuracy {s.accuracy:.3f}"]),
        f"len {s.response_tokens:.1f}",
        f"{s.tokens_per_s:.0f} tok/s",
        f"{s.step_s:.1f} s (rollout {s.rollout_s:.1f}, train {s.train_s:.1f}, weights {s.weights_s:.1f})",
        f"ETA {duration(s.eta_s)}",
    ]
    return "  ".join(parts)


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.3f}"


def render(status: Status | None, now: float) -> RenderableType:
    """Return the display of a status at `now` (Unix seconds); None: the run has not written one yet."""
    if status is None:
        return Panel(Text("waiting for the run's first status"), box=box.ROUNDED)
    parts: list[RenderableType] = [_progress(status, now), _headline(status)]
    if status.rows:
        parts += [Text(), _rows(status.rows)]
    parts += [Text(), Text(status.phase, overflow="ellipsis", no_wrap=True)]
    age = now - status.updated_at
    if age > QUIET_S and status.state in ("starting", "running"):
        parts.append(Text(f"no status for {duration(age)}: the controller (pid {status.pid}) is silent", "yellow"))
    return Panel(Group(*parts), title=_title(status), title_align="left", box=box.ROUNDED, padding=(0, 1))


class LiveDisplay:
    """Keeps a status on the terminal while the block runs; the last one stays on the screen."""

    def __init__(self, console: Console) -> None:
        self._live = Live(console=console, auto_refresh=False)

    def __enter__(self) -> Self:
        self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._live.stop()

    def update(self, status: Status | None, now: float) -> None:
        """Show a status at `now` (Unix seconds)."""
        self._live.update(render(status, now), refresh=True)


def _title(status: Status) -> Text:
    steps = f"step {status.step}/{status.num_steps}"
    return Text.assemble((status.name, "bold"), f"  {steps}  ", (status.state, _STATE_STYLES[status.state]))


def _progress(status: Status, now: float) -> Table:
    ended = status.state not in ("starting", "running")
    line = Table.grid(expand=True, padding=(0, 2, 0, 0))
    line.add_column(ratio=1)
    line.add_column(justify="right")
    bar = ProgressBar(total=status.num_steps, completed=status.step)
    taken = duration((status.updated_at if ended else now) - status.started_at)
    eta = "" if ended or status.eta_s is None else f"  ETA {duration(status.eta_s)}"
    line.add_row(bar, f"{taken}{eta}")
    return line


def _headline(status: Status) -> Text:
    last = status.rows[-1] if status.rows else None
    numbers = [
        ("reward", _number(last.reward) if last else "-"),
        ("accuracy (held-out)", "-" if status.accuracy is None else f"{status.accuracy:.3f}"),
        ("tokens/s", f"{last.tokens_per_s:.0f}" if last else "-"),
        ("step", f"{last.step_s:.1f} s" if last else "-"),
    ]
    words: list[str | tuple[str, str]] = []
    for label, value in numbers:
        words += [(f"{label} ", "dim"), (value, "bold"), "   "]
    return Text.assemble(*words)


def _rows(rows: tuple[StepSummary, ...]) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim")
    for name in ("step", "reward", "accuracy", "length", "tokens/s", "step s", "rollout", "train", "weights"):
        table.add_column(name, justify="right")
    for row in rows:
        accuracy = "" if row.accuracy is None else f"{row.accuracy:.3f}"
        spans = (f"{span:.1f}" for span in (row.step_s, row.rollout_s, row.train_s, row.weights_s))
        table.add_row(
            f"{row.step}",
            _number(row.reward),
            accuracy,
            f"{row.response_tokens:.1f}",
            f"{row.tokens_per_s:.0f}",
            *spans,
        )
    return table
