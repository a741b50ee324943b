"""Reports for people and for CI: made from a bundle's content, or from the checks themselves, alone."""

from octavo_conformance.report.badge import badge
from octavo_conformance.report.document import document, explanation, listing
from octavo_conformance.report.html import html
from octavo_conformance.report.junit import junit
from octavo_conformance.report.markdown import differences, markdown, matrix

__all__ = ["badge", "differences", "document", "explanation", "html", "junit", "listing", "markdown", "matrix"]
