#!/usr/bin/env bash
# Trains on a cluster:  sbatch slurm/run.sh +exp=NAME [key=value ...] [--multirun] [--dry-run]
# The same without waiting for a node:  bash slurm/run.sh ...
#SBATCH --job-name=sestina-submit
#SBATCH --ntasks=1
#SBATCH --time=15
set -euo pipefail
script=${BASH_SOURCE[0]}
if [[ ! -e ${script%/*}/../launch/submit.py ]]; then # SLURM runs a copy of this file, and knows whose
  script=$(scontrol show job "$SLURM_JOB_ID" | sed -n 's/^ *Command=\([^ ]*\).*/\1/p')
fi
root=$(cd "$(dirname "$script")/.." && pwd)
python=${SESTINA_PYTHON:-$root/.venv/bin/python}
[[ -x $python ]] || python=python3
exec "$python" "$root/launch/submit.py" "$@"
