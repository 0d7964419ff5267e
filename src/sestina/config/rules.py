"""Rules between keys: what each needs to know, and what it then allows.

A rule is judged when every key it needs is there and valid, so a key of another `kind` of section switches it off.
"""

from collections.abc import Mapping
from typing import Any

from sestina.config.cluster_rules import CLUSTER_RULES
from sestina.config.draft_rules import DRAFT_RULES
from sestina.config.model_rules import MODEL_RULES
from sestina.config.rollout_rules import ROLLOUT_RULES
from sestina.config.rule import Rule
from sestina.config.schema import shown
from sestina.config.server_rules import SERVER_RULES
from sestina.config.sim_rules import SIM_RULES
from sestina.config.training_rules import TRAINING_RULES

RULES = (*TRAINING_RULES, *ROLLOUT_RULES, *SIM_RULES, *DRAFT_RULES, *MODEL_RULES, *SERVER_RULES, *CLUSTER_RULES)


def broken_rules(valid: Mapping[str, Any]) -> list[str]:
    """Return one line for each rule that the valid values, by dotted path, break."""
    lines: list[str] = []
    for rule in RULES:
        if all(path in valid for path in rule.needs):
            values = [valid[path] for path in rule.needs]
            allowed = rule.check(*values)
            if allowed is not None:
                lines.append(_line(rule, values, allowed))
    return lines


def _line(rule: Rule, values: list[Any], allowed: str) -> str:
    blamed, *others = zip(rule.needs, map(shown, values), strict=True)
    beside = ", ".join(f"{path} {value}" for path, value in others)
    return f"{blamed[0]}: {blamed[1]} is not allowed with {beside}; {allowed}"
