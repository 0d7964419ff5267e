"""One HTML file with the figures and tables of runs; it loads nothing."""

import html
import io
from collections.abc import Iterator, Sequence
from pathlib import Path

from rich.console import Console
from rich.table import Table

from sestina.analysis.choice import pictures_of
from sestina.analysis.picture import Picture
from sestina.analysis.run import Run
from sestina.analysis.split import split_text
from sestina.analysis.tables import counterfactual_table
from sestina.telemetry.aside import written_aside
from sestina.telemetry.report import summary

_STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; color: #1c2126; max-width: 62rem; margin: 2rem auto; padding: 0 1rem }
figure { margin: 1.5rem 0 } img { max-width: 100% } figcaption { color: #3a3f45 }
pre { font: 13px/1.35 ui-monospace, monospace; overflow-x: auto } h1, h2 { font-weight: 600 } li { color: #5f6770 }
"""


def write_page(runs: Sequence[Run], path: Path) -> None:
    """Write the page of runs; makes its folder."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with written_aside(path) as aside:
        aside.write_text("\n".join(_page(runs)), encoding="utf-8")


def _page(runs: Sequence[Run]) -> Iterator[str]:
    title = html.escape(", ".join(run.name for run in runs))
    yield f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{title}</title>'
    yield f"<style>{_STYLE}</style></head><body><h1>{title}</h1>"
    for run in runs:
        yield f"<h2>{html.escape(run.name)} ({run.origin}, {run.config.rollout.scheduler}, {run.config.run.mode})</h2>"
        yield _text(summary(run.path))
        yield _text(counterfactual_table(run))
        yield _text(split_text(run))
    left_out: list[str] = []
    for picture in pictures_of(runs):
        if isinstance(picture, Picture):
            yield f"<h2>{html.escape(picture.title)}</h2>{picture.html()}"
        else:
            left_out.append(f"<li>{html.escape(picture)}</li>")
    yield f"<h2>Not drawn</h2><ul>{''.join(left_out)}</ul>" if left_out else ""
    yield "</body></html>"


def _text(table: Table | str) -> str:
    console = Console(file=io.StringIO(), width=110, record=True, color_system=None)
    console.print(table)
    return f"<pre>{html.escape(console.export_text())}</pre>"
