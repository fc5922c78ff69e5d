"""Site definition of Slipway, the code host."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from markupsafe import Markup, escape

from webagent_jax.arena import common
from webagent_jax.arena.code import (
    dashboard,
    groups,
    issues,
    members,
    merge_requests,
    milestones,
    new_project,
    people,
    project,
)
from webagent_jax.arena.code.data import DATABASE
from webagent_jax.arena.code.permissions import account_id
from webagent_jax.arena.site import RequestContext, Site


def _template_context(request: RequestContext) -> Mapping[str, Any]:
    pending = request.value(
        "SELECT count(*) FROM to_do WHERE user_id = ? AND NOT done", account_id(request)
    )
    user = request.rows("SELECT * FROM user WHERE id = ?", account_id(request))
    return {"pending": pending, "visitor": user[0] if user else None}


def render_markdown(text: str) -> Markup:
    """Return the HTML of simple Markdown: headings, lists, code and paragraphs."""
    parts: list[str] = []
    for lines in _markdown_blocks(text):
        text_html = str(escape(" ".join(lines)))
        if lines[0].startswith("#"):
            level = len(lines[0]) - len(lines[0].lstrip("#")) + 1
            parts.append(f"<h{level}>{escape(lines[0].lstrip('# '))}</h{level}>")
        elif lines[0].startswith("    "):
            parts.append(f"<pre>{escape(chr(10).join(line[4:] for line in lines))}</pre>")
        elif lines[0].startswith("- "):
            parts.append(f"<p class='item'>{text_html[2:]}</p>")
        else:
            parts.append(f"<p>{text_html}</p>")
    return Markup("\n".join(parts))


def _markdown_blocks(text: str) -> Iterator[list[str]]:
    """Yield the lines of each heading, list item, code block and paragraph."""
    for block in text.replace("\n- ", "\n\n- ").split("\n\n"):
        lines = block.strip("\n").splitlines()
        # The lines directly below a heading are a block of their own.
        while lines and lines[0].startswith("#"):
            yield [lines.pop(0)]
        if lines:
            yield lines


def initials(name: str) -> str:
    """Return initials: "Nora Whitfield" gives "NW"."""
    return "".join(word[0] for word in name.split()[:2]).upper()


def dict_without(values: Mapping[str, str], *names: str) -> dict[str, str]:
    return {name: value for name, value in values.items() if name not in names}


def query_string(values: Mapping[str, str], **more: str) -> str:
    """Return a query string such as "?a=1&b=2" without empty values; "" if all are empty."""
    fields = {name: value for name, value in {**values, **more}.items() if value}
    return f"?{urlencode(fields)}" if fields else ""


SITE = Site(
    name="code",
    task_name="gitlab",
    title="Slipway",
    description="A host for code: 60 projects, files and commits, issues, merge requests, members",
    database=DATABASE,
    views=[
        dashboard.views,
        new_project.views,
        groups.views,
        people.views,
        project.views,
        issues.views,
        milestones.views,
        merge_requests.views,
        members.views,
    ],
    folder=Path(__file__).parent,
    account_id=common.agent_user().id,
    template_context=_template_context,
    filters={
        "marked": render_markdown,
        "initials": initials,
        "dict_without": dict_without,
        "query": query_string,
    },
)
