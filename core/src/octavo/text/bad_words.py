"""Bad words: from strings to the tokens that would write them."""

from __future__ import annotations

from dataclasses import replace

from octavo.sampling import SamplingParams
from octavo.text.tokenizer import Tokenizer


def tokenise_bad_words(params: SamplingParams, tokenizer: Tokenizer) -> SamplingParams:
    """The parameters with token ids in place of strings in ``bad_words``.

    A word is cut into tokens as it stands at the beginning of a text and as it follows a space; the second counts where
    it begins with another token and has as many of them. (These are vLLM's rules: the same requests forbid the same.)
    """
    words = params.bad_words or ()
    if not any(isinstance(word, str) for word in words):
        return params
    found: list[tuple[int, ...]] = []
    for word in words:
        if not isinstance(word, str):
            found.append(tuple(word))
            continue
        bare, spaced = (tuple(tokenizer.encode(space + word.lstrip(), add_special_tokens=False)) for space in ("", " "))
        found.append(bare)
        if bare and spaced and spaced[0] != bare[0] and len(spaced) == len(bare):
            found.append(spaced)
    return replace(params, bad_words=[ids for ids in dict.fromkeys(found) if ids])
