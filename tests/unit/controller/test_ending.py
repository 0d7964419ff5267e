import signal
import subprocess
import sys

import pytest

RANK = """
import sys, time
from pathlib import Path
from sestina.controller.ending import end_when_over
end_when_over(Path(sys.argv[1]))
print("up", flush=True)
time.sleep(60)
"""


def test_a_rank_outlives_signals_until_the_file_says_that_all_is_over(tmp_path):
    file = tmp_path / "stop"
    file.write_text("")
    process = subprocess.Popen([sys.executable, "-c", RANK, file], stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout.readline() == "up\n"
        for number in (signal.SIGINT, signal.SIGTERM):
            process.send_signal(number)
        file.write_text("the job's time is nearly up")
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(1)
        file.write_text("over")
        assert process.wait(5) == 143
    finally:
        process.kill()
        process.communicate()
