"""Routes of the Responses API and its conversations."""

from __future__ import annotations

from octavo.server.openapi.declared import Parameter, Route, page
from octavo.server.openapi.errors import RESPONSES
from octavo.server.openapi.of_text import TURN
from octavo.server.responses.items import Item
from octavo.server.responses.queries import MAX_PAGE
from octavo.server.responses.replies import (
    Conversation,
    DeletedConversation,
    DeletedResponse,
    Event,
    InputTokens,
    ItemList,
    ResponseObject,
)
from octavo.server.responses.schema import (
    ConversationRequest,
    ConversationUpdate,
    NewItems,
    ResponseRequest,
    TurnFields,
)

_R = "/v1/responses"
_ONE = f"{_R}/{{response_id}}"
_C = "/v1/conversations"
_TALK = f"{_C}/{{conversation_id}}"
_ITEM = f"{_TALK}/items/{{item_id}}"
_PAGE = page(MAX_PAGE)
_GONE = (404,)
_AGAIN = (
    Parameter("stream", "Its events from the beginning, if it was made to run in the background and to stream.",
              {"type": "boolean"}),
    Parameter("starting_after", "The number of the last event that the client has.", {"type": "integer", "minimum": 0}),
)  # fmt: skip

ROUTES = (
    Route("POST", _R, "Make a response", ResponseRequest, ResponseObject, Event, TURN, RESPONSES),
    Route("POST", f"{_R}/input_tokens", "Count the tokens of an input", TurnFields, InputTokens, errors=_GONE),
    Route("POST", f"{_R}/compact", "Not served: always 400", successes=()),
    Route("GET", _ONE, "Show a response", None, ResponseObject, Event, _GONE, RESPONSES, _AGAIN),
    Route("DELETE", _ONE, "Delete a response, which ends it", reply=DeletedResponse, errors=_GONE),
    Route("POST", f"{_ONE}/cancel", "End a background response", reply=ResponseObject, errors=_GONE),
    Route("GET", f"{_ONE}/input_items", "List its input", reply=ItemList, errors=_GONE, parameters=_PAGE),
    Route("POST", _C, "Make a conversation", ConversationRequest, Conversation),
    Route("GET", _TALK, "Show a conversation", reply=Conversation, errors=_GONE),
    Route("POST", _TALK, "Replace its metadata", ConversationUpdate, Conversation, errors=_GONE),
    Route("DELETE", _TALK, "Delete a conversation", reply=DeletedConversation, errors=_GONE),
    Route("POST", f"{_TALK}/items", "Add items", NewItems, ItemList, errors=_GONE),
    Route("GET", f"{_TALK}/items", "List its items", reply=ItemList, errors=_GONE, parameters=_PAGE),
    Route("GET", _ITEM, "Show an item", reply=Item, errors=_GONE),
    Route("DELETE", _ITEM, "Delete an item", reply=Conversation, errors=_GONE),
)
