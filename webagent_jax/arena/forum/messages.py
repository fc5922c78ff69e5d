"""Private messages: the inbox, what was sent, and writing one."""

from __future__ import annotations

from starlette.responses import Response

from webagent_jax.arena.forms import Form
from webagent_jax.arena.forum.post_lists import PAGE
from webagent_jax.arena.pagination import listing
from webagent_jax.arena.site import Views, Visit

views = Views()


@views.get("/messages")
def inbox(visit: Visit) -> Response:
    if not visit.session.account:
        return visit.sign_in_first()
    return _box(visit, "Inbox", "recipient_id", "sender_id")


@views.get("/messages/sent")
def sent(visit: Visit) -> Response:
    if not visit.session.account:
        return visit.sign_in_first()
    return _box(visit, "Sent messages", "sender_id", "recipient_id")


def _box(visit: Visit, heading: str, mine: str, theirs: str) -> Response:
    rest = (
        f"FROM message JOIN member ON member.id = {theirs} WHERE {mine} = ?"
        " ORDER BY sent DESC, message.id DESC"
    )
    columns = "message.*, username"
    found = listing(visit, columns, rest, [visit.session.account], size=PAGE)
    return visit.page("messages.html.j2", heading=heading, found=found)


@views.get("/messages/{number:int}")
def message(visit: Visit, number: int) -> Response:
    here = visit.row(
        "SELECT message.*, sender.username AS sender, recipient.username AS recipient FROM message"
        " JOIN member AS sender ON sender.id = sender_id"
        " JOIN member AS recipient ON recipient.id = recipient_id"
        " WHERE message.id = ? AND ? IN (sender_id, recipient_id)",
        *(number, visit.session.account),
    )
    return visit.page("message.html.j2", message=here)


@views.post("/messages/{number:int}/read")
def read(visit: Visit, number: int) -> Response:
    visit.do(
        "UPDATE message SET seen = 1 WHERE id = ? AND recipient_id = ?",
        *(number, visit.session.account),
    )
    return visit.redirect("/messages", "The message is marked as read.")


@views.get("/messages/new")
def write_form(visit: Visit) -> Response:
    if not visit.session.account:
        return visit.sign_in_first()
    return visit.page("write.html.j2", form=Form(visit.query))


@views.post("/messages/new")
def write(visit: Visit) -> Response:
    if not visit.session.account:
        return visit.sign_in_first()
    form = Form(visit.form)
    name = form.text("to")
    number = visit.value("SELECT id FROM member WHERE username = ?", name)
    if name and not number:
        form.errors["to"] = "There is no member of this name."
    subject, body = form.text("subject", most=100), form.text("body", most=2000)
    if form.errors:
        return visit.page("write.html.j2", 422, form=form)
    visit.do(
        "INSERT INTO message (sender_id, recipient_id, subject, body, sent, seen)"
        " VALUES (?, ?, ?, ?, ?, 0)",
        *(visit.session.account, number, subject, body, visit.now),
    )
    return visit.redirect("/messages/sent", f"Your message to {name} was sent.")
