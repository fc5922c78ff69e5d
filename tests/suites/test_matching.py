"""Tests of text and URL matching under the rules of both harnesses."""

from __future__ import annotations

import pytest

from webagent_jax.suites import matching
from webagent_jax.suites.matching import LITE, WEBARENA

# --- tokens --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", ""),
        ("two words", "two words"),
        ("a\n b\t c", "a b c"),
        ("yes, it is.", "yes , it is ."),
        ("one. two. three", "one . two . three"),
        ("no! why? so;", "no ! why ? so ;"),
        ("it costs $5.00 (85%)", "it costs $ 5.00 ( 85 % )"),
        ("sean.miller@gmail.com", "sean.miller @ gmail.com"),
        ("#7 a&b *c*", "# 7 a & b * c *"),
        ("a11yproject.com", "a11yproject.com"),
        ("green-vines", "green-vines"),
        ("x--y", "x -- y"),
        ("wait... what", "wait ... what"),
        ("rated 4... overall", "rated 4 ... overall"),
        ("rated 4.. overall", "rated 4 .. overall"),
        ("3.5... stars", "3.5 ... stars"),
        ("-1,000.... so", "-1,000 .... so"),
        ("it is 5..! so", "it is 5 .. ! so"),
        ("at 10:30. then home", "at 10:30. then home"),
        ("-79.933", "-79.933"),
        ("n/a", "n/a"),
        ("10:30", "10:30"),
        ("time: 3h", "time : 3h"),
        ("1,000 or 1, 2", "1,000 or 1 , 2"),
        ("a,b a,5", "a , b a,5"),
        ("it's they'll don't", "it 's they 'll do n't"),
        ("it’s “so”", "it ’ s “ so ”"),
        ("users' o'brien", "users ' o'brien"),
        ("'abc'", "'abc '"),
        ("'5'", "' 5 '"),
        ('"abc"', '" abc "'),
        ("<b>5</b>", "< b > 5 < /b >"),
        ("it is 5. 7 is not", "it is 5 . 7 is not"),
        ("it is 5. seven is not", "it is 5. seven is not"),
        ("it is $5. seven is not", "it is $ 5 . seven is not"),
        ("it is -5. so", "it is -5. so"),
        ("(5. so)", "( 5. so )"),
        ("plan b. then c.", "plan b. then c ."),
        ("it is 5.", "it is 5 ."),
        ('it is "5."', 'it is " 5 . "'),
        ("5.; so", "5. ; so"),
        ("http://a.b:80/f?x=1", "http : //a.b:80/f ? x=1"),
        ("erik linder-norén", "erik linder-norén"),
        ("x_y [3] {z}", "x_y [ 3 ] { z }"),
    ],
)
def test_tokenize_matches_nltk(text: str, words: str) -> None:
    assert matching.tokenize(text) == words.split()


# --- texts ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("reference", "text", "lite", "webarena"),
    [
        ("Yes", "Yes", 1, 1),
        ("Yes", "yes", 1, 1),
        ("Yes", '"yes"', 1, 1),
        ("Yes", "'YES'", 1, 1),
        ("Yes", "\"yes'", 0, 0),
        ("'yes'", "yes", 1, 1),
        ("Yes", " yes ", 0, 1),
        ("Yes", "yes\n", 0, 1),
        ("Yes", "yes.", 0, 0),
        ("Yes", "yes, it is", 0, 0),
        ("Yes", "", 0, 0),
        ("N/A", "n/a", 1, 1),
        ("N/A", "None", 0, 0),
        ("27.00", "27", 0, 0),
        ("@davepgreene", "@davepgreene", 1, 1),
        ("???", "??", 0, 0),
        ("a |OR| b", "a", 0, 0),
        ("'", "'", 1, 1),
    ],
)
def test_exact_match_follows_harness_rules(
    reference: str, text: str, lite: bool, webarena: bool
) -> None:
    assert matching.exact_match(reference, text, LITE) == lite
    assert matching.exact_match(reference, text, WEBARENA) == webarena


