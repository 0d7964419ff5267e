import sys

import pytest


@pytest.fixture
def importable(tmp_path, monkeypatch):
    """Work in an empty directory; call it to put a module there. What it imports is forgotten afterwards."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    before = set(sys.modules)

    def write(name, source):
        (tmp_path / f"{name}.py").write_text(source)

    yield write
    for name in sys.modules.keys() - before:
        del sys.modules[name]
