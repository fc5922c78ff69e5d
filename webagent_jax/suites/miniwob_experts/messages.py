"""Experts of tasks with mails or posts, which find a message by its author and act on it."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence

from webagent_jax.suites.miniwob_experts.helpers import (
    all_of,
    click,
    click_on,
    find_below,
    has,
    quotations,
    search,
    text_between,
    type_in,
)
from webagent_jax.types import Expert, Observation

# Sender in an intent of email-inbox-forward-nl; the other name in it is the receiver. All other
# capitalized words start a sentence.
_SENDER = r"(?:by|from|mail|message|information|email) ([A-Z][\w-]+)|([A-Z][\w-]+) wants his"
_OPENINGS = "Find Locate Forward Look Send Go The Please Give Navigate Search"


def email_inbox(intent: str, page: Observation) -> Expert:
    """Find the email by Ada and reply, forward, click the trash icon or the star icon."""
    sender = text_between(intent, "the email by ", " and ")
    page = yield click_on(page, _find_mail(page, sender), text=sender)
    if "trash icon" in intent:
        yield click(page, "trash")
    elif "star icon" in intent:
        yield click(page, "star")
    elif "reply" in intent:
        (text,) = quotations(intent)
        yield from _reply(page, text)
    else:
        yield from _forward(page, text_between(intent, "that email to ", "."))


def email_inbox_forward_nl(intent: str, page: Observation) -> Expert:
    """Please forward to Bea the email by Ada (in thirty wordings)."""
    match = search(_SENDER, intent)
    sender = match.group(1) or match.group(2)
    names = re.findall(r"[A-Z][\w-]+", intent)
    receiver = next(name for name in names if name not in {sender, *_OPENINGS.split()})
    page = yield click_on(page, _find_mail(page, sender), text=sender)
    yield from _forward(page, receiver)


def email_inbox_turk(intent: str, page: Observation) -> Expert:
    """Locate Ada's email and forward it to Bea (in 400 wordings; or reply, delete, important)."""
    senders = {e.name.split(" ")[0] for e in page.elements.values() if e.kind == "item"}
    names = _turk_names(intent, senders)
    sender = _turk_sender(intent, names)
    page = yield click_on(page, _find_mail(page, sender), text=sender)
    # A sender may have a name such as Star.
    request = intent.replace(sender, "")
    # One wording has more quotation marks: ""Hello" ".
    if text := re.search(r'"([^"]+)"', intent):
        yield from _reply(page, text[1])
    elif receivers := [name for name in names if name != sender]:
        yield from _forward(page, receivers[0])
    elif re.search(r"(?i)imi?por|mark |star\b|flag ", request) and "elete" not in request:
        yield click(page, "star")
    else:
        yield click(page, "trash")


def _turk_names(intent: str, senders: Collection[str]) -> list[str]:
    """Return the senders that an intent names, in order.

    In some wordings a letter or a word is attached to the name: "find Adas email", "AnswerAda's
    email".
    """
    names = []
    longest_first = sorted(senders, key=len, reverse=True)
    for word in re.findall(r"[A-Z][\w-]*", intent):
        endings = (name for name in longest_first if word.endswith(name))
        forms = (word, word.removesuffix("s"), *endings)
        names += [form for form in forms if form in senders][:1]
    return names


def _turk_sender(intent: str, names: Sequence[str]) -> str:
    """Return the sender among the names of an intent; the other name is the receiver."""
    for pattern in (r"(?:from|by) {}\b", r"{}(?:'s| sent| wrote)"):
        for name in names:
            if re.search(pattern.format(re.escape(name)), intent):
                return name
    return names[0]


def _find_mail(page: Observation, sender: str) -> str:
    """Return the id of the row of the inbox that starts with the sender."""
    return next(i for i, e in page.elements.items() if e.name.startswith(f"{sender} "))


def _reply(page: Observation, text: str) -> Expert:
    page = yield click(page, "Reply")
    page = yield type_in(page, text, all_of(page, "textbox")[0])
    yield click(page, "send-reply")


def _forward(page: Observation, receiver: str) -> Expert:
    page = yield click(page, "Forward", reason=f"forward to {receiver}")
    page = yield type_in(page, receiver, all_of(page, "textbox")[0], reason=f"to {receiver}")
    yield click(page, "send-forward", reason=f"to is {receiver}")


def social_media(intent: str, page: Observation) -> Expert:
    """For the user @karrie, click on the "Retweet" button (or one of the menu "more")."""
    user = text_between(intent, "For the user ", ",")
    (action,) = quotations(intent)
    # The buttons of a post follow its text in the same order.
    first = f"{user} has reply [{find_below(page, user, 'reply')[0]}]"
    if action in ("Reply", "Retweet", "Like"):
        button = find_below(page, user, action.lower())[0]
        yield click_on(page, button, location=user, reason=first)
        return
    button = find_below(page, user, "more")[0]
    page = yield click_on(page, button, location=user, reason=f"{first}, {action} is in more")
    yield click(page, action if has(page, action) else f"{action} {user}")


def social_media_all(intent: str, page: Observation) -> Expert:
    """Click the "Like" button on all posts by @karrie and then click Submit (or on 2 posts)."""
    (action,) = quotations(intent)
    user = text_between(intent, " by ", " and then")
    buttons = find_below(page, user, action.lower())
    count = text_between(intent, "button on ", " post")
    for button in buttons if count == "all" else buttons[: int(count)]:
        page = yield click_on(page, button, location=user)
    yield click(page, "Submit")
