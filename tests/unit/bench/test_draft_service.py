from sestina.bench import draft_service
from tests.unit.bench.helpers import by_name


def test_every_figure_is_taken(monkeypatch):
    for name, value in {
        "GROUPS": 4,
        "WARM_UP": 1,
        "ROUND_TRIPS": 5,
        "ALL_ROUND_TRIPS": 2,
        "CATCH_UP_TOKENS": 200,
    }.items():
        monkeypatch.setattr(draft_service, name, value)
    found = by_name(draft_service.measure(lambda line: line))
    assert [name for name, figure in found.items() if figure.must] == [
        "update and fetch of 4 groups, 1 responses said more: p50 of 5",
        "update and fetch of 4 groups, 4 responses said more: p50 of 5",
    ]
    assert all(figure.value > 0 for figure in found.values())
