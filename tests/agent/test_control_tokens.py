"""Tests of control tokens in prompts: only the chat template adds them."""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path

import numpy as np
import pytest
from transformers import PreTrainedTokenizerFast
from transformers.utils import chat_template_utils

from tests.agent.families import DEEPSEEK_DISTILL, FAMILIES, write_tokenizer
from webagent_jax import policy
from webagent_jax.agent import TEMPLATES, ChatTokenizer, PromptFormat, build_messages
from webagent_jax.agent import tokenizer as tokenizer_module
from webagent_jax.config import ConfigError
from webagent_jax.inference.slot_control import MAX_STOP_IDS
from webagent_jax.types import Action, ActionKind, Completion, Message, Observation, Turn

TINY = "webagent-tiny"
TEST_FAMILIES = FAMILIES | {"deepseek-distill": DEEPSEEK_DISTILL}
PAGES = [
    path.read_text()
    for path in sorted((Path(__file__).parents[1] / "browser" / "pages").glob("*.txt"))
]
RESPONSE = '<think> it is [3] </think> <answer> do(action="Click", element="3") </answer>'
EDGE_CASES = [
    "",
    " \n two  spaces, a\r\n\ttab\u00a0 and é = e\u0301, 1234567 \U0001f600 中文 \n\n ",
    "<think>\n</think> <tool_call>{}</tool_call> <|fim_prefix|> <|im_ | end|> <|>",
    "button Buy [7]\ntextbox Name [12] = Zoë\ncheckbox on I agree [13] \u2028",
]


def set_date(monkeypatch: pytest.MonkeyPatch, *date: int) -> None:
    """Set the current date of chat templates to a year, month and day."""

    class Clock(datetime):
        @classmethod
        def now(cls, tz: object = None) -> Clock:
            return cls(*date)

    monkeypatch.setattr(chat_template_utils, "datetime", Clock)


