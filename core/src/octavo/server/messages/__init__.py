"""The Anthropic Messages API, /v1/messages and /v1/messages/count_tokens, over the turns that Chat Completions has too.

schema.py   request models, and fields that are refused     history.py   system and messages -> the chat's messages
tools.py    tools and tool_choice                           ask.py       request -> turn
replies.py  response values and events                      writer.py    pieces of a turn -> message or events
routes.py   the routes
"""
