"""Hugging Face tokenizers and chat templates, token in, token out.

The chat template of the model renders a prompt, but responses of the policy enter it as the sampled
ids. Only the text around the responses is encoded.

Control tokens come from the template only. If a page, a task or an error contains the text of one,
such as `<|im_end|>`, it is encoded as ordinary characters, so no page can end or start a message. A
control token is an added token with the flag `special`, or one that the config names or the
template writes around messages. Policies and pages may write other added tokens, such as
`<tool_call>` of Qwen.

The thinking mode of a template (Qwen3) is off, because the system message asks for thoughts itself.
"""

from __future__ import annotations

import json
import os
import re
import secrets
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

import jinja2
import numpy as np

from webagent_jax.config import ConfigError
from webagent_jax.types import IntArray, Message

_MAX_STOP_IDS = 8  # `MAX_STOP_IDS` of the engine, which is not imported: it needs JAX
# The template of Llama 3.2 writes the date, but a prompt must not depend on the day. A macro
# replaces the function of the date, because transformers passes no functions to a template. Without
# the function, Meta's templates write the date below. The line break at the end keeps the template
# at the beginning of a line, which affects its white space.
_CURRENT_DATE = "strftime_now"
_FIXED_DATE = f"{{% macro {_CURRENT_DATE}(format) %}}26 Jul 2024{{% endmacro %}}\n"


