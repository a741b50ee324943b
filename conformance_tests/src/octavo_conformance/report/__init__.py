"""Reports for people and for CI: made from a bundle's content, or from the checks themselves, alone."""

from octavo_conformance.report.document import document, explanation, listing
from octavo_conformance.report.junit import junit
from octavo_conformance.report.markdown import differences, markdown

__all__ = ["differences", "document", "explanation", "junit", "listing", "markdown"]
