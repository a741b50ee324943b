"""HTTP itself: connections, limits, bodies, errors, server-sent events, settings. Knows no API."""
