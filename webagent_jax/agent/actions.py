"""Action grammar, and a parser of responses that never raises.

    do(action="Click", element="7")                    exit(message="42")
    do(action="Type", argument="text", element="7")    go_backward()    go_forward()

The grammar is that of WebArena-Lite (VisualAgentBench) and WebRL, plus Goto and Press, which are
`goto [url]` and `press [key_comb]` in WebArena. A thinking response contains the call in <answer>
tags. A plain response may contain comment lines (`# Element: ...`) before the call. Some chat
templates end a prompt with <think>, so that the response contains only </think>.
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
_COMMENT_OR_CALL = re.compile(r"^[^\S\n]*#.*|\b(do|exit|go_backward|go_forward)\s*\(", re.MULTILINE)
_STRING = re.compile(r"""(["'])(?:\\.|(?!\1)[^\\])*\1""", re.DOTALL)
_LINE_BREAKS = str.maketrans({"\n": "\\n", "\r": "\\r"})
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
    _, rest = split_thought(response)
    answers = _ANSWER.findall(rest)
    if len(answers) > 1:
        return ParseError("the reply has several <answer> blocks; give one")
    body = answers[0] if answers else _THOUGHT.sub("", rest)
    calls = [part for part in _comments_and_calls(body) if not part.startswith("#")]
    if not calls:
        return ParseError('the reply holds no action such as do(action="Click", element="1")')
    if len(calls) > 1:
        return ParseError("the reply holds several actions; give one at a time")
    return _read(calls[0])


def extract_thought(response: str) -> str:
    """Return the text in the think tags, or in the comment lines of a plain response.

    The result does not include the prefix `Element:` of a plain response.
    """
    thought, rest = split_thought(response)
    # An empty block, as some chat templates write it, is no thought.
    thought = thought.strip()
    if not thought and (block := _THOUGHT.search(rest)):
        thought = block[1].strip()
    if thought:
        return thought
    parts = _comments_and_calls(rest)
    comments = [part[1:].strip() for part in parts if part.startswith("#")]
    return " ".join(comments).strip().removeprefix("Element:").lstrip()


def split_thought(response: str) -> tuple[str, str]:
    """Return the thought that the response begins with, and the rest.

    The thought ends at the first </think>; its <think> may be in the prompt.
    """
    thought, tag, rest = response.partition("</think>")
    if not tag:
        return "", response
    before, opening, inner = thought.partition("<think>")
    if opening:
        return ("", response) if before.strip() else (inner, rest)
    return ("", response) if _is_in_action(response, tag) else (thought, rest)


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
    # One line, as in the demonstrations of WebRL. ast.parse rejects null bytes.
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return '"' + escaped.replace("\n", "\\n").replace("\r", "\\r").replace("\0", "\\x00") + '"'


def _is_in_action(text: str, words: str) -> bool:
    """Return whether the first occurrence of the words is in an argument of an action."""
    index = text.find(words)
    return any(
        start < index < end and isinstance(_read(text[start:end]), Action)
        for start, end in _spans(text)
    )


def _comments_and_calls(text: str) -> list[str]:
    """Return each comment line, from its #, and each outermost call, in order."""
    return [text[start:end].lstrip() for start, end in _spans(text)]


def _spans(text: str) -> Iterator[tuple[int, int]]:
    """Yield start and end of each comment line and each outermost call.

    A call ends at its closing parenthesis, or with the text; a line in it is no comment.
    """
    end = 0
    while match := _COMMENT_OR_CALL.search(text, end):
        end = _find_end(text, match.end()) if match[1] else match.end()
        yield match.start(), end


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
    node = _parse_expression(call)
    if node is None:
        # Python accepts a line break in triple quotes only.
        call = _STRING.sub(lambda string: string[0].translate(_LINE_BREAKS), call)
        node = _parse_expression(call)
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
        if name is None:
            return error
        match value:
            case ast.Constant(value=str(text)):
                pass
            case ast.Constant(value=None):
                continue
            case ast.Constant() | ast.UnaryOp(
                ast.UAdd() | ast.USub(), ast.Constant(value=int() | float())
            ):
                # It has the characters of the response: Python would print 12.50 as 12.5.
                text = ast.get_source_segment(call, value) or ""
            case _:
                return error
        # Python decodes escapes such as "\ud83d" to lone surrogates.
        arguments[name] = to_well_formed(text)
    # zip ignores surplus positional arguments, so their number is checked here.
    if len(node.args) > len(names) or not set(arguments) <= set(names):
        return ParseError(f"{node.func.id}() takes: {', '.join(names)}")
    return _build(node.func.id, arguments)


def _parse_expression(text: str) -> ast.expr | None:
    """Return the syntax tree of an expression, or None if Python cannot read it."""
    # ast.parse executes nothing, and `_read` accepts only constants as arguments.
    try:
        with warnings.catch_warnings():
            # Python warns about invalid escapes, which come from the response.
            warnings.simplefilter("ignore")
            return ast.parse(text, mode="eval").body
    # Null bytes and deep nesting raise errors other than SyntaxError.
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None


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
