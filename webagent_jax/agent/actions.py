"""The action grammar: what a reply says to do, read without ever raising.

    do(action="Click", element="7")                    exit(message="42")
    do(action="Type", argument="text", element="7")    go_backward()    go_forward()

as in WebArena-Lite (VisualAgentBench) and WebRL, which have no Goto and no Press: those are
WebArena's `goto [url]` and `press [key_comb]`. A thinking reply holds the call between <answer>
tags; a plain reply may hold comment lines (`# Element: ...`) before it.
"""

from __future__ import annotations

import ast
import re
import warnings
from collections.abc import Iterator

from webagent_jax.types import Action, ActionKind, ParseError
from webagent_jax.unicode import to_well_formed

_ANSWER = re.compile(r"<answer>(.*?)(?:</answer>|$)", re.DOTALL)
_THOUGHT = re.compile(r"<think>(.*?)(?:</think>|$)", re.DOTALL)
_CALL = re.compile(r"\b(do|exit|go_backward|go_forward)\s*\(")
_LONGEST_CALL = 10_000  # characters; a longer one is not worth parsing

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
_BARE = {"go_backward": ActionKind.GO_BACK, "go_forward": ActionKind.GO_FORWARD}


def parse(reply: str) -> Action | ParseError:
    """The one action of a reply; a ParseError with a reason for the agent when there is not one."""
    answers = _ANSWER.findall(reply)
    if len(answers) > 1:
        return ParseError("the reply has several <answer> blocks; give one")
    body = answers[0] if answers else _THOUGHT.sub("", reply)
    body = "\n".join(line for line in body.split("\n") if not line.lstrip().startswith("#"))
    calls = list(_calls(body))
    if not calls:
        return ParseError('the reply holds no action such as do(action="Click", element="1")')
    if len(calls) > 1:
        return ParseError("the reply holds several actions; give one at a time")
    return _read(calls[0])


def thought(reply: str) -> str:
    """What stands between the think tags, or in the comment lines of a plain reply.

    The mark `Element:` of a plain reply is no part of it.
    """
    inside = _THOUGHT.search(reply)
    if inside:
        return inside.group(1).strip()
    comments = [line.lstrip()[1:] for line in reply.splitlines() if line.lstrip().startswith("#")]
    return " ".join(comments).strip().removeprefix("Element:").lstrip()


def format_action(action: Action) -> str:
    """The call that `parse` reads back as the same action."""
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
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return '"' + escaped.replace("\n", "\\n").replace("\r", "\\r").replace("\0", "\\x00") + '"'


def _calls(text: str) -> Iterator[str]:
    """Each outermost call in the text, up to its closing bracket or the end."""
    at = 0
    while found := _CALL.search(text, at):
        at = _closing(text, found.end())
        yield text[found.start() : at]


def _closing(text: str, start: int) -> int:
    """Index past the bracket that closes the one opened before `start`; quotes are respected."""
    depth, quote, index = 1, "", start
    while index < len(text) and depth:
        char = text[index]
        if quote:
            if char == "\\":
                index += 1
            elif char == quote:
                quote = ""
        elif char in "\"'":
            quote = char
        else:
            depth += (char == "(") - (char == ")")
        index += 1
    return min(index, len(text))


def _read(call: str) -> Action | ParseError:
    unreadable = ParseError(f"the action cannot be read: {call[:100]}")
    if len(call) > _LONGEST_CALL:
        return unreadable
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # an odd escape is the model's affair
            node = ast.parse(call, mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return unreadable
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Name):
        return unreadable
    arguments: dict[str, str] = {}
    names = ("message",) if node.func.id == "exit" else ("action", "argument", "element")
    pairs = [*zip(names, node.args, strict=False), *((k.arg, k.value) for k in node.keywords)]
    for name, value in pairs:
        if not isinstance(value, ast.Constant) or name is None:
            return unreadable
        if value.value is not None:
            arguments[name] = to_well_formed(str(value.value))  # "\ud83d" is an escape here
    if len(node.args) > len(names) or not set(arguments) <= set(names):
        return ParseError(f"{node.func.id}() takes: {', '.join(names)}")
    return _build(node.func.id, arguments)


def _build(function: str, arguments: dict[str, str]) -> Action | ParseError:
    if function in _BARE:
        return Action(_BARE[function])
    if function == "exit":
        return Action(ActionKind.EXIT, value=arguments.get("message"))
    name = arguments.get("action", "")
    kind = _BY_NAME.get(name.strip().lower())
    if kind is None:
        known = ", ".join(k.value for k in ActionKind)
        return ParseError(f"there is no action {name[:50]!r}; the actions are: {known}")
    element, value = arguments.get("element"), arguments.get("argument")
    if kind in _NEEDS_ELEMENT and not element:
        return ParseError(f'{kind.value} needs element="...", the number of an element')
    if kind in _NEEDS_VALUE and value is None:
        return ParseError(f'{kind.value} needs argument="..."')
    return Action(kind, element.strip() if element else None, value)
