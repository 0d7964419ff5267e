"""All figures taken, as a page of the documentation."""

from pathlib import Path

from sestina.core.errors import DataError
from sestina.telemetry.measurements import render_markdown


def write_page(measurements: Path, page: Path) -> Path:
    """Write `page` from a folder of measurements and return it; raises DataError when the folder holds none."""
    if not any(measurements.glob("*.json")):
        raise DataError(f"{measurements}: holds no measurements (*.json); 'engine' and 'packing' take some")
    page.parent.mkdir(parents=True, exist_ok=True)
    page.write_text(render_markdown(measurements), encoding="utf-8")
    return page
