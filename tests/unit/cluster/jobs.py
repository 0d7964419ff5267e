"""Job scripts as golden files; `python -m tests.unit.cluster.jobs` writes them."""

from pathlib import Path

from sestina.cluster.layout import layout_of
from sestina.cluster.render import Job, render
from sestina.cluster.submit import job_environment
from sestina.config.load import load
from tests.unit.config.helpers import CONF, composed

GOLDEN = Path(__file__).parents[2] / "golden/jobs"
SLURM = ("+exp=quickstart_slurm",)
GPUS = (
    *SLURM,
    "cluster=gpu",
    "rollout.num_instances=24",
    "trainer.num_ranks=8",
    "trainer.device=cuda",
    "rollout.engine.device=cuda",
)
FEW_GPUS = (*GPUS, "cluster.gpus=8", "rollout.num_instances=3", "trainer.num_ranks=2")
EXPERIMENTS = sorted(path.stem for path in CONF.glob("exp/*.yaml") if not path.stem.startswith("quickstart"))
CASES = {
    "cpu_het": SLURM,
    "cpu_het_shared": (*SLURM, "cluster.layout=het-shared", "cluster.cpu_ranks_per_node=2", "trainer.num_ranks=2"),
    "cpu_single": (*SLURM, "cluster.layout=single"),
    "gpu_het": (
        *GPUS,
        "cluster.partition=long",
        "cluster.account=ours",
        "cluster.qos=high",
        "cluster.interface=ib0",
        "cluster.mpi=pmix",
        "cluster.options=[--exclusive,'--mem=0']",
        "cluster.setup=[module load openmpi]",
    ),
    "gpu_het_shared": (*GPUS, "cluster.layout=het-shared"),
    "gpu_single": (*FEW_GPUS, "cluster.layout=single"),
    "odd_paths": (*SLURM, "name=a run", "cluster.layout=single"),
    **{name: (f"+exp={name}",) for name in EXPERIMENTS},
}


def text(case):
    config = load(composed(*CASES[case]))
    folder = "/scratch/it's 100%/run" if case == "odd_paths" else "/scratch/runs/one"
    job = Job(
        name=config.name,
        run_dir=Path(folder),
        work_dir=Path("/home/me/sestina"),
        logs=Path(folder) / "slurm",
        python="/home/me/sestina/.venv/bin/python",
        environment=job_environment(config, config.cluster),
    )
    return render(job, layout_of(config, config.cluster), config.cluster)


if __name__ == "__main__":
    GOLDEN.mkdir(exist_ok=True)
    for case in CASES:
        (GOLDEN / f"{case}.sh").write_text(text(case))
