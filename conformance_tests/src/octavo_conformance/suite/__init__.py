"""The catalogue of checks, how one is run, and what its outcome may be."""
