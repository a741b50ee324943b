"""Between text and tokens: tokenizer, incremental detokenizer, stop strings, chat templates.

Importing this package imports neither torch nor transformers; `load_tokenizer` imports transformers when it is called.
"""

from octavo.text.chat import Message, render
from octavo.text.detokenizer import Detokenizer
from octavo.text.stop import AnswerStops, StopStrings
from octavo.text.tokenizer import Tokenizer, load_tokenizer

__all__ = ["AnswerStops", "Detokenizer", "Message", "StopStrings", "Tokenizer", "load_tokenizer", "render"]
