"""Rules between keys of drafts."""

from sestina.config.rule import Rule


def _servers_need_groups(servers: int, source: str) -> str | None:
    alone = servers and "grouped" not in source
    return "0: what servers bring is of the group, and goes with 'grouped'" if alone else None


def _a_chain(paths: int, source: str) -> str | None:
    return "1: a model drafts one chain" if source == "quantized" and paths > 1 else None


def _no_cut(min_token_prob: float, source: str) -> str | None:
    draws = source == "quantized" and min_token_prob > 0
    return "0: a model's drafts are drawn, the unlikely among them too" if draws else None


def _rejection_has_a_model(acceptance: str, source: str) -> str | None:
    missing = acceptance == "rejection" and source != "quantized"
    return "'coupled', or draft.source 'quantized': other drafts have no distribution to reject by" if missing else None


def _oracle_knows_the_tokens(acceptance: str, scheduler: str) -> str | None:
    unknown = acceptance == "rejection" and scheduler == "oracle"
    return "'coupled': under rejection the lengths of another run are not those of this one" if unknown else None


DRAFT_RULES = (
    Rule(needs=("draft.servers", "draft.source"), check=_servers_need_groups),
    Rule(needs=("draft.paths", "draft.source"), check=_a_chain),
    Rule(needs=("draft.min_token_prob", "draft.source"), check=_no_cut),
    Rule(needs=("draft.acceptance", "draft.source"), check=_rejection_has_a_model),
    Rule(needs=("draft.acceptance", "rollout.scheduler"), check=_oracle_knows_the_tokens),
)
