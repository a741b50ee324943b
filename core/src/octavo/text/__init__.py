"""Between text and tokens: tokenizer, chat templates, grammars, and parsers of what a model wrote.

Importing this package imports neither torch nor transformers; `load_tokenizer` imports transformers when it is called.
"""

from octavo.text.templates.chat import Message, render
from octavo.text.tokenizer.detokenizer import Detokenizer
from octavo.text.tokenizer.stop import AnswerStops, StopStrings
from octavo.text.tokenizer.tokenizer import Tokenizer, load_tokenizer

__all__ = ["AnswerStops", "Detokenizer", "Message", "StopStrings", "Tokenizer", "load_tokenizer", "render"]
