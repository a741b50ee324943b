"""Routes about the server and its models, and the page."""
