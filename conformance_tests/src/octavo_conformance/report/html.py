"""HTML: the Markdown report as one page that needs nothing else."""

from __future__ import annotations

from html import escape

_STYLE = (
    "body{font:15px/1.5 system-ui,sans-serif;max-width:60rem;margin:2rem auto;padding:0 1rem}"
    "table{border-collapse:collapse}td,th{border-bottom:1px solid #ddd;padding:.2rem .8rem;text-align:left}"
    "code{background:#f3f3f3}"
)


def html(markdown: str) -> str:
    """Headings, paragraphs, lists and tables, which is all that the report has."""
    title, body = "conformance", []
    table: list[str] = []
    listed: list[str] = []

    def close() -> None:
        if table:
            body.append(f"<table>{''.join(table)}</table>")
            table.clear()
        if listed:
            body.append(f"<ul>{''.join(listed)}</ul>")
            listed.clear()

    for line in markdown.splitlines():
        if line.startswith("|"):
            if not set(line) <= set("|-"):
                tag = "td" if table else "th"
                cells = "".join(f"<{tag}>{_inline(cell.strip())}</{tag}>" for cell in line.strip("|").split("|"))
                table.append(f"<tr>{cells}</tr>")
            continue
        if line.startswith("* "):
            listed.append(f"<li>{_inline(line[2:])}</li>")
            continue
        close()
        if line.startswith("#"):
            level = len(line) - len(line.lstrip("#"))
            text = line.lstrip("# ")
            title = text if level == 1 else title
            body.append(f"<h{level}>{_inline(text)}</h{level}>")
        elif line:
            body.append(f"<p>{_inline(line)}</p>")
    close()
    head = f'<meta charset="utf-8"><title>{escape(title)}</title><style>{_STYLE}</style>'
    return f'<!doctype html><html lang="en"><head>{head}</head><body>{"".join(body)}</body></html>\n'


def _inline(text: str) -> str:
    """Bold and code; everything else is text."""
    parts = escape(text).split("**")
    bold = "".join(f"<b>{part}</b>" if i % 2 else part for i, part in enumerate(parts))
    parts = bold.split("`")
    return "".join(f"<code>{part}</code>" if i % 2 else part for i, part in enumerate(parts))
