"""The Completions API."""
