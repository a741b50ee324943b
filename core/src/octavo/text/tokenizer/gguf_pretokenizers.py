"""How the BPE vocabularies of GGUF files cut text into words: what the names in `tokenizer.ggml.pre` mean.

A GGUF file stores of this only a name. The meaning of the names is llama.cpp's (`src/llama-vocab.cpp`, which writes the
name into the file and reads it back), also where its expressions are simpler than those of the model's own
tokenizer.json: a file is tokenised the way that it is tokenised by the program that it was made for.

`TABLE` is the whole of it, one line per way to cut. The steps of a way are regular expressions, applied one after the
other: each cuts every piece that the one before has left into its matches and what lies between them.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class PreTokenizer:
    """One way to cut text into words.

    ``steps``: regular expressions (Oniguruma syntax). ``ignore_merges``: a word that is a token is taken whole,
    whatever the merges would make of it. ``add_bos``: whether BOS begins a text where the file does not say;
    ``always_bos``: also where the file denies it. ``spaced``: words are characters with "▁" for a space, not bytes
    (`octavo.text.tokenizer.gguf_spaced_bpe`).
    """

    steps: tuple[str, ...]
    ignore_merges: bool = False
    add_bos: bool = False
    always_bos: bool = False
    spaced: bool = False


# The alternatives that the expressions are made of, tried in order. \p{L} letters, \p{M} marks, \p{N} numbers,
# \p{P} punctuation, \p{S} symbols.
_GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)"
_CONTRACTION = r"(?:'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD])"
_WORD = r"[^\r\n\p{L}\p{N}]?\p{L}+"
_SYMBOLS = r" ?[^\s\p{L}\p{N}]+[\r\n]*"
_SYMBOLS_OR_SLASH = r" ?[^\s\p{L}\p{N}]+[\r\n/]*"
_LINE_BREAKS = r"\s*[\r\n]+"
_SPACES = r"\s+(?!\S)|\s+"  # a run of spaces leaves its last one to the word that follows
_NUMBER = r"\p{N}{1,3}"
_ASCII_SYMBOL = r"[!-/:-@\[-`{-~]"
_CJK = "[\u4e00-\u9fa5\u3040-\u309f\u30a0-\u30ff]+"
# Upper and lower case are told by the ASCII letters alone; all other letters count as both.
_UPPER, _LOWER = r"(?:(?=\p{L})[^a-z])", r"(?:(?=\p{L})[^A-Z])"
_UPPER_MARKS, _LOWER_MARKS = r"(?:(?=[\p{L}\p{M}])[^a-z])", r"(?:(?=[\p{L}\p{M}])[^A-Z])"
_LETTER_OR_MARK = r"[\p{L}\p{M}]"
# Groups of three digits, counted from the right; the first goes with all that stands before it, and a later step cuts
# them.
_THREES_FROM_RIGHT = r"\P{N}*\p{N}{1,3}(?=(?:\p{N}{3})*(?!\p{N}))"


def _any(*alternatives: str) -> str:
    return "|".join(alternatives)


def _llama3_like(number: str, *, contraction: str = _CONTRACTION, word: str = _WORD, symbols: str = _SYMBOLS) -> str:
    return _any(contraction, word, number, symbols, _LINE_BREAKS, _SPACES)


def _cased(upper: str, lower: str, number: str, ending: str = "") -> str:
    """Words in which capitals may only lead, so that camelCase is cut."""
    lead = r"[^\r\n\p{L}\p{N}]?"
    return _any(
        rf"{lead}{upper}*{lower}+{ending}",
        rf"{lead}{upper}+{lower}*{ending}",
        number,
        _SYMBOLS_OR_SLASH,
        _LINE_BREAKS,
        _SPACES,
    )


def _deepseek3_like(symbols: str = r" ?[\p{P}\p{S}]+[\r\n]*", line_breaks: str = _LINE_BREAKS) -> str:
    word = rf"[^\r\n\p{{L}}\p{{P}}\p{{S}}]?{_LETTER_OR_MARK}+"
    return _any(rf"{_ASCII_SYMBOL}[A-Za-z]+", word, symbols, line_breaks, _SPACES)


_LLAMA3 = _llama3_like(_NUMBER)
_QWEN2 = _llama3_like(r"\p{N}")
_DIGITS_THEN_GPT2 = (r"\p{N}", _GPT2)
_NO_PUNCTUATION = " ?[^(\\s|.,!?\u2026\u3002\uff0c\u3001\u0964\u06d4\u060c)]+"
_BAILING = _any(
    r"'(?:[sSdDmMtT]|[lL][lL]|[vV][eE]|[rR][eE])", _WORD, r"\p{N}", _SYMBOLS, r"\s*[\r\n]", _SPACES
)  # fmt: skip
_DEEPSEEK_LETTERS = (
    "A-Za-z\u00b5\u00c0-\u00d6\u00d8-\u00f6\u00f8-\u01ba\u01bc-\u01bf\u01c4-\u0293\u0295-\u02af\u0370-\u0373"
    "\u0376\u0377\u037b-\u037d\u037f\u0386\u0388-\u038a\u038c\u038e-\u03a1\u03a3-\u03f5\u03f7-\u0481\u048a-"
    "\u052f\u0531-\u0556\u10a0-\u10c5\u13a0-\u13f5\u13f8-\u13fd\u1c90-\u1cba\u1cbd-\u1cbf\u1d00-\u1d2b\u1d6b-"
    "\u1d77\u1d79-\u1d9a\u1e00-\u1f15\u1f18-\u1f1d\u1f20-\u1f45\u1f48-\u1f4d\u1f50-\u1f57\u1f59\u1f5b\u1f5d"
    "\u1f5f-\u1f7d\u1f80-\u1fb4\u1fb6-\u1fbc\u1fbe\u1fc2-\u1fc4\u1fc6-\u1fcc\u1fd0-\u1fd3\u1fd6-\u1fdb\u1fe0-"
    "\u1fec\u1ff2-\u1ff4\u1ff6-\u1ffc\u2102\u2107\u210a-\u2113\u2115\u2119-\u211d\u2124\u2126\u2128\u212a-"
    "\u212d\u212f-\u2134\u2139\u213c-\u213f\u2145-\u2149\u214e\u2183\u2184\u2c00-\u2c7b\u2c7e-\u2ce4\u2ceb-"
    "\u2cee\u2cf2\u2cf3\ua640-\ua66d\ua680-\ua69b\ua722-\ua76f\ua771-\ua787\ua78b-\ua78e\uab70-\uabbf\ufb00-"
    "\ufb06\ufb13-\ufb17\uff21-\uff3a\uff41-\uff5a\U00010400-\U0001044f\U000104b0-\U000104d3\U000104d8-"
    "\U000104fb\U00010c80-\U00010cb2\U00010cc0-\U00010cf2\U000118a0-\U000118df\U0001e900-\U0001e943"
)
_DEEPSEEK_CJK = "[[\u4e00-\u9fa5\u0800-\u4e00\uac00-\ud7ff]&&[^\\s]]+"
_DEEPSEEK_LLM = (
    r"[\r\n]",
    rf"\s?[{_DEEPSEEK_LETTERS}]+",
    "\\s?[!-/:-~\uff01-\uff0f\uff1a-\uff5e\u2018-\u201f\u3001-\u3002]+",
    r"\s+$",
    _DEEPSEEK_CJK,
    r"\p{N}+",
)
_DEEPSEEK_CODER = (r"[\r\n]", r"\s?\p{L}+", r"\s?\p{P}+", _DEEPSEEK_CJK, r"\p{N}")
_NOT_HAN_LETTER = r"[\p{L}&&[^\p{Han}]]"
_KIMI = _any(
    r"\p{Han}+",
    rf"[^\r\n\p{{L}}\p{{N}}]?{_NOT_HAN_LETTER}+{_CONTRACTION}?",
    _NUMBER,
    _SYMBOLS,
    _LINE_BREAKS,
    _SPACES,
)
_AFMOE_SCRIPTS = (
    "[\u4e00-\u9fff\u3400-\u4dbf\u8c48-\ufaff\u3040-\u309f\u30a0-\u30ff\uff65-\uff9f\u2f00-\u2fdf\u0e40-\u0e7f"
    "\u0e80-\u0eff\u1780-\u17ff\u1000-\u109f\uaa60-\uaa7f\ua9e0-\ua9ff\uac00-\ud7af\u1100-\u11ff]+"
)
_CHAMELEON = (
    "<sentinel:[0-9]+>", "(?:IMGIMG)(?:(?:A|B|C|D|E|F|G|H|I){1,4})Z", r"(?:[\t\n]|    |  )", r"\p{N}",
    r"[\p{P}!-/:-@\[-`{-~]", _GPT2,
)  # fmt: skip
_YOUTU_SCRIPTS = (
    "[\uac00-\ud7a3\u3131-\u318e]+|[\uff01\u2026\u201c\u201d\u2018\u2019\u2014\uff1a\uff1b\uff0c\u3001-\u303f\ufe30-\ufe4f]+"
    "|[\u3105-\u312f]+|[\u4e00-\u9fa5\u3040-\u309f\u30a0-\u30ff]+"
)
_LETTERS_CASED = r"[\p{L}\p{M}]"  # for expressions that name the cases of all letters: llama.cpp sees letters in them
_JAIS2_SPACES = "|".join([*(rf"\s{{{n}}}(?!\S)" for n in (512, 256, 128, 64, 32, 16, 8, 4)), r"\s{1,2}(?!\S)|\s{1}"])
_NEWLINES = r"[^\n]+|[\n]+"

TABLE: tuple[tuple[tuple[str, ...], PreTokenizer], ...] = (
    # names, the way to cut
    (("default",), PreTokenizer((r"[\p{P}\$\+<=>\^~\|]+", _GPT2, r"\p{N}+", "[0-9][0-9][0-9]"))),
    (
        ("gpt-2", "phi-2", "jina-es", "jina-de", "gigachat", "jina-v2-es", "jina-v2-de", "a.x-4.0", "mellum",
         "modern-bert", "jina-v1-en", "jina-v2-code", "roberta-bpe", "mpt", "olmo", "jais", "trillion",
         "granite-docling", "exaone4"),
        PreTokenizer((_GPT2,)),
    ),
    (
        ("llama3", "llama-v3", "llama-bpe", "falcon3", "falcon-h1", "pixtral", "midm-2.0", "lfm2", "jina-v5-nano"),
        PreTokenizer((_LLAMA3,), ignore_merges=True, add_bos=True),
    ),
    (("dbrx", "smaug-bpe", "chatglm-bpe"), PreTokenizer((_LLAMA3,))),
    (("glm4", "glm5"), PreTokenizer((_LLAMA3,), ignore_merges=True)),
    (
        ("qwen2", "deepseek-r1-qwen", "kormo", "f2llmv2", "megrez", "stablelm2", "hunyuan", "solar-open", "grok-2"),
        PreTokenizer((_QWEN2,)),
    ),
    (
        ("qwen35",),
        PreTokenizer(
            (
                _llama3_like(
                    r"\p{N}",
                    word=rf"[^\r\n\p{{L}}\p{{N}}]?{_LETTER_OR_MARK}+",
                    symbols=r" ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*",
                ),
            )
        ),
    ),
    (
        ("starcoder", "refact", "command-r", "smollm", "codeshell", "exaone", "minerva-7b", "mellum2"),
        PreTokenizer(_DIGITS_THEN_GPT2),
    ),
    (("tekken",), PreTokenizer((_cased(_UPPER, _LOWER, r"\p{N}"),), ignore_merges=True, add_bos=True)),
    (
        ("gpt-4o", "llama4", "kanana2", "talkie", "minimax-m2"),
        PreTokenizer((_cased(_UPPER, _LOWER, _NUMBER, f"{_CONTRACTION}?"),)),
    ),
    (
        ("granite-embed-multi-97m",),
        PreTokenizer((_cased(_UPPER_MARKS, _LOWER_MARKS, _NUMBER, f"{_CONTRACTION}?"),), ignore_merges=True),
    ),
    (
        ("tiny_aya", "cohere2moe"),
        PreTokenizer(
            (_THREES_FROM_RIGHT, _cased(_LETTERS_CASED, _LETTERS_CASED, _NUMBER, f"{_CONTRACTION}?")),
        ),
    ),
    (
        ("youtu",),
        PreTokenizer(
            (_YOUTU_SCRIPTS, _cased(_LETTERS_CASED, _LETTERS_CASED, r"\p{N}", f"{_CONTRACTION}?")), ignore_merges=True
        ),
    ),
    (
        ("falcon",),
        PreTokenizer((r"[\p{P}\$\+<=>\^~\|`]+", _GPT2, "[0-9][0-9][0-9]")),
    ),
    (("deepseek-llm",), PreTokenizer(_DEEPSEEK_LLM)),
    (("deepseek-coder",), PreTokenizer(_DEEPSEEK_CODER)),
    (("deepseek-v3", "hunyuan-dense", "hy_v4", "joyai-llm"), PreTokenizer((_NUMBER, _CJK, _deepseek3_like()))),
    (
        ("spark2_5",),
        PreTokenizer((_NUMBER, _CJK, _deepseek3_like(r" ?[\p{P}\p{S}]+", r"[\r\n]"), r"\p{N}")),
    ),
    (("poro-chat", "bloom", "gpt3-finnish"), PreTokenizer((_NO_PUNCTUATION,))),
    (("viking",), PreTokenizer((_NO_PUNCTUATION, r"\p{N}"))),
    (("jais-2",), PreTokenizer((_any(_CONTRACTION, _WORD, _NUMBER, _SYMBOLS, _LINE_BREAKS, _JAIS2_SPACES),))),
    (("chameleon",), PreTokenizer(_CHAMELEON, add_bos=True)),
    (("superbpe",), PreTokenizer((r"\p{N}+", "(?=([0-9]{3})+(?![0-9]))"))),
    (("bailingmoe", "bailingmoe2", "llada-moe"), PreTokenizer((_BAILING,))),
    (("seed-coder",), PreTokenizer((_llama3_like(r"\p{N}", symbols=r" ?[^\s\p{L}\p{N}\r\n]+"),))),
    (("kimi-k2",), PreTokenizer((_KIMI,))),
    (("ufakzeka",), PreTokenizer((_any(_WORD, r"\p{N}", _SYMBOLS, _LINE_BREAKS, _SPACES),))),
    (("afmoe",), PreTokenizer((_THREES_FROM_RIGHT, _AFMOE_SCRIPTS, _deepseek3_like()))),
    (("laguna",), PreTokenizer((_NEWLINES, _QWEN2))),
    (("gemma4", "granite-embed-multi-311m"), PreTokenizer((_NEWLINES,), always_bos=True, spaced=True)),
    (("sarvam-moe",), PreTokenizer((_NEWLINES,), spaced=True)),
    (("minicpm5",), PreTokenizer((_NUMBER, _llama3_like(r"\p{N}+")), ignore_merges=True)),
    (
        ("exaone-moe",),
        PreTokenizer(
            (
                _any(
                    _CONTRACTION,
                    r"[^\r\n\p{L}\p{N}]?(?:\p{L}\p{M}*(?: \p{L}\p{M}*)*)+",
                    r"\p{N}",
                    r" ?[^\s\p{L}\p{N}]+[\r\n/]?",
                    r"\s*[\r\n]",
                    _SPACES,
                ),
            )
        ),
    ),
)  # fmt: skip

PRE_TOKENIZERS: dict[str, PreTokenizer] = {name: way for names, way in TABLE for name in names}
