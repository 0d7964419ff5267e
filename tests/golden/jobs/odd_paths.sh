#!/usr/bin/env bash
#SBATCH '--job-name=a run'
#SBATCH --chdir=/home/me/sestina
#SBATCH '--output=/scratch/it'"'"'s 100%%/run/slurm/%j.log'
#SBATCH --open-mode=append
#SBATCH --requeue
#SBATCH --signal=B:USR1@60
#SBATCH --nodes=1
#SBATCH --ntasks=5
#SBATCH --ntasks-per-node=5
#SBATCH --cpus-per-task=1
#SBATCH --time=60
set -euo pipefail
export OMP_NUM_THREADS=1
export TORCH_COMPILE_DISABLE=1
export PYTHONUNBUFFERED=1
export CUDA_VISIBLE_DEVICES=''
export MPIR_CVAR_NOLOCAL=1
exec /home/me/sestina/.venv/bin/python -m sestina.cluster.job '/scratch/it'"'"'s 100%/run' \
  srun --mpi=pmi2 --export=ALL --kill-on-bad-exit=1 \
  --nodes=1 --ntasks=5 --ntasks-per-node=5 --cpus-per-task=1 --distribution=block \
    /home/me/sestina/.venv/bin/python -m mpi4py -m sestina.controller.rank controller@0,rollout@1,trainer@4 '/scratch/it'"'"'s 100%/run'
