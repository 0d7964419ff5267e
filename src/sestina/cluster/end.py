"""How a job has ended, from its run directory; apart from job.py, which starts the ranks before it reads anything."""

from collections.abc import Sequence
from dataclasses import replace

from sestina.cluster.layout import JobLayout, layout_of
from sestina.cluster.verdict import Verdict, judge
from sestina.config.resolved import read_resolved
from sestina.controller.run_dir import CONFIG, FAILURES, STATUS, RunDir
from sestina.core.errors import UserError
from sestina.telemetry.failures import read_failures
from sestina.telemetry.status import read_status, write_status


def judge_end(run_dir: RunDir, said: Sequence[str], code: int, *, asked: bool, moved: bool) -> Verdict:
    """Judge the end, and correct a status that ranks which were killed have left behind."""
    path = run_dir.file(STATUS)
    status, failures = read_status(path), read_failures(run_dir.file(FAILURES))
    verdict = judge(status, failures, said, _layout(run_dir), exit_code=code, asked=asked, moved=moved)
    if status is not None and verdict.exit_code:
        write_status(path, replace(status, state="failed", phase=f"failed: {verdict.said}"))
    return verdict


def _layout(run_dir: RunDir) -> JobLayout | None:
    try:
        config = read_resolved(run_dir.file(CONFIG))
    except UserError:
        return None  # the ranks have said so
    return None if config.cluster is None else layout_of(config, config.cluster)
