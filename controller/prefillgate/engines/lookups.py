"""Looking names up, in threads of its own: where no name server answers nobody waits but who asks for names.

A lookup cannot be cancelled and may take a minute. asyncio would make it in the few threads that everything else has
its files and databases in, and would wait for it at the end.
"""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import socket
import threading
from collections.abc import Callable
from weakref import WeakKeyDictionary, WeakValueDictionary

AT_ONCE = 32  # lookups
OF_ONE = 4  # of them for one of those who share them


class Places:
    """So many at once, and of one of those who share them so many, each in turn. Of one event loop."""

    def __init__(self, most: int, of_one: int) -> None:
        self._all = asyncio.Semaphore(most)
        self._of_one = of_one
        self._own: WeakValueDictionary[str, asyncio.Semaphore] = WeakValueDictionary()

    async def take(self, whose: str) -> Callable[[], None]:
        """Wait for a place. What is returned gives it back, and is called once."""
        own = self._own.get(whose)
        if own is None:
            own = self._own[whose] = asyncio.Semaphore(self._of_one)
        await own.acquire()
        try:
            await self._all.acquire()
        except BaseException:
            own.release()
            raise

        def give_back() -> None:
            self._all.release()
            own.release()

        return give_back


_places: WeakKeyDictionary[asyncio.AbstractEventLoop, Places] = WeakKeyDictionary()


async def addresses_of(host: str, whose: str = "") -> tuple[str, ...]:
    """The addresses of a name, of an address itself; empty where the name is not known.

    `whose`: of one no more than `OF_ONE` names are looked up at once, so that others have theirs. It takes as long as
    it takes: put a limit on it. A lookup that nobody waits for any more keeps its place until it ends.
    """
    with contextlib.suppress(ValueError):
        return (str(ipaddress.ip_address(host)),)
    loop = asyncio.get_running_loop()
    if loop not in _places:
        _places[loop] = Places(AT_ONCE, OF_ONE)
    give_back = await _places[loop].take(whose)
    answer: asyncio.Future[tuple[str, ...]] = loop.create_future()

    def told(found: tuple[str, ...]) -> None:
        give_back()
        if not answer.done():
            answer.set_result(found)

    def look() -> None:
        found = _looked_up(host)
        with contextlib.suppress(RuntimeError):  # the loop has ended meanwhile
            loop.call_soon_threadsafe(told, found)

    try:
        threading.Thread(target=look, name="name lookup", daemon=True).start()
    except RuntimeError:  # no thread can be had
        give_back()
        return ()
    return await answer


def _looked_up(host: str) -> tuple[str, ...]:
    try:
        found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except (OSError, ValueError):  # no such name, or what can be none
        return ()
    return tuple(dict.fromkeys(str(each[4][0]) for each in found))
