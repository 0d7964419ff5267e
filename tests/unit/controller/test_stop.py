import asyncio

from sestina.controller.stop import StopRequest


def test_a_word_in_the_file_asks_once(tmp_path):
    asked = []

    async def watched():
        stop = StopRequest()
        stop.on_ask = lambda: asked.append(stop.asked)
        watching = asyncio.create_task(stop.watch(tmp_path / "stop"))
        await asyncio.sleep(0)
        assert not stop.asked
        (tmp_path / "stop").write_text("")
        await asyncio.sleep(0.6)
        assert not stop.asked
        (tmp_path / "stop").write_text("time is up")
        await asyncio.sleep(0.6)
        assert stop.asked
        await asyncio.sleep(0.6)
        watching.cancel()

    asyncio.run(watched())
    assert asked == [True]
