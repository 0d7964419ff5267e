#!/usr/bin/env bash
#SBATCH --job-name=efficientrollout_14b
#SBATCH --chdir=/home/me/sestina
#SBATCH --output=/scratch/runs/one/slurm/%j.log
#SBATCH --open-mode=append
#SBATCH --requeue
#SBATCH --signal=B:USR1@600
#SBATCH --nodes=1
#SBATCH --ntasks=9
#SBATCH --ntasks-per-node=9
#SBATCH --cpus-per-task=8
#SBATCH --gpus-per-node=8
#SBATCH --time=1440
set -euo pipefail
export OMP_NUM_THREADS=1
export TORCH_COMPILE_DISABLE=1
export PYTHONUNBUFFERED=1
export MPIR_CVAR_NOLOCAL=1
exec /home/me/sestina/.venv/bin/python -m sestina.cluster.job /scratch/runs/one \
  srun --mpi=pmi2 --export=ALL --kill-on-bad-exit=1 \
  --nodes=1 --ntasks=9 --ntasks-per-node=9 --cpus-per-task=8 --distribution=block \
    /home/me/sestina/.venv/bin/python -m mpi4py -m sestina.controller.rank controller@0,rollout@1,trainer@5 /scratch/runs/one
