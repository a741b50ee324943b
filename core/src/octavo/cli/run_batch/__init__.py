"""``octavo run-batch``: a file of requests through a model, with no server.

command.py   the flags, and what is printed         places.py     files by path and by URL
job.py       one run, from its files to its outcome  progress.py  what a terminal shows
"""

from octavo.cli.run_batch.command import run_batch

__all__ = ["run_batch"]
