"""The store of conversations."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import sqlalchemy as sql
from msgspec import structs
from sqlalchemy import Connection

from octavo.errors import ObjectNotFound
from octavo.server.responses import item_rows
from octavo.server.responses.item_rows import Page
from octavo.server.responses.items import FunctionCall, FunctionCallOutput, Item, Message, Reasoning, new_id
from octavo.server.responses.replies import Conversation
from octavo.server.responses.store import ResponseStore
from octavo.server.responses.tables import CONVERSATIONS, ITEMS, belongs, held

_PREFIXES = {Message: "msg", FunctionCall: "fc", FunctionCallOutput: "fco", Reasoning: "rs"}


def _not_found(id: str) -> ObjectNotFound:
    return ObjectNotFound(f"Conversation with id {id[:200]!r} not found.")


def _item_not_found(conversation: str, id: str) -> ObjectNotFound:
    return ObjectNotFound(f"Item with id {id[:200]!r} not found in conversation {conversation!r}.")


class ConversationStore:
    """Conversations of owners, in the same database and under the same bounds as their responses."""

    def __init__(self, responses: ResponseStore) -> None:
        self._responses = responses
        self._database = responses.database

    async def create(self, owner: str, metadata: dict[str, str], items: Sequence[Item]) -> Conversation:
        """A new conversation with these items."""
        now = self._responses.clock()
        conversation = Conversation(new_id("conv"), int(now), metadata)

        def work(connection: Connection) -> tuple[Conversation, int]:
            described = msgspec.json.encode(metadata)
            connection.execute(
                sql.insert(CONVERSATIONS).values(
                    owner=owner,
                    id=conversation.id,
                    created=now,
                    updated=now,
                    metadata=described,
                    bytes=len(described),
                )
            )
            _, size = self.append(connection, owner, conversation.id, items)
            return conversation, len(described) + size

        return await self._responses.write(work)

    def append(self, connection: Connection, owner: str, id: str, items: Sequence[Item]) -> tuple[list[Item], int]:
        """Add items within a transaction; returns them, and their size. One whose id is taken gets a new one. A
        conversation that was deleted takes none.
        """
        if connection.scalar(sql.select(CONVERSATIONS.c.id).where(belongs(CONVERSATIONS, owner, id))) is None:
            return [], 0
        taken = set(connection.scalars(sql.select(ITEMS.c.id).where(held(owner, id))))
        added: list[Item] = []
        for item in items:
            fresh = structs.replace(item, id=new_id(_PREFIXES[type(item)])) if item.id in taken else item
            taken.add(fresh.id)
            added.append(fresh)
        size = item_rows.write(connection, owner, id, [(item, False) for item in added])
        connection.execute(
            sql.update(CONVERSATIONS)
            .where(belongs(CONVERSATIONS, owner, id))
            .values(updated=self._responses.clock(), bytes=CONVERSATIONS.c.bytes + size)
        )
        return added, size

    async def add(self, owner: str, id: str, items: Sequence[Item]) -> list[Item]:
        """Add items. Raises ObjectNotFound."""

        def work(connection: Connection) -> tuple[list[Item], int]:
            self._get(connection, owner, id)
            return self.append(connection, owner, id, items)

        return await self._responses.write(work)

    async def get(self, owner: str, id: str) -> Conversation:
        """A conversation. Raises ObjectNotFound."""
        return await self._database.run(lambda connection: self._get(connection, owner, id))

    def _get(self, connection: Connection, owner: str, id: str) -> Conversation:
        query = sql.select(CONVERSATIONS.c.created, CONVERSATIONS.c.metadata)
        row = connection.execute(query.where(belongs(CONVERSATIONS, owner, id))).one_or_none()
        if row is None:
            raise _not_found(id)
        return Conversation(id, int(row.created), msgspec.json.decode(row.metadata, type=dict[str, str]))

    async def update(self, owner: str, id: str, metadata: dict[str, str]) -> Conversation:
        """Replace the metadata. Raises ObjectNotFound."""

        def work(connection: Connection) -> Conversation:
            connection.execute(
                sql.update(CONVERSATIONS)
                .where(belongs(CONVERSATIONS, owner, id))
                .values(metadata=msgspec.json.encode(metadata), updated=self._responses.clock())
            )
            return self._get(connection, owner, id)

        return await self._database.run(work)

    async def delete(self, owner: str, id: str) -> None:
        """Forget a conversation and its items; responses that were made in it stay. Raises ObjectNotFound."""

        def work(connection: Connection) -> None:
            if not connection.execute(sql.delete(CONVERSATIONS).where(belongs(CONVERSATIONS, owner, id))).rowcount:
                raise _not_found(id)
            item_rows.delete(connection, owner, id)

        await self._database.run(work)

    async def items(self, owner: str, id: str) -> list[Item]:
        """All items. Raises ObjectNotFound."""

        def work(connection: Connection) -> list[Item]:
            self._get(connection, owner, id)
            return [item for item, _ in item_rows.read(connection, owner, id)]

        return await self._database.run(work)

    async def page(self, owner: str, id: str, page: Page) -> tuple[list[Item], bool]:
        """A page of the items, and whether there are more. Raises ObjectNotFound."""

        def work(connection: Connection) -> tuple[list[Item], bool]:
            self._get(connection, owner, id)
            return item_rows.page(connection, owner, id, page)

        return await self._database.run(work)

    async def item(self, owner: str, id: str, item_id: str) -> Item:
        """One item. Raises ObjectNotFound."""

        def work(connection: Connection) -> Item:
            self._get(connection, owner, id)
            found = item_rows.find_in(connection, owner, id, item_id)
            if found is None:
                raise _item_not_found(id, item_id)
            return found

        return await self._database.run(work)

    async def delete_item(self, owner: str, id: str, item_id: str) -> Conversation:
        """Forget one item. Raises ObjectNotFound."""

        def work(connection: Connection) -> Conversation:
            conversation = self._get(connection, owner, id)
            size = item_rows.delete_in(connection, owner, id, item_id)
            if size is None:
                raise _item_not_found(id, item_id)
            connection.execute(
                sql.update(CONVERSATIONS)
                .where(belongs(CONVERSATIONS, owner, id))
                .values(bytes=CONVERSATIONS.c.bytes - size, updated=self._responses.clock())
            )
            return conversation

        return await self._database.run(work)
