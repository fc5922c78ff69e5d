"""The pages of the cache, as the host keeps account of them: who holds which, and what is in them.

A page holds the keys and values of a fixed number of tokens. Full pages of prompts stand in a
prefix tree (as in SGLang's RadixAttention, arXiv 2312.07104, with a page to an edge): a prompt
that begins as another did holds the same pages, and they are not computed again. What nobody holds
stays in the tree until its page is needed: the least recently used goes first.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

from webagent_jax.types import IntArray

TRASH = 0
"""The page that nobody holds: what is written for no sequence goes there."""


@dataclass(eq=False, slots=True)
class Node:
    """One full page of prompts that begin alike."""

    page: int
    key: bytes  # the tokens of the page, and at the top of the tree of what stands before it
    parent: Node | None  # None at the root, and once the tree has forgotten the node
    children: dict[bytes, Node] = field(default_factory=dict)
    holders: int = 0  # leases


@dataclass(eq=False, slots=True)
class Lease:
    """The pages of one sequence, in order of its tokens; the first of them shared."""

    pages: list[int]
    path: list[Node]
    matched: int  # nodes of the path that were there before
    cached: int  # tokens of those

    @property
    def counted_on(self) -> bool:
        """Whether another lease counts on pages that this one is to fill."""
        return any(node.holders > 1 for node in self.path[self.matched :])


class PageCache:
    """Hands out pages 1 to `pages` - 1. For one thread.

    A node is in the tree from the moment its page is leased, before it is filled: pages have to be
    filled in the order of their leases.
    """

    def __init__(self, pages: int, page_tokens: int) -> None:
        self._page_tokens = page_tokens
        self._root = Node(TRASH, b"", None)
        self._free = deque(range(1, pages))
        # Nodes that nobody holds, least recently held first. A node's holders hold its ancestors
        # too, and leases end at the leaf: so children always stand before their parents here.
        self._idle: dict[Node, None] = {}

    @property
    def available(self) -> int:
        """Pages that could be leased now."""
        return len(self._free) + len(self._idle)

    def lease(self, prompt: IntArray, tokens: int, *, before: int = 0) -> Lease | None:
        """Pages for a sequence of so many tokens that begins with `prompt`, int32 [P], but for the
        first of them that are kept elsewhere.

        Only whole pages of the prompt are shared. None when there are not enough pages: some
        lease has to end first.
        """
        size = self._page_tokens
        ends = range(before + size, len(prompt) + 1, size)
        keys = [prompt[end - size : end].tobytes() for end in ends]
        if keys:
            keys[0] = prompt[: before + size].tobytes()
        path = self._match(keys)
        matched, wanted = len(path), -(-(tokens - before) // size)
        for node in path:
            self._hold(node)
        if wanted - matched > self.available:
            self._let_go(path)
            return None
        for key in keys[matched:]:
            parent = path[-1] if path else self._root
            node = Node(self._take(), key, parent, holders=1)
            parent.children[key] = node
            path.append(node)
        own = [self._take() for _ in range(wanted - len(path))]
        return Lease([*(node.page for node in path), *own], path, matched, matched * size)

    def end(self, lease: Lease, *, filled: bool = True) -> None:
        """Takes the pages back. Those of the tree stay in it, unless they were not all filled."""
        if not filled and lease.matched < len(lease.path):
            self._cut_off(lease.path[lease.matched])
        self._free.extend(lease.pages[len(lease.path) :])
        self._let_go(lease.path)

    def forget(self) -> None:
        """Empties the tree. Leases keep what they hold until they end."""
        for node in list(self._root.children.values()):
            self._cut_off(node)

    def _match(self, keys: list[bytes]) -> list[Node]:
        path: list[Node] = []
        children = self._root.children
        for key in keys:
            if key not in children:
                break
            path.append(children[key])
            children = path[-1].children
        return path

    def _hold(self, node: Node) -> None:
        node.holders += 1
        self._idle.pop(node, None)

    def _let_go(self, path: list[Node]) -> None:
        for node in reversed(path):
            node.holders -= 1
            if node.holders == 0:
                if node.parent is None:
                    self._free.append(node.page)
                else:
                    self._idle[node] = None

    def _take(self) -> int:
        """A free page, or the least recently used one."""
        if not self._free:
            node = next(iter(self._idle))
            del self._idle[node]
            assert node.parent is not None and not node.children
            del node.parent.children[node.key]
            return node.page
        return self._free.popleft()

    def _cut_off(self, top: Node) -> None:
        """Takes `top` and all below it out of the tree; what nobody holds is free at once."""
        if top.parent is None:
            return
        del top.parent.children[top.key]
        below = [top]
        while below:
            node = below.pop()
            below += node.children.values()
            node.parent = None
            node.children.clear()
            if node.holders == 0:
                del self._idle[node]
                self._free.append(node.page)
