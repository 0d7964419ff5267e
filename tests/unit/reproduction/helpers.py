"""Cells for tests."""

from sestina.reproduction.cell import Cell


def cell(row="small, one", published=2.0, simulated=2.0, **changes):
    values = {"paper": "Paper v1", "table": "table 1", "unit": "x", "kind": "predicted"} | changes
    return Cell(row=row, published=published, simulated=simulated, **values)
