import base64
import io
import re
import shutil
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path

import pytest
from PIL import Image

from sestina.analysis.page import write_page
from sestina.analysis.run import read_run

REPORT = Path(__file__).parents[3] / "launch" / "report.py"
VOID = {"meta", "img", "br"}


class Reader(HTMLParser):
    """Follows the tags, and keeps the images and what would be loaded from elsewhere."""

    def __init__(self):
        super().__init__()
        self.open, self.images, self.loaded, self.text = [], [], [], ""

    def handle_starttag(self, tag, attrs):
        given = dict(attrs)
        if tag == "img":
            self.images.append(given["src"])
            assert given["alt"]
        self.loaded += [
            given[name] for name in ("src", "href") if name in given and not given[name].startswith("data:")
        ]
        if tag in ("script", "link", "iframe"):
            self.loaded.append(tag)
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.text += data


def read(path):
    reader = Reader()
    reader.feed(path.read_text())
    assert reader.open == []
    assert reader.loaded == []
    return reader


def test_a_page_holds_all_that_it_shows(divided, left, tmp_path):
    other = shutil.copytree(left("context", "rollout=context").path, tmp_path / "other & <co>")
    write_page([divided, read_run(other)], tmp_path / "new" / "page.html")
    reader = read(tmp_path / "new" / "page.html")
    assert len(reader.images) == 6
    for image in reader.images:
        with Image.open(io.BytesIO(base64.b64decode(image.removeprefix("data:image/png;base64,")))) as picture:
            assert picture.width > 500
    assert "other & <co> (real, context, sync)" in reader.text
    assert "instance-seconds without a token" in reader.text
    assert re.search(r"error\s+context, foretold", reader.text)
    assert re.search(r"^\s*2\s+\d+\.\d{3}\s+\d+\.\d{3}\s+[+-]\d\.\d %\s+\d+\.\d{3}", reader.text, re.MULTILINE)
    assert "acceptance_over_time: no run drafts" in reader.text


def test_without_its_journal_a_run_is_shown_as_far_as_it_goes(left, tmp_path):
    run = left("lost")
    (run.path / "journal.jsonl").unlink()
    write_page([run], tmp_path / "page.html")
    reader = read(tmp_path / "page.html")
    assert len(reader.images) == 3
    assert reader.text.count("journal.jsonl: No such file") == 2
    (run.path / "journal.jsonl").write_bytes(b"")
    write_page([run], tmp_path / "page.html")
    assert "journal.jsonl: no instance came up in it" in read(tmp_path / "page.html").text


def run(*arguments):
    command = [sys.executable, str(REPORT), *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)


@pytest.mark.parametrize("where", [None, "page.html"])
def test_the_command_writes_page_and_timelines(left, tmp_path, where):
    mine = left("mine")
    done = run(mine.path, *([] if where is None else ["--out", tmp_path / where, "--timeline"]))
    assert done.returncode == 0, done.stderr
    page = mine.path / "report.html" if where is None else tmp_path / where
    assert str(page) in done.stdout
    assert read(page).images
    assert (mine.path / "timeline.json").exists() == (where is not None)


def test_the_command_says_what_is_wrong(tmp_path):
    done = run(tmp_path)
    assert done.returncode == 2
    assert "has no config.yaml" in done.stderr