@pytest.mark.parametrize(
    ("references", "text", "lite", "webarena"),
    [
        (["0"], "0", 1, 1),
        (["0"], "10", 0, 0),
        (["0"], "0 of 10", 1, 1),
        (["0"], "it is 0.", 1, 1),
        (["0"], "0.5", 0, 0),
        (["5"], "5/10", 1, 0),
        (["5"], "it is 5. that is all", 0, 0),
        (["4"], "rated 4... overall", 1, 1),
        (["5"], "it is '5'", 1, 1),
        (["25"], "25", 1, 1),
        (["25"], "1255", 0, 1),
        (["25", "0"], "1255, 10", 0, 1),
        (["914"], "914km", 0, 1),
        (["914"], "914 km", 1, 1),
        (["85"], "85%", 1, 1),
        (["9.99"], "$9.99", 1, 1),
        (["9.99"], "19.99", 0, 1),
        (["39.64"], "39.64.", 1, 1),
        (["3053.97"], "3,053.97", 0, 0),
        (["-79.933"], "40.451, -79.933", 1, 1),
        (["Lo"], "hello", 0, 1),
        (["Lo"], "Chen, Lo and Chu", 1, 1),
        (["MH"], "mh", 1, 1),
        (["Amanda"], "'Amanda'", 1, 1),
        (["Amanda"], "it is 'Amanda'", 0, 1),
        (["Amanda"], 'it is "Amanda"', 1, 1),
        (["Amanda"], "it is Amanda's", 1, 1),
        (["Amanda"], "Amanda/Rachel", 1, 1),
        (["yjlou"], "the user yjlou", 1, 1),
        (["yjlou"], "yjlou2", 0, 1),
        (["bookshop.org"], "see bookshop.org.", 1, 1),
        (["bookshop.org"], "https://bookshop.org/x", 1, 1),
        (["sean.miller@gmail.com"], "mail:sean.miller@gmail.com2", 1, 1),
        (["N/A"], "n/a", 1, 1),
        (["N/A"], "not available", 0, 0),
        (["Impulse Duffle"], "the impulse duffle bag", 1, 1),
        (["Impulse Duffle"], "impulse  duffle", 0, 0),
        (["Acadia National Park"], "Acadia", 0, 0),
        (["design", "hollister"], "design", 0, 0),
        (["design", "hollister"], "hollister design", 1, 1),
        (["design"], "redesign", 0, 1),
        (["65 |OR| 3"], "65", 1, 1),
        (["65 |OR| 3"], "3 stars", 1, 1),
        (["65 |OR| 3"], "13 stars", 0, 0),
        (["65 |OR| 3"], "64", 0, 0),
        (["big little lies", "can't stop it"], "Big Little Lies: I can't stop it", 1, 1),
        (["The cast", "'so good'"], "the cast is so good", 1, 1),
        (["x"], "", 0, 0),
    ],
)
def test_must_include_matches_answers(
    references: list[str], text: str, lite: bool, webarena: bool
) -> None:
    assert matching.must_include(references, text, LITE, page=False) == lite
    assert matching.must_include(references, text, WEBARENA, page=False) == webarena


@pytest.mark.parametrize(
    ("references", "text", "lite", "webarena"),
    [
        (["0"], "page 10", 0, 1),
        (["Guest"], "Guest", 1, 1),
        (["Guest"], "Guests", 0, 1),
        (["awesome_llm_reading"], "<a href='/byteblaze/awesome_llm_reading'>", 1, 1),
        (["awesome_llm_reading"], "<a>awesome_llm_reading_2</a>", 0, 1),
        (["@vinta"], "@vinta2", 1, 1),
        (["B0738JQG6Q"], "Name\tB0738JQG6Q\t$5", 1, 1),
        (["is car |OR| is a car"], "Is a car necessary?", 1, 1),
        (["is car |OR| is a car"], "Is the car necessary?", 0, 0),
        (["Sweatshirt-M-Blue", "Sweatshirt-S-Blue"], "Sweatshirt-M-Blue", 0, 0),
    ],
)
def test_must_include_matches_pages(
    references: list[str], text: str, lite: bool, webarena: bool
) -> None:
    assert matching.must_include(references, text, LITE, page=True) == lite
    assert matching.must_include(references, text, WEBARENA, page=True) == webarena


