"""Functions run in a process that can be killed, under limits of time and memory."""

from octavo.sandbox.worker import Worker

__all__ = ["Worker"]
