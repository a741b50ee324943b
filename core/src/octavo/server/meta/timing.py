"""GET /octavo/timing: what the server adds to the time of a token, see `octavo.server.transport.timing`."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response

from octavo.server.generation.service import Service, json_response
from octavo.server.routing.route import route
from octavo.server.transport.timing import TimingReport


class TimingApi:
    """The histogram of the times."""

    def __init__(self, service: Service) -> None:
        self._timing = service.timing

    @route("GET", "/octavo/timing", "What the server adds to the time of a token", reply=TimingReport)
    async def report(self, _request: Request) -> Response:
        return json_response(self._timing.report())
