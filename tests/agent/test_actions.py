"""Tests of the action grammar."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from webagent_jax.agent import actions, prompts
from webagent_jax.types import Action, ActionKind, ParseError

K = ActionKind


@pytest.mark.parametrize(
    ("response", "action"),
    [
        ('do(action="Click", element="7")', Action(K.CLICK, "7")),
        ("do(action='Click', element='7')", Action(K.CLICK, "7")),
        ("do(action='Click', element=7)", Action(K.CLICK, "7")),
        ('do("Click", element="7")', Action(K.CLICK, "7")),
        ('do(action="click", argument=None, element="7")', Action(K.CLICK, "7")),
        ('do(action="Right Click", element="3")', Action(K.RIGHT_CLICK, "3")),
        ('do(action="Type", argument="a) b", element="2")', Action(K.TYPE, "2", "a) b")),
        (r'do(action="Type", argument="a \"b\"", element="2")', Action(K.TYPE, "2", 'a "b"')),
        ('do(action="Search", argument="tea", element="2")', Action(K.SEARCH, "2", "tea")),
        (
            'do(action="Select Dropdown Option", argument="A", element="2")',
            Action(K.SELECT, "2", "A"),
        ),
        ('do(action="Scroll Down")', Action(K.SCROLL_DOWN)),
        ('do(action="Press Enter")', Action(K.PRESS_ENTER)),
        ('do(action="Switch Tab", argument="1")', Action(K.SWITCH_TAB, None, "1")),
        ('do(action="Press", argument="Control+a")', Action(K.PRESS, None, "Control+a")),
        ('do(action="Press Key", argument="Tab", element="4")', Action(K.PRESS, "4", "Tab")),
        ('do(action="Goto", argument="http://a/b?c")', Action(K.GOTO, None, "http://a/b?c")),
        ("do('Go To', '/forum')", Action(K.GOTO, None, "/forum")),
        (r'exit(message="\ud83d \U0001f600")', Action(K.EXIT, None, "\ufffd \U0001f600")),
        ('do(action="Wait")', Action(K.WAIT)),
        ("go_backward()", Action(K.GO_BACK)),
        ("go_forward()", Action(K.GO_FORWARD)),
        ("exit()", Action(K.EXIT)),
        ('exit(message="N/A")', Action(K.EXIT, value="N/A")),
        ("exit('42')", Action(K.EXIT, value="42")),
        ("<think> do(x) </think> <answer> exit() </answer>", Action(K.EXIT)),
        ('<think> hm </think>\n<answer>\ndo(action="Wait")\n</answer>', Action(K.WAIT)),
        (
            '<think> do(action="Click", element="1") </think> do(action="Wait")',
            Action(K.WAIT),
        ),
        (
            '<think> Draft: <answer> do(action="Click", element="1") </answer> No. </think>\n'
            'do(action="Click", element="2")',
            Action(K.CLICK, "2"),
        ),
        (
            "<think> The format is <answer> exit() </answer>. </think>\n"
            '<answer> do(action="Wait") </answer>',
            Action(K.WAIT),
        ),
        # The prompt of some models ends with <think>.
        (
            'I could do(action="Click", element="3") but no.\n</think>\n'
            'do(action="Click", element="7")',
            Action(K.CLICK, "7"),
        ),
        (
            'The format is <answer> exit() </answer>.\n</think>\n<answer> do("Wait") </answer>',
            Action(K.WAIT),
        ),
        ('Use do(action="Click"\n</think>\ndo(action="Wait")', Action(K.WAIT)),
        (
            'Or exit(message="a")</think>exit(message="b </think>")',
            Action(K.EXIT, None, "b </think>"),
        ),
        ('exit(message="a </think> b")', Action(K.EXIT, None, "a </think> b")),
        ('<answer> exit(message="a </think> b") </answer>', Action(K.EXIT, None, "a </think> b")),
        (
            '# Element: the box\ndo(action="Type", argument="</think>", element="2")',
            Action(K.TYPE, "2", "</think>"),
        ),
        ("exit(message=12.50)", Action(K.EXIT, value="12.50")),
        ("exit(message=-12.50)", Action(K.EXIT, value="-12.50")),
        ("exit(+5)", Action(K.EXIT, value="+5")),
        ('exit(message="""a\n# Heading\nb""")', Action(K.EXIT, None, "a\n# Heading\nb")),
        ("exit(message=\"a\n# Heading\r\n\n'b'\")", Action(K.EXIT, None, "a\n# Heading\r\n\n'b'")),
        (
            'do(\n  action="Type",\n  argument=\'a\n"b"\',\n  element="2"\n)\n# do(it)',
            Action(K.TYPE, "2", 'a\n"b"'),
        ),
        ('# Element: the "do(it)" button\ndo(action="Click", element="7")', Action(K.CLICK, "7")),
        ('I will click. do(action="Click", element="7") Done.', Action(K.CLICK, "7")),
    ],
)
def test_parse_returns_action(response, action):
    assert actions.parse(response) == action


