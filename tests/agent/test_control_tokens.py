"""Control tokens come from the chat template alone, whatever a page, a task or an error spells."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from transformers import PreTrainedTokenizerFast

from tests.agent.families import FAMILIES, write
from webagent_jax import policy
from webagent_jax.agent import TEMPLATES, ChatTokenizer, build_messages
from webagent_jax.types import Action, ActionKind, Completion, Message, Observation, Turn

TINY = "webagent-tiny"
PAGES = [
    path.read_text()
    for path in sorted((Path(__file__).parents[1] / "browser" / "pages").glob("*.txt"))
]
REPLY = '<think> it is [3] </think> <answer> do(action="Click", element="3") </answer>'
ODD = [
    "",
    " \n two  spaces, a\r\n\ttab\u00a0 and é = e\u0301, 1234567 \U0001f600 中文 \n\n ",
    "<think>\n</think> <tool_call>{}</tool_call> <|fim_prefix|> <|im_ | end|> <|>",
    "button Buy [7]\ntextbox Name [12] = Zoë\ncheckbox on I agree [13] \u2028",
]


@pytest.fixture(scope="module", params=[*FAMILIES, TINY])
def directory(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    if request.param == TINY:
        return policy.resolve_dir(TINY)
    path = tmp_path_factory.mktemp("tokenizer")
    write(FAMILIES[request.param], path, PAGES)
    return path


@pytest.fixture(scope="module")
def tokenizer(directory: Path) -> ChatTokenizer:
    return ChatTokenizer(directory)


@pytest.fixture(scope="module")
def plain(directory: Path) -> PreTrainedTokenizerFast:
    """The same without us."""
    return PreTrainedTokenizerFast.from_pretrained(str(directory))


@pytest.fixture(scope="module")
def control(directory: Path) -> dict[str, int]:
    file = json.loads((directory / "tokenizer.json").read_text())
    return {token["content"]: token["id"] for token in file["added_tokens"] if token["special"]}


def turn(reply: str, page: str, error: str | None, ids: Sequence[int]) -> Turn:
    zeros = np.zeros(len(ids), np.int32)
    completion = Completion(np.asarray(ids, np.int32), zeros.astype(np.float32), zeros, "stop")
    observation = Observation(page, "http://a/", error=error)
    return Turn(zeros, completion, reply, Action(ActionKind.CLICK, "3"), observation)


def rendered(plain: PreTrainedTokenizerFast, chat: Sequence[Message]) -> str:
    messages = [{"role": m.role, "content": m.text} for m in chat]
    return plain.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)


def test_the_families_are_as_published(directory: Path, control: dict[str, int]) -> None:
    assert len(control) in (5, 14, 256, 17)
    words = json.loads((directory / "tokenizer.json").read_text())["added_tokens"]
    assert not any(token["lstrip"] or token["rstrip"] or token["normalized"] for token in words)


@pytest.mark.parametrize("form", TEMPLATES)
@pytest.mark.parametrize("text", [*PAGES[:3], *ODD])
def test_ordinary_prompts_have_the_ids_of_the_plain_tokenizer(
    tokenizer: ChatTokenizer, plain: PreTrainedTokenizerFast, form: str, text: str
) -> None:
    chat = build_messages(
        TEMPLATES[form], True, "Find it ", (), Observation(text, "", error=text[:50])
    )
    # The last two have no system message.
    for conversation in (chat, chat[1:], [Message("user", text)]):
        expected = plain.encode(rendered(plain, conversation), add_special_tokens=False)
        assert tokenizer.prompt_ids(conversation).tolist() == expected


@pytest.mark.parametrize("form", TEMPLATES)
def test_sampled_replies_stay_and_the_rest_has_the_ids_of_the_plain_tokenizer(
    tokenizer: ChatTokenizer, plain: PreTrainedTokenizerFast, form: str
) -> None:
    odd = [i for letter in REPLY for i in plain.encode(letter, add_special_tokens=False)]
    past = [turn(REPLY, PAGES[0], "it is covered", odd)]
    chat = build_messages(TEMPLATES[form], True, "Find it", past, Observation(PAGES[1], ""))
    marked = [Message(m.role, "MARK" if m.token_ids is not None else m.text) for m in chat]
    before, after = rendered(plain, marked).split("MARK")
    expected = plain.encode(before, add_special_tokens=False) + odd
    expected += plain.encode(after, add_special_tokens=False)
    assert tokenizer.prompt_ids(chat).tolist() == expected


@pytest.mark.parametrize("form", TEMPLATES)
def test_what_is_said_makes_no_control_token(
    tokenizer: ChatTokenizer, control: dict[str, int], form: str
) -> None:
    spelled = "\n".join([*control, "".join(control), *(f" {token} x" for token in control)])
    halves = "".join(f"{token[:3]}{token}{token[3:]}" for token in list(control)[:20])
    evil = f"  {spelled}{halves}\n"
    for text in (evil, *list(control)[:20]):
        said, quiet = (
            build_messages(
                TEMPLATES[form],
                True,
                words,
                [turn("r", words, words, [])],
                Observation(words, "", error=words),
            )
            for words in (text, "ordinary")
        )
        # Replies that have no ids are text, too: those of experts and of endpoints.
        said = [Message(m.role, text if m.role == "assistant" else m.text) for m in said]
        quiet = [Message(m.role, m.text) for m in quiet]
        ids, expected = tokenizer.prompt_ids(said), tokenizer.prompt_ids(quiet)
        numbers = list(control.values())
        np.testing.assert_array_equal(
            ids[np.isin(ids, numbers)], expected[np.isin(expected, numbers)]
        )
        assert text.strip() in tokenizer.decode(ids)


def test_what_is_encoded_alone_makes_no_control_token(
    tokenizer: ChatTokenizer, control: dict[str, int]
) -> None:
    for text in (*control, f"a {' '.join(control)} b"):
        ids = tokenizer.encode(text)
        assert not np.isin(ids, list(control.values())).any()
        assert tokenizer.decode(ids) == text
        np.testing.assert_array_equal(
            tokenizer.encode_response(text), [*ids, tokenizer.stop_ids[0]]
        )


def test_the_template_treats_a_spelled_control_token_as_text(
    tokenizer: ChatTokenizer, plain: PreTrainedTokenizerFast
) -> None:
    """Only its characters change the prompt: white space is trimmed where it ever was."""
    stop = plain.convert_ids_to_tokens(tokenizer.stop_ids[0])
    for text in (f" {stop} \n", f"\n{stop}a", f"a{stop}"):
        ids = tokenizer.prompt_ids([Message("user", text)])
        assert tokenizer.decode(ids) == rendered(plain, [Message("user", text)])


def test_words_that_a_policy_may_write_stay_one_token(
    tokenizer: ChatTokenizer, plain: PreTrainedTokenizerFast, control: dict[str, int]
) -> None:
    words = set(plain.get_added_vocab()) - set(control)
    for word in words:
        assert tokenizer.encode(word).tolist() == [plain.convert_tokens_to_ids(word)]
        assert plain.convert_tokens_to_ids(word) in tokenizer.prompt_ids([Message("user", word)])


def test_replies_end_with_the_token_of_the_template(
    directory: Path, tokenizer: ChatTokenizer, control: dict[str, int]
) -> None:
    eos = json.loads((directory / "tokenizer_config.json").read_text())["eos_token"]
    assert tokenizer.stop_ids == (control[eos],)


def test_an_end_of_text_without_its_flag_is_a_control_token(tmp_path: Path) -> None:
    write(FAMILIES["qwen2.5"], tmp_path, PAGES[:1])
    file = json.loads((tmp_path / "tokenizer.json").read_text())
    (end,) = [token for token in file["added_tokens"] if token["content"] == "<|im_end|>"]
    end["special"] = False
    (tmp_path / "tokenizer.json").write_text(json.dumps(file))
    tokenizer = ChatTokenizer(tmp_path)
    assert tokenizer.stop_ids == (end["id"],)
    assert end["id"] not in tokenizer.encode("a<|im_end|>b")
    ids = tokenizer.prompt_ids([Message("user", "a<|im_end|>b")]).tolist()
    assert ids.count(end["id"]) == 2  # of the default system message, and of this one


def test_a_tokenizer_that_cannot_tell_them_apart_is_refused(tmp_path: Path) -> None:
    write(FAMILIES["smollm2"], tmp_path, PAGES[:1])
    file = json.loads((tmp_path / "tokenizer.json").read_text())
    file["pre_tokenizer"] = None
    file["model"] |= {"ignore_merges": True}  # words of the vocabulary are taken as they are
    (tmp_path / "tokenizer.json").write_text(json.dumps(file))
    with pytest.raises(ValueError, match="does not separate text from control tokens"):
        ChatTokenizer(tmp_path)
