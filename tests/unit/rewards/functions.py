"""Reward functions of a user's, good and bad; imported by the workers under test."""

import asyncio
import os
import subprocess
import sys
import time
from pathlib import Path

NOT_CALLABLE = 0.5
_LOOP: list[asyncio.AbstractEventLoop] = []


def native(prompt, response, label, meta):
    """2 when all four arguments arrive as sent."""
    return 2 * (prompt == "p" and response == "r" and label == "l" and meta == {"k": [1]})


async def native_async(prompt, response, label, meta):
    await asyncio.sleep(0)
    return native(prompt, response, label, meta)


def verl(data_source, solution_str, ground_truth, extra_info):
    assert (data_source, solution_str, ground_truth, extra_info) == ("s", "r", "l", {"index": 3})
    return {"score": 0.25, "acc": True}


async def verl_async(data_source, solution_str, ground_truth, extra_info=None):
    return verl(data_source, solution_str, ground_truth, {"index": 3}) if extra_info == {} else 0.75


def trl(completions, prompts, label, k, **columns):
    assert (completions, prompts, label, k, columns) == (["r"], ["p"], ["l"], [[1]], {"prompt": ["chat"]})
    return [0.5]


async def trl_async(completions, **columns):
    import numpy as np  # noqa: PLC0415 - the other functions' workers start faster without

    await asyncio.sleep(0)
    return np.array([1.5])


def answers(prompt, response, label, meta):
    """What a key of `meta` asks for."""
    import numpy as np  # noqa: PLC0415 - the other functions' workers start faster without

    return {
        "nan": float("nan"),
        "infinity": np.float64("inf"),
        "text": "1.0",
        "nothing": None,
        "list": [1.0],
        "vector": np.ones(1),
        "complex": 1j,
        "true": True,
        "numpy": np.int64(3),
        "numpy bool": np.bool_(True),
        "no dimension": np.array(0.5),
    }[meta["case"]]


def obey(prompt, response, label, meta):
    """Do what the response asks for; misbehaves on demand."""
    match response:
        case "raise":
            raise ValueError("no good")
        case "sleep":
            time.sleep(60)
        case "spin":
            Path(meta["path"]).write_text(str(os.getpid()))
            while True:
                pass
        case "exit":
            os._exit(3)
        case "sys.exit":
            sys.exit("bye")
        case "segfault":
            os.kill(os.getpid(), 11)
        case "print":
            print("to stdout")
            os.write(1, b"\x05\x00\x00\x00bytes to file descriptor 1\n")
            subprocess.run(["echo", "from a child"], check=True)
            return len(sys.stdin.read())
        case "leave a child":
            child = subprocess.Popen(["sleep", "60"], start_new_session=meta["escapes"])
            Path(meta["path"]).write_text(str(child.pid))
            time.sleep(60)
        case "append":
            with Path(meta["path"]).open("a") as file:
                file.write(f"{label}\n")
        case "meet":
            Path(meta["path"], str(label)).touch()
            while len(list(Path(meta["path"]).iterdir())) < 2:
                time.sleep(0.01)
    return label


def waits(prompt, response, label, meta):
    """The label, once it is released."""
    Path(meta["started"]).touch()
    while not Path(meta["release"]).exists():
        time.sleep(0.01)
    return label


def much(prompt, response, label, meta):
    if meta["raise"]:
        raise ValueError("x" * 1_000_000)
    return len(response)


async def same_loop(prompt, response, label, meta):
    """1 when every call since the worker's first runs on one event loop."""
    _LOOP.append(asyncio.get_running_loop())
    return float(all(loop is _LOOP[0] for loop in _LOOP)) * len(_LOOP)


def plain_types(prompt, response, label, meta):
    assert meta == {"scalar": 3, "array": [[0, 1], [2, 3]], "nested": {"x": [0.5]}, "flag": True}
    assert type(meta["scalar"]) is int
    assert type(meta["nested"]["x"][0]) is float
    return label


def surroundings(prompt, response, label, meta):
    """Names what a worker should not have, as an error."""
    rank = [name for name in os.environ if name.startswith(("PMI", "MPI", "HYDRA_", "OMPI_"))]
    modules = sorted({"torch", "mpi4py", "math_verify", "numpy"} & sys.modules.keys())
    raise LookupError(f"{rank} {modules} {os.environ['OMP_NUM_THREADS']} {os.environ['KEPT']}")


# Tools


def counting(prompt, response, label, meta):
    """Says how long the response is, and sometimes nothing."""
    return str(len(response)) if len(response) % 3 else ""


async def counting_async(prompt, response, label, meta):
    return counting(prompt, response, label, meta)


def breaking(prompt, response, label, meta):
    if meta.get("breaks"):
        raise ValueError("the tool is broken")
    return {"long": "7" * 500, "strange": "\u00e9", "number": 7}.get(meta.get("says"), "1")


def hanging(prompt, response, label, meta):
    time.sleep(60)
