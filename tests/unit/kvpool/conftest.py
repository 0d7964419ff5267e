"""Fixtures of the pool's tests."""

import pytest

from tests.unit.kvpool.test_local import Node


@pytest.fixture
def node(tmp_path):
    node = Node(tmp_path, processes=2)
    yield node
    node.close()
    assert not list(node.shared.iterdir())
