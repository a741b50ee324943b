"""The Responses API and its conversations.

A request's input becomes items (`read_items`), the items become a turn's messages (`messages`), the turn's parts become
output items and events (`writer`), and what is to be kept goes into the store (`store`).
"""
