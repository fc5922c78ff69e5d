"""Views of saved lists with notes, of problem reports, and of sign-in."""

from __future__ import annotations

from typing import Any

from starlette.responses import Response

from webagent_jax.arena.forms import Form
from webagent_jax.arena.map import svg_map
from webagent_jax.arena.map.places import find_place
from webagent_jax.arena.map.svg_map import Pin
from webagent_jax.arena.pagination import paginate
from webagent_jax.arena.site import RequestContext, ViewRegistry

views = ViewRegistry()

PROBLEMS = (
    "Wrong opening hours",
    "Wrong position",
    "Wrong phone number",
    "Closed for good",
    "Something else",
)


@views.get("/lists", signed_in=True)
def lists(request: RequestContext) -> Response:
    return _render_lists(request, Form())


def _render_lists(request: RequestContext, form: Form, status: int = 200) -> Response:
    list_rows = request.rows(
        "SELECT list.*, count(saved.id) AS places FROM list LEFT JOIN saved ON list_id = list.id"
        " WHERE person_id = ? GROUP BY list.id ORDER BY list.id",
        request.session.account_id,
    )
    points = request.rows(
        "SELECT x, y FROM saved JOIN list ON list.id = list_id JOIN place ON place.id = place_id"
        " WHERE person_id = ? ORDER BY y DESC",
        request.session.account_id,
    )
    pins = [Pin((row["x"], row["y"])) for row in points]
    picture = svg_map.draw_map(svg_map.region_frame(), pins)
    return request.render("lists.html.j2", status, lists=list_rows, form=form, picture=picture)


@views.post("/lists", signed_in=True)
def new_list(request: RequestContext) -> Response:
    form = Form(request.form)
    name = _read_list_name(request, form, 0)
    if form.errors:
        return _render_lists(request, form, 422)
    number = request.execute(
        "INSERT INTO list (person_id, name) VALUES (?, ?)", request.session.account_id, name
    )
    return request.redirect(f"/lists/{number}", f"The list {name} was created.")


def _read_list_name(request: RequestContext, form: Form, number: int) -> str:
    name = form.text("name", max_chars=40)
    if request.value(
        "SELECT 1 FROM list WHERE person_id = ? AND name = ? COLLATE NOCASE AND id != ?",
        *(request.session.account_id, name, number),
    ):
        form.errors["name"] = "You have a list with this name already."
    return name


@views.get("/lists/{number:int}", signed_in=True)
def one_list(request: RequestContext, number: int) -> Response:
    return _render_list(request, number, Form())


def _render_list(request: RequestContext, number: int, form: Form, status: int = 200) -> Response:
    list_row = _find_list(request, number)
    from_clause = (
        "FROM saved JOIN place ON place.id = place_id JOIN category ON category.id = category_id"
        " WHERE list_id = ? ORDER BY saved.id"
    )
    columns = "saved.id, note, place.name, place.slug, town, x, y, category.name AS category"
    pagination = paginate(request, columns, from_clause, [number], size=8)
    points = [(row["x"], row["y"]) for row in pagination.rows]
    pins = [Pin(point, str(i)) for i, point in enumerate(points, 1)]
    frame = svg_map.fit_frame(points, min_scale=4.7) if points else svg_map.region_frame()
    picture = svg_map.draw_map(frame, pins[::-1])
    return request.render(
        "list.html.j2", status, list=list_row, pagination=pagination, form=form, picture=picture
    )


@views.post("/lists/{number:int}/rename", signed_in=True)
def rename(request: RequestContext, number: int) -> Response:
    _find_list(request, number)
    form = Form(request.form)
    name = _read_list_name(request, form, number)
    if form.errors:
        return _render_list(request, number, form, 422)
    request.execute("UPDATE list SET name = ? WHERE id = ?", name, number)
    return request.redirect(f"/lists/{number}", "The list was renamed.")


@views.post("/lists/{number:int}/delete", signed_in=True)
def delete(request: RequestContext, number: int) -> Response:
    row = _find_list(request, number)
    request.execute("DELETE FROM saved WHERE list_id = ?", number)
    request.execute("DELETE FROM list WHERE id = ?", number)
    return request.redirect("/lists", f"The list {row['name']} was deleted.")


def _find_list(request: RequestContext, number: int) -> Any:
    return request.row(
        "SELECT * FROM list WHERE id = ? AND person_id = ?", number, request.session.account_id
    )


