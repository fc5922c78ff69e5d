"""Tokenizer of webagent-tiny: a byte-level BPE that separates words from spaces.

A tiny model finds elements by matching tokens. A word must therefore have the same tokens in every
position: at the start of a line, inside quotes, after a space. Spaces are separate tokens. The most
frequent phrases of the observation and the grammar are one token each. Numbers are split into pairs
of digits, so that an element id is one token.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers, trainers

_SPLIT = r"\p{L}+|\p{N}{1,2}| |\n|[^\s\p{L}\p{N}]|\s+"
END = "<|end|>"
SPECIAL = ("<|pad|>", END, "<|system|>", "<|user|>", "<|assistant|>")
_KINDS = ("button", "link", "textbox", "radio on", "radio off", "checkbox on", "checkbox off")
PHRASES = (
    *(f"{kind} " for kind in (*_KINDS, "select", "item", "option")),
    " [",
    "]\n",
    "] = ",
    "<think> ",
    " </think> <answer> do(action=\"",
    "] </think> <answer> do(action=\"",
    " </think> <answer> ",
    "] </think> <answer> ",
    "# Element: ",
    "Task: ",
    ": ",
    "do(action=\"",
    "\", argument=\"",
    "\", element=\"",
    "\") </answer>",
    "exit(message=\"",
    "Select Dropdown Option",
    "Press Enter",
    "Scroll Down",
    "Scroll Up",
    "Page ",
    " = ",
    " | ",
    ", ",
    " \"",
    "\" ",
    " (",
    "\" in ",
)  # fmt: skip

_CHAT_TEMPLATE = (
    "{% for message in messages %}<|{{ message['role'] }}|>{{ message['content'] }}<|end|>"
    "{% endfor %}{% if add_generation_prompt %}<|assistant|>{% endif %}"
)


def train(texts: Iterable[str], directory: Path, vocab_size: int = 2048) -> None:
    """Train the tokenizer and write it in Hugging Face format.

    Args:
        texts: training texts.
        directory: output for tokenizer.json, tokenizer_config.json, generation_config.json and
            chat_template.jinja.
        vocab_size: number of tokens, including special tokens and `PHRASES`.
    """
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(_SPLIT), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        # The phrases are added after training and complete the vocabulary.
        vocab_size=vocab_size - len(PHRASES),
        special_tokens=list(SPECIAL),
        # All 256 bytes, so that every text can be encoded.
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    # Added tokens are matched before the text is split, so phrases may include spaces.
    tokenizer.add_tokens([AddedToken(phrase, normalized=False) for phrase in PHRASES])
    directory.mkdir(parents=True, exist_ok=True)
    tokenizer.save(str(directory / "tokenizer.json"))
    config = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "eos_token": END,
        "pad_token": SPECIAL[0],
        "clean_up_tokenization_spaces": False,
        "model_max_length": 2048,
    }
    (directory / "tokenizer_config.json").write_text(json.dumps(config, indent=2) + "\n")
    # transformers stops a response at these tokens.
    stop = {"eos_token_id": tokenizer.token_to_id(END)}
    (directory / "generation_config.json").write_text(json.dumps(stop) + "\n")
    (directory / "chat_template.jinja").write_text(_CHAT_TEMPLATE)
