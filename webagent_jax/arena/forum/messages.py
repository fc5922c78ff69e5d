"""Views of private messages: inbox, sent messages and composition."""

from __future__ import annotations

from starlette.responses import Response

from webagent_jax.arena.forms import Form
from webagent_jax.arena.forum.post_lists import PAGE_SIZE
from webagent_jax.arena.pagination import paginate
from webagent_jax.arena.site import RequestContext, ViewRegistry

views = ViewRegistry()


@views.get("/messages")
def inbox(visit: RequestContext) -> Response:
    if not visit.session.account:
        return visit.redirect_to_sign_in()
    return _render_box(visit, "Inbox", "recipient_id", "sender_id")


@views.get("/messages/sent")
def sent(visit: RequestContext) -> Response:
    if not visit.session.account:
        return visit.redirect_to_sign_in()
    return _render_box(visit, "Sent messages", "sender_id", "recipient_id")


def _render_box(
    visit: RequestContext, heading: str, own_column: str, other_column: str
) -> Response:
    rest = (
        f"FROM message JOIN member ON member.id = {other_column} WHERE {own_column} = ?"
        " ORDER BY sent DESC, message.id DESC"
    )
    columns = "message.*, username"
    pagination = paginate(visit, columns, rest, [visit.session.account], size=PAGE_SIZE)
    return visit.render("messages.html.j2", heading=heading, found=pagination)


@views.get("/messages/{number:int}")
def message(visit: RequestContext, number: int) -> Response:
    row = visit.row(
        "SELECT message.*, sender.username AS sender, recipient.username AS recipient FROM message"
        " JOIN member AS sender ON sender.id = sender_id"
        " JOIN member AS recipient ON recipient.id = recipient_id"
        " WHERE message.id = ? AND ? IN (sender_id, recipient_id)",
        *(number, visit.session.account),
    )
    return visit.render("message.html.j2", message=row)


@views.post("/messages/{number:int}/read")
def read(visit: RequestContext, number: int) -> Response:
    visit.execute(
        "UPDATE message SET seen = 1 WHERE id = ? AND recipient_id = ?",
        *(number, visit.session.account),
    )
    return visit.redirect("/messages", "The message is marked as read.")


@views.get("/messages/new")
def write_form(visit: RequestContext) -> Response:
    if not visit.session.account:
        return visit.redirect_to_sign_in()
    return visit.render("write.html.j2", form=Form(visit.query))


@views.post("/messages/new")
def write(visit: RequestContext) -> Response:
    if not visit.session.account:
        return visit.redirect_to_sign_in()
    form = Form(visit.form)
    name = form.text("to")
    number = visit.value("SELECT id FROM member WHERE username = ?", name)
    if name and not number:
        form.errors["to"] = "There is no member of this name."
    subject, body = form.text("subject", max_chars=100), form.text("body", max_chars=2000)
    if form.errors:
        return visit.render("write.html.j2", 422, form=form)
    visit.execute(
        "INSERT INTO message (sender_id, recipient_id, subject, body, sent, seen)"
        " VALUES (?, ?, ?, ?, ?, 0)",
        *(visit.session.account, number, subject, body, visit.now),
    )
    return visit.redirect("/messages/sent", f"Your message to {name} was sent.")
