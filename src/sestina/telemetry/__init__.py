"""What a run records, and how it is shown.

Recording, by the controller:
    journal.py       every planner event and its commands; written and read back
    replay.py        a journal told to a fresh planner
    metrics.py       one line of numbers per step, in metrics.jsonl and on Weights & Biases
    wandb_run.py     the one place that talks to W&B
    traces.py        one Parquet row per request and per chunk
    status.py        the file through which a run tells what it is doing

Showing, from those files alone:
    display.py       a status as a live display; a step as one line
    report.py        a finished run as a table
    figure.py        a finished run as a picture

measurements.py      figures that say how well the product does, with the machine they were taken on
aside.py             files that appear whole or not at all
"""
