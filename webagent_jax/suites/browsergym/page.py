"""Conversion of BrowserGym's observations and of our actions.

The observation has the `compact` format and is made from BrowserGym's accessibility tree. Element
ids are its `bid`s, which stay the same while the element exists.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from webagent_jax.browser import compact
from webagent_jax.browser.dom_walk import Entry
from webagent_jax.types import Action, ActionKind, Element, Observation

Node = Mapping[str, Any]

_MAX_DIGITS = 10  # of the number of a tab; Python refuses to convert more than 4,300

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
_CELL_ROLES = ("cell", "gridcell", "columnheader", "rowheader")
_LABELED = ("checkbox", "radio", "textbox", "select", "slider")
_SCROLL_PIXELS = 480  # CSS pixels, two thirds of the height of BrowserGym's default viewport


def to_browsergym_action(action: Action) -> str:
    """Return the equivalent calls of BrowserGym's high-level action set."""
    # BrowserGym parses actions as Python calls, so arguments become Python literals.
    bid, text = repr(action.element_id or ""), repr(action.value or "")
    match action.kind:
        case ActionKind.CLICK:
            return f"click({bid})"
        case ActionKind.RIGHT_CLICK:
            return f"click({bid}, button='right')"
        case ActionKind.TYPE:
            return f"fill({bid}, {text}, True)"  # True: the last character is a real key press
        case ActionKind.SEARCH:
            return f"fill({bid}, {text})\npress({bid}, 'Enter')"
        case ActionKind.HOVER:
            return f"hover({bid})"
        case ActionKind.SELECT:
            return f"select_option({bid}, {text})"
        case ActionKind.PRESS_ENTER:
            return f"press({bid}, 'Enter')" if action.element_id else "keyboard_press('Enter')"
        case ActionKind.SCROLL_UP | ActionKind.SCROLL_DOWN:
            distance = _SCROLL_PIXELS if action.kind is ActionKind.SCROLL_DOWN else -_SCROLL_PIXELS
            # The wheel scrolls the box under the pointer.
            hover_call = f"hover({bid})\n" if action.element_id else ""
            return f"{hover_call}scroll(0, {distance})"
        case ActionKind.SWITCH_TAB:
            # Another value stays a text, so that the agent receives the error of BrowserGym.
            number = (action.value or "").strip()
            is_number = number.isdecimal() and len(number) <= _MAX_DIGITS
            return f"tab_focus({int(number) if is_number else text})"
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


def from_browsergym_obs(page: Mapping[str, Any], budget: int) -> Observation:
    """Return the observation of a page.

    Args:
        page: page from `worker.EnvServer`.
        budget: maximum number of characters, without the lines for tabs and truncation.
    """
    titles, active_tab = page["tabs"], page["front"]
    tabs = [
        f"[tab {index}{', open' if index == active_tab else ''}] {title}"
        for index, title in enumerate(titles)
    ]
    # Rendered by the code for embedded sites, so that a policy reads the same format.
    lines, rendered_entries, is_complete = compact.render(
        _AccessibilityTree(page).entries(), budget
    )
    if not is_complete:
        lines.append("[cut here: more of the page left out; scroll to see other parts]")
    return Observation(
        text="\n".join([*(tabs if len(tabs) > 1 else []), *lines]),
        url=page["url"],
        title=titles[active_tab],
        error=page["error"].split("\n")[0] or None,
        truncated=not is_complete,
        elements={
            entry["id"]: Element(entry["kind"], entry["name"], entry.get("value", ""), entry["box"])
            for entry in rendered_entries
        },
    )