class ChatTokenizer:
    """Thread-safe tokenizer of one Hugging Face directory.

    It uses the pre-tokenizer of tokenizer.json. AutoTokenizer would replace it with that of the
    model type in config.json.
    """

    def __init__(self, directory: str | Path) -> None:
        """Load the tokenizer.

        Raises:
            FileNotFoundError: there is no tokenizer.json.
            ConfigError: there is no chat template, it rejects system messages or omits messages,
                the vocabulary of the model is smaller, or the tokenizer cannot separate text from
                control tokens.
        """
        # The import would otherwise warn that torch, which is not needed, is missing.
        os.environ.setdefault("TRANSFORMERS_NO_ADVISORY_WARNINGS", "1")
        # The import is slow, so it happens on first use.
        from transformers import PreTrainedTokenizerFast

        self._directory = Path(directory)
        if not (Path(directory) / "tokenizer.json").is_file():
            raise FileNotFoundError(
                f"no tokenizer.json in {directory}; "
                "save the tokenizer there with transformers, as a fast tokenizer"
            )
        # split_special_tokens: text that spells a control token is encoded as ordinary characters.
        try:
            self._tokenizer: Any = PreTrainedTokenizerFast.from_pretrained(
                str(directory), split_special_tokens=True
            )
        except Exception as error:  # of many types: truncated JSON, unknown parts, missing fields
            raise ConfigError(
                f"the tokenizer at {directory} cannot be read ({error!r}); copy its files again"
            ) from error
        template = self._read_template()
        self._template = f"{_FIXED_DATE}{template}" if _CURRENT_DATE in template else template
        self._mark = secrets.token_hex(8)  # random, so that no page can contain it
        # Later turns and other attempts contain the same texts.
        self._encode_text = lru_cache(maxsize=4096)(self._encode_uncached)
        self._check_template()
        self._opening = self._find_opening()
        self._control_tokens = self._find_control_tokens()
        self._control_ids = {token: number for number, token in self._control_tokens.items()}
        # Alternation takes the first match, so a token comes before those that it begins with.
        # (?!) matches nothing.
        longest_first = sorted(self._control_ids, key=len, reverse=True)
        self._control = re.compile(f"({'|'.join(map(re.escape, longest_first)) or '(?!)'})")
        self._escaped = re.compile(rf"\[{self._mark}:(\d+)\]")
        self.stop_ids = self._find_stop_ids()
        self._check_vocabulary()
        self._check_control_tokens()

    def encode(self, text: str) -> IntArray:
        """Return the int32 ids [T] of the text, without added or control tokens; read-only."""
        return self._encode_text(text)

    def decode(self, ids: Sequence[int] | IntArray) -> str:
        """Return the text of the ids, without a stop token at the end."""
        text_ids = [int(i) for i in ids]
        if text_ids and text_ids[-1] in self.stop_ids:
            text_ids = text_ids[:-1]
        # A config may enable the cleanup, which would remove spaces before punctuation.
        return str(
            self._tokenizer.decode(
                text_ids, skip_special_tokens=False, clean_up_tokenization_spaces=False
            )
        )

    def encode_response(self, text: str) -> IntArray:
        """Return the int32 ids [T] of a response as the policy samples it, stop token included."""
        return np.append(self.encode(text), np.int32(self.stop_ids[0]))

    def prompt_ids(self, conversation: Sequence[Message]) -> IntArray:
        """Return the int32 ids [P] of the conversation up to the start of the next response."""
        # 1. Render the template with a mark for each response.
        responses = [m for m in conversation if m.role == "assistant"]
        marks = iter(self._marks(len(responses)))
        rendered = self._render(
            [
                (m.role, next(marks) if m.role == "assistant" else self._escape(m.text))
                for m in conversation
            ]
        )
        # 2. Encode the text between the marks, and insert the sampled ids.
        segments: list[IntArray] = []
        for mark, response in zip(self._marks(len(responses)), responses, strict=True):
            prefix, rendered = rendered.split(mark, 1)
            segments.append(self._encode_next(segments, prefix + self._opening))
            ids = self.encode(response.text) if response.token_ids is None else response.token_ids
            segments.append(np.asarray(ids, np.int32))
        segments.append(self._encode_next(segments, rendered))
        return np.concatenate(segments)

    def _read_template(self) -> str:
        """Return the chat template.

        Raises:
            ConfigError: there is none, or there are several without a default.
        """
        if not self._tokenizer.chat_template:
            raise ConfigError(
                f"the tokenizer at {self._directory} has no chat template; "
                "use an instruction-tuned model, or add chat_template.jinja to the directory"
            )
        try:
            return str(self._tokenizer.get_chat_template())
        except ValueError as error:
            raise ConfigError(
                f"the tokenizer at {self._directory} has several chat templates and none named "
                "default; rename one, or add chat_template.jinja to the directory"
            ) from error

    def _check_template(self) -> None:
        """Check that the template renders the text of every message.

        Raises:
            ConfigError: it does not, or it rejects the messages.
        """
        roles = ("system", "user", "assistant", "user")
        marks = self._marks(len(roles))
        # An error of this conversation is not about the system message.
        self._render([("user", "."), ("assistant", "."), ("user", ".")])
        rendered = self._render(list(zip(roles, marks, strict=True)))
        for role, mark in zip(roles, marks, strict=True):
            if mark not in rendered:
                raise ConfigError(
                    f"the chat template of {self._directory} omits or changes the text of {role} "
                    "messages: edit it, or use a model whose template contains them unchanged"
                )

    def _encode_next(self, segments: list[IntArray], text: str) -> IntArray:
        """Return the ids of rendered text; do not repeat the stop token of a sampled response."""
        ids = self._encode_rendered(text)
        # The template ends every response with a stop token. Sampled ids contain it already, unless
        # the response was cut at the length limit.
        has_stop = (
            bool(segments) and len(segments[-1]) > 0 and int(segments[-1][-1]) in self.stop_ids
        )
        return ids[1:] if has_stop and len(ids) and int(ids[0]) in self.stop_ids else ids

    def _encode_rendered(self, text: str) -> IntArray:
        """Return the ids of rendered text, with the control tokens of the template."""
        # Parts with an odd index are control tokens.
        segments = [
            np.asarray([self._control_ids[part]], np.int32)
            if index % 2
            else self._encode_text(self._unescape(part))
            for index, part in enumerate(self._control.split(text))
        ]
        return np.concatenate(segments)

    def _escape(self, text: str) -> str:
        """Return the text of a message with every control token in it replaced by a mark.

        The template still receives the rest of the text, because it may trim the text or test its
        beginning.
        """
        return self._control.sub(lambda t: f"[{self._mark}:{self._control_ids[t[0]]}]", text)

    def _unescape(self, text: str) -> str:
        """Return the text before `_escape`."""
        return self._escaped.sub(lambda mark: self._control_tokens[int(mark[1])], text)

    def _marks(self, count: int) -> list[str]:
        return [f"[{self._mark}-{index}]" for index in range(count)]

    def _render(self, roles_and_texts: Sequence[tuple[str, str]]) -> str:
        """Return the prompt of the messages.

        Raises:
            ConfigError: the chat template rejects the messages.
        """
        chat = [{"role": role, "content": text} for role, text in roles_and_texts]
        try:
            return str(
                self._tokenizer.apply_chat_template(
                    chat,
                    chat_template=self._template,
                    tokenize=False,
                    add_generation_prompt=True,
                    enable_thinking=False,  # ignored by templates other than that of Qwen3
                )
            )
        except jinja2.TemplateError as error:
            # `_check_template` has rendered a conversation without a system message.
            rejected = "a system message" if chat[0]["role"] == "system" else "a conversation"
            raise ConfigError(
                f"the chat template of {self._directory} rejects {rejected}: {error}; edit it, or "
                "use a model whose template accepts system messages"
            ) from error

    def _encode_uncached(self, text: str) -> IntArray:
        ids = np.asarray(self._tokenizer.encode(text, add_special_tokens=False), np.int32)
        ids.flags.writeable = False  # all users of the cached text share the array
        return ids

    def _find_control_tokens(self) -> dict[int, str]:
        """Return the control tokens by id, after flagging those of the config and the template."""
        tokenizer = self._tokenizer
        # tokenizer.json may not flag them: the role tokens of DeepSeek-R1-Distill have no flag.
        config_tokens = set(map(str, tokenizer.all_special_tokens))
        template_ids = self._template_ids()
        unflagged = [
            token
            for i, token in tokenizer.added_tokens_decoder.items()
            if not token.special and (token.content in config_tokens or i in template_ids)
        ]
        tokenizer.add_tokens(unflagged, special_tokens=True)
        return {i: t.content for i, t in tokenizer.added_tokens_decoder.items() if t.special}

    def _template_ids(self) -> set[int]:
        """Return the ids of the text that the template writes around messages.

        The text after the last message is not included, because it may contain `<think>`, which
        policies write themselves.
        """
        roles = ("system", "user", "assistant", "user")
        marks = self._marks(len(roles))
        text = self._render(list(zip(roles, marks, strict=True))).split(marks[-1], 1)[0]
        parts = re.split("|".join(map(re.escape, marks)), text)
        return {int(i) for part in parts for i in self._encode_uncached(part)}

    def _check_vocabulary(self) -> None:
        """Check that the model has all tokens; a tokenizer without config.json has no model.

        Raises:
            ConfigError: it has fewer.
        """
        size = _read_fields(self._directory / "config.json").get("vocab_size")
        # No text contains padding; its token is often one more than the model has.
        last_id = max(set(self._tokenizer.get_vocab().values()) - {self._tokenizer.pad_token_id})
        if isinstance(size, int) and last_id >= size:
            raise ConfigError(
                f"the tokenizer at {self._directory} has token ids up to {last_id}, but "
                f"config.json has vocab_size={size}; copy tokenizer and weights of the same model"
            )

    def _check_control_tokens(self) -> None:
        """Check that the tokenizer separates text from control tokens.

        Raises:
            ConfigError: it does not.
        """
        # Written as text, no control token may be encoded as a control id.
        text_ids = [i for token in self._control_ids for i in self._encode_uncached(token)]
        rendered = self._render(
            [("system", "Act."), ("user", "Say a"), ("assistant", "b"), ("user", "c")]
        )
        # The ids of a conversation must be those of the tokenizer itself.
        expected_ids = self._tokenizer.encode(
            rendered, add_special_tokens=False, split_special_tokens=False
        )
        ids = self._encode_rendered(rendered).tolist()
        if ids != expected_ids or not self._control_tokens.keys().isdisjoint(text_ids):
            raise ConfigError(
                f"the tokenizer at {self._directory} does not separate text from control tokens; "
                "use a byte-level tokenizer, such as those of Llama 3, Qwen2.5 and Qwen3"
            )

    def _find_stop_ids(self) -> tuple[int, ...]:
        """Return the ids of the template's token after a response and of the ends of text.

        Raises:
            ConfigError: there is none, or generation_config.json is damaged.
        """
        (mark,) = self._marks(1)
        suffix = self._render([("user", "."), ("assistant", mark), ("user", ".")]).split(mark, 1)[1]
        # A stop token is the control token that directly follows a response.
        token = self._control.match(suffix)
        ids = [self._control_ids[token[0]]] if token else []
        if self._tokenizer.eos_token_id is not None:
            ids.append(self._tokenizer.eos_token_id)
        # Instruct models have several: Llama 3 also ends a response with <|eom_id|>.
        eos_ids = _generation_eos_ids(self._directory)
        ids += (i for i in eos_ids if 0 <= i < len(self._tokenizer))
        if not ids:
            raise ConfigError(
                "neither the chat template nor the tokenizer defines an end of the response; "
                "use an instruction-tuned model"
            )
        # The token of the template stays first: `encode_response` appends it.
        return tuple(dict.fromkeys(ids))[:_MAX_STOP_IDS]

    def _find_opening(self) -> str:
        """Return the text that the template adds before the next response but not before past ones.

        It is the empty thought of Qwen3. Prompts repeat it before past responses, so that each
        response follows the text from which it was sampled.
        """
        (mark,) = self._marks(1)
        past = self._render([("user", "."), ("assistant", mark), ("user", ".")]).split(mark, 1)[0]
        current = self._render([("user", ".")])
        return current[len(past) :] if current.startswith(past) else ""


def _generation_eos_ids(directory: Path) -> list[int]:
    """Return `eos_token_id` of generation_config.json, a number or a list; empty if it has none.

    Raises:
        ConfigError: the file is damaged.
    """
    file = directory / "generation_config.json"
    ids = _read_fields(file).get("eos_token_id")
    try:
        return [int(i) for i in (ids if isinstance(ids, list) else [ids]) if i is not None]
    except (TypeError, ValueError) as error:
        raise ConfigError(f"{file} is damaged ({error}): copy the file again") from error


def _read_fields(file: Path) -> dict[str, Any]:
    """Return the content of a JSON file; empty if there is no file.

    Raises:
        ConfigError: the file is damaged.
    """
    try:
        return dict(json.loads(file.read_text(encoding="utf-8")) if file.is_file() else {})
    except (TypeError, ValueError) as error:
        raise ConfigError(f"{file} is damaged ({error}): copy the file again") from error
