"""Runs as SLURM jobs: a configuration becomes a layout, the layout a batch script, and the script's one process a job.

layout.py   RunConfig -> components of nodes and tasks
render.py   layout -> the text that sbatch is given
submit.py   check, render, write, submit
show.py     the same without submitting: what would be, and what is foreseen of its GPUs' memory
files.py    what lies in the run directory of such a run
slurm.py    the commands of SLURM that are called
nodes.py    whether the cluster has the nodes that a layout needs
job.py      what the batch script runs: starts the ranks, passes signals on, queues again or says who failed
end.py      how it has ended, from its run directory: verdict.py judges, complaints.py knows srun's words
"""
