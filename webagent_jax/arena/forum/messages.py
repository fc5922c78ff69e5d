"""Views of private messages: inbox, sent messages and composition."""

from __future__ import annotations

from starlette.responses import Response

from webagent_jax.arena.forms import Form
from webagent_jax.arena.forum.post_lists import PAGE_SIZE
from webagent_jax.arena.pagination import paginate
from webagent_jax.arena.site import RequestContext, ViewRegistry

views = ViewRegistry()


@views.get("/messages", signed_in=True)
def inbox(request: RequestContext) -> Response:
    return _render_box(request, "Inbox", "recipient_id", "sender_id")


@views.get("/messages/sent", signed_in=True)
def sent(request: RequestContext) -> Response:
    return _render_box(request, "Sent messages", "sender_id", "recipient_id")


def _render_box(
    request: RequestContext, heading: str, own_column: str, other_column: str
) -> Response:
    from_clause = (
        f"FROM message JOIN member ON member.id = {other_column} WHERE {own_column} = ?"
        " ORDER BY sent DESC, message.id DESC"
    )
    columns = "message.*, username"
    pagination = paginate(
        request, columns, from_clause, [request.session.account_id], size=PAGE_SIZE
    )
    return request.render("messages.html.j2", heading=heading, pagination=pagination)


@views.get("/messages/{number:int}", signed_in=True)
def message(request: RequestContext, number: int) -> Response:
    row = request.row(
        "SELECT message.*, sender.username AS sender, recipient.username AS recipient FROM message"
        " JOIN member AS sender ON sender.id = sender_id"
        " JOIN member AS recipient ON recipient.id = recipient_id"
        " WHERE message.id = ? AND ? IN (sender_id, recipient_id)",
        *(number, request.session.account_id),
    )
    return request.render("message.html.j2", message=row)


@views.post("/messages/{number:int}/read", signed_in=True)
def read(request: RequestContext, number: int) -> Response:
    request.execute(
        "UPDATE message SET seen = 1 WHERE id = ? AND recipient_id = ?",
        *(number, request.session.account_id),
    )
    return request.redirect("/messages", "The message is marked as read.")


@views.get("/messages/new", signed_in=True)
def write_form(request: RequestContext) -> Response:
    return request.render("write.html.j2", form=Form(request.query))


@views.post("/messages/new", signed_in=True)
def write(request: RequestContext) -> Response:
    form = Form(request.form)
    name = form.text("to")
    number = request.value("SELECT id FROM member WHERE username = ?", name)
    if name and not number:
        form.errors["to"] = "There is no member of this name."
    subject, body = form.text("subject", max_chars=100), form.text("body", max_chars=2000)
    if form.errors:
        return request.render("write.html.j2", 422, form=form)
    request.execute(
        "INSERT INTO message (sender_id, recipient_id, subject, body, sent, seen)"
        " VALUES (?, ?, ?, ?, ?, 0)",
        *(request.session.account_id, number, subject, body, request.now),
    )
    return request.redirect("/messages/sent", f"Your message to {name} was sent.")
