"""BrowserGym's observation as ours, and our actions as BrowserGym's.

The page is told in the `compact` format, from the accessibility tree that BrowserGym hands out. Ids
are its `bid`s, which stay with their elements.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from webagent_jax.browser import compact
from webagent_jax.browser.dom_walk import Entry
from webagent_jax.types import Action, ActionKind, Element, Observation

Node = Mapping[str, Any]

_KINDS = {
    "button": "button",
    "link": "link",
    "checkbox": "checkbox",
    "switch": "checkbox",
    "menuitemcheckbox": "checkbox",
    "radio": "radio",
    "menuitemradio": "radio",
    "tab": "tab",
    "option": "option",
    "menuitem": "option",
    "treeitem": "option",
    "slider": "slider",
    "textbox": "textbox",
    "searchbox": "textbox",
    "spinbutton": "textbox",
    "Date": "textbox",
    "DateTime": "textbox",
    "InputTime": "textbox",
    "combobox": "select",
}
_LABELLED = ("checkbox", "radio", "textbox", "select", "slider")
_SCROLL = 480  # CSS pixels: two thirds of BrowserGym's usual viewport


def code(action: Action) -> str:
    """The call of BrowserGym's high-level action set that does the same."""
    bid, text = repr(action.element_id or ""), repr(action.value or "")
    match action.kind:
        case ActionKind.CLICK:
            return f"click({bid})"
        case ActionKind.RIGHT_CLICK:
            return f"click({bid}, button='right')"
        case ActionKind.TYPE:
            return f"fill({bid}, {text}, True)"  # the last character is a real key press
        case ActionKind.SEARCH:
            return f"fill({bid}, {text})\npress({bid}, 'Enter')"
        case ActionKind.HOVER:
            return f"hover({bid})"
        case ActionKind.SELECT:
            return f"select_option({bid}, {text})"
        case ActionKind.PRESS_ENTER:
            return f"press({bid}, 'Enter')" if action.element_id else "keyboard_press('Enter')"
        case ActionKind.SCROLL_UP | ActionKind.SCROLL_DOWN:
            by = _SCROLL if action.kind is ActionKind.SCROLL_DOWN else -_SCROLL
            over = f"hover({bid})\n" if action.element_id else ""
            return f"{over}scroll(0, {by})"
        case ActionKind.SWITCH_TAB:
            number = (action.value or "").strip()
            return f"tab_focus({int(number) if number.isdecimal() else text})"
        case ActionKind.WAIT:
            return "noop(1000)"
        case ActionKind.PRESS:
            return f"press({bid}, {text})" if action.element_id else f"keyboard_press({text})"
        case ActionKind.GOTO:
            return f"goto({text})"
        case ActionKind.GO_BACK:
            return "go_back()"
        case ActionKind.GO_FORWARD:
            return "go_forward()"
        case ActionKind.EXIT:
            return f"send_msg_to_user({text})"


def observation(page: Mapping[str, Any], budget: int) -> Observation:
    """What the agent is told of a page that the worker hands over.

    At most `budget` characters, and a bit for tabs and what was left out.
    """
    titles, front = page["tabs"], page["front"]
    tabs = [
        f"[tab {index}{', open' if index == front else ''}] {title}"
        for index, title in enumerate(titles)
    ]
    lines, shown, complete = compact.cut(_Tree(page).entries(), budget)
    if not complete:
        lines.append("[cut here: more of the page left out; scroll to see other parts]")
    return Observation(
        text="\n".join([*(tabs if len(tabs) > 1 else []), *lines]),
        url=page["url"],
        title=titles[front],
        error=page["error"].split("\n")[0] or None,
        truncated=not complete,
        elements={
            entry["id"]: Element(entry["kind"], entry["name"], entry.get("value", ""), entry["box"])
            for entry in shown
        },
    )


class _Tree:
    """An accessibility tree, read in document order."""

    def __init__(self, page: Mapping[str, Any]) -> None:
        self._nodes: dict[str, Node] = {node["key"]: node for node in page["nodes"]}
        self._root = page["nodes"][0]
        self._properties = page["properties"]  # by bid
        self._labels = {n["name"] for n in page["nodes"] if _KINDS.get(n["role"]) in _LABELLED}

    def entries(self) -> list[Entry]:
        """As browser.compact takes them: {text}, or {id, kind, name, ...}."""
        told: list[Entry] = []
        label = None  # the entry before this one, where it is the text of a label
        todo = [(self._root, False)]
        while todo:
            node, in_label = todo.pop()
            role, name = node["role"], node["name"]
            entry = self._element(node)
            if role == "StaticText":
                if name and not (in_label and name in self._labels):
                    told.append({"text": name})
                    label = told[-1] if in_label else None
            elif entry:
                if label and not entry["name"] and entry["kind"] in _LABELLED:
                    entry["name"] = told.pop()["text"]
                told.append(entry)
                label = None
            elif role == "row" and not self._holds_elements(node):
                told.append({"text": " | ".join(filter(None, self._cells(node)))})
            else:
                if role == "image" and name:
                    told.append({"text": f"image {name}"})
                inside = in_label or role == "LabelText"
                todo += [(child, inside) for child in reversed(self._children(node))]
        return told

    def _element(self, node: Node) -> dict[str, Any] | None:
        """None for what cannot be acted on, or only by what it holds."""
        known = self._properties.get(node["bid"]) or {}
        kind = self._kind(node, marked=bool(known.get("set_of_marks")))
        if node["bid"] is None or not kind:
            return None
        x, y, width, height = known.get("bbox") or (0.0, 0.0, 0.0, 0.0)
        entry = {
            "id": node["bid"],
            "kind": kind,
            "name": node["name"] or ("" if kind in _LABELLED else self._words(node)),
            "value": node["value"] if kind in _LABELLED else "",
            "disabled": bool(node["state"].get("disabled")),
            "box": (x, y, width, height),
            "above": y + height < 0,
        }
        if kind in ("checkbox", "radio"):
            entry["value"] = "on" if str(node["state"].get("checked")).lower() == "true" else "off"
        if kind == "select":
            entry["options"] = [n["name"] for n in self._below(node) if n["role"] == "option"]
        return entry

    def _kind(self, node: Node, marked: bool) -> str:
        """Empty for what is no element; `marked` is BrowserGym's own guess that it is one."""
        if node["role"] == "combobox":
            if any(child["role"] == "MenuListPopup" for child in self._children(node)):
                return "select"
            return "textbox" if node["state"].get("editable") else "button"
        if marked and node["role"] not in _KINDS:
            return "" if self._holds_elements(node) else "item"
        return _KINDS.get(node["role"], "")

    def _holds_elements(self, node: Node) -> bool:
        return any(each["role"] in _KINDS for each in self._below(node))

    def _cells(self, row: Node) -> list[str]:
        return [cell["name"] or self._words(cell) for cell in self._children(row)]

    def _words(self, node: Node) -> str:
        return " ".join(n["name"] for n in self._below(node) if n["role"] == "StaticText")

    def _children(self, node: Node) -> list[Node]:
        keys = (key for key in node["children"] if key != node["key"])
        return [self._nodes[key] for key in keys if key in self._nodes]

    def _below(self, node: Node) -> Iterator[Node]:
        todo = self._children(node)[::-1]
        while todo:
            yield todo[-1]
            todo += self._children(todo.pop())[::-1]
