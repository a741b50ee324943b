"""Texts of many kinds, and strategies for text and token ids, for the tests of this folder."""

from __future__ import annotations

from hypothesis import strategies as st

CORPUS = [
    "",
    " ",
    "Hello, world!",
    "The quick brown fox jumps over the lazy dog. It wasn't the first time; they'd DON'T i'Ll.",
    "  leading and trailing spaces   ",
    "\n\n\nleading newlines, trailing too\n\n",
    "tabs\tand\t\ttabs \t mixed \r\n with\r\rreturns\x0b\x0c",
    "def f(x):\n    if x > 0:\n        return {'a': [1, 2, 3]}\n\treturn None  # done\n",
    "for (int i = 0; i < 10; ++i) { sum += a[i] * 0x7fff; } // camelCaseNames, snake_case_names\n",
    "<table><tr><td>cell</td></tr></table> <b>bold</b> &amp; https://example.org/?q=1&r=%20#top",
    "1234567890 3.14159 1,000,000 -42 2024-02-29 ½ ² Ⅷ ٣٤٥ 1st 2nd",
    "a" * 200,
    "ab" * 50 + " " * 40 + "\n" * 40,
    "x" + " " * 3 + "1" + " " * 17 + "22\n\n1. one\n2. two",
    "Ünïcödé naïve façade Straße ŒUVRE İstanbul ǅ",
    "日本語のテキスト、中文文本。한국어 텍스트! ｆｕｌｌｗｉｄｔｈ",
    "مرحبا بالعالم، كيف حالك؟ שלום עולם \u202eright to left\u202c",
    "हिन्दी में पाठ ภาษาไทย தமிழ் አማርኛ བོད་ཡིག",
    "😀😃🤖 👨‍👩‍👧‍👦 🏳️‍🌈 🇩🇪 👍🏽 ❤️",
    "e\u0301 n\u0303 Z\u0351\u036b\u0343\u036a\u0302\u034f\u0334\u0319 A\u036b\u0324",
    "\x00\x01\x02\x07\x1b[31mred\x1b[0m\x7f\x80\x9f\xa0\xad\ufeff\u200b\u2028\u2029",
    "𝔘𝔫𝔦𝔠𝔬𝔡𝔢 \U0001f9ff \U0010fffd \ue000 \ufffd \uffff",
    "▁already▁spelled Ġlike Ġtokens <0x0A> <0xE2>",
    "<|im_start|>user\nHi<|im_end|>\n<|endoftext|>",
    "<bos><start_of_turn>user\nHi<end_of_turn>\n<eos> <pad><unk><mask>[multimodal]",
    "text <s>with</s> [INST] markers [/INST] <<SYS>> <|eot_id|> <think>hm</think>",
    "?!?!?! ... --- *** ### @@@ $$$ ~~~ `code` \"quotes\" 'single' «guillemets» „German“",
    "supercalifragilisticexpialidocious Donaudampfschifffahrtsgesellschaft antidisestablishmentarianism",
]

# Any Unicode text but lone surrogates, which are none, often with stretches that tokenizers treat in a special way.
_FRAGMENTS = st.sampled_from(
    [
        "<|im_end|>",
        "<bos>",
        "<unused7>",
        "<0x0A>",
        "</td>",
        "  ",
        "\n\n",
        " 12",
        "'s",
        "▁",
        "Ġ",
        "👩‍🚀",
        "e\u0301",
        "\t ",
        "the",
    ]
)
TEXTS = st.lists(st.text(st.characters(exclude_categories=["Cs"]), max_size=12) | _FRAGMENTS, max_size=8).map("".join)


def chunked(length: int) -> st.SearchStrategy[list[int]]:
    """Sizes of consecutive chunks that make up `length`, empty chunks among them."""
    return st.lists(st.integers(0, length), max_size=8).map(
        lambda cuts: [b - a for a, b in zip([0, *sorted(cuts)], [*sorted(cuts), length], strict=True)]
    )
