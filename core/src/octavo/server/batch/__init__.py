"""Files of requests, run line by line.

    lines.py     a file's bytes -> requests, and what is wrong with the others
    inside.py    requests to the app, from inside its process
    journal.py   what is finished, on disk: answers and errors, and how to go on after a kill
    runner.py    a bounded number of lines at a time
    tables.py  store.py  manager.py    the batches of the Batches API

``octavo run-batch`` and the Batches API run lines in the same way.
"""
