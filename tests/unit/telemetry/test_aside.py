import pytest

from sestina.telemetry.aside import written_aside


def test_the_file_is_there_when_the_block_ends(tmp_path):
    path = tmp_path / "a.json"
    path.write_text("old")
    with written_aside(path) as aside:
        aside.write_text("new")
        assert path.read_text() == "old"
        assert aside.parent == tmp_path, "a rename within one file system"
    assert path.read_text() == "new"
    assert list(tmp_path.iterdir()) == [path]


def test_a_block_that_raises_leaves_the_former_file_and_nothing_else(tmp_path):
    path = tmp_path / "a.json"
    path.write_text("old")

    def write():
        with written_aside(path) as aside:
            aside.write_text("half")
            raise OSError("disk full")

    with pytest.raises(OSError, match="disk full"):
        write()
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]
