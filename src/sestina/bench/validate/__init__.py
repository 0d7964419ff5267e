"""`make validate-simulator`: simulations from a calibration and recordings, against emulated runs of the same engine.

Each setting is taken in measured time, some times, and once in calibrated time, which no machine disturbs.

settings.py  what is predicted, and what predictions are made from
worlds.py    emulated and simulated runs
takes.py     repetitions, and what a recording's own run takes beside each
outturn.py   makespan, completions, tail share; how far a prediction is off
picture.py   predicted against measured
"""

import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from sestina.bench.asked import at_least, at_most, stated
from sestina.bench.turns import Say
from sestina.bench.validate.outturn import Outturn, errors_of, mean_of, spread_of
from sestina.bench.validate.picture import draw
from sestina.bench.validate.settings import SETTINGS, Setting
from sestina.bench.validate.takes import Take, pace_of, repeated
from sestina.bench.validate.worlds import Clocked, Worlds
from sestina.telemetry.measurements import Figure

PICTURE = Path("out/measurements/validate.png")
WITHIN = 0.1
TAKES = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Compared:
    """One setting."""

    setting: Setting
    predicted: Outturn
    takes: Sequence[Take]
    clocked: Clocked

    @property
    def measured(self) -> Outturn:
        """Means over runs."""
        return mean_of([take.outturn for take in self.takes])

    @property
    def spread(self) -> Outturn:
        """How far runs are apart."""
        return spread_of([take.outturn for take in self.takes])


def measure(say: Say, settings: Sequence[Setting] = SETTINGS, takes: int = TAKES) -> list[Figure]:
    """Take every figure, and draw; raises RunError when a setting changes the length of a response."""
    worlds = Worlds(say)
    compared = [_compare(setting, number, worlds, takes, say) for number, setting in enumerate(settings)]
    say(f"figure: {draw({each.setting.name: (each.predicted, each.measured) for each in compared}, PICTURE)}")
    return [*figures_of(compared), *speculation_of(compared)]


def figures_of(compared: Sequence[Compared]) -> Iterator[Figure]:
    """Yield what is asked of each setting, run-to-run spread beside it, and medians over settings."""
    errors = {each.setting.name: errors_of(each.predicted, each.measured) for each in compared}
    clocked = {each.setting.name: errors_of(each.clocked.predicted, each.clocked.emulated) for each in compared}
    for each in compared:
        name, spread = each.setting.name, each.spread
        yield stated(f"{name}: makespan, measured", each.measured["makespan"], "s")
        for value, error in errors[name].items():
            yield at_most(f"{name}: {value}, predicted off by", error, "of measured", WITHIN)
            yield stated(f"{name}: {value}, runs apart by", spread[value], "of their mean")
            yield at_most(f"{name}: {value}, in calibrated time off by", clocked[name][value], "of emulated", WITHIN)
        yield stated(f"{name}: steps of a recording's runs, over the calibration's", pace_of(each.takes), "x")
    for value in compared[0].predicted:
        for time, found in (("", errors), (" in calibrated time", clocked)):
            name, of_all = f"{len(compared)} settings: {value}{time}", [each[value] for each in found.values()]
            yield stated(f"{name}, predicted off by, median", statistics.median(of_all), "of it")
            yield stated(f"{name}, within {WITHIN:g}", sum(error <= WITHIN for error in of_all), "settings")


def speculation_of(compared: Sequence[Compared]) -> Iterator[Figure]:
    """Yield whether drafts pay, predicted and measured, wherever a setting was taken with them and without."""
    plain = {each.setting.without_drafts: each for each in compared if each.setting.drafts is None}
    for each in compared:
        other = plain.get(each.setting.without_drafts)
        if each.setting.drafts is None or other is None:
            continue
        predicted = other.predicted["makespan"] / each.predicted["makespan"]
        measured = other.measured["makespan"] / each.measured["makespan"]
        name = f"{each.setting.name}: speedup of drafts"
        yield stated(f"{name}, measured", measured, "x")
        yield stated(f"{name}, predicted", predicted, "x")
        yield at_least(
            f"{name}, same verdict on whether they pay", float((predicted > 1) == (measured > 1)), "verdict", 1
        )


def _compare(setting: Setting, number: int, worlds: Worlds, takes: int, say: Say) -> Compared:
    def pace(take: int) -> float:
        return worlds.pace(setting, f"recorded-{number}-{take}")

    def run(take: int) -> Outturn:
        return worlds.measured(setting, f"emulated-{number}-{take}")

    found = repeated(pace, run, takes)
    predicted = worlds.predicted(setting, f"simulated-{number}", pace_of(found))
    clocked = worlds.clocked(setting, f"clocked-{number}")
    compared = Compared(setting=setting, predicted=predicted, takes=found, clocked=clocked)
    say(_line(setting.name, errors_of(predicted, compared.measured), compared))
    say(f"  in calibrated time: {_percent(errors_of(clocked.predicted, clocked.emulated))}")
    return compared


def _percent(errors: Mapping[str, float]) -> str:
    return ", ".join(f"{value} {error:.1%}" for value, error in errors.items())


def _line(name: str, errors: Mapping[str, float], compared: Compared) -> str:
    off = ", ".join(f"{value} {error:.1%} ({compared.spread[value]:.1%})" for value, error in errors.items())
    return f"{name}: off by (runs apart by): {off}; pace {[round(take.pace, 2) for take in compared.takes]}"
