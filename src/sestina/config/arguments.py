"""What a user writes on the command line -> what Hydra is given.

a.b=c           ++a.b=c         Hydra takes any key, and the loader reports it with everything else that is wrong
data=files      data=files      a file of a group, which must exist
a.b=files       a/b=files       the same, of a group within a group
exp=quickstart  +exp=quickstart
~a.b  hydra.x=y  --multirun     as they are
"""

from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path

from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import ChoiceSweep, Override, QuotedString, ValueType
from hydra.errors import HydraException

from sestina.config.run import RunConfig
from sestina.config.schema import fields_of, nearest, one_of
from sestina.core.errors import ConfigError

EXPERIMENTS = "exp"
"""The one group that is not in the defaults list of conf/*.yaml."""

MULTIRUN = frozenset({"-m", "--multirun"})

_SHORT_WITH_VALUE = ("-c", "-p", "-cn", "-cp", "-cd", "-i")
_LONG_WITH_VALUE = (
    "--cfg",
    "--package",
    "--config-name",
    "--config-path",
    "--config-dir",
    "--info",
    "--experimental-rerun",
)
_FLAGS_WITH_VALUE = frozenset(_SHORT_WITH_VALUE + _LONG_WITH_VALUE)
"""Hydra's flags that may take the next argument."""

_OF_EACH_RUN = {"dir": "${hydra:sweep.dir}/${hydra:job.num}", "telemetry.wandb_group": "${name}"}
"""What sets the runs of a sweep apart on disk and puts them together in Weights & Biases, unless given."""


def prepare_arguments(argv: Sequence[str], conf_dir: Path) -> list[str]:
    """Return Hydra's command line for the user's; raises ConfigError with every argument that makes no sense."""
    reader = _Reader(_groups_in(conf_dir), sweeping=not MULTIRUN.isdisjoint(argv))
    arguments = iter(argv)
    for argument in arguments:
        if argument.startswith("-"):
            reader.prepared += [argument, *islice(arguments, int(argument in _FLAGS_WITH_VALUE))]
        else:
            reader.read(argument)
    if reader.problems:
        raise ConfigError(reader.problems)
    return reader.finish()


def _groups_in(conf_dir: Path) -> dict[str, list[str]]:
    """Return the groups and their files; a folder within a group is a group too, but experiments have subfolders."""
    folders = [folder for folder in sorted(conf_dir.rglob("*")) if folder.is_dir()]
    groups = {str(folder.relative_to(conf_dir)): folder for folder in folders}
    return {
        name: [
            str(file.relative_to(folder).with_suffix("")) for file in sorted(_files(folder, deep=name == EXPERIMENTS))
        ]
        for name, folder in groups.items()
        if not name.startswith(f"{EXPERIMENTS}/")
    }


def _files(folder: Path, *, deep: bool) -> Iterator[Path]:
    return folder.rglob("*.yaml") if deep else folder.glob("*.yaml")


class _Reader:
    """Collects prepared arguments and problems."""

    def __init__(self, groups: dict[str, list[str]], *, sweeping: bool) -> None:
        self.prepared: list[str] = []
        self.problems: list[str] = []
        self._groups = groups
        self._sweeping = sweeping
        self._keys: set[str] = set()
        self._parser = OverridesParser.create()

    def read(self, argument: str) -> None:
        try:
            override = self._parser.parse_override(argument)
        except HydraException as error:
            reason = str(error).partition("\n")[0]
            self.problems.append(f"{argument!r} is not an override; write key=value ({reason})")
            return
        key = override.get_key_element().lstrip("+")
        if (folder := key.replace(".", "/")) in self._groups:
            argument, key = argument.replace(key, folder, 1), folder
        self._keys.add(key)
        if override.is_sweep_override() and not self._sweeping:
            self.problems.append(f"{argument!r} gives {key} several values; add --multirun for one run each")
        elif key == "dir" and self._sweeping:
            self._read_sweep_dir(override, argument)
        elif override.is_delete() or key.partition(".")[0].partition("/")[0] == "hydra":
            self.prepared.append(argument)
        elif self._names_group(key, added=override.is_add()):
            self._read_group(key, override, argument)
        else:
            self.prepared.append(f"++{argument.lstrip('+')}")

    def finish(self) -> list[str]:
        of_each_run = _OF_EACH_RUN if self._sweeping else {}
        return self.prepared + [f"++{key}={value}" for key, value in of_each_run.items() if key not in self._keys]

    def _read_sweep_dir(self, override: Override, argument: str) -> None:
        """Runs of a sweep that shared a directory would continue one another."""
        if override.is_sweep_override():
            self.problems.append(f"{argument!r}: a sweep has one directory; it numbers its runs below that")
        elif "${" in argument:
            self.prepared.append(f"++{argument.lstrip('+')}")
        else:
            value = argument.partition("=")[2]
            self.prepared += [f"hydra.sweep.dir={value}", f"++dir={_OF_EACH_RUN['dir']}"]

    def _names_group(self, key: str, *, added: bool) -> bool:
        """Only a group is added without a dot or placed with a slash or an @."""
        as_group = (added and "." not in key and key not in fields_of(RunConfig)) or "/" in key or "@" in key
        return key in self._groups or as_group

    def _read_group(self, group: str, override: Override, argument: str) -> None:
        if group not in self._groups:
            self.problems.append(f"{group}: no such group; {one_of(self._groups)}{_meant(group, self._groups)}")
            return
        for choice in _choices(override):
            if choice not in self._groups[group]:
                choices = self._groups[group]
                self.problems.append(f"{group}: {choice!r} is not allowed; {one_of(choices)}{_meant(choice, choices)}")
        added = "+" if group == EXPERIMENTS else ""
        self.prepared.append(f"{added}{argument.lstrip('+')}")


def _choices(override: Override) -> list[str]:
    if override.value_type is ValueType.GLOB_CHOICE_SWEEP:  # matches only files that exist
        return []
    match override.value():
        case ChoiceSweep(list=choices) | list(choices):
            return [choice.text if isinstance(choice, QuotedString) else str(choice) for choice in choices]
        case None:
            return ["null"]
        case choice:
            return [str(choice)]


def _meant(given: str, choices: Sequence[str] | dict[str, list[str]]) -> str:
    near = nearest(given, choices)
    return f"; did you mean '{near}'?" if near else ""
