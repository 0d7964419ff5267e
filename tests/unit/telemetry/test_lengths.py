import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from sestina.core.errors import DataError
from sestina.telemetry.lengths import COLUMNS, read_beginnings, read_lengths
from sestina.telemetry.traces import write_step

from .helpers import Rollouts

ROWS = {
    "step": [1, 1],
    "group": [0, 0],
    "sample": [0, 1],
    "prompt_tokens": [7, 7],
    "response_tokens": [3, 90],
    "finish": ["stop", "length"],
}


def written(folder, **changes):
    path = folder / "lengths.parquet"
    columns = {name: values for name, values in (ROWS | changes).items() if values is not None}
    pq.write_table(pa.table(columns), path)
    return path


def test_a_run_directory_and_a_file_of_the_same_columns_read_alike(tmp_path):
    requests, chunks = Rollouts().step(1, num_groups=3)
    write_step(tmp_path, 1, requests, chunks)
    table = read_lengths(tmp_path)
    assert table.to_pylist() == [{name: getattr(row, name) for name in COLUMNS} for row in requests]
    assert read_lengths(tmp_path / "traces/requests/step_000001.parquet").equals(table)
    assert read_lengths(written(tmp_path)).to_pydict() == ROWS


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"finish": None, "step": None}, r"lacks column step, finish; a recording has step, group, sample, prompt_to"),
        ({"response_tokens": [3, -4]}, r"row 2: response_tokens is -4; allowed is at least 1"),
        ({"response_tokens": [0, 4]}, r"row 1: response_tokens is 0; allowed is at least 1"),
        ({"prompt_tokens": [None, 7]}, r"row 1: prompt_tokens is None; allowed is at least 1"),
        ({"group": [-1, 0]}, r"row 1: group is -1; allowed is at least 0"),
        ({"step": [1.0, 1.0]}, r"column step is of type double; allowed are whole numbers"),
        ({"finish": ["stop", "abort"]}, r"row 2: finish is abort; allowed is stop or length or turn"),
        ({"finish": [1, 2]}, r"column finish is of type int64; allowed is text"),
        ({"sample": [1, 1]}, r"row 2: step 1 has group 0, sample 1 twice"),
        (dict.fromkeys(ROWS, pa.array([], pa.int64())), r"holds no responses"),
    ],
)
def test_what_no_run_leaves_is_refused(tmp_path, changes, message):
    with pytest.raises(DataError, match=rf"lengths\.parquet: {message}"):
        read_lengths(written(tmp_path, **changes))


def test_what_is_no_recording_at_all_is_refused(tmp_path):
    with pytest.raises(DataError, match=r"absent: no such run directory or Parquet file"):
        read_lengths(tmp_path / "absent")
    with pytest.raises(DataError, match=r"holds no responses"):
        read_lengths(tmp_path)
    (tmp_path / "text").write_text("step,group")
    with pytest.raises(DataError, match=r"text: neither a run directory nor a Parquet file"):
        read_lengths(tmp_path / "text")


def test_beginnings_are_read_where_a_recording_has_them(tmp_path):
    def found(**columns):
        return {name: column.to_pylist() for name, column in read_beginnings(written(tmp_path, **columns)).items()}

    assert found() == {"text_rank": [0, 0], "common_tokens": [0, 0]}
    both = {"text_rank": [1, 0], "common_tokens": [3, 0]}
    assert found(**both) == both
    with pytest.raises(DataError, match=r"row 2: text_rank is -1; allowed is at least 0"):
        found(**both | {"text_rank": [1, -1]})
