#!/usr/bin/env bash
#SBATCH --job-name=areal_32b_code
#SBATCH --chdir=/home/me/sestina
#SBATCH --output=/scratch/runs/one/slurm/%j.log
#SBATCH --open-mode=append
#SBATCH --requeue
#SBATCH --signal=B:USR1@600
#SBATCH --nodes=1
#SBATCH --ntasks=1
#SBATCH --ntasks-per-node=1
#SBATCH --cpus-per-task=8
#SBATCH --time=1440
#SBATCH hetjob
#SBATCH --nodes=36
#SBATCH --ntasks=72
#SBATCH --ntasks-per-node=2
#SBATCH --cpus-per-task=8
#SBATCH --gpus-per-node=8
#SBATCH --time=1440
#SBATCH hetjob
#SBATCH --nodes=12
#SBATCH --ntasks=96
#SBATCH --ntasks-per-node=8
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
  --het-group=0 --nodes=1 --ntasks=1 --ntasks-per-node=1 --cpus-per-task=8 --distribution=block \
    /home/me/sestina/.venv/bin/python -m mpi4py -m sestina.controller.rank controller@0 /scratch/runs/one : \
  --het-group=1 --nodes=36 --ntasks=72 --ntasks-per-node=2 --cpus-per-task=8 --distribution=block \
    /home/me/sestina/.venv/bin/python -m mpi4py -m sestina.controller.rank rollout@1 /scratch/runs/one : \
  --het-group=2 --nodes=12 --ntasks=96 --ntasks-per-node=8 --cpus-per-task=8 --distribution=block \
    /home/me/sestina/.venv/bin/python -m mpi4py -m sestina.controller.rank trainer@73 /scratch/runs/one
