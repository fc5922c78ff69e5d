"""Action grammar, and a parser of responses that never raises.

    do(action="Click", element="7")                    exit(message="42")
    do(action="Type", argument="text", element="7")    go_backward()    go_forward()

The grammar is that of WebArena-Lite (VisualAgentBench) and WebRL, plus Goto and Press, which are
`goto [url]` and `press [key_comb]` in WebArena. A thinking response contains the call in <answer>
tags. A plain response may contain comment lines (`# Element: ...`) before the call.
"""

from __future__ import annotations

import ast
import re
import warnings
from collections.abc import Iterator

from webagent_jax.types import Action, ActionKind, ParseError
from webagent_jax.unicode import to_well_formed

# A response cut at the length limit lacks the closing tag: the text up to its end counts.
_ANSWER = re.compile(r"<answer>(.*?)(?:</answer>|$)", re.DOTALL)
_THOUGHT = re.compile(r"<think>(.*?)(?:</think>|$)", re.DOTALL)
_FIRST_THOUGHT = re.compile(r"\A\s*<think>.*?</think>", re.DOTALL)
_CALL = re.compile(r"\b(do|exit|go_backward|go_forward)\s*\(")
_MAX_CALL_CHARS = 10_000  # longer calls are not parsed

_BY_NAME = {kind.value.lower(): kind for kind in ActionKind} | {
    "right_click": ActionKind.RIGHT_CLICK,
    "select": ActionKind.SELECT,
    "go back": ActionKind.GO_BACK,
    "enter": ActionKind.PRESS_ENTER,
    "press key": ActionKind.PRESS,
    "go to": ActionKind.GOTO,
}
_NEEDS_ELEMENT = {
    ActionKind.CLICK,
    ActionKind.RIGHT_CLICK,
    ActionKind.TYPE,
    ActionKind.SEARCH,
    ActionKind.HOVER,
    ActionKind.SELECT,
}
_NEEDS_VALUE = {
    ActionKind.TYPE,
    ActionKind.SEARCH,
    ActionKind.SELECT,
    ActionKind.SWITCH_TAB,
    ActionKind.PRESS,
    ActionKind.GOTO,
}
_WITHOUT_ARGUMENTS = {"go_backward": ActionKind.GO_BACK, "go_forward": ActionKind.GO_FORWARD}


def parse(response: str) -> Action | ParseError:
    """Return the action of a response, or a ParseError for the agent unless it has exactly one."""
    # Thoughts and comment lines may mention calls and answers that are not the action.
    rest = _FIRST_THOUGHT.sub("", response)
    answers = _ANSWER.findall(rest)
    if len(answers) > 1:
        return ParseError("the reply has several <answer> blocks; give one")
    body = answers[0] if answers else _THOUGHT.sub("", rest)
    body = "\n".join(line for line in body.split("\n") if not line.lstrip().startswith("#"))
    calls = list(_calls(body))
    if not calls:
        return ParseError('the reply holds no action such as do(action="Click", element="1")')
    if len(calls) > 1:
        return ParseError("the reply holds several actions; give one at a time")
    return _read(calls[0])


def extract_thought(response: str) -> str:
    """Return the text in the think tags, or in the comment lines of a plain response.

    The result does not include the prefix `Element:` of a plain response.
    """
    block = _THOUGHT.search(response)
    if block:
        return block.group(1).strip()
    # The same lines as in `parse`.
    lines = [line.strip() for line in response.split("\n")]
    comments = [line[1:].strip() for line in lines if line.startswith("#")]
    return " ".join(comments).strip().removeprefix("Element:").lstrip()


