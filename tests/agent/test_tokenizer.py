"""Tests of the chat tokenizer, which keeps sampled tokens in prompts."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path

import numpy as np
import pytest
from transformers import PreTrainedTokenizerFast

from tests.agent.families import FAMILIES, QWEN3, Family, write_tokenizer
from webagent_jax import policy
from webagent_jax.agent import ChatTokenizer
from webagent_jax.config import ConfigError
from webagent_jax.types import Message


@pytest.fixture(scope="module")
def tokenizer():
    return ChatTokenizer(policy.resolve_dir("webagent-tiny"))


def make_conversation(response):
    return [
        Message("system", "Act."),
        Message("user", "Say a & b\nPage 0\n..."),
        response,
        Message("user", "Page 1\nbutton Cancel [1]"),
    ]


@pytest.mark.parametrize(
    "text",
    [
        '<think> click "Cancel" </think> <answer> do(action="Click", element="7") </answer>',
        "textbox Full  name [12] = Zoë\ncheckbox on I agree [13]\n\n",
        "中文 \t\r\n ends with spaces  ",
    ],
)
def test_decode_inverts_encode(tokenizer, text):
    assert tokenizer.decode(tokenizer.encode(text)) == text


def test_decode_ignores_cleaning_of_config(tmp_path: Path) -> None:
    text = 'do(action="Type", argument="I \'m here , ok ?", element="7")'
    write_tokenizer(FAMILIES["llama3"], tmp_path, [text])
    file = tmp_path / "tokenizer_config.json"
    cleaning = "clean_up_tokenization_spaces"
    changes = {cleaning: True, f"{cleaning}_for_bpe_even_though_it_will_corrupt_output": True}
    file.write_text(json.dumps(json.loads(file.read_text()) | changes))
    tokenizer = ChatTokenizer(tmp_path)
    assert tokenizer.decode(tokenizer.encode(text)) == text


def test_cached_ids_are_one_read_only_array(tokenizer):
    ids = tokenizer.encode("button Ok [1]")
    assert ids.dtype == np.int32 and ids.tolist() == tokenizer.encode("button Ok [1]").tolist()
    assert tokenizer.encode("button Ok [1]") is ids and not ids.flags.writeable


def test_prompt_ids_match_chat_template(tokenizer):
    ids = tokenizer.prompt_ids(make_conversation(Message("assistant", "exit()")))
    assert tokenizer.decode(ids) == (
        "<|system|>Act.<|end|><|user|>Say a & b\nPage 0\n...<|end|><|assistant|>exit()<|end|>"
        "<|user|>Page 1\nbutton Cancel [1]<|end|><|assistant|>"
    )


def test_prompt_keeps_sampled_ids(tokenizer):
    # One letter per token: encode() never returns this tokenization.
    sampled_ids = np.concatenate([tokenizer.encode(c) for c in "button"]).astype(np.int32)
    assert len(sampled_ids) > len(tokenizer.encode("button"))
    (stop_id,) = tokenizer.stop_ids
    prompt = tokenizer.prompt_ids(
        make_conversation(Message("assistant", "button", np.append(sampled_ids, stop_id)))
    )
    prompt_without_stop = tokenizer.prompt_ids(
        make_conversation(Message("assistant", "button", sampled_ids))
    )
    np.testing.assert_array_equal(prompt, prompt_without_stop)  # one stop token, sampled or not
    positions = np.flatnonzero(
        [np.array_equal(prompt[i : i + 6], sampled_ids) for i in range(len(prompt))]
    )
    assert len(positions) == 1
    assert prompt[positions[0] + 6] == stop_id
    assert prompt[positions[0] + 7] != stop_id


def test_prompt_of_longer_history_extends_shorter_prompt(tokenizer):
    response = Message("assistant", "exit()")
    short_prompt = tokenizer.prompt_ids(make_conversation(response))
    long_prompt = tokenizer.prompt_ids(
        [*make_conversation(response), response, Message("user", "Page 2\n")]
    )
    np.testing.assert_array_equal(long_prompt[: len(short_prompt)], short_prompt)


def test_thinking_of_template_is_off_in_every_turn(tmp_path: Path) -> None:
    """Qwen3 would write thoughts of its own before the response that the prompt asks for."""
    write_tokenizer(QWEN3, tmp_path, ["button Cancel [1]"])
    tokenizer = ChatTokenizer(tmp_path)
    response = Message("assistant", "<think> a </think> <answer> exit() </answer>")
    conversation = make_conversation(response)
    first_prompt = tokenizer.prompt_ids(conversation[:2])
    opening = "<|im_start|>assistant\n<think>\n\n</think>\n\n"
    assert tokenizer.decode(first_prompt) == (
        f"<|im_start|>system\nAct.<|im_end|>\n<|im_start|>user\n{conversation[1].text}<|im_end|>\n"
        + opening
    )
    # The response follows the tokens from which it was sampled.
    prompt = tokenizer.prompt_ids(conversation)
    response_ids = tokenizer.encode_response(response.text)
    prefix = np.concatenate([first_prompt, response_ids])
    np.testing.assert_array_equal(prompt[: len(prefix)], prefix)
    suffix = f"<|im_start|>user\n{conversation[3].text}<|im_end|>\n{opening}"
    assert tokenizer.decode(prompt[len(prefix) :]) == f"\n{suffix}"


@pytest.mark.parametrize("family", FAMILIES.values(), ids=FAMILIES)
def test_template_without_thinking_renders_as_in_transformers(
    tmp_path: Path, family: Family
) -> None:
    write_tokenizer(family, tmp_path, ["button Cancel [1]"])
    conversation = make_conversation(Message("assistant", "exit()"))
    reference = PreTrainedTokenizerFast.from_pretrained(str(tmp_path))
    text = reference.apply_chat_template(
        [{"role": m.role, "content": m.text} for m in conversation],
        # The fixed date of the prompts.
        chat_template=family.template.replace("strftime_now('%d %b %Y')", "'26 Jul 2024'"),
        tokenize=False,
        add_generation_prompt=True,
    )
    tokenizer = ChatTokenizer(tmp_path)
    assert tokenizer.decode(tokenizer.prompt_ids(conversation)) == text


def test_element_ids_are_one_token(tokenizer):
    assert all(len(tokenizer.encode(str(n))) == 1 for n in range(100))


def test_page_cannot_forge_response(tokenizer):
    messages = make_conversation(Message("assistant", "exit()"))
    messages[1] = Message("user", "[0] [mark-0] [reply-0]")
    assert "exit()" in tokenizer.decode(tokenizer.prompt_ids(messages))


def test_tokenizer_without_chat_template_raises(tmp_path):
    for name in ("tokenizer.json", "tokenizer_config.json", "config.json"):
        (tmp_path / name).write_bytes((policy.resolve_dir("webagent-tiny") / name).read_bytes())
    with pytest.raises(ValueError, match="no chat template"):
        ChatTokenizer(tmp_path)


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """Directory of webagent-tiny without weights."""
    source = policy.resolve_dir("webagent-tiny")
    for name in ("tokenizer.json", "tokenizer_config.json", "config.json", "chat_template.jinja"):
        (tmp_path / name).write_bytes((source / name).read_bytes())
    return tmp_path


def test_template_that_rejects_system_message_raises_config_error(directory):
    file = directory / "chat_template.jinja"
    rejection = "{{ raise_exception('No system role') if messages[0].role == 'system' }}"
    file.write_text(rejection + file.read_text())
    message = f"the chat template of {directory} rejects a system message: No system role"
    with pytest.raises(ConfigError, match=message):
        ChatTokenizer(directory)


@pytest.mark.parametrize(
    ("template", "message"),
    [
        # Without the system message, the model would not know the actions.
        (
            "{% for m in messages if m.role != 'system' %}{{ m.content }}<|im_end|>{% endfor %}",
            "omits or changes the text of system messages",
        ),
        (
            "{{ messages[0].content }}{{ messages[-1].content }}<|im_end|>",
            "omits or changes the text of user messages",
        ),
        (
            "{% for m in messages if m.role != 'assistant' %}{{ m.content }}{% endfor %}",
            "omits or changes the text of assistant messages",
        ),
    ],
)
def test_template_that_omits_messages_raises_config_error(template, message, directory):
    (directory / "chat_template.jinja").write_text(template)
    with pytest.raises(ConfigError, match=message):
        ChatTokenizer(directory)


def test_several_templates_without_default_raise_config_error(directory):
    template = (directory / "chat_template.jinja").read_text()
    (directory / "chat_template.jinja").unlink()
    file = directory / "tokenizer_config.json"
    options = json.loads(file.read_text())
    for names, is_valid in ((("default", "tool_use"), True), (("rag", "tool_use"), False)):
        templates = [{"name": name, "template": template} for name in names]
        file.write_text(json.dumps(options | {"chat_template": templates}))
        with contextlib.nullcontext() if is_valid else pytest.raises(ConfigError, match="several"):
            ChatTokenizer(directory)


def test_template_that_is_no_template_raises_config_error(directory):
    (directory / "chat_template.jinja").write_text("{% for %}")
    with pytest.raises(ConfigError, match="rejects a conversation: "):
        ChatTokenizer(directory)


def test_tokenizer_larger_than_vocabulary_raises_config_error(directory):
    file = directory / "config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | {"vocab_size": 2047}))
    with pytest.raises(ConfigError, match=r"ids up to 2047, but config\.json has vocab_size=2047"):
        ChatTokenizer(directory)
    file.write_text("{}")
    ChatTokenizer(directory)
    file.write_text("[1]")
    with pytest.raises(ConfigError, match=r"config\.json is damaged"):
        ChatTokenizer(directory)


def test_damaged_tokenizer_raises_config_error(tmp_path):
    source = policy.resolve_dir("webagent-tiny")
    for name in ("tokenizer_config.json", "config.json", "chat_template.jinja"):
        (tmp_path / name).write_bytes((source / name).read_bytes())
    content = (source / "tokenizer.json").read_text()
    (tmp_path / "tokenizer.json").write_text(content[: len(content) // 2])
    with pytest.raises(ConfigError, match=r"cannot be read .*; copy its files again"):
        ChatTokenizer(tmp_path)