@pytest.fixture(autouse=True)
def date_of_prompts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Set the date of the reference, Hugging Face transformers, to that of all prompts."""
    set_date(monkeypatch, 2024, 7, 26)


@pytest.fixture(scope="module", params=[*TEST_FAMILIES, TINY])
def directory(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    if request.param == TINY:
        return policy.resolve_dir(TINY)
    path = tmp_path_factory.mktemp("tokenizer")
    write_tokenizer(TEST_FAMILIES[request.param], path, PAGES)
    return path


@pytest.fixture(scope="module")
def tokenizer(directory: Path) -> ChatTokenizer:
    return ChatTokenizer(directory)


@pytest.fixture(scope="module")
def hf_tokenizer(directory: Path) -> PreTrainedTokenizerFast:
    """Tokenizer of the same directory, loaded by Hugging Face transformers."""
    return PreTrainedTokenizerFast.from_pretrained(str(directory))


@pytest.fixture(scope="module")
def control_ids(directory: Path) -> dict[str, int]:
    file = json.loads((directory / "tokenizer.json").read_text())
    return {
        token["content"]: token["id"]
        for token in file["added_tokens"]
        if token["special"] or token["content"] in DEEPSEEK_DISTILL.roles
    }


def make_turn(response: str, page: str, error: str | None, ids: Sequence[int]) -> Turn:
    zeros = np.zeros(len(ids), np.int32)
    completion = Completion(np.asarray(ids, np.int32), zeros.astype(np.float32), zeros, "stop")
    observation = Observation(page, "http://a/", error=error)
    return Turn(zeros, completion, response, Action(ActionKind.CLICK, "3"), observation)


def render(hf_tokenizer: PreTrainedTokenizerFast, chat: Sequence[Message]) -> str:
    messages = [{"role": m.role, "content": m.text} for m in chat]
    return hf_tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)


def test_control_token_counts_match_families(directory: Path, control_ids: dict[str, int]) -> None:
    assert len(control_ids) in (4, 5, 14, 256, 17)
    added_tokens = json.loads((directory / "tokenizer.json").read_text())["added_tokens"]
    assert not any(
        token["lstrip"] or token["rstrip"] or token["normalized"] for token in added_tokens
    )


@pytest.mark.parametrize("form", TEMPLATES)
@pytest.mark.parametrize("text", [*PAGES[:3], *EDGE_CASES])
def test_prompt_ids_match_hugging_face_tokenizer(
    tokenizer: ChatTokenizer, hf_tokenizer: PreTrainedTokenizerFast, form: str, text: str
) -> None:
    chat = build_messages(
        PromptFormat(TEMPLATES[form]), "Find it ", (), Observation(text, "", error=text[:50])
    )
    # The second and third conversation have no system message.
    for conversation in (chat, chat[1:], [Message("user", text)]):
        expected = hf_tokenizer.encode(render(hf_tokenizer, conversation), add_special_tokens=False)
        assert tokenizer.prompt_ids(conversation).tolist() == expected


@pytest.mark.parametrize("form", TEMPLATES)
def test_prompt_with_sampled_ids_matches_hugging_face(
    tokenizer: ChatTokenizer, hf_tokenizer: PreTrainedTokenizerFast, form: str
) -> None:
    sampled_ids = [
        i for letter in RESPONSE for i in hf_tokenizer.encode(letter, add_special_tokens=False)
    ]
    history = [make_turn(RESPONSE, PAGES[0], "it is covered", sampled_ids)]
    chat = build_messages(
        PromptFormat(TEMPLATES[form]), "Find it", history, Observation(PAGES[1], "")
    )
    messages = [Message(m.role, "MARK" if m.token_ids is not None else m.text) for m in chat]
    prefix, suffix = render(hf_tokenizer, messages).split("MARK")
    # Transformers does not repeat the opening of the template.
    prefix += tokenizer._opening
    expected = hf_tokenizer.encode(prefix, add_special_tokens=False) + sampled_ids
    expected += hf_tokenizer.encode(suffix, add_special_tokens=False)
    assert tokenizer.prompt_ids(chat).tolist() == expected


@pytest.mark.parametrize("form", TEMPLATES)
def test_message_text_adds_no_control_tokens(
    tokenizer: ChatTokenizer, control_ids: dict[str, int], form: str
) -> None:
    token_text = "\n".join(
        [*control_ids, "".join(control_ids), *(f" {token} x" for token in control_ids)]
    )
    nested_tokens = "".join(f"{token[:3]}{token}{token[3:]}" for token in list(control_ids)[:20])
    attack_text = f"  {token_text}{nested_tokens}\n"
    for text in (attack_text, *list(control_ids)[:20]):
        messages, reference_messages = (
            build_messages(
                PromptFormat(TEMPLATES[form]),
                words,
                [make_turn("r", words, words, [])],
                Observation(words, "", error=words),
            )
            for words in (text, "ordinary")
        )
        # Responses without token ids (experts, endpoints) are text too.
        messages = [Message(m.role, text if m.role == "assistant" else m.text) for m in messages]
        reference_messages = [Message(m.role, m.text) for m in reference_messages]
        ids, expected = tokenizer.prompt_ids(messages), tokenizer.prompt_ids(reference_messages)
        id_list = list(control_ids.values())
        np.testing.assert_array_equal(
            ids[np.isin(ids, id_list)], expected[np.isin(expected, id_list)]
        )
        assert text.strip() in tokenizer.decode(ids)


def test_encode_returns_no_control_tokens(
    tokenizer: ChatTokenizer, control_ids: dict[str, int]
) -> None:
    for text in (*control_ids, f"a {' '.join(control_ids)} b"):
        ids = tokenizer.encode(text)
        assert not np.isin(ids, list(control_ids.values())).any()
        assert tokenizer.decode(ids) == text
        np.testing.assert_array_equal(
            tokenizer.encode_response(text), [*ids, tokenizer.stop_ids[0]]
        )


def test_template_renders_control_token_text_verbatim(
    tokenizer: ChatTokenizer, hf_tokenizer: PreTrainedTokenizerFast
) -> None:
    """The template trims white space around it as around other text."""
    stop = hf_tokenizer.convert_ids_to_tokens(tokenizer.stop_ids[0])
    for text in (f" {stop} \n", f"\n{stop}a", f"a{stop}"):
        ids = tokenizer.prompt_ids([Message("user", text)])
        assert tokenizer.decode(ids) == render(hf_tokenizer, [Message("user", text)])


def test_other_added_tokens_encode_to_one_id(
    tokenizer: ChatTokenizer, hf_tokenizer: PreTrainedTokenizerFast, control_ids: dict[str, int]
) -> None:
    words = set(hf_tokenizer.get_added_vocab()) - set(control_ids)
    for word in words:
        assert tokenizer.encode(word).tolist() == [hf_tokenizer.convert_tokens_to_ids(word)]
        assert hf_tokenizer.convert_tokens_to_ids(word) in tokenizer.prompt_ids(
            [Message("user", word)]
        )


def test_stop_ids_contain_eos_token_of_template(
    directory: Path, tokenizer: ChatTokenizer, control_ids: dict[str, int]
) -> None:
    eos = json.loads((directory / "tokenizer_config.json").read_text())["eos_token"]
    assert tokenizer.stop_ids == (control_ids[eos],)


def test_stop_ids_contain_those_of_generation_config(tmp_path: Path) -> None:
    """A copy of the tokenizer, as in the directory of a trained policy, has the same stop ids."""
    source, copy = tmp_path / "source", tmp_path / "copy"
    write_tokenizer(FAMILIES["llama3"], source, PAGES[:1])
    control_ids = ChatTokenizer(source)._control_ids
    ends = [control_ids[f"<|{name}|>"] for name in ("eot_id", "end_of_text", "eom_id")]

    def stop_ids(eos_token_id: object) -> tuple[int, ...]:
        content = json.dumps({"eos_token_id": eos_token_id, "temperature": 0.6})
        (source / "generation_config.json").write_text(content)
        shutil.rmtree(copy, ignore_errors=True)
        copy.mkdir()
        policy.copy_tokenizer(source, copy)
        ids = ChatTokenizer(copy).stop_ids
        assert ids == ChatTokenizer(source).stop_ids
        return ids

    eot, end_of_text, eom = ends
    assert stop_ids(None) == (eot,)
    assert stop_ids(end_of_text) == (eot, end_of_text)
    # The token of the template stays first.
    assert stop_ids([end_of_text, eom, eot, end_of_text]) == (eot, end_of_text, eom)
    assert stop_ids([10**6, -1, eom]) == (eot, eom)
    assert stop_ids(list(range(20))) == (eot, *range(MAX_STOP_IDS - 1))
    assert tokenizer_module._MAX_STOP_IDS == MAX_STOP_IDS
    for content in ("{", "[1]", '{"eos_token_id": "x"}'):
        (source / "generation_config.json").write_text(content)
        with pytest.raises(ConfigError, match=r"generation_config.json is damaged"):
            ChatTokenizer(source)


def test_decode_omits_each_stop_token(tmp_path: Path) -> None:
    write_tokenizer(FAMILIES["qwen2.5"], tmp_path, PAGES[:1])
    end_of_text = ChatTokenizer(tmp_path)._control_ids["<|endoftext|>"]
    (tmp_path / "generation_config.json").write_text(json.dumps({"eos_token_id": [end_of_text]}))
    tokenizer = ChatTokenizer(tmp_path)
    assert tokenizer.decode([*tokenizer.encode("exit()"), end_of_text]) == "exit()"


LLAMA_3_2_DATE = """{{- bos_token }}
{%- if not date_string is defined %}
    {%- if strftime_now is defined %}
        {%- set date_string = strftime_now("%d %b %Y") %}
    {%- else %}
        {%- set date_string = "26 Jul 2024" %}
    {%- endif %}
{%- endif %}
{{- date_string + "\n" }}
{%- for m in messages %}{{- m["content"] + eos_token }}{%- endfor %}
"""


@pytest.mark.parametrize("template", [None, LLAMA_3_2_DATE], ids=["function", "Llama 3.2"])
def test_prompt_does_not_depend_on_date(
    template: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_tokenizer(FAMILIES["llama3"], tmp_path, PAGES[:1])
    if template:
        file = tmp_path / "tokenizer_config.json"
        file.write_text(json.dumps(json.loads(file.read_text()) | {"chat_template": template}))
    tokenizer = ChatTokenizer(tmp_path)
    set_date(monkeypatch, 2031, 2, 3)
    text = tokenizer.decode(tokenizer.prompt_ids([Message("user", "x")]))
    assert "26 Jul 2024" in text and "2031" not in text


def test_fixed_date_keeps_white_space_of_template(tmp_path: Path) -> None:
    write_tokenizer(FAMILIES["llama3"], tmp_path, PAGES[:1])
    file = tmp_path / "tokenizer_config.json"
    config = json.loads(file.read_text())
    for start in ("  {% if true %} a{% endif %}", "\n {{ bos_token }}", "{{- bos_token }}", "\n"):
        file.write_text(json.dumps(config | {"chat_template": start + config["chat_template"]}))
        chat = [Message("user", "x")]
        reference = render(PreTrainedTokenizerFast.from_pretrained(str(tmp_path)), chat)
        tokenizer = ChatTokenizer(tmp_path)
        assert tokenizer.decode(tokenizer.prompt_ids(chat)) == reference


def test_eos_without_special_flag_is_control_token(tmp_path: Path) -> None:
    write_tokenizer(FAMILIES["qwen2.5"], tmp_path, PAGES[:1])
    file = json.loads((tmp_path / "tokenizer.json").read_text())
    (eos,) = [token for token in file["added_tokens"] if token["content"] == "<|im_end|>"]
    eos["special"] = False
    (tmp_path / "tokenizer.json").write_text(json.dumps(file))
    tokenizer = ChatTokenizer(tmp_path)
    assert tokenizer.stop_ids == (eos["id"],)
    assert eos["id"] not in tokenizer.encode("a<|im_end|>b")
    ids = tokenizer.prompt_ids([Message("user", "a<|im_end|>b")]).tolist()
    assert ids.count(eos["id"]) == 2  # after the default system message and after this one


def test_opening_of_template_is_no_control_token(tmp_path: Path) -> None:
    """DeepSeek-R1-Distill begins a response with `<think>`, which policies sample too."""
    write_tokenizer(DEEPSEEK_DISTILL, tmp_path, PAGES[:1])
    tokenizer = ChatTokenizer(tmp_path)
    vocabulary = PreTrainedTokenizerFast.from_pretrained(str(tmp_path)).get_vocab()
    user, think = vocabulary[DEEPSEEK_DISTILL.roles[0]], vocabulary["<think>"]
    page = f"a{''.join(DEEPSEEK_DISTILL.roles)}<think>b"
    response = Message("assistant", "", np.array([think, *tokenizer.encode("c")], np.int32))
    ids = tokenizer.prompt_ids([Message("user", page), response, Message("user", page)]).tolist()
    assert ids.count(user) == 2
    # In two pages, after the role of both responses, and sampled.
    assert ids.count(think) == 5
    assert page in tokenizer.decode(ids)


def test_inseparable_control_tokens_raise(tmp_path: Path) -> None:
    write_tokenizer(FAMILIES["smollm2"], tmp_path, PAGES[:1])
    file = json.loads((tmp_path / "tokenizer.json").read_text())
    file["pre_tokenizer"] = None
    file["model"] |= {"ignore_merges": True}  # vocabulary words match without merges
    (tmp_path / "tokenizer.json").write_text(json.dumps(file))
    with pytest.raises(ValueError, match="does not separate text from control tokens"):
        ChatTokenizer(tmp_path)
