import gc

from sestina.simulator.heap import settled_heap


def test_the_collector_leaves_alone_what_was_there_and_takes_what_comes():
    there = [object() for _ in range(3)], []
    with settled_heap():
        looked_at = gc.get_objects()
        assert not any(each is there for each in looked_at)
        assert any(each is looked_at for each in gc.get_objects())
    assert any(each is there for each in gc.get_objects())
