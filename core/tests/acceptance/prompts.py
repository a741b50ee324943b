"""Twenty prompts of different kinds."""

PROMPTS = [
    "The capital of France is",
    "Once upon a time, in a village by the sea,",
    "def fibonacci(n):\n    ",
    "1, 1, 2, 3, 5, 8, 13,",
    "Question: What is the boiling point of water in degrees Celsius?\nAnswer:",
    "Der schnelle braune Fuchs",
    "La révolution française a commencé en",
    '{"name": "Ada", "born": 1815, "field":',
    "SELECT name, COUNT(*) FROM orders",
    "The following is a list of the planets of the solar system:\n1. Mercury\n2.",
    'She said: "I will not go there again," and then',
    "東京は日本の",
    "E = mc^2 means that",
    "<html>\n<head>\n<title>",
    "Dear Sir or Madam,\n\nI am writing to",
    "Translate to Spanish: Good morning, my friends.",
    "To be, or not to be,",
    "The quick brown fox jumps over the lazy dog. " * 12,
    'import numpy as np\n\ndef softmax(x):\n    """',
    "a b c d e f g",
]
