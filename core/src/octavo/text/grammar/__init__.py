"""Structured output: from a schema, regex or grammar to the tokens that may come next."""
