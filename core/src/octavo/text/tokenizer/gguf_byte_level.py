"""Byte-level BPE from a GGUF file (`tokenizer.ggml.model` = "gpt2"): GPT-2, SmolLM, Llama 3, Qwen, Mistral's Tekken.

Text is cut into words by a regular expression, each word's UTF-8 bytes are spelled in an alphabet of 256 printable
characters, and merges join them. A GGUF file stores the vocabulary and the merges, but of the expression only a name
(`tokenizer.ggml.pre`); `octavo.text.tokenizer.gguf_pretokenizers` knows what the names mean.
"""

from __future__ import annotations

import logging

from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers

from octavo.errors import CheckpointError
from octavo.text.tokenizer.alphabet import CHARACTER_TO_BYTE
from octavo.text.tokenizer.gguf_pretokenizers import PRE_TOKENIZERS, PreTokenizer
from octavo.text.tokenizer.gguf_spaced_bpe import spaced_tokenizer
from octavo.text.tokenizer.gguf_vocabulary import Vocabulary, merges_of

logger = logging.getLogger("octavo.text")


def pre_tokenizer_of(vocabulary: Vocabulary) -> PreTokenizer:
    """How the file's vocabulary cuts text into words; one without a name as llama.cpp does by default. CheckpointError
    for a name that is not known, listing those that are.
    """
    found = PRE_TOKENIZERS.get("default" if vocabulary.pre is None else vocabulary.pre)
    if found is None:
        raise CheckpointError(
            f"{vocabulary.path}: tokenizer.ggml.pre is {vocabulary.pre!r}, an unknown way to split text; "
            f"known: {', '.join(sorted(PRE_TOKENIZERS))}. Use the model's safetensors folder, which carries its "
            "tokenizer.json"
        )
    return found


def bpe_tokenizer(vocabulary: Vocabulary) -> Tokenizer:
    """The `tokenizers` object for a vocabulary with merges, of bytes or of characters as its name says.

    Warns of a file without a name: such files are older than the names, and their text is often cut otherwise than in
    training.
    """
    if vocabulary.pre is None:
        logger.warning(
            "%s has no tokenizer.ggml.pre, so its text is split as llama.cpp does by default, which may not be how the "
            "model was trained; convert the model again for a file that says",
            vocabulary.path,
        )
    pre = pre_tokenizer_of(vocabulary)
    return spaced_tokenizer(vocabulary, pre) if pre.spaced else _byte_level_tokenizer(vocabulary, pre)


def _byte_level_tokenizer(vocabulary: Vocabulary, pre: PreTokenizer) -> Tokenizer:
    """The `tokenizers` object for a byte-level vocabulary, its special tokens not yet added.

    A token that is not spelled in the alphabet (some writers store added words in plain text, "é" instead of "Ã©") is
    never made of text, as in llama.cpp.
    """
    if not vocabulary.merges:
        raise CheckpointError(
            f"{vocabulary.path}: a byte-level vocabulary needs tokenizer.ggml.merges, which is missing"
        )
    vocab = {token: token_id for token_id, token in enumerate(vocabulary.tokens)}
    tokenizer = Tokenizer(
        models.BPE(
            vocab=vocab,
            merges=merges_of(vocabulary, vocab),
            ignore_merges=pre.ignore_merges,
            continuing_subword_prefix="",
            end_of_word_suffix="",
        )
    )
    cuts = [pre_tokenizers.Split(Regex(step), behavior="isolated") for step in pre.steps]
    # A byte that the vocabulary lacks is left out of the ids; what stands on its two sides is not joined over it.
    if lacking := [
        character for character, byte in CHARACTER_TO_BYTE.items() if byte < 0x80 and character not in vocab
    ]:
        bytes_lacking = "".join(f"\\x{CHARACTER_TO_BYTE[character]:02x}" for character in lacking)
        cuts.append(pre_tokenizers.Split(Regex(f"[{bytes_lacking}]"), behavior="isolated"))
    spelling = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([*cuts, spelling])
    tokenizer.decoder = decoders.ByteLevel()
    return tokenizer
