"""`cluster.split=auto cluster.split_from=RUN_DIR` on a command line: the split that a run's measured steps propose."""

from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from sestina.analysis.run import read_run
from sestina.analysis.split import measured_step
from sestina.config.change import as_overrides, with_changes
from sestina.config.run import RunConfig
from sestina.config.split import allowed_shares, changes_to, share_of
from sestina.core.errors import ConfigError
from sestina.policies.split import propose

AUTO, FROM = "cluster.split=auto", "cluster.split_from="


def take_split_from(argv: Sequence[str]) -> tuple[list[str], Path | None]:
    """Return the other arguments, and the run that proposes; raises ConfigError for one of the two keys alone."""
    others = [argument for argument in argv if argument != AUTO and not argument.startswith(FROM)]
    sources = [argument.removeprefix(FROM) for argument in argv if argument.startswith(FROM)]
    if AUTO in argv and not any(sources):
        raise ConfigError(
            ["cluster.split: 'auto' needs cluster.split_from; the directory of a synchronous run on GPUs"]
        )
    if sources and AUTO not in argv:
        raise ConfigError([f"cluster.split_from: '{sources[-1]}' is read for cluster.split=auto alone"])
    return others, Path(sources[-1]) if sources else None


def with_split(configs: Sequence[RunConfig], source: Path, console: Console) -> list[RunConfig]:
    """Return runs with the split that is foreseen to suit each, and say which; raises a UserError as `read_run`.

    Rollout and training overlap in the modes that are not `sync`. A configuration's own split is among those compared.
    """
    measured, found = measured_step(read_run(source)), list[RunConfig]()
    for config in configs:
        shares = (share_of(config), *allowed_shares(config))
        share = propose(measured, shares, overlapping=config.run.mode != "sync")
        changes = changes_to(config, share)
        console.print(f"cluster.split=auto, from {source}: {as_overrides(changes)}", highlight=False)
        found.append(with_changes(config, changes))
    return found
