"""From text to token ids and back: vocabularies, streams of text, stop strings."""
