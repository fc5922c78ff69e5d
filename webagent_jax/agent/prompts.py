"""Prompts: chat templates and dynamic context compression.

At turn k the prompt is h_k = (task, s'_0, a_0, ..., s'_{k-1}, a_{k-1}, s_k): the current page in
full, a placeholder for every earlier page, and every earlier response unchanged (WebAgent-R1,
section 3.2). `PromptFormat.full_pages` keeps more pages.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from webagent_jax.agent import actions
from webagent_jax.types import Action, Message, Observation, Turn


@dataclass(frozen=True)
class Template:
    """Fixed texts of a conversation."""

    thinking: str  # system message for responses with thoughts before the action
    plain: str  # system message for responses without thoughts
    task: str  # start of the first user message; {intent}
    round: str  # start of every page; {round}
    error: str  # text before the page after a failed action; {error}
    placeholder: str  # replacement of earlier pages

    def page(self, number: int, error: str | None, body: str) -> str:
        """Return the user message of one round, without the task.

        Args:
            number: index of the round, from 0.
            error: error of the last action, if any.
            body: observation text or placeholder.
        """
        error_text = self.error.format(error=error) if error else ""
        return self.round.format(round=number) + error_text + body


@dataclass(frozen=True)
class PromptFormat:
    """Format of prompts and responses."""

    template: Template
    thinking: bool = True  # whether responses contain thoughts before the action
    # Number of latest pages in full; earlier ones are placeholders. 0: all pages.
    full_pages: int = 1


TASK_PREFIX = "Task: "  # prefix of the task in compact prompts and in the thoughts that quote it

_ACTIONS = """\
do(action="Click", element="ID")
do(action="Right Click", element="ID")
do(action="Type", argument="TEXT", element="ID")
do(action="Search", argument="TEXT", element="ID")
do(action="Select Dropdown Option", argument="OPTION", element="ID")
do(action="Hover", element="ID")
do(action="Scroll Up")
do(action="Scroll Down")
do(action="Press Enter")
do(action="Switch Tab", argument="NUMBER")
do(action="Wait")
go_backward()
go_forward()
exit(message="ANSWER")"""

_WEBARENA = f"""\
You operate a web browser to carry out the user's task. Each round shows the current page as
simplified HTML in which every element you can act on carries an id. Earlier pages are left out.
Reply with exactly one action:

{_ACTIONS}

Use exit with the answer when the task asks for one, and with an empty message when it is done;
answer N/A when it cannot be done."""

TEMPLATES = {
    # Task, rounds and placeholder are worded as in the demonstrations of WebRL.
    "webarena": Template(
        thinking=_WEBARENA
        + "\n\nThink first, then act, in this form:\n"
        + '<think> why </think> <answer> do(action="Click", element="7") </answer>',
        plain=_WEBARENA
        + "\n\nWrite one comment line that names the element or notes what you found, then the "
        + 'action:\n# Element: the search button\ndo(action="Click", element="7")',
        task="Task Instruction: {intent}\n\n",
        round="Round {round}\n\n",
        error="The last action failed: {error}\n\n",
        placeholder="** Simplified html **",
    ),
    # Short, for small models, which learn the grammar in training instead.
    "compact": Template(
        thinking="Think, then act.",
        plain="Act.",
        task=TASK_PREFIX + "{intent}\n",
        round="Page {round}\n",
        error="Error: {error}\n",
        placeholder="...",
    ),
}


def build_messages(
    prompt: PromptFormat,
    intent: str,
    past: Sequence[Turn],
    observation: Observation,
) -> list[Message]:
    """Return the prompt of turn `len(past)` as messages.

    Messages of past responses contain the sampled token ids, so that they are not encoded again.

    Args:
        prompt: format of the prompt.
        intent: text of the task.
        past: earlier turns of the episode.
        observation: current page.
    """
    template = prompt.template
    system_message = template.thinking if prompt.thinking else template.plain
    conversation = [Message("system", system_message)]
    # Index of the first page in full; the current page has the index len(past).
    first_full = max(0, len(past) + 1 - prompt.full_pages) if prompt.full_pages else 0
    # Only the first user message contains the task.
    opening = template.task.format(intent=intent)
    for number, turn in enumerate(past):
        body = turn.observation.text if number >= first_full else template.placeholder
        page = template.page(number, turn.observation.error, body)
        conversation.append(Message("user", opening + page))
        conversation.append(Message("assistant", turn.response_text, turn.completion.token_ids))
        opening = ""
    page = template.page(len(past), observation.error, observation.text)
    conversation.append(Message("user", opening + page))
    return conversation


@dataclass
class TaskQuoter:
    """Generator of expert thoughts that quote the task before each decision.

        Task: Tick "Ada: click Ada [3]
        click Ada" and tick Bob: click Bob [4]

    The first quotation starts at the beginning of the task. Each later one starts with the previous
    decision and continues from its words in the task up to the next decision. Both starting texts
    are already in the conversation, so a small policy that can copy locates its position in the
    task without counting turns.
    """

    intent: str
    _prefix: str = TASK_PREFIX  # last decision up to its words in the task
    _end: int = 0  # index in the task after these words

    def thought(self, intent_phrase: str, decision: str) -> str:
        """Return the decision after its quotation of the task.

        Args:
            intent_phrase: words of the task that the decision is about.
            decision: text of the decision.

        Returns:
            The decision alone if the rest of the task does not contain `intent_phrase`.
        """
        # Whole words. \b would not match next to a phrase that begins or ends with punctuation.
        pattern = re.compile(rf"(?<!\w){re.escape(intent_phrase)}(?!\w)", re.IGNORECASE)
        # From the end of the last match, because a task may mention the same thing twice.
        match = pattern.search(self.intent, self._end) if intent_phrase else None
        if match is None:
            return decision
        quote = self._prefix + self.intent[self._end : match.end()]
        # The next quotation starts with this decision, up to its words of the task.
        mention = pattern.search(decision)
        self._prefix = decision[: mention.end()] if mention else match[0]
        self._end = match.end()
        return f"{quote}: {decision}"


def format_response(thought: str, action: Action, thinking: bool) -> str:
    """Return an expert response in the form that the system message requests."""
    call = actions.format_action(action)
    if thinking:
        return f"<think> {thought} </think> <answer> {call} </answer>"
    # A comment is one line. A note, as `extract_thought` returns it, has a prefix of its own.
    comment = thought.replace("\n", " ")
    prefix = "" if comment.startswith("Note:") else "Element: "
    return f"# {prefix}{comment}\n{call}"
