"""How WebArena's evaluators compare texts and addresses. Pure functions.

Two harnesses read the same files and compare in two ways; `Rules` has both.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from urllib.parse import parse_qs, urlparse

_OR = " |OR| "


@dataclass(frozen=True, slots=True)
class Rules:
    """In what the two harnesses differ that read the same files."""

    strip: bool  # blanks around a text do not count
    whole_words: bool  # a one-word reference must be a word; else only a lone character must
    unescape: bool  # entities in the text of a page count as their characters
    joined: bool  # fuzzy references are judged all at once, not one by one
    url_note: str  # of a task that has none
    parsed_urls: bool  # "GOLD in PRED" looks at host and path, and at queries by name
    one_slash: bool  # of the slashes that end an address one does not count; else none of them


LITE = Rules(
    strip=False,
    whole_words=True,
    unescape=False,
    joined=True,
    url_note="EXACT",
    parsed_urls=False,
    one_slash=True,
)
"""VisualAgentBench's, which WebArena-Lite, WebRL and WebAgent-R1 report by."""

WEBARENA = Rules(
    strip=True,
    whole_words=False,
    unescape=True,
    joined=False,
    url_note="GOLD in PRED",
    parsed_urls=True,
    one_slash=False,
)
"""WebArena's own, for its 812 tasks."""


# --- texts ---------------------------------------------------------------------------------------


def clean(text: str, rules: Rules) -> str:
    """In lower case, without one pair of quotes around it (an answer is cleaned once more)."""
    text = text.strip() if rules.strip else text
    if text[:1] in ("'", '"') and text[-1:] == text[:1]:
        text = text[1:-1]
    return text.lower()


def exact_match(reference: str, text: str, rules: Rules) -> bool:
    return clean(text, rules) == clean(reference, rules)


def must_include(references: Sequence[str], text: str, rules: Rules, *, page: bool) -> bool:
    """Whether each of the references, or an alternative to it, is in the text.

    As a word of it where the rules say so (so that 0 is not found in 10), else anywhere in it.
    """
    text = clean(text, rules)
    words = _words(text, rules)
    lone = len(references) == 1 and not page

    def found(reference: str) -> bool:
        reference = clean(reference, rules)
        as_word = len(tokens(reference)) == 1 if rules.whole_words else lone and len(reference) == 1
        return reference in words if as_word else reference in text

    return all(any(map(found, reference.split(_OR))) for reference in references)


def _words(text: str, rules: Rules) -> set[str]:
    """WebArena-Lite takes "5/10" for three words: itself, 5 and 10."""
    words = tokens(text)
    parts = [part for word in words for part in word.split("/")] if rules.whole_words else []
    return {*words, *parts}


# What stands alone in any text. A full stop does so at the end of a sentence only, and the end of
# "it is 5. then" is none: a number or a lone letter before a small letter keeps its stop.
_SIGN = r"""\.{2,} | -- | [;@#$%&?!*()\[\]{}<>"«»“”„‘’`] | [:,](?!\d)"""
_STOP = r"""\.(?=[)\]}>"'»”’]*(?:\s|\Z) | [)\]};:*@({\[!?"'])"""
_NUMBER = r"(?:-?[.,]?\d(?:[\d,.-] | :(?=\d))* | [^\W\d_])(?<!\.)\.(?=\s+[^\W\d_] | [;:!?])"
_AFTER_BLANK = r"""(?<![^\s("`{\[:;&#*@)}\],-])"""
_CLITIC = rf"(?<=[^\s'])(?:n't | '(?:s|m|d|ll|re|ve)?)(?=\s | \Z | {_SIGN} | {_STOP})"
_QUOTE = r"'(?=[^\W_mtsdn]\b)"
_APART = f"{_SIGN} | {_STOP} | {_CLITIC} | {_QUOTE}"
_TOKEN = re.compile(rf"{_AFTER_BLANK}{_NUMBER} | {_APART} | (?:(?!{_APART})\S)+", re.VERBOSE)


def tokens(text: str) -> list[str]:
    """Words and signs of a text in lower case, as `word_tokenize` of NLTK 3.8.1 tells them apart.

    It is the version that WebAgent-R1 pins; NLTK itself would download a model at run time. Its
    quirks are here because scores depend on them: "'abc'" holds no word abc, "it is 5. the" holds
    no 5, and "10:30" and "a,5" are one word each. Left out are its abbreviations: "inc." is split,
    which would matter for a reference of "inc".
    """
    return _TOKEN.findall(text)


# --- addresses -----------------------------------------------------------------------------------


def url_matches(reference: str, url: str, rules: Rules, note: str = "") -> bool:
    """Whether an address is the reference, or under "GOLD in PRED" contains it.

    When addresses are parsed, host and path of one alternative must be in those of `url`, and each
    query must have one of the values that any alternative gives it.
    """
    references = [_bare(alternative, rules) for alternative in reference.split(_OR)]
    url = _bare(url, rules)
    if (note or rules.url_note) == "EXACT":
        return url in references
    if not rules.parsed_urls:
        return any(reference in url for reference in references)
    place, queries = _parsed(url)
    wanted: dict[str, set[str]] = {}
    for reference in references:
        for name, values in _parsed(reference)[1].items():
            wanted.setdefault(name, set()).update(values)
    return any(_parsed(reference)[0] in place for reference in references) and all(
        values & set(queries.get(name, ())) for name, values in wanted.items()
    )


def _bare(url: str, rules: Rules) -> str:
    url = url.replace("localhost", "127.0.0.1")
    return url.removesuffix("/") if rules.one_slash else url.rstrip("/")


def _parsed(url: str) -> tuple[str, dict[str, list[str]]]:
    parts = urlparse(url)
    return (parts.netloc + parts.path).rstrip("/"), parse_qs(parts.query)
