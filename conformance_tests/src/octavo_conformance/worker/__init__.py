"""The worker: the process that imports the engine and the plugin, and the judge's end of the wire to it.

wire      frames of JSON and raw arrays; nothing that could run code is ever decoded
host      the judge's side: starts a worker, asks, waits no longer than it must, sorts out what went wrong
serve     the worker's side: answers one request after another
play      one device's life: open, load, compile, allocate, act, close
engine    a whole engine over a given graph, driven by a script
actions   small named jobs of checks that need code beside the plugin (`action`)
"""
