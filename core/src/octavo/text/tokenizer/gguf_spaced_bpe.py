"""BPE over characters from a GGUF file: Gemma 4, Sarvam, Granite's multilingual embeddings.

Spelled as in SentencePiece, spaces as "▁" (U+2581) and bytes outside the vocabulary as "<0x0A>", and merged as in
byte-level BPE, by a list of merges. Such a file says `tokenizer.ggml.model` = "gemma4", or "gpt2" with a name in
`tokenizer.ggml.pre` that `octavo.text.tokenizer.gguf_pretokenizers` calls `spaced`.
"""

from __future__ import annotations

from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers

from octavo.errors import CheckpointError
from octavo.text.tokenizer.gguf_pretokenizers import PreTokenizer
from octavo.text.tokenizer.gguf_vocabulary import SPACE, Vocabulary, merges_of


def spaced_tokenizer(vocabulary: Vocabulary, pre: PreTokenizer) -> Tokenizer:
    """The `tokenizers` object for such a vocabulary, its special tokens not yet added. CheckpointError without merges,
    or without a token for each byte, of which all other text is made.
    """
    vocab = {token: token_id for token_id, token in enumerate(vocabulary.tokens)}
    if not vocabulary.merges:
        raise CheckpointError(f"{vocabulary.path}: such a vocabulary needs tokenizer.ggml.merges, which is missing")
    lacking = next((name for byte in range(256) if (name := f"<0x{byte:02X}>") not in vocab), None)
    if lacking is not None:
        raise CheckpointError(
            f"{vocabulary.path}: tokenizer.ggml.tokens lacks the byte token {lacking}, which text outside the "
            "vocabulary is made of; convert the model again"
        )
    tokenizer = Tokenizer(models.BPE(vocab=vocab, merges=merges_of(vocabulary, vocab), byte_fallback=True))
    tokenizer.normalizer = normalizers.Replace(" ", SPACE)
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Split(Regex(step), behavior="isolated") for step in pre.steps]
    )
    tokenizer.decoder = decoders.Sequence([decoders.Replace(SPACE, " "), decoders.ByteFallback(), decoders.Fuse()])
    return tokenizer
