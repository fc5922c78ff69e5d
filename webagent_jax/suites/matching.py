"""Pure functions that compare texts and addresses like WebArena's evaluators.

The harnesses of WebArena and WebArena-Lite read the same task files but compare differently;
`MatchingRules` describes both.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from urllib.parse import parse_qs, urlparse

_OR = " |OR| "


@dataclass(frozen=True, slots=True)
class MatchingRules:
    """Differences between the comparisons of the two harnesses."""

    strips_whitespace: bool  # whether whitespace around a text is ignored
    # True: a reference of one word must equal a word of the text. False: only a reference that is
    # a single character and the only reference of an answer must.
    matches_whole_words: bool
    unescapes_html: bool  # whether HTML entities in the text of a page are decoded
    joins_references: bool  # whether the judge compares all fuzzy references in one request
    url_note: str  # `url_note` of tasks without one
    parses_urls: bool  # whether "GOLD in PRED" compares host and path, and query fields by name
    strips_one_slash: bool  # True: one trailing slash of an address is ignored; False: all are


LITE = MatchingRules(
    strips_whitespace=False,
    matches_whole_words=True,
    unescapes_html=False,
    joins_references=True,
    url_note="EXACT",
    parses_urls=False,
    strips_one_slash=True,
)
"""Rules of VisualAgentBench, which the results of WebArena-Lite, WebRL and WebAgent-R1 use."""

WEBARENA = MatchingRules(
    strips_whitespace=True,
    matches_whole_words=False,
    unescapes_html=True,
    joins_references=False,
    url_note="GOLD in PRED",
    parses_urls=True,
    strips_one_slash=False,
)
"""Rules of WebArena, for its 812 tasks."""

LITE_V2 = replace(LITE, matches_whole_words=False)
"""Rules of WebArena-Lite-v2 (OpenGVLab/ScaleCUA), with two exceptions (docs/webarena.md)."""


# --- texts ---------------------------------------------------------------------------------------


def normalize(text: str, rules: MatchingRules) -> str:
    """Return the text in lower case, without the pair of quotes around it if it has one.

    Answers are normalized twice, as in the harnesses, and can lose two pairs.
    """
    text = text.strip() if rules.strips_whitespace else text
    if text[:1] in ("'", '"') and text[-1:] == text[:1]:
        text = text[1:-1]
    return text.lower()


def exact_match(reference: str, text: str, rules: MatchingRules) -> bool:
    """Return whether the normalized texts are equal."""
    return normalize(text, rules) == normalize(reference, rules)


def must_include(references: Sequence[str], text: str, rules: MatchingRules, *, page: bool) -> bool:
    """Return whether the text contains each reference or one of its alternatives.

    Some references must equal a word of the text (`MatchingRules.matches_whole_words`), so that 10
    does not contain 0. The others may be anywhere in it.

    Args:
        references: texts that may contain alternatives separated by " |OR| ".
        text: answer, or text of a page.
        rules: rules of the harness.
        page: whether `text` is the text of a page.
    """
    text = normalize(text, rules)
    words = _words(text, rules)
    # WebArena requires a whole word only of an answer with one reference of one character.
    is_single_answer = len(references) == 1 and not page

    def contains(reference: str) -> bool:
        reference = normalize(reference, rules)
        match_word = (
            len(tokenize(reference)) == 1
            if rules.matches_whole_words
            else is_single_answer and len(reference) == 1
        )
        return reference in words if match_word else reference in text

    return all(any(map(contains, reference.split(_OR))) for reference in references)


def must_exclude(references: Sequence[str], text: str, rules: MatchingRules) -> bool:
    """Return whether the text contains none of the references.

    Under the rules of WebArena-Lite, a reference of one word must equal no word of the text. Unlike
    in `must_include`, "5/10" is one word, as in its harness.
    """
    text = normalize(text, rules)
    words = tokenize(text)

    def contains(reference: str) -> bool:
        reference = normalize(reference, rules)
        match_word = rules.matches_whole_words and len(tokenize(reference)) == 1
        return reference in (words if match_word else text)

    return not any(map(contains, references))


def _words(text: str, rules: MatchingRules) -> set[str]:
    """Return the words of a text; under the rules of WebArena-Lite "5/10" is also 5 and 10."""
    words = tokenize(text)
    parts = (
        [part for word in words for part in word.split("/")] if rules.matches_whole_words else []
    )
    return {*words, *parts}


# Signs that are always separate tokens. A full stop is one only at the end of a sentence, and for
# NLTK "it is 5. then" has none: a number or single letter keeps its stop before a small letter.
_SIGN = r"""\.{2,} | -- | [;@#$%&?!*()\[\]{}<>"«»“”„‘’`] | [:,](?!\d)"""
_STOP = r"""\.(?=[)\]}>"'»”’]*(?:\s|\Z) | [)\]};:*@({\[!?"'])"""
_NUMBER = r"(?:-?[.,]?\d(?:[\d,.-] | :(?=\d))* | [^\W\d_])(?<!\.)\.(?=\s+[^\W\d_] | [;:!?])"
_TOKEN_START = r"""(?<![^\s("`{\[:;&#*@)}\],-])"""
_CLITIC = rf"(?<=[^\s'])(?:n't | '(?:s|m|d|ll|re|ve)?)(?=\s | \Z | {_SIGN} | {_STOP})"
_QUOTE = r"'(?=[^\W_mtsdn]\b)"
_SEPARATE_TOKEN = f"{_SIGN} | {_STOP} | {_CLITIC} | {_QUOTE}"
_TOKEN = re.compile(
    rf"{_TOKEN_START}{_NUMBER} | {_SEPARATE_TOKEN} | (?:(?!{_SEPARATE_TOKEN})\S)+", re.VERBOSE
)


def tokenize(text: str) -> list[str]:
    """Split a lower-case text into words and signs like `word_tokenize` of NLTK 3.8.1.

    WebAgent-R1 pins this version; NLTK itself would download a model at run time. The quirks of
    NLTK are reproduced because scores depend on them: "'abc'" does not contain the word abc, "it is
    5. the" does not contain 5, and "10:30" and "a,5" are one word each. Its abbreviations are not:
    "inc." is split, which only affects a reference of "inc".
    """
    return _TOKEN.findall(text)


# --- addresses -----------------------------------------------------------------------------------


def url_matches(reference: str, url: str, rules: MatchingRules, note: str = "") -> bool:
    """Return whether an address equals the reference or, under "GOLD in PRED", contains it.

    With `rules.parses_urls`, host and path of `url` must contain those of one alternative, and each
    query field must have a value that any of the alternatives gives it.

    Args:
        reference: address, or alternatives separated by " |OR| ".
        url: address of the page.
        rules: rules of the harness.
        note: `url_note` of the task; empty for that of the rules.
    """
    references = [_normalize_url(alternative, rules) for alternative in reference.split(_OR)]
    url = _normalize_url(url, rules)
    if (note or rules.url_note) == "EXACT":
        return url in references
    if not rules.parses_urls:
        return any(reference in url for reference in references)
    location, queries = _location_and_query(url)
    # Query fields are collected over all alternatives, as in WebArena: any mixture of them passes.
    allowed: dict[str, set[str]] = {}
    for reference in references:
        for name, values in _location_and_query(reference)[1].items():
            allowed.setdefault(name, set()).update(values)
    return any(_location_and_query(reference)[0] in location for reference in references) and all(
        values & set(queries.get(name, ())) for name, values in allowed.items()
    )


def _normalize_url(url: str, rules: MatchingRules) -> str:
    # Both names mean the same server.
    url = url.replace("localhost", "127.0.0.1")
    return url.removesuffix("/") if rules.strips_one_slash else url.rstrip("/")


def _location_and_query(url: str) -> tuple[str, dict[str, list[str]]]:
    parts = urlparse(url)
    return parts.netloc + parts.path, parse_qs(parts.query)
