"""An aiohttp application on a loopback port, in a thread of its own, for as long as a block lasts."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from aiohttp import web


@contextmanager
def serving(app: web.Application) -> Iterator[str]:
    """The application's address. Handlers whose client gave up are ended with the block."""
    loop, started = asyncio.new_event_loop(), threading.Event()
    addresses: list[str] = []

    async def serve() -> web.AppRunner:
        runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        addresses.append(f"http://127.0.0.1:{runner.addresses[0][1]}")
        return runner

    def work() -> None:
        runner = loop.run_until_complete(serve())
        loop.call_soon(started.set)  # not before the loop runs for good: a stop could come to the first run
        loop.run_forever()
        loop.run_until_complete(runner.cleanup())
        left = asyncio.all_tasks(loop)
        for task in left:
            task.cancel()
        if left:
            loop.run_until_complete(asyncio.wait(left))
        loop.close()

    thread = threading.Thread(target=work)
    thread.start()
    started.wait()
    try:
        yield addresses[0]
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