@views.post("/place/{slug}/save", signed_in=True)
def save(request: RequestContext, slug: str) -> Response:
    place, number = find_place(request, slug), request.form.get("list", "")
    target_list = _find_list(request, int(number) if number.isdecimal() else 0)
    request.execute(
        "INSERT OR IGNORE INTO saved (list_id, place_id, added) VALUES (?, ?, ?)",
        *(target_list["id"], place["id"], request.today),
    )
    return request.redirect(
        f"/place/{slug}", f"{place['name']} was saved to {target_list['name']}."
    )


@views.get("/saved/{number:int}", signed_in=True)
def note_form(request: RequestContext, number: int) -> Response:
    row = _find_saved(request, number)
    return _render_note(request, row, Form({"note": row["note"]}))


def _render_note(request: RequestContext, row: Any, form: Form, status: int = 200) -> Response:
    point = row["x"], row["y"]
    picture = svg_map.draw_map(svg_map.Frame(*point, 1.9), [Pin(point)])
    return request.render("note.html.j2", status, saved=row, form=form, picture=picture)


@views.post("/saved/{number:int}", signed_in=True)
def note(request: RequestContext, number: int) -> Response:
    row, form = _find_saved(request, number), Form(request.form)
    text = form.text("note", required=False, max_chars=200)
    if form.errors:
        return _render_note(request, row, form, 422)
    request.execute("UPDATE saved SET note = ? WHERE id = ?", text, number)
    return request.redirect(f"/lists/{row['list_id']}", "The note was saved.")


@views.post("/saved/{number:int}/remove", signed_in=True)
def remove(request: RequestContext, number: int) -> Response:
    row = _find_saved(request, number)
    request.execute("DELETE FROM saved WHERE id = ?", number)
    return request.redirect(f"/lists/{row['list_id']}", f"{row['name']} was removed.")


def _find_saved(request: RequestContext, number: int) -> Any:
    return request.row(
        "SELECT saved.*, place.name, place.slug, x, y, list.name AS list FROM saved"
        " JOIN place ON place.id = place_id JOIN list ON list.id = list_id"
        " WHERE saved.id = ? AND person_id = ?",
        *(number, request.session.account_id),
    )


# --- reports -------------------------------------------------------------------------------------


@views.get("/place/{slug}/report", signed_in=True)
def report_form(request: RequestContext, slug: str) -> Response:
    return _render_report(request, slug, Form())


def _render_report(request: RequestContext, slug: str, form: Form, status: int = 200) -> Response:
    place = find_place(request, slug)
    point = place["x"], place["y"]
    picture = svg_map.draw_map(svg_map.Frame(*point, 1.9), [Pin(point)])
    return request.render(
        "report.html.j2", status, place=place, form=form, problems=PROBLEMS, picture=picture
    )


@views.post("/place/{slug}/report", signed_in=True)
def report(request: RequestContext, slug: str) -> Response:
    place, form = find_place(request, slug), Form(request.form)
    problem = form.choice("problem", PROBLEMS)
    body = form.text("body", max_chars=500, min_chars=10)
    if form.errors:
        return _render_report(request, slug, form, 422)
    request.execute(
        "INSERT INTO report (person_id, place_id, problem, body, sent, status)"
        " VALUES (?, ?, ?, ?, ?, 'Open')",
        *(request.session.account_id, place["id"], problem, body, request.today),
    )
    return request.redirect("/reports", "Thank you. Your report was sent.")


@views.get("/reports", signed_in=True)
def reports(request: RequestContext) -> Response:
    from_clause = (
        "FROM report JOIN place ON place.id = place_id WHERE person_id = ? ORDER BY report.id DESC"
    )
    pagination = paginate(
        request, "report.*, name, slug", from_clause, [request.session.account_id], size=6
    )
    picture = svg_map.draw_map(svg_map.region_frame())
    return request.render("reports.html.j2", pagination=pagination, picture=picture)


# --- sign-in -------------------------------------------------------------------------------------


@views.get("/sign-in")
def sign_in_form(request: RequestContext) -> Response:
    return _render_sign_in(request, Form(request.query))


def _render_sign_in(request: RequestContext, form: Form, status: int = 200) -> Response:
    picture = svg_map.draw_map(svg_map.region_frame())
    return request.render("sign_in.html.j2", status, form=form, picture=picture)


@views.post("/sign-in")
def sign_in(request: RequestContext) -> Response:
    form = Form(request.form)
    email, password = form.email("email"), form.text("password")
    if not form.errors:
        number = request.value(
            "SELECT id FROM person WHERE email = ? COLLATE NOCASE AND password = ?",
            *(email, password),
        )
        if number:
            return request.sign_in(number, "/lists")
        form.errors["password"] = "The email address or the password is wrong."
    return _render_sign_in(request, form, 422)


@views.post("/sign-out")
def sign_out(request: RequestContext) -> Response:
    return request.sign_out("/")
