"""Help desk: frequent questions, and a contact form."""

from __future__ import annotations

from starlette.responses import Response

from webagent_jax.arena.forms import Form
from webagent_jax.arena.shop.cart import customer_id
from webagent_jax.arena.site import RequestContext, ViewRegistry

views = ViewRegistry()

TOPICS = ("Order", "Return or refund", "Product question", "Something else")


@views.get("/help")
def help_desk(request: RequestContext) -> Response:
    return request.render("help.html.j2")


@views.get("/contact")
def contact_form(request: RequestContext) -> Response:
    return request.render("contact.html.j2", form=Form(), topics=TOPICS)


@views.post("/contact")
def contact(request: RequestContext) -> Response:
    form = Form(request.form)
    topic = form.choice("topic", TOPICS)
    number = form.text("order_number", required=False, max_chars=6)
    body = form.text("body", max_chars=2000, min_chars=10)
    if number and not request.value("SELECT 1 FROM purchase WHERE id = ?", number):
        form.errors["order_number"] = "There is no order with this number."
    if form.errors:
        return request.render("contact.html.j2", 422, form=form, topics=TOPICS)
    request.execute(
        "INSERT INTO message (customer_id, topic, order_number, body, sent) VALUES (?, ?, ?, ?, ?)",
        *(customer_id(request), topic, number, body, request.now),
    )
    return request.redirect("/help", "Your message was sent. We will answer within two days.")
