"""A response request's fields to ``SamplingParams``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from octavo.sampling import SamplingParams
from octavo.server.generation.params import RESPONSE_FIELDS, sampling_params
from octavo.server.generation.structured import structured_output
from octavo.server.responses.schema import TurnFields
from octavo.server.transport.refusals import naming


def response_params(body: TurnFields, checkpoint: Mapping[str, Any], *, logprobs: int | None = None) -> SamplingParams:
    """Sampling of a response; without a limit it may fill the context."""
    limit = body.max_output_tokens
    asked = body.text.format if body.text else None
    with naming(RESPONSE_FIELDS):
        params = sampling_params(
            body, checkpoint, max_tokens=checkpoint.get("max_new_tokens") if limit is None else limit, logprobs=logprobs
        )
        constraint = structured_output(asked, body.structured_outputs, param="text.format", flat=True)
        return replace(params, structured=constraint)
