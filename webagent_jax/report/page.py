"""HTML pages from the templates: one inline style, one inline script, a Content-Security-Policy.

Pages show text of foreign websites. Templates escape it, scripts insert it as text nodes, and the
policy allows only the script of the page and the scripts that it loads.
"""

from __future__ import annotations

import base64
import functools
import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jinja2
from markupsafe import Markup

from webagent_jax.tracking.progress import duration

TEMPLATES = Path(__file__).parent / "templates"


def render(
    template: str,
    *,
    styles: Sequence[str],
    scripts: Sequence[str],
    version: str = "",
    **values: Any,
) -> str:
    """Return the HTML of a page.

    Args:
        template: name of a template that extends `page.html.j2`.
        styles: names of the CSS files of the page.
        scripts: names of the JavaScript files of the page.
        version: version of the data of a served page; empty for a page that is opened from disk.
        values: variables of the template.
    """
    # All files share one block scope.
    script = '"use strict";\n{\n' + "\n".join(_read(name) for name in scripts) + "}\n"
    return (
        _environment()
        .get_template(template)
        .render(
            script=Markup(script),
            style=Markup("".join(_read(name) for name in styles)),
            policy=_content_security_policy(script, is_served=bool(version)),
            version=version,
            **values,
        )
    )


@functools.cache
def _environment() -> jinja2.Environment:
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(TEMPLATES),
        autoescape=True,
        # A misspelled name in a template is an error, not an empty cell.
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {
        "percent": lambda rate: "–" if rate is None else f"{100 * rate:.1f}",
        "points": lambda difference: f"{100 * difference:+.1f}".replace("-", "−"),
        "duration": duration,
        "human": lambda key: key.replace("_", " ").replace("/", " "),
        "combine": lambda defaults, values: {**defaults, **values},
        "thousands": lambda number: f"{number:,}",
    }
    return environment


def _content_security_policy(script: str, *, is_served: bool) -> str:
    digest = hashlib.sha256(script.encode()).digest()
    script_hash = "sha256-" + base64.b64encode(digest).decode("ascii")
    own = "'self'" if is_served else "'none'"
    return (
        "default-src 'none'; img-src 'self' file: data:; style-src 'unsafe-inline'; "
        f"script-src '{script_hash}' 'strict-dynamic'; connect-src {own}; form-action {own}; "
        "base-uri 'none'"
    )


def _read(name: str) -> str:
    return (TEMPLATES / name).read_text("utf-8")
