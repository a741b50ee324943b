"""A queue with one reader on the event loop: what `asyncio.Queue` is, at half its price, once for every token."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Generic, TypeVar

T = TypeVar("T")


class Inbox(Generic[T]):
    """Unbounded; its writers are on the reader's loop."""

    def __init__(self) -> None:
        self._items: deque[T] = deque()
        self._waiter: asyncio.Future[None] | None = None

    def put(self, item: T) -> None:
        """Leave an item for the reader."""
        self._items.append(item)
        if self._waiter is not None and not self._waiter.done():  # it is done if the reader was cancelled, too
            self._waiter.set_result(None)

    async def get(self) -> T:
        """The oldest item, as soon as there is one."""
        if not self._items:
            self._waiter = asyncio.get_running_loop().create_future()
            try:
                await self._waiter
            finally:
                self._waiter = None
        return self._items.popleft()