class _AccessibilityTree:
    """Accessibility tree in document order."""

    def __init__(self, page: Mapping[str, Any]) -> None:
        self._nodes: dict[str, Node] = {node["key"]: node for node in page["nodes"]}
        self._root = page["nodes"][0]
        self._properties = page["properties"]  # properties of elements by bid
        # Names of fields; the text of their labels is then not listed again.
        self._labels = {n["name"] for n in page["nodes"] if _KINDS.get(n["role"]) in _LABELED}

    def entries(self) -> list[Entry]:
        """Return the entries for `browser.compact`: {text}, or {id, kind, name, ...}."""
        entries: list[Entry] = []
        label = None  # previous entry if it is the text of a label
        # A stack, because pages may be deeper than the recursion limit of Python.
        stack = [(self._root, False)]
        while stack:
            node, in_label = stack.pop()
            role, name = node["role"], node["name"]
            entry = self._make_element(node)
            if role == "StaticText":
                if name and not (in_label and name in self._labels):
                    entries.append({"text": name})
                    label = entries[-1] if in_label else None
            elif entry:
                # An unnamed field takes the text of the label right before it, which is removed.
                if label and not entry["name"] and entry["kind"] in _LABELED:
                    entry["name"] = entries.pop()["text"]
                entries.append(entry)
                label = None
            elif role == "row" and not self._contains_elements(node):
                # A row of plain cells becomes one line, as in `compact.js`.
                if text := self._row_text(node):
                    entries.append({"text": text})
            else:
                if role == "image" and name:
                    entries.append({"text": f"image {name}"})
                in_child_label = in_label or role == "LabelText"
                # Reversed, because the stack returns the last child first.
                stack += [(child, in_child_label) for child in reversed(self._children(node))]
        return entries

    def _make_element(self, node: Node) -> dict[str, Any] | None:
        """Return the entry of an element; None if no action applies to the node itself."""
        properties = self._properties.get(node["bid"]) or {}
        kind = self._kind(node, is_marked=bool(properties.get("set_of_marks")))
        if node["bid"] is None or not kind:
            return None
        x, y, width, height = properties.get("bbox") or (0.0, 0.0, 0.0, 0.0)
        entry = {
            "id": node["bid"],
            "kind": kind,
            "name": node["name"] or ("" if kind in _LABELED else self._text_content(node)),
            "value": node["value"] if kind in _LABELED else "",
            "disabled": bool(node["state"].get("disabled")),
            "box": (x, y, width, height),
            "above": y + height < 0,
        }
        if kind in ("checkbox", "radio"):
            entry["value"] = "on" if str(node["state"].get("checked")).lower() == "true" else "off"
        if kind == "select":
            entry["options"] = [n["name"] for n in self._descendants(node) if n["role"] == "option"]
        return entry

    def _kind(self, node: Node, is_marked: bool) -> str:
        """Return the kind of an element; empty for other nodes.

        Args:
            node: node of the tree.
            is_marked: whether BrowserGym's heuristic classifies the node as an element.
        """
        # Drop-down lists, editable fields and buttons share this role.
        if node["role"] == "combobox":
            if any(child["role"] == "MenuListPopup" for child in self._children(node)):
                return "select"
            return "textbox" if node["state"].get("editable") else "button"
        if is_marked and node["role"] not in _KINDS:
            return "" if self._contains_elements(node) else "item"
        return _KINDS.get(node["role"], "")

    def _contains_elements(self, node: Node) -> bool:
        return any(descendant["role"] in _KINDS for descendant in self._descendants(node))

    def _row_text(self, row: Node) -> str:
        cells = [
            (child["role"], child["name"] or self._text_content(child))
            for child in self._children(row)
        ]
        # An empty cell keeps its column. Other nodes, such as line breaks, have none.
        texts = [text for role, text in cells if text or role in _CELL_ROLES]
        while texts and not texts[-1]:
            texts.pop()
        # Of the two spaces at an empty cell, one remains; at the start of the line, none.
        return " ".join(" | ".join(texts).split())

    def _text_content(self, node: Node) -> str:
        return " ".join(n["name"] for n in self._descendants(node) if n["role"] == "StaticText")

    def _children(self, node: Node) -> list[Node]:
        # A node may list itself or a node that the tree omits; a cycle would never end.
        keys = (key for key in node["children"] if key != node["key"])
        return [self._nodes[key] for key in keys if key in self._nodes]

    def _descendants(self, node: Node) -> Iterator[Node]:
        stack = self._children(node)[::-1]
        while stack:
            yield stack[-1]
            stack += self._children(stack.pop())[::-1]
