"""The verdict as one page."""

from dataclasses import dataclass

from sestina.rollout.certificate.checks import Check, HeldBy

WORDS: dict[HeldBy, str] = {
    "bits": "equality of every token: bits do not depend on the batch",
    "noise": "equality of tokens drawn with the same noise, but for ties: last bits depend on the batch",
    "distributions": "distributions and logprobs",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Certificate:
    """What was compared, and what came of it."""

    model: str
    tested_model: str
    """Of the side with drafts, chunks and migration; the same, unless another one was asked for."""
    engine: str
    held_by: HeldBy
    num_prompts: int
    num_samples: int
    max_new_tokens: int
    chunk_tokens: int
    machine: str
    commit: str | None
    date: str
    checks: tuple[Check, ...]
    left_out: tuple[str, ...]
    """What could not be compared, and why."""

    @property
    def passed(self) -> bool:
        """Whether every check has."""
        return all(check.passed for check in self.checks)


def page(certificate: Certificate) -> str:
    """Return it as Markdown."""
    c = certificate
    failed = sum(not check.passed for check in c.checks)
    verdict = "PASSED" if c.passed else f"FAILED ({failed} of {len(c.checks)} checks)"
    tested = "" if c.tested_model == c.model else f" against {c.tested_model}"
    return "\n".join([
        f"# Certificate: {verdict}\n",
        f"{c.model}{tested}, {c.engine}; {c.num_prompts} prompts, {c.num_samples} responses each, at most "
        f"{c.max_new_tokens} tokens, chunks of {c.chunk_tokens}.\n",
        f"{c.machine}, commit {c.commit or 'unknown'}, {c.date}.\n",
        f"Held against plain decoding of whole responses by {WORDS[c.held_by]}.\n",
        "| on | check | verdict | found |",
        "|---|---|---|---|",
        *(f"| {k.arm} | {k.name} | {'passed' if k.passed else 'FAILED'} | {k.found} |" for k in c.checks),
        *(f"\nNot compared: {reason}" for reason in c.left_out),
        "",
    ])  # fmt: skip
