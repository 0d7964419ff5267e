"""Which split of its GPUs would have suited a run better, by what its steps took, in words."""

from collections.abc import Iterator
from statistics import median

from sestina.analysis.run import Run
from sestina.config.change import as_overrides
from sestina.config.schema import shown
from sestina.config.split import allowed_shares, changes_to, share_of
from sestina.core.errors import DataError, UserError
from sestina.policies.split import MeasuredStep, Share, propose
from sestina.telemetry.metrics import series

_SPANS = ("perf/rollout_s", "perf/train_s", "perf/weights_s")
_WAYS = ((False, "one after the other (run.mode sync)"), (True, "at the same time (run.mode pipelined or async)"))


def split_text(run: Run) -> str:
    """Return the split with the shortest step foreseen, for either way to train, or a line that says why there is none.

    `policies/split.py` is the model.
    """
    try:
        measured, shares = measured_step(run), allowed_shares(run.config)
    except UserError as error:
        return f"No split of GPUs is proposed: {str(error).splitlines()[-1].strip()}"
    return "\n".join(_lines(run, measured, shares))


def measured_step(run: Run) -> MeasuredStep:
    """Return the medians over a run's steps, at its share of GPUs.

    Raises ConfigError for a run without GPUs, DataError for one whose parts overlap or were not measured.
    """
    share, mode = share_of(run.config), run.config.run.mode
    if mode != "sync":
        raise DataError(
            f"{run.path}: run.mode {shown(mode)} overlaps rollout and training; a run of mode 'sync' is read"
        )
    spans = [[value for _, value in series(run.metrics, name)] for name in _SPANS]
    missing = [name for name, values in zip(_SPANS, spans, strict=True) if not values]
    if missing:
        raise DataError(f"{run.path}: no step has {missing[0]}")
    rollout_s, train_s, weights_s = map(median, spans)
    return MeasuredStep(share=share, rollout_s=rollout_s, train_s=train_s, weights_s=weights_s)


def _lines(run: Run, measured: MeasuredStep, shares: list[Share]) -> Iterator[str]:
    own = measured.share
    yield f"Split of {own.rollout_gpus + own.trainer_gpus} GPUs, foreseen from the median step of {run.name}"
    for overlapping, way in _WAYS:
        share = propose(measured, (own, *shares), overlapping=overlapping)
        now_s, then_s = (measured.step_s(each, overlapping=overlapping) for each in (own, share))
        yield f"  {way}: {now_s:,.1f} s as it is, {own.rollout_gpus} + {own.trainer_gpus}"
        if share == own:
            yield "    nothing better is foreseen"
        else:
            yield f"    {then_s:,.1f} s with {share.rollout_gpus} + {share.trainer_gpus}:"
            yield f"    {as_overrides(changes_to(run.config, share))}"