@pytest.mark.parametrize(
    ("response", "reason"),
    [
        ("", "no action"),
        ("click 7", "no action"),
        ("<answer></answer>", "no action"),
        ("<answer> exit() </answer><answer> exit() </answer>", "several"),
        ('do(action="Click", element="7") do(action="Click", element="8")', "several"),
        ('do(action="Fly", element="7")', "no action 'Fly'"),
        ('do(action="Click")', "needs element"),
        ('do(action="Click", element=" ")', "needs element"),
        ('do(action="Type", element="7")', "needs argument"),
        ('do(action="Press")', "Press needs argument"),
        ('do(action="Goto", element="7")', "Goto needs argument"),
        ('do(action="Fly")', "Press, Switch Tab"),
        ('do(action="Fly")', "Goto, Exit"),
        ('do(action="Click", element="7"', "cannot be read"),
        ('do(action="Click", element=f(7))', "cannot be read"),
        ('do(action="Click", target="7")', "takes: action, argument, element"),
        ('do(action="Click", element="7", element="8")', "cannot be read"),
        ('do(action="Click", element=None, element="8")', "cannot be read"),
        ('do("Click", action="Hover", element="7")', "cannot be read"),
        ("exit('1', message='2')", "cannot be read"),
        ("exit(message=-'2')", "cannot be read"),
        ("exit(**None)", "cannot be read"),
        ("exit(message=1 - 2)", "cannot be read"),
        ("exit(message='a\nb)", "cannot be read"),
        ('do(action="Click", element="3")\n</think>', "no action"),
        ("do(" + "(" * 300 + ")" * 300 + ")", "cannot be read"),
        ('do(action="Type", argument="' + "a" * 20_000 + '", element="1")', "cannot be read"),
        ('do(action="Click\0", element="7")', "cannot be read"),
    ],
)
def test_parse_error_contains_reason(response, reason):
    error = actions.parse(response)
    assert isinstance(error, ParseError)
    assert reason in error.reason


texts = st.text(max_size=40)
element_ids = st.integers(1, 999).map(str)
text_actions = st.builds(Action, st.sampled_from([K.TYPE, K.SEARCH, K.SELECT]), element_ids, texts)
click_actions = st.builds(Action, st.sampled_from([K.CLICK, K.HOVER, K.RIGHT_CLICK]), element_ids)
page_actions = st.builds(Action, st.sampled_from([K.PRESS, K.GOTO, K.SWITCH_TAB]), st.none(), texts)
key_actions = st.builds(Action, st.just(K.PRESS), element_ids, texts)
exit_actions = st.builds(lambda value: Action(K.EXIT, value=value), texts)
plain_actions = st.sampled_from([K.GO_BACK, K.GO_FORWARD, K.WAIT, K.SCROLL_UP]).map(Action)


@given(
    st.one_of(text_actions, click_actions, page_actions, key_actions, exit_actions, plain_actions),
    st.booleans(),
)
@settings(max_examples=300, deadline=None)
def test_parse_inverts_format_response(action, thinking):
    assert actions.parse(prompts.format_response("hm", action, thinking)) == action


@given(st.text() | st.text('do(action="Click",element)<answer>/\'# \\\n', max_size=80))
@settings(max_examples=500, deadline=None)
def test_parse_never_raises(response):
    assert isinstance(actions.parse(response), Action | ParseError)


_FRAGMENTS = (
    *r"do( exit( go_backward( ) , = ' \ # < > <answer> </answer> <think> </think> ( [ { }".split(),
    *"action argument element message Click Type Press Goto Wait None 7".split(),
    *"-1e999 0x 1_ **{} *a b'a'".split(),
    *('"', "\n", "\t", " ", "\0", "\ud800", "\u202e", "lambda: 0", "f'{x}'", "Scroll Down"),
    'do(action="Click", element="7")',
    "(" * 300,
    "a" * 3_000,
    "-" * 2_000,
)


@pytest.mark.slow
@pytest.mark.timeout(1_200)
def test_parse_never_raises_on_random_fragments():
    rng = random.Random(0)
    kinds = tuple(ActionKind)
    for _ in range(1_000_000):
        response = "".join(rng.choices(_FRAGMENTS, k=rng.randrange(12)))
        result = actions.parse(response)
        assert isinstance(result, ParseError) or result.kind in kinds


def test_extract_thought_reads_both_formats():
    assert actions.extract_thought("<think> a b </think> <answer> exit() </answer>") == "a b"
    assert actions.extract_thought("# Element: the box\nexit()") == "the box"
    comments = "# Element: the box \n  # Note: it is empty\r\nexit()"
    assert actions.extract_thought(comments) == "the box Note: it is empty"


def test_extract_thought_reads_thought_that_prompt_opened():
    assert actions.extract_thought("a exit()\n</think>\n# b\nexit()") == "a exit()"
    assert actions.extract_thought('# Element: a\nexit(message="</think>")') == "a"
    assert actions.extract_thought("<think> a </think> exit(message='</think>')") == "a"


def test_extract_thought_ignores_empty_blocks():
    comment = "# Element: the box\nexit()"
    for block in ("<think></think>", "<think>\n\n</think>\n\n", "\n</think>\n"):
        assert actions.extract_thought(block + comment) == "the box"


def test_extract_thought_reads_same_comments_as_parse():
    response = "# a\u2028exit()\nexit(message='#b\u2028# c')"
    assert actions.extract_thought(response) == "a\u2028exit()"
    assert actions.parse(response) == Action(K.EXIT, None, "#b\u2028# c")
    assert actions.extract_thought('# a (b\nexit(message="c\n# d")') == "a (b"


def test_integer_that_python_cannot_read_is_a_parse_error():
    assert isinstance(actions.parse(f'do(action="Click", element={"7" * 5000})'), ParseError)
