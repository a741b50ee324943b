"""SentencePiece-kind BPE from a GGUF file (`tokenizer.ggml.model` = "llama"): Llama 2, Mistral 7B, Phi-3, Gemma.

Spaces are spelled "▁" (U+2581) and bytes outside the vocabulary "<0x0A>". The file holds a score for each token
instead of merges: SentencePiece always joins the pair whose result scores best, so that the merges, in order, are all
ways to cut each token in two, best token first.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from itertools import groupby

from tokenizers import Tokenizer, decoders, models, normalizers

from octavo.errors import CheckpointError
from octavo.text.tokenizer.gguf_vocabulary import SPACE, Merge, Vocabulary, merges_of


def sentencepiece_tokenizer(vocabulary: Vocabulary) -> Tokenizer:
    """The `tokenizers` object for a SentencePiece vocabulary, its special tokens not yet added.

    As in llama.cpp a space goes before the text and before every stretch of text behind a token that is matched whole,
    also where one is there already, unless the file denies it (`tokenizer.ggml.add_space_prefix`).
    """
    tokenizer = Tokenizer(_bpe(vocabulary, vocabulary.tokens, vocabulary.scores))
    prefix = vocabulary.add_space_prefix is not False
    before: list[normalizers.Normalizer] = [normalizers.Prepend(SPACE)] if prefix else []
    tokenizer.normalizer = normalizers.Sequence([*before, normalizers.Replace(" ", SPACE)])
    spelling = [decoders.Replace(SPACE, " "), decoders.ByteFallback(), decoders.Fuse()]
    tokenizer.decoder = decoders.Sequence([*spelling, decoders.Strip(" ", 1, 0)] if prefix else spelling)
    return tokenizer


def _bpe(vocabulary: Vocabulary, tokens: list[str], scores: list[float]) -> models.BPE:
    vocab = {token: token_id for token_id, token in enumerate(tokens)}
    if vocabulary.merges:
        merges = merges_of(vocabulary, vocab)
    elif scores:
        merges = merges_from_scores(tokens, scores, vocab)
    else:
        raise CheckpointError(
            f"{vocabulary.path}: a SentencePiece vocabulary needs tokenizer.ggml.scores (or merges), which is missing"
        )
    return models.BPE(
        vocab=vocab, merges=merges, unk_token=vocabulary.role("unknown"), fuse_unk=True, byte_fallback=True
    )


def merges_from_scores(tokens: Sequence[str], scores: Sequence[float], vocab: Collection[str]) -> list[Merge]:
    """The merges that a scored vocabulary implies: every cut of a token into two tokens, best result first.

    Among results of one score the longer left part goes first, then the lower id. This is the order of the merges in
    the tokenizer.json files that transformers converts from SentencePiece models. Time: one look-up for each character
    of the vocabulary.
    """
    merges: list[Merge] = []
    best_first = sorted(range(len(tokens)), key=scores.__getitem__, reverse=True)  # stable: ties stay in id order
    for _, tied in groupby(best_first, key=scores.__getitem__):
        cuts = [
            (left, token[cut:])
            for token in map(tokens.__getitem__, tied)
            for cut in range(len(token) - 1, 0, -1)
            if (left := token[:cut]) in vocab and token[cut:] in vocab
        ]
        # The cuts of one token are in order already; several tokens need sorting (stable, so ids break ties).
        if len(cuts) > 1:
            cuts.sort(key=lambda pair: (len(pair[0]), len(pair[1])), reverse=True)
        merges += cuts
    return merges
