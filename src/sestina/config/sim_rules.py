"""Rules between keys of simulations."""

from sestina.config.rule import Rule


def _world_has_engines(world: str, engine: str) -> str | None:
    absent = world == "emulated" and engine != "torch"
    return "rollout.engine.kind 'torch', which runs within this process" if absent else None


def _world_is_one_process(world: str, _layout: str) -> str | None:
    return "cluster null (cluster=none): an emulation is one process" if world == "emulated" else None


def _compares_models(compare: tuple[str, ...], world: str, mode: str) -> str | None:
    if compare and world != "simulated":
        return "[]: only the world 'simulated' compares schedulers"
    if "histopipe" in compare and mode != "pipelined":
        return "others than 'histopipe', which balances over two steps of run.mode 'pipelined'"
    return "each scheduler once" if len(set(compare)) < len(compare) else None


def _advises_by_models(advise: bool, world: str, compare: tuple[str, ...]) -> str | None:
    if advise and world != "simulated":
        return "false: only the world 'simulated' takes a configuration's time from models"
    return "false, or sim.compare []: advice compares schedulers itself" if advise and compare else None


def _advises_on_gpus(advise: bool, gpus: int) -> str | None:
    return "false, or a cluster with GPUs (cluster=gpu), whose use it advises on" if advise and not gpus else None


def _evaluates_between_steps(every: int, mode: str, _world: str) -> str | None:
    return "0: a simulation evaluates in run.mode 'sync' and 'async' alone" if every and mode == "pipelined" else None


def _controller_is_free(controller: str, world: str) -> str | None:
    measured = world == "simulated" and controller == "measured"
    return "'free': nothing is measured there" if measured else None


def _ahead_of_a_trainer(mode: str, shares: int, world: str) -> str | None:
    alone = mode == "async" and not shares and world == "emulated"
    return "'sync': without a trainer (sim.trainer_shares) no version is ever published" if alone else None


def _trains_for_real(shares: int, world: str) -> str | None:
    return "0: what training takes there comes from the cost model" if shares and world == "simulated" else None


def _ahead_by_what_is_given(shares: int, mode: str) -> str | None:
    return "0: in run.mode 'pipelined' a training step takes sim.train_s" if shares and mode == "pipelined" else None


def _training_is_modelled(train_s: float, world: str) -> str | None:
    return "0: what training takes there comes from the cost model" if train_s and world == "simulated" else None


def _seen_in_an_epoch(seen_before: bool, epoch_steps: int) -> str | None:
    return "false, or sim.workload.epoch_steps of 1 or more" if seen_before and not epoch_steps else None


def _one_rank_is_shared(num_ranks: int, shares: int) -> str | None:
    return "1: the emulated trainer is one rank" if shares and num_ranks > 1 else None


def _engines_are_of_this_machine(kind: str, world: str) -> str | None:
    absent = world == "emulated" and kind != "calibrated"
    return "'calibrated' (sim/hardware=calibrated), or sim.hardware null: its engines run here" if absent else None


def _nothing_else_is_timed(controller: str, world: str, kind: str) -> str | None:
    measured = world == "emulated" and kind == "calibrated" and controller == "measured"
    return "'free': steps take what was calibrated, and no calibration has decisions" if measured else None


def _training_is_in_no_calibration(shares: int, world: str, kind: str) -> str | None:
    timed = world == "emulated" and kind == "calibrated" and shares
    return "0: steps take what was calibrated, and no calibration has training" if timed else None


def _moves_are_in_no_calibration(pool: str, world: str, kind: str) -> str | None:
    timed = world == "emulated" and kind == "calibrated" and pool != "none"
    return "'none': steps take what was calibrated, and no calibration has moves" if timed else None


def _drafters_are_in_no_calibration(source: str, world: str, kind: str) -> str | None:
    timed = world == "emulated" and kind == "calibrated" and source == "quantized"
    return "a source that looks drafts up: no calibration has steps of a drafting model" if timed else None


def _scoring_takes_what_it_takes(reward_s: float, world: str, _hardware: None) -> str | None:
    given = world == "emulated" and reward_s
    return "0: scoring takes what it really takes, unless sim.hardware says what steps take" if given else None


def _prompts_are_real(_kind: str, world: str) -> str | None:
    return "sim.workload null: prompts and tokens are real there" if world == "emulated" else None


def _drafts_are_real(_tokens: int, world: str) -> str | None:
    return "sim.acceptance null: drafts are real there" if world == "emulated" else None


SIM_RULES = (
    Rule(needs=("sim.world", "rollout.engine.kind"), check=_world_has_engines),
    Rule(needs=("sim.world", "cluster.layout"), check=_world_is_one_process),
    Rule(needs=("sim.compare", "sim.world", "run.mode"), check=_compares_models),
    Rule(needs=("sim.advise", "sim.world", "sim.compare"), check=_advises_by_models),
    Rule(needs=("sim.advise", "cluster.gpus"), check=_advises_on_gpus),
    Rule(needs=("sim.controller", "sim.world"), check=_controller_is_free),
    Rule(needs=("eval.every", "run.mode", "sim.world"), check=_evaluates_between_steps),
    Rule(needs=("run.mode", "sim.trainer_shares", "sim.world"), check=_ahead_of_a_trainer),
    Rule(needs=("sim.trainer_shares", "run.mode"), check=_ahead_by_what_is_given),
    Rule(needs=("sim.trainer_shares", "sim.world"), check=_trains_for_real),
    Rule(needs=("sim.train_s", "sim.world"), check=_training_is_modelled),
    Rule(needs=("sim.workload.seen_before", "sim.workload.epoch_steps"), check=_seen_in_an_epoch),
    Rule(needs=("trainer.num_ranks", "sim.trainer_shares"), check=_one_rank_is_shared),
    Rule(needs=("sim.hardware.kind", "sim.world"), check=_engines_are_of_this_machine),
    Rule(needs=("sim.controller", "sim.world", "sim.hardware.kind"), check=_nothing_else_is_timed),
    Rule(needs=("sim.trainer_shares", "sim.world", "sim.hardware.kind"), check=_training_is_in_no_calibration),
    Rule(needs=("rollout.kv_pool.kind", "sim.world", "sim.hardware.kind"), check=_moves_are_in_no_calibration),
    Rule(needs=("draft.source", "sim.world", "sim.hardware.kind"), check=_drafters_are_in_no_calibration),
    Rule(needs=("sim.reward_s", "sim.world", "sim.hardware"), check=_scoring_takes_what_it_takes),
    Rule(needs=("sim.workload.kind", "sim.world"), check=_prompts_are_real),
    Rule(needs=("sim.acceptance.draft_tokens", "sim.world"), check=_drafts_are_real),
)