def format_action(action: Action) -> str:
    """Return the call that `parse` converts to the same action."""
    match action.kind:
        case ActionKind.EXIT:
            return f"exit(message={_quote(action.value or '')})"
        case ActionKind.GO_BACK:
            return "go_backward()"
        case ActionKind.GO_FORWARD:
            return "go_forward()"
    arguments = [f"action={_quote(action.kind.value)}"]
    if action.value is not None:
        arguments.append(f"argument={_quote(action.value)}")
    if action.element_id is not None:
        arguments.append(f"element={_quote(action.element_id)}")
    return f"do({', '.join(arguments)})"


def _quote(text: str) -> str:
    # One line, because `parse` drops lines that begin with #. ast.parse rejects null bytes.
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return '"' + escaped.replace("\n", "\\n").replace("\r", "\\r").replace("\0", "\\x00") + '"'


def _calls(text: str) -> Iterator[str]:
    """Yield each outermost call in the text, up to its closing parenthesis or the end."""
    end = 0
    while match := _CALL.search(text, end):
        end = _find_end(text, match.end())
        yield text[match.start() : end]


def _find_end(text: str, start: int) -> int:
    """Return the index after the parenthesis that closes the call; ignore those in quotes."""
    depth, quote, index = 1, "", start
    while index < len(text) and depth:
        char = text[index]
        if quote:
            # An escaped quote does not end the string.
            if char == "\\":
                index += 1
            elif char == quote:
                quote = ""
        elif char in "\"'":
            quote = char
        else:
            depth += (char == "(") - (char == ")")
        index += 1
    # A backslash as the last character moves the index past the end.
    return min(index, len(text))


def _read(call: str) -> Action | ParseError:
    error = ParseError(f"the action cannot be read: {call[:100]}")
    if len(call) > _MAX_CALL_CHARS:
        return error
    # ast.parse executes nothing, and below only constants are accepted as arguments.
    try:
        with warnings.catch_warnings():
            # Python warns about invalid escapes, which come from the response.
            warnings.simplefilter("ignore")
            node = ast.parse(call, mode="eval").body
    # Null bytes and deep nesting raise errors other than SyntaxError.
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return error
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Name):
        return error
    arguments: dict[str, str] = {}
    names = ("message",) if node.func.id == "exit" else ("action", "argument", "element")
    pairs = [*zip(names, node.args, strict=False), *((k.arg, k.value) for k in node.keywords)]
    # ast.parse accepts a repeated argument, which Python itself rejects.
    if len({name for name, _ in pairs}) < len(pairs):
        return error
    for name, value in pairs:
        # The name is None for `**mapping`.
        if not isinstance(value, ast.Constant) or name is None:
            return error
        if value.value is None:
            continue
        # A number has the characters of the response: Python would print 12.50 as 12.5.
        text = value.value if isinstance(value.value, str) else ast.get_source_segment(call, value)
        # Python decodes escapes such as "\ud83d" to lone surrogates.
        arguments[name] = to_well_formed(text or "")
    # zip ignores surplus positional arguments, so their number is checked here.
    if len(node.args) > len(names) or not set(arguments) <= set(names):
        return ParseError(f"{node.func.id}() takes: {', '.join(names)}")
    return _build(node.func.id, arguments)


def _build(function: str, arguments: dict[str, str]) -> Action | ParseError:
    if function in _WITHOUT_ARGUMENTS:
        return Action(_WITHOUT_ARGUMENTS[function])
    if function == "exit":
        return Action(ActionKind.EXIT, value=arguments.get("message"))
    name = arguments.get("action", "")
    kind = _BY_NAME.get(name.strip().lower())
    if kind is None:
        names = ", ".join(k.value for k in ActionKind)
        return ParseError(f"there is no action {name[:50]!r}; the actions are: {names}")
    element, value = arguments.get("element", "").strip(), arguments.get("argument")
    if kind in _NEEDS_ELEMENT and not element:
        return ParseError(f'{kind.value} needs element="...", the number of an element')
    if kind in _NEEDS_VALUE and value is None:
        return ParseError(f'{kind.value} needs argument="..."')
    return Action(kind, element or None, value)
