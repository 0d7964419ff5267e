"""What another scheduler would have made of a run, as a table."""

from rich import box
from rich.table import Table

from sestina.analysis.counterfactual import counterfactual
from sestina.analysis.run import Run
from sestina.core.errors import DataError

MOST_STEPS = 8


def counterfactual_table(run: Run) -> Table | str:
    """Return the run's last steps under `context`, or a line that says why there are none."""
    table = Table(
        title="Seconds of rollout: measured, modelled under the run's own scheduler, and foretold under another",
        title_justify="left",
        box=box.SIMPLE,
    )
    for name in ("step", "measured", f"{run.config.rollout.scheduler}, modelled", "error", "context, foretold"):
        table.add_column(name, justify="right")
    try:
        found = [counterfactual(run, step) for step in run.steps[-MOST_STEPS:]]
    except DataError as error:
        return f"Not foretold: {error}"
    for each in found:
        spans = (each.measured_s, each.modelled_s, each.other_s)
        measured, modelled, other = (f"{span:.3f}" for span in spans)
        table.add_row(str(each.step), measured, modelled, f"{100 * each.error:+.1f} %", other)
    return table
