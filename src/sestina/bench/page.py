"""All figures taken, as a page of the documentation."""

import shutil
from pathlib import Path

from sestina.core.errors import DataError
from sestina.telemetry.measurements import render_markdown


def write_page(measurements: Path, page: Path) -> Path:
    """Write `page` from a folder of measurements and return it, pictures in a folder beside it named after it.

    What the page has of targets that the folder lacks stays: measurements come from several machines and days.
    Raises DataError when there are no measurements.
    """
    if not any(measurements.glob("*.json")):
        raise DataError(f"{measurements}: holds no measurements (*.json); 'engine' and 'packing' take some")
    page.parent.mkdir(parents=True, exist_ok=True)
    before = page.read_text(encoding="utf-8") if page.exists() else ""
    page.write_text(render_markdown(measurements, page.stem, before), encoding="utf-8")
    for picture in (path.with_suffix(".png") for path in sorted(measurements.glob("*.json"))):
        if picture.exists():
            page.with_suffix("").mkdir(exist_ok=True)
            shutil.copy(picture, page.with_suffix(""))
    return page
