"""Hugging Face tokenizers and chat templates, token in, token out.

A prompt is rendered by the model's own chat template, but what the policy sampled enters it as the
very ids that were sampled: the text around the replies is encoded, the replies never are.

Control tokens come from the template alone. Where a page, a task or an error spells one, as in
`<|im_end|>`, its characters are encoded as any others, so that no page ends a message or begins
one. A control token is an added token with the flag `special`; other added tokens, such as Qwen's
`<tool_call>`, are words that a policy may write, and pages too.
"""

from __future__ import annotations

import os
import re
import secrets
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from webagent_jax.types import IntArray, Message


class ChatTokenizer:
    """The tokenizer of one Hugging Face directory. Safe to call from several threads.

    tokenizer.json is taken at its word. AutoTokenizer would look at the model type in config.json
    and put that family's own pre-tokenizer in the place of the one the file has.
    """

    def __init__(self, directory: str | Path) -> None:
        """
        Raises:
            FileNotFoundError: there is no tokenizer.json.
            ValueError: there is no chat template, or the tokenizer cannot keep text and control
                tokens apart.
        """
        # At its import it would say that torch is not there, which nobody here misses.
        os.environ.setdefault("TRANSFORMERS_NO_ADVISORY_WARNINGS", "1")
        # Slow to import: only who tokenizes pays for it.
        from transformers import PreTrainedTokenizerFast

        if not (Path(directory) / "tokenizer.json").is_file():
            raise FileNotFoundError(
                f"no tokenizer.json in {directory}; "
                "save the tokenizer there with transformers, as a fast tokenizer"
            )
        self._tokenizer: Any = PreTrainedTokenizerFast.from_pretrained(
            str(directory), split_special_tokens=True
        )
        if not self._tokenizer.chat_template:
            raise ValueError(
                f"the tokenizer at {directory} has no chat template; "
                "use an instruction-tuned model, or add chat_template.jinja to the directory"
            )
        self._mark = secrets.token_hex(8)  # no page can hold it
        self._encode_text = lru_cache(maxsize=4096)(self._encode_uncached)
        self._control_tokens = self._find_control_tokens()
        self._control_ids = {token: number for number, token in self._control_tokens.items()}
        longest_first = sorted(self._control_ids, key=len, reverse=True)
        self._control = re.compile(f"({'|'.join(map(re.escape, longest_first)) or '(?!)'})")
        self._escaped = re.compile(rf"\[{self._mark}:(\d+)\]")
        self.stop_ids = self._find_stop_ids()
        self._check(directory)

    def encode(self, text: str) -> IntArray:
        """Ids of the text alone, without control tokens: nothing is added before or after it."""
        return np.asarray(self._encode_text(text), np.int32)

    def decode(self, ids: Sequence[int] | IntArray) -> str:
        """The text of the ids; a closing stop token is left out."""
        kept = [int(i) for i in ids]
        if kept and kept[-1] in self.stop_ids:
            kept = kept[:-1]
        return str(self._tokenizer.decode(kept, skip_special_tokens=False))

    def encode_reply(self, text: str) -> IntArray:
        """A reply as the policy would sample it, stop token included."""
        return np.append(self.encode(text), np.int32(self.stop_ids[0]))

    def prompt_ids(self, conversation: Sequence[Message]) -> IntArray:
        """Ids [P] of the conversation up to where the next reply begins."""
        replies = [m for m in conversation if m.role == "assistant"]
        marks = iter(self._marks(len(replies)))
        rendered = self._render(
            [
                (m.role, next(marks) if m.role == "assistant" else self._escape(m.text))
                for m in conversation
            ]
        )
        pieces: list[IntArray] = []
        for mark, reply in zip(self._marks(len(replies)), replies, strict=True):
            before, rendered = rendered.split(mark, 1)
            pieces.append(self._after(pieces, before))
            ids = self.encode(reply.text) if reply.token_ids is None else reply.token_ids
            pieces.append(np.asarray(ids, np.int32))
        pieces.append(self._after(pieces, rendered))
        return np.concatenate(pieces)

    def _after(self, pieces: list[IntArray], text: str) -> IntArray:
        """Ids of rendered text; a stop token that the reply before it sampled is not repeated."""
        ids = self._encode_rendered(text)
        stopped = bool(pieces) and len(pieces[-1]) > 0 and int(pieces[-1][-1]) in self.stop_ids
        return ids[1:] if stopped and len(ids) and int(ids[0]) in self.stop_ids else ids

    def _encode_rendered(self, text: str) -> IntArray:
        """Ids of rendered text: the template's control tokens, and the text between two of them."""
        ids: list[int] = []
        for index, part in enumerate(self._control.split(text)):  # the odd ones are control tokens
            ids += [self._control_ids[part]] if index % 2 else self._encode_text(self._plain(part))
        return np.asarray(ids, np.int32)

    def _escape(self, text: str) -> str:
        """The text of a message, with a mark for every control token that it spells.

        The rest stays in sight of the template, which may trim it, or ask how it begins.
        """
        return self._control.sub(lambda t: f"[{self._mark}:{self._control_ids[t[0]]}]", text)

    def _plain(self, text: str) -> str:
        """The text of which `_escape` made this."""
        return self._escaped.sub(lambda mark: self._control_tokens[int(mark[1])], text)

    def _marks(self, count: int) -> list[str]:
        return [f"[{self._mark}-{index}]" for index in range(count)]

    def _render(self, roles_and_texts: Sequence[tuple[str, str]]) -> str:
        chat = [{"role": role, "content": text} for role, text in roles_and_texts]
        return str(
            self._tokenizer.apply_chat_template(chat, tokenize=False, add_generation_prompt=True)
        )

    def _encode_uncached(self, text: str) -> tuple[int, ...]:
        return tuple(self._tokenizer.encode(text, add_special_tokens=False))

    def _find_control_tokens(self) -> dict[int, str]:
        """The control tokens by id; those that the config names are made so where they are not."""
        tokenizer = self._tokenizer
        named = set(map(str, tokenizer.all_special_tokens))
        unflagged = [t for t in tokenizer.added_tokens_decoder.values() if not t.special]
        tokenizer.add_tokens([t for t in unflagged if t.content in named], special_tokens=True)
        return {i: t.content for i, t in tokenizer.added_tokens_decoder.items() if t.special}

    def _check(self, directory: str | Path) -> None:
        """Raises ValueError for a tokenizer of which the rest of this class would not be true."""
        spelled = [i for token in self._control_ids for i in self._encode_uncached(token)]
        rendered = self._render([("user", "Say a"), ("assistant", "b"), ("user", "c")])
        whole = self._tokenizer.encode(
            rendered, add_special_tokens=False, split_special_tokens=False
        )
        in_parts = self._encode_rendered(rendered).tolist()
        if in_parts != whole or not self._control_tokens.keys().isdisjoint(spelled):
            raise ValueError(
                f"the tokenizer at {directory} does not encode text apart from control tokens; "
                "use a byte-level one, such as those of Llama 3, Qwen2.5 and Qwen3"
            )

    def _find_stop_ids(self) -> tuple[int, ...]:
        """What ends a reply: the token the chat template puts behind one, and the end of text."""
        (mark,) = self._marks(1)
        behind = self._render([("user", "."), ("assistant", mark), ("user", ".")]).split(mark, 1)[1]
        token = self._control.match(behind)
        ids = [self._control_ids[token[0]]] if token else []
        if self._tokenizer.eos_token_id is not None:
            ids.append(self._tokenizer.eos_token_id)
        if not ids:
            raise ValueError("neither the chat template nor the tokenizer names an end of reply")
        return tuple(dict.fromkeys(ids))
