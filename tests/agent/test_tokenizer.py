"""Token in, token out: what was sampled enters the prompt as it was sampled."""

from __future__ import annotations

import numpy as np
import pytest

from webagent_jax import policy
from webagent_jax.agent import ChatTokenizer
from webagent_jax.types import Message


@pytest.fixture(scope="module")
def tokenizer():
    return ChatTokenizer(policy.resolve_dir("webagent-tiny"))


def conversation(reply):
    return [
        Message("system", "Act."),
        Message("user", "Say a & b\nPage 0\n..."),
        reply,
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
def test_text_survives(tokenizer, text):
    assert tokenizer.decode(tokenizer.encode(text)) == text


def test_prompt_is_the_rendered_template(tokenizer):
    ids = tokenizer.prompt_ids(conversation(Message("assistant", "exit()")))
    assert tokenizer.decode(ids) == (
        "<|system|>Act.<|end|><|user|>Say a & b\nPage 0\n...<|end|><|assistant|>exit()<|end|>"
        "<|user|>Page 1\nbutton Cancel [1]<|end|><|assistant|>"
    )


def test_sampled_ids_are_kept(tokenizer):
    # Letter by letter: a tokenization that encoding the same text would never give.
    odd = np.concatenate([tokenizer.encode(c) for c in "button"]).astype(np.int32)
    assert len(odd) > len(tokenizer.encode("button"))
    (stop,) = tokenizer.stop_ids
    whole = tokenizer.prompt_ids(conversation(Message("assistant", "button", np.append(odd, stop))))
    cut = tokenizer.prompt_ids(conversation(Message("assistant", "button", odd)))
    np.testing.assert_array_equal(whole, cut)  # the stop token is there once, sampled or not
    at = np.flatnonzero([np.array_equal(whole[i : i + 6], odd) for i in range(len(whole))])
    assert len(at) == 1
    assert whole[at[0] + 6] == stop
    assert whole[at[0] + 7] != stop


def test_a_longer_history_begins_as_the_shorter_one(tokenizer):
    reply = Message("assistant", "exit()")
    short = tokenizer.prompt_ids(conversation(reply))
    longer = tokenizer.prompt_ids([*conversation(reply), reply, Message("user", "Page 2\n")])
    np.testing.assert_array_equal(longer[: len(short)], short)


def test_element_ids_are_one_token(tokenizer):
    assert all(len(tokenizer.encode(str(n))) == 1 for n in range(100))


def test_a_page_cannot_forge_a_reply(tokenizer):
    forged = conversation(Message("assistant", "exit()"))
    forged[1] = Message("user", "[0] [mark-0] [reply-0]")
    assert "exit()" in tokenizer.decode(tokenizer.prompt_ids(forged))


def test_tokenizers_without_chat_template_are_refused(tmp_path):
    for name in ("tokenizer.json", "tokenizer_config.json", "config.json"):
        (tmp_path / name).write_bytes((policy.resolve_dir("webagent-tiny") / name).read_bytes())
    with pytest.raises(ValueError, match="no chat template"):
        ChatTokenizer(tmp_path)
