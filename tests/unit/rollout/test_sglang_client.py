"""The client of SGLang's HTTP interface, against servers that break off, are late, or never end."""

import asyncio
from contextlib import asynccontextmanager

import pytest
from aiohttp import web

from sestina.core.errors import EngineError
from sestina.rollout.sglang.client import ServerLostError, SGLangClient

LIMIT_S = 20


@asynccontextmanager
async def serving(answer):
    """A server on a port of its own, all of whose paths are answered by `answer`."""
    application = web.Application()
    application.router.add_route("*", "/{path:.*}", answer)
    runner = web.AppRunner(application, shutdown_timeout=0, handler_cancellation=True)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    try:
        yield SGLangClient(runner.addresses[0][1])
    finally:
        await runner.cleanup()


async def one_event(request):
    reply = web.StreamResponse()
    await reply.prepare(request)
    await reply.write(b"data: {}\n\n")
    return reply


async def endless(request):
    await one_event(request)
    await asyncio.sleep(10 * LIMIT_S)


async def silent(request):
    await asyncio.sleep(10 * LIMIT_S)


async def plain(request):
    return web.json_response({"internal_states": [{"world_size": 1}]})


async def read_all(client, began):
    async for _ in client.generate(b"{}"):
        began.set()


def test_calls_under_way_end_with_the_client():
    async def play():
        async with serving(endless) as client:
            began = asyncio.Event()
            call = asyncio.create_task(read_all(client, began))
            await began.wait()
            await client.close()
            with pytest.raises(ServerLostError, match="/generate"):
                await call

    asyncio.run(asyncio.wait_for(play(), LIMIT_S))


def test_a_call_after_the_end_is_a_call_to_a_lost_server():
    async def play():
        async with serving(silent) as client:
            await client.close()
            assert not await client.alive(LIMIT_S)
            with pytest.raises(ServerLostError, match="/abort_request: the server has ended"):
                await client.abort("g0/s0#1", LIMIT_S)

    asyncio.run(asyncio.wait_for(play(), LIMIT_S))


def test_a_late_answer_is_a_lost_server():
    async def play():
        async with serving(silent) as client, client:
            with pytest.raises(ServerLostError, match="/server_info: TimeoutError"):
                await client.info(0.1)

    asyncio.run(asyncio.wait_for(play(), LIMIT_S))


def test_a_stream_that_breaks_off_is_a_lost_server():
    async def play():
        async with serving(one_event) as client, client:
            with pytest.raises(ServerLostError, match="the stream broke off"):
                await read_all(client, asyncio.Event())

    asyncio.run(asyncio.wait_for(play(), LIMIT_S))


def test_a_server_that_counts_no_drafts_is_not_understood():
    async def play():
        async with serving(plain) as client, client:
            with pytest.raises(EngineError, match="/server_info cannot be read: .*sestina_drafts"):
                await client.counted(LIMIT_S)

    asyncio.run(asyncio.wait_for(play(), LIMIT_S))
