"""Routes: declared at their handlers, served by Starlette, described in an OpenAPI 3.1 document.

route.py      what is declared of a route, and how an API's routes are mounted
failures.py   the failures of routes, by API
document.py   declared routes -> the document
"""