@pytest.mark.parametrize(
    ("reference", "text", "lite", "webarena"),
    [
        ("0", "10", 1, 0),
        ("0", "it is 0.", 0, 0),
        ("5", "5/10", 1, 0),
        ("Standard", "Standards", 1, 0),
        ("Standard", "express, standard", 0, 0),
        ("Credit card", "by credit cards", 0, 0),
        ("Credit card", "by card", 1, 1),
    ],
)
def test_must_exclude_follows_harness_rules(
    reference: str, text: str, lite: bool, webarena: bool
) -> None:
    assert matching.must_exclude([reference], text, LITE) == lite
    assert matching.must_exclude([reference], text, WEBARENA) == webarena


# --- URLs ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("reference", "url", "note", "lite", "webarena"),
    [
        ("http://s/a", "http://s/a", "", 1, 1),
        ("http://s/a", "http://s/a/", "", 1, 1),
        ("http://s/a/", "http://s/a", "", 1, 1),
        ("http://s/a", "http://s/a/b", "", 0, 1),
        ("http://s/a", "http://s/b", "", 0, 0),
        ("http://s/a", "https://s/a", "", 0, 1),
        ("http://s/a", "http://s/a?x=1", "", 0, 1),
        ("http://s/a", "http://s/a#note", "", 0, 1),
        ("http://s/-/issues/71", "http://s/-/issues/710", "", 0, 1),
        ("http://s/a |OR| http://s/b", "http://s/b", "", 1, 1),
        ("http://s/a |OR| http://s/b", "http://s/c", "", 0, 0),
        ("http://localhost:80/a", "http://127.0.0.1:80/a", "", 1, 1),
        ("http://s/a", "http://s/a/b", "EXACT", 0, 0),
        ("http://s/a", "http://s/a/", "EXACT", 1, 1),
        ("http://s/a", "http://s/a//", "EXACT", 0, 1),
        ("http://s/a//", "http://s/a", "EXACT", 0, 1),
        ("http://s/a//", "http://s/a/", "EXACT", 0, 1),
        ("http://s/a//", "http://s/a//", "EXACT", 1, 1),
        ("http://s/a//", "http://s/ab", "GOLD in PRED", 0, 1),
        ("http://s/a |OR| http://s/b", "http://s/b", "EXACT", 1, 1),
        ("http://s/a", "http://s/a/b?c=1", "GOLD in PRED", 1, 1),
        ("http://s/a/", "http://s/abc", "GOLD in PRED", 1, 1),
        ("http://s/a", "http://s/b?r=http://s/a", "GOLD in PRED", 1, 0),
        ("http://s/a?x=1", "http://s/a?x=1", "GOLD in PRED", 1, 1),
        ("http://s/a?x=1", "http://s/a?x=1&y=2", "GOLD in PRED", 1, 1),
        ("http://s/a?x=1", "http://s/a?y=2&x=1", "GOLD in PRED", 0, 1),
        ("http://s/a?x=1", "http://s/a?x=12", "GOLD in PRED", 1, 0),
        ("http://s/a?x=1", "http://s/a/b?x=1", "GOLD in PRED", 0, 1),
        ("http://s/a?x=1", "http://s/a", "GOLD in PRED", 0, 0),
        ("http://s/a/?x=1", "http://s/a?x=1", "GOLD in PRED", 0, 0),
        ("http://s/a?x=1", "http://s/a/?x=1", "GOLD in PRED", 0, 1),
        ("http://s/a?q=b+c", "http://s/a?q=b%20c", "GOLD in PRED", 0, 1),
        ("http://s/?l%5B%5D=bug", "http://s/?l[]=bug", "GOLD in PRED", 0, 1),
        ("http://s/a?cat", "http://s/a?cat=7", "GOLD in PRED", 1, 1),
        ("http://s/f/b |OR| http://s/f/c", "http://s/f/c/1/t", "GOLD in PRED", 1, 1),
        ("http://s/b |OR| http://s/a?c=1", "http://s/a?c=1", "GOLD in PRED", 1, 1),
        ("http://s/b |OR| http://s/a?c=1", "http://s/b", "GOLD in PRED", 1, 0),
        ("http://s/a?c=1 |OR| http://s/b?c=2", "http://s/a?c=2", "GOLD in PRED", 0, 1),
        ("http://s/a", "about:blank", "GOLD in PRED", 0, 0),
    ],
)
def test_url_matches_follows_harness_rules(
    reference: str, url: str, note: str, lite: bool, webarena: bool
) -> None:
    assert matching.url_matches(reference, url, LITE, note) == lite
    assert matching.url_matches(reference, url, WEBARENA, note) == webarena
