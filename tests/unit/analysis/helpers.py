"""Run directories as runs leave them: the planner's own decisions, under a quickstart's configuration."""

from sestina.config.load import load
from sestina.config.resolved import write_resolved
from sestina.controller.plan import planner_of
from sestina.policies.events import InstanceUp
from sestina.telemetry.config import TelemetryConfig
from sestina.telemetry.idle import Spans, idle_of
from sestina.telemetry.journal import Journal
from sestina.telemetry.metrics import MetricsWriter
from sestina.telemetry.traces import write_step
from tests.unit.config.helpers import composed
from tests.unit.telemetry.helpers import NUM_INSTANCES, Rollouts, step_values

SPANS = {"perf/train_s": 0.5, "perf/weights_s": 0.1}


class Rehearsal(Rollouts):
    """Rollouts under the planner of a configuration."""

    def __init__(self, config, journal):
        super().__init__(journal=journal)
        journal.flush()
        (config.dir / "journal.jsonl").write_bytes(b"")
        self.planner = planner_of(config)
        for instance in range(NUM_INSTANCES):
            self.tell(InstanceUp(instance=instance, kv_capacity_tokens=4096, page_tokens=16, max_running=8))


def config_of(folder, *changes):
    return load(composed("+exp=quickstart", f"dir={folder}", f"rollout.num_instances={NUM_INSTANCES}", *changes))


def leave_run(folder, *changes, num_steps=2, values=None):
    """Leave what a run leaves; `values` come to the metrics of every step. Returns its configuration."""
    folder.mkdir(parents=True)
    config = config_of(folder, *changes)
    write_resolved(config, folder / "config.yaml")
    telemetry = TelemetryConfig(wandb="off", wandb_project="sestina-tests", wandb_group=None)
    metrics = MetricsWriter(folder, telemetry, resolved={}, name="toy", first_step=1)
    journal = Journal(folder / "journal.jsonl")
    rollouts = Rehearsal(config, journal)
    for step in range(1, num_steps + 1):
        requests, chunks = rollouts.step(step)
        write_step(folder, step, requests, chunks)
        rollout_s = rollouts.now - requests[0].offered_s
        spans = {"perf/rollout_s": rollout_s, "perf/step_s": rollout_s + sum(SPANS.values()), **SPANS}
        line = step_values(0.5, **spans, **(values or {}))
        idle = idle_of(requests, chunks, num_instances=NUM_INSTANCES, spans=Spans.of(line))
        metrics.log(step, line | idle.metrics())
        rollouts.now += sum(SPANS.values())
    journal.close()
    metrics.close()
    return config
