"""The report as a browser shows it: every image is decoded, nothing is asked of a network."""

import re
import shutil
import subprocess
import sys

import pytest

from tests.integration.worlds import ROOT

BROWSER = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
RUNS = sorted(path.parent for path in (ROOT / "analysis/data").glob("*/config.yaml"))
COUNT = "<script>onload = () => document.title = Array.from(document.images, image => image.naturalWidth)</script>"


def shown(page, folder):
    """Return the widths of the images as decoded."""
    told = folder / "told.html"
    told.write_text(page.read_text(encoding="utf-8") + COUNT, encoding="utf-8")
    command = [
        *(BROWSER, "--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={folder / 'profile'}"),
        *("--virtual-time-budget=10000", "--dump-dom", told.as_uri()),
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    title = re.search(r"<title>(.*?)</title>", done.stdout, re.DOTALL)
    assert title is not None
    return [int(width) for width in title[1].split(",")]


@pytest.mark.skipif(BROWSER is None, reason="no chromium and no chrome on the path")
def test_every_image_is_there(tmp_path):
    page = tmp_path / "report.html"
    command = [sys.executable, str(ROOT / "launch/report.py"), *map(str, RUNS), "--out", str(page)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=200, check=False)
    assert done.returncode == 0, done.stderr
    text = page.read_text(encoding="utf-8")
    images = text.count("<img ")
    widths = shown(page, tmp_path)
    assert len(widths) == images > len(RUNS)
    assert min(widths) > 0
    assert not re.findall(r'(?:src|href)="(?!data:|#)', text)
