"""Small tokenizers with the control tokens of published tokenizer families.

Pre-tokenizers, added tokens with their flags, and the behavior of chat templates match the
families. Vocabularies are trained here; templates are independent implementations.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path

from tokenizers import (
    AddedToken,
    Regex,
    Tokenizer,
    decoders,
    models,
    normalizers,
    pre_tokenizers,
    trainers,
)

_PRETOKENIZER_PATTERN = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|NUMBER| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)
_CHATML = (
    "{% for m in messages %}{% if loop.first and m['role'] != 'system' %}"
    "{{ '<|im_start|>system\nDEFAULT<|im_end|>\n' }}{% endif %}"
    "{{ '<|im_start|>' + m['role'] + '\n' + m['content'] + '<|im_end|>\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
# Thinks unless enable_thinking is false; removes thoughts of earlier responses.
_QWEN3 = (
    "{% for m in messages %}{% set text = m['content'] %}{% if m['role'] == 'assistant' %}"
    "{% set text = text.split('</think>')[-1].lstrip('\n') %}{% endif %}"
    "{{ '<|im_start|>' + m['role'] + '\n' + text + '<|im_end|>\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}"
    "{% if enable_thinking is defined and enable_thinking is false %}"
    "{{ '<think>\n\n</think>\n\n' }}{% endif %}{% endif %}"
)
# Writes no token around the system message; removes thoughts of earlier responses.
_DEEPSEEK_DISTILL = (
    "{{ bos_token }}{% for m in messages %}{% set text = m['content'] %}"
    "{% if m['role'] == 'system' %}{{ text }}"
    "{% elif m['role'] == 'user' %}{{ '<｜User｜>' + text }}"
    "{% else %}{{ '<｜Assistant｜>' + text.split('</think>')[-1] + eos_token }}{% endif %}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<｜Assistant｜><think>\n' }}{% endif %}"
)
_LLAMA_MESSAGE = (
    "{{ '<|start_header_id|>' + m['role'] + '<|end_header_id|>\n\n' + m['content'] | trim"
    " + '<|eot_id|>' }}"
)
_LLAMA = (
    "{{ bos_token }}{% set date = strftime_now('%d %b %Y') %}"
    "{% if messages[0]['role'] == 'system' %}{% set first = messages[0]['content'] | trim %}"
    "{% set messages = messages[1:] %}{% else %}{% set first = '' %}{% endif %}"
    "{{ '<|start_header_id|>system<|end_header_id|>\n\nToday Date: ' + date + '\n\n' + first"
    " + '<|eot_id|>' }}"
    "{% for m in messages %}" + _LLAMA_MESSAGE + "{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|start_header_id|>assistant<|end_header_id|>\n\n' }}"
    "{% endif %}"
)


@dataclass(frozen=True)
class Family:
    eos: str
    control: tuple[str, ...]
    template: str
    words: tuple[str, ...] = ()  # added tokens other than control tokens
    roles: tuple[str, ...] = ()  # control tokens without the flag `special`
    digits: str = ""  # digits in the pre-tokenizer pattern; empty: GPT-2 pattern, single digits
    nfc: bool = False
    ignore_merges: bool = False
    in_vocabulary: bool = False  # training includes the control tokens, which have the first ids
    bos: str | None = None


FAMILIES = {
    "qwen2.5": Family(
        eos="<|im_end|>",
        control=(
            *("<|endoftext|>", "<|im_start|>", "<|im_end|>"),
            *(
                f"<|{name}_{end}|>"
                for name in ("object_ref", "box", "quad")
                for end in ("start", "end")
            ),
            *(f"<|vision_{end}|>" for end in ("start", "end", "pad")),
            *("<|image_pad|>", "<|video_pad|>"),
        ),
        template=_CHATML.replace("DEFAULT", "You are Qwen, created by Alibaba Cloud."),
        words=(
            *("<tool_call>", "</tool_call>"),
            *(f"<|fim_{part}|>" for part in ("prefix", "middle", "suffix", "pad")),
            *("<|repo_name|>", "<|file_sep|>"),
            *("<tool_response>", "</tool_response>", "<think>", "</think>"),  # Qwen3
        ),
        digits=r"\p{N}",
        nfc=True,
    ),
    "llama3": Family(
        eos="<|eot_id|>",
        bos="<|begin_of_text|>",
        control=(
            *("<|begin_of_text|>", "<|end_of_text|>", "<|reserved_special_token_0|>"),
            *("<|reserved_special_token_1|>", "<|finetune_right_pad_id|>"),
            *("<|reserved_special_token_2|>", "<|start_header_id|>", "<|end_header_id|>"),
            *("<|eom_id|>", "<|eot_id|>", "<|python_tag|>"),
            *(f"<|reserved_special_token_{n}|>" for n in range(3, 248)),
        ),
        template=_LLAMA,
        digits=r"\p{N}{1,3}",
        ignore_merges=True,
    ),
    "smollm2": Family(
        eos="<|im_end|>",
        control=(
            *("<|endoftext|>", "<|im_start|>", "<|im_end|>", "<repo_name>", "<reponame>"),
            *("<file_sep>", "<filename>", "<gh_stars>", "<issue_start>", "<issue_comment>"),
            *("<issue_closed>", "<jupyter_start>", "<jupyter_text>", "<jupyter_code>"),
            *("<jupyter_output>", "<jupyter_script>", "<empty_output>"),
        ),
        template=_CHATML.replace("DEFAULT", "You are a helpful AI assistant named SmolLM."),
        in_vocabulary=True,
    ),
}

DEEPSEEK_DISTILL = Family(
    eos="<｜end▁of▁sentence｜>",
    bos="<｜begin▁of▁sentence｜>",
    control=("<｜end▁of▁sentence｜>", "<｜begin▁of▁sentence｜>"),
    roles=("<｜User｜>", "<｜Assistant｜>"),
    template=_DEEPSEEK_DISTILL,
    words=(
        *("<|EOT|>", "<think>", "</think>"),
        *(f"<｜fim▁{part}｜>" for part in ("hole", "begin", "end")),
        *(f"<｜tool▁{part}｜>" for part in ("calls▁begin", "calls▁end", "sep")),
    ),
    digits=r"\p{N}",
    nfc=True,
)
QWEN3 = replace(FAMILIES["qwen2.5"], template=_QWEN3)


def write_tokenizer(family: Family, directory: Path, texts: Iterable[str]) -> None:
    """Write a Hugging Face directory with a tokenizer of the family, trained on `texts`."""
    tokenizer = Tokenizer(models.BPE(ignore_merges=family.ignore_merges))
    if family.nfc:
        tokenizer.normalizer = normalizers.NFC()
    if family.digits:
        pattern = Regex(_PRETOKENIZER_PATTERN.replace("NUMBER", family.digits))
        split = pre_tokenizers.Split(pattern, "isolated")
    else:
        split = pre_tokenizers.Digits(individual_digits=True)
    byte_level = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=not family.digits)
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([split, byte_level])
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=1000,
        special_tokens=list(family.control) if family.in_vocabulary else [],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator([*texts, *family.control], trainer)
    tokenizer.add_special_tokens(
        [AddedToken(token, normalized=False, special=True) for token in family.control]
    )
    tokenizer.add_tokens(
        [AddedToken(word, normalized=False) for word in (*family.roles, *family.words)]
    )
    directory.mkdir(parents=True, exist_ok=True)
    tokenizer.save(str(directory / "tokenizer.json"))
    config = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "eos_token": family.eos,
        "chat_template": family.template,
        "clean_up_tokenization_spaces": False,
    }
    if family.bos:
        config["bos_token"] = family.bos
    (directory / "tokenizer_config.json").write_text(json.dumps(config))
