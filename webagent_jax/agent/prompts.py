"""What the model is told: chat templates and dynamic context compression.

At turn k the model sees h_k = (task, s'_0, a_0, ..., s'_{k-1}, a_{k-1}, s_k): the page as it is now
in full, every earlier page as a placeholder, every earlier reply as it was said (WebAgent-R1,
section 3.2).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from webagent_jax.agent import actions
from webagent_jax.types import Action, Message, Observation, Turn


@dataclass(frozen=True)
class Template:
    """The fixed words of a conversation."""

    thinking: str  # system message when replies think first
    plain: str  # system message when they do not
    task: str  # opens the first user message; {intent}
    round: str  # opens every page; {round}
    error: str  # stands before the page after an action that failed; {error}
    placeholder: str  # stands for a page that is past

    def page(self, number: int, error: str | None, body: str) -> str:
        """The user message of one round, without the task."""
        told = self.error.format(error=error) if error else ""
        return self.round.format(round=number) + told + body


OPENING = "Task: "  # of the task, where small models read it and where they read it aloud

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
    # Short, for small models: the grammar is learned, not read.
    "compact": Template(
        thinking="Think, then act.",
        plain="Act.",
        task=OPENING + "{intent}\n",
        round="Page {round}\n",
        error="Error: {error}\n",
        placeholder="...",
    ),
}


def messages(
    template: Template,
    thinking: bool,
    intent: str,
    past: Sequence[Turn],
    observation: Observation,
) -> list[Message]:
    """The conversation as the policy sees it at turn `len(past)`.

    Past replies carry the ids that were sampled for them, so that nothing is encoded twice.
    """
    conversation = [Message("system", template.thinking if thinking else template.plain)]
    opening = template.task.format(intent=intent)
    for number, turn in enumerate(past):
        page = template.page(number, turn.observation.error, template.placeholder)
        conversation.append(Message("user", opening + page))
        conversation.append(Message("assistant", turn.reply, turn.completion.token_ids))
        opening = ""
    page = template.page(len(past), observation.error, observation.text)
    conversation.append(Message("user", opening + page))
    return conversation


@dataclass
class TaskReader:
    """Thoughts that read the task aloud before each decision.

        Task: Tick "Ada: click Ada [3]
        click Ada" and tick Bob: click Bob [4]

    The first begins where the task begins; each later one says what was done last and reads on from
    there to what comes next. Both beginnings stand in the conversation already, so a small policy
    that can copy finds its place in the task without counting its turns.
    """

    intent: str
    _last: str = OPENING  # what was done last, up to the words that the task has for it
    _end: int = 0  # of these words in the task

    def thought(self, about: str, decision: str) -> str:
        """The decision with its quotation; alone when the task does not speak of it any more."""
        words = re.compile(rf"(?<!\w){re.escape(about)}(?!\w)", re.IGNORECASE)
        found = words.search(self.intent, self._end) if about else None
        if found is None:
            return decision
        read = self._last + self.intent[self._end : found.end()]
        said = words.search(decision)
        self._last = decision[: said.end()] if said else found[0]
        self._end = found.end()
        return f"{read}: {decision}"


def reply_text(thought: str, action: Action, thinking: bool) -> str:
    """A reply as an expert would write it, in the form the system message asks for."""
    call = actions.format_action(action)
    if thinking:
        return f"<think> {thought} </think> <answer> {call} </answer>"
    return f"# Element: {thought}\n{call}"
