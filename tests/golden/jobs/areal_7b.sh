#!/usr/bin/env bash
#SBATCH --job-name=areal_7b
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
#SBATCH --nodes=18
#SBATCH --ntasks=144
#SBATCH --ntasks-per-node=8
#SBATCH --cpus-per-task=8
#SBATCH --gpus-per-node=8
#SBATCH --time=1440
#SBATCH hetjob
#SBATCH --nodes=6
#SBATCH --ntasks=48
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
  --het-group=1 --nodes=18 --ntasks=144 --ntasks-per-node=8 --cpus-per-task=8 --distribution=block \
    /home/me/sestina/.venv/bin/python -m mpi4py -m sestina.controller.rank rollout@1 /scratch/runs/one : \
  --het-group=2 --nodes=6 --ntasks=48 --ntasks-per-node=8 --cpus-per-task=8 --distribution=block \
    /home/me/sestina/.venv/bin/python -m mpi4py -m sestina.controller.rank trainer@145 /scratch/runs/one
