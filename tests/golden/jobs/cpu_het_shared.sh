#!/usr/bin/env bash
#SBATCH --job-name=quickstart_slurm
#SBATCH --chdir=/home/me/sestina
#SBATCH --output=/scratch/runs/one/slurm/%j.log
#SBATCH --open-mode=append
#SBATCH --requeue
#SBATCH --signal=B:USR1@60
#SBATCH --nodes=1
#SBATCH --ntasks=3
#SBATCH --ntasks-per-node=3
#SBATCH --cpus-per-task=1
#SBATCH --time=60
#SBATCH hetjob
#SBATCH --nodes=2
#SBATCH --ntasks=3
#SBATCH --ntasks-per-node=2
#SBATCH --cpus-per-task=1
#SBATCH --time=60
set -euo pipefail
export OMP_NUM_THREADS=1
export TORCH_COMPILE_DISABLE=1
export PYTHONUNBUFFERED=1
export CUDA_VISIBLE_DEVICES=''
export MPIR_CVAR_NOLOCAL=1
exec /home/me/sestina/.venv/bin/python -m sestina.cluster.job /scratch/runs/one \
  srun --mpi=pmi2 --export=ALL --kill-on-bad-exit=1 \
  --het-group=0 --nodes=1 --ntasks=3 --ntasks-per-node=3 --cpus-per-task=1 --distribution=block \
    /home/me/sestina/.venv/bin/python -m mpi4py -m sestina.controller.rank controller@0,trainer@1 /scratch/runs/one : \
  --het-group=1 --nodes=2 --ntasks=3 --ntasks-per-node=2 --cpus-per-task=1 --distribution=block \
    /home/me/sestina/.venv/bin/python -m mpi4py -m sestina.controller.rank rollout@3 /scratch/runs/one
