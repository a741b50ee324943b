"""The queue between the engine's news and a stream."""

from __future__ import annotations

import asyncio

import pytest

from octavo.engine.inbox import Inbox


def test_items_come_in_order_whether_they_were_waited_for_or_not() -> None:
    async def run() -> list[int]:
        inbox: Inbox[int] = Inbox()
        inbox.put(1)
        got = [await inbox.get()]
        waiting = asyncio.ensure_future(inbox.get())
        await asyncio.sleep(0)
        inbox.put(2)
        inbox.put(3)
        got += [await waiting, await inbox.get()]
        return got

    assert asyncio.run(run()) == [1, 2, 3]


def test_a_reader_that_was_cancelled_takes_nothing_along() -> None:
    async def run() -> int:
        inbox: Inbox[int] = Inbox()
        reader = asyncio.ensure_future(inbox.get())
        await asyncio.sleep(0)
        reader.cancel()
        inbox.put(7)  # while the cancellation is on its way
        with pytest.raises(asyncio.CancelledError):
            await reader
        return await inbox.get()

    assert asyncio.run(run()) == 7
