"""Allocation of KV cache pages on the host, with prefix caching.

A page stores the keys and values of a fixed number of tokens. Full pages of prompts are nodes of a
prefix tree, one page per edge (as in SGLang's RadixAttention, arXiv 2312.07104). Prompts with a
common prefix share its pages, which are computed once. Unreferenced pages stay in the tree until
they are needed; the least recently used one is evicted first.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

from webagent_jax.types import IntArray

NULL_PAGE = 0
"""Page that is never allocated; padding and inactive slots are written to it."""


@dataclass(eq=False, slots=True)
class Node:
    """Node of the prefix tree: one full page of prompts with a common prefix."""

    page: int  # index of the page
    key: bytes  # tokens of the page; at the top of the tree also those of the shared prefix
    parent: Node | None  # None at the root and for detached nodes
    children: dict[bytes, Node] = field(default_factory=dict)  # next pages by key
    ref_count: int = 0  # number of allocations that use the page


@dataclass(eq=False, slots=True)
class PageAllocation:
    """Pages of one sequence in token order; those of `path` come first and are shared."""

    pages: list[int]  # page indices
    path: list[Node]  # nodes of the full prompt pages, from the top of the tree
    num_matched_nodes: int  # leading nodes of the path that existed before the allocation
    num_cached_tokens: int  # tokens of the matched nodes

    @property
    def has_dependents(self) -> bool:
        """True if another allocation depends on pages that this one fills."""
        return any(node.ref_count > 1 for node in self.path[self.num_matched_nodes :])


class PrefixCache:
    """Allocator of pages 1 to `num_pages` - 1, shared by common prefixes; not thread-safe.

    A node enters the tree when its page is allocated, before the page is filled. Pages must
    therefore be filled in the order of their allocations.
    """

    def __init__(self, num_pages: int, page_tokens: int) -> None:
        self._page_tokens = page_tokens
        self._root = Node(NULL_PAGE, b"", None)
        self._free = deque(range(1, num_pages))
        # Unreferenced nodes, least recently used first. An allocation references all nodes of its
        # path and releases them from the leaf up, so children always precede their parents here.
        self._evictable: dict[Node, None] = {}

    @property
    def num_free_pages(self) -> int:
        """Number of pages that can be allocated now, evictable ones included."""
        return len(self._free) + len(self._evictable)

    def allocate(
        self, prompt: IntArray, max_length: int, *, prefix_len: int = 0
    ) -> PageAllocation | None:
        """Allocate the pages of a sequence; return None if there are not enough.

        Only full pages of the prompt are shared.

        Args:
            prompt: token ids int32 [P] that the sequence starts with.
            max_length: maximum length of the sequence.
            prefix_len: length of the shared prefix, which is stored outside the pages.
        """
        # 1. Match the full prompt pages that are in the tree.
        size = self._page_tokens
        ends = range(prefix_len + size, len(prompt) + 1, size)
        keys = [prompt[end - size : end].tobytes() for end in ends]
        if keys:
            # Keys and values depend on all tokens before them, those of the shared prefix included.
            keys[0] = prompt[: prefix_len + size].tobytes()
        path = self._match(keys)
        num_matched, num_pages = len(path), -(-(max_length - prefix_len) // size)
        # 2. Reference the matched pages before counting: evictable pages count as free.
        for node in path:
            self._acquire(node)
        if num_pages - num_matched > self.num_free_pages:
            self._release(path)
            return None
        # 3. Add a node for every other full prompt page; the pages after them are not shared.
        for key in keys[num_matched:]:
            parent = path[-1] if path else self._root
            node = Node(self._take(), key, parent, ref_count=1)
            parent.children[key] = node
            path.append(node)
        own_pages = [self._take() for _ in range(num_pages - len(path))]
        pages = [*(node.page for node in path), *own_pages]
        return PageAllocation(pages, path, num_matched, num_matched * size)

    def free(self, allocation: PageAllocation, *, is_filled: bool = True) -> None:
        """Free the pages of a sequence; its full prompt pages stay in the tree.

        Args:
            allocation: pages of the sequence.
            is_filled: whether all prompt pages were filled; if not, those that the allocation added
                leave the tree.
        """
        if not is_filled and allocation.num_matched_nodes < len(allocation.path):
            # All other nodes that the allocation added are below this one.
            self._detach(allocation.path[allocation.num_matched_nodes])
        self._free.extend(allocation.pages[len(allocation.path) :])
        self._release(allocation.path)

    def reset(self) -> None:
        """Empty the tree; allocations keep their pages until they are freed."""
        for node in list(self._root.children.values()):
            self._detach(node)

    def _match(self, keys: list[bytes]) -> list[Node]:
        path: list[Node] = []
        children = self._root.children
        for key in keys:
            if key not in children:
                break
            path.append(children[key])
            children = path[-1].children
        return path

    def _acquire(self, node: Node) -> None:
        node.ref_count += 1
        self._evictable.pop(node, None)

    def _release(self, path: list[Node]) -> None:
        for node in reversed(path):
            node.ref_count -= 1
            if node.ref_count == 0:
                # A detached node cannot be matched again, so its page is free at once.
                if node.parent is None:
                    self._free.append(node.page)
                else:
                    self._evictable[node] = None

    def _take(self) -> int:
        """Return a free page, or evict the least recently used one."""
        if not self._free:
            # The first node is the least recently used one, and a leaf (see `_evictable`).
            node = next(iter(self._evictable))
            del self._evictable[node]
            assert node.parent is not None and not node.children
            del node.parent.children[node.key]
            return node.page
        return self._free.popleft()

    def _detach(self, top: Node) -> None:
        """Remove `top` and its descendants from the tree; free the unreferenced ones."""
        # Already detached, together with a node above it.
        if top.parent is None:
            return
        del top.parent.children[top.key]
        stack = [top]
        while stack:
            node = stack.pop()
            stack += node.children.values()
            node.parent = None
            node.children.clear()
            # `_release` frees the page of a referenced node with its last allocation.
            if node.ref_count == 0:
                del self._evictable[node]
                self._free.append(node.page)
