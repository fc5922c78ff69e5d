"""What a person keeps: lists of places with notes, and reports of what is wrong on the map."""

from __future__ import annotations

from typing import Any

from starlette.responses import Response

from webagent_jax.arena.forms import Form
from webagent_jax.arena.map import svg_map
from webagent_jax.arena.map.places import find
from webagent_jax.arena.map.svg_map import Pin
from webagent_jax.arena.pagination import listing
from webagent_jax.arena.site import Views, Visit

views = Views()

PROBLEMS = (
    "Wrong opening hours",
    "Wrong position",
    "Wrong phone number",
    "Closed for good",
    "Something else",
)


@views.get("/lists")
def lists(visit: Visit) -> Response:
    if not visit.session.account:
        return visit.sign_in_first()
    return _lists(visit, Form())


def _lists(visit: Visit, form: Form, status: int = 200) -> Response:
    kept = visit.rows(
        "SELECT list.*, count(saved.id) AS places FROM list LEFT JOIN saved ON list_id = list.id"
        " WHERE person_id = ? GROUP BY list.id ORDER BY list.id",
        visit.session.account,
    )
    points = visit.rows(
        "SELECT x, y FROM saved JOIN list ON list.id = list_id JOIN place ON place.id = place_id"
        " WHERE person_id = ? ORDER BY y DESC",
        visit.session.account,
    )
    pins = [Pin((row["x"], row["y"])) for row in points]
    picture = svg_map.picture(svg_map.region(), pins)
    return visit.page("lists.html.j2", status, lists=kept, form=form, picture=picture)


@views.post("/lists")
def new_list(visit: Visit) -> Response:
    if not visit.session.account:
        return visit.sign_in_first()
    form = Form(visit.form)
    name = _list_name(visit, form, 0)
    if form.errors:
        return _lists(visit, form, 422)
    number = visit.do(
        "INSERT INTO list (person_id, name) VALUES (?, ?)", visit.session.account, name
    )
    return visit.redirect(f"/lists/{number}", f"The list {name} was created.")


def _list_name(visit: Visit, form: Form, number: int) -> str:
    name = form.text("name", most=40)
    if visit.value(
        "SELECT 1 FROM list WHERE person_id = ? AND name = ? COLLATE NOCASE AND id != ?",
        *(visit.session.account, name, number),
    ):
        form.errors["name"] = "You have a list with this name already."
    return name


@views.get("/lists/{number:int}")
def one_list(visit: Visit, number: int) -> Response:
    if not visit.session.account:
        return visit.sign_in_first()
    return _one_list(visit, number, Form())


def _one_list(visit: Visit, number: int, form: Form, status: int = 200) -> Response:
    here = _list(visit, number)
    rest = (
        "FROM saved JOIN place ON place.id = place_id JOIN category ON category.id = category_id"
        " WHERE list_id = ? ORDER BY saved.id"
    )
    columns = "saved.id, note, place.name, place.slug, town, x, y, category.name AS category"
    found = listing(visit, columns, rest, [number], size=8)
    points = [(row["x"], row["y"]) for row in found.rows]
    pins = [Pin(point, str(i)) for i, point in enumerate(points, 1)]
    frame = svg_map.around(points, least=4.7) if points else svg_map.region()
    picture = svg_map.picture(frame, pins[::-1])
    return visit.page("list.html.j2", status, list=here, found=found, form=form, picture=picture)


@views.post("/lists/{number:int}/rename")
def rename(visit: Visit, number: int) -> Response:
    _list(visit, number)
    form = Form(visit.form)
    name = _list_name(visit, form, number)
    if form.errors:
        return _one_list(visit, number, form, 422)
    visit.do("UPDATE list SET name = ? WHERE id = ?", name, number)
    return visit.redirect(f"/lists/{number}", "The list was renamed.")


@views.post("/lists/{number:int}/delete")
def delete(visit: Visit, number: int) -> Response:
    here = _list(visit, number)
    visit.do("DELETE FROM saved WHERE list_id = ?", number)
    visit.do("DELETE FROM list WHERE id = ?", number)
    return visit.redirect("/lists", f"The list {here['name']} was deleted.")


def _list(visit: Visit, number: int) -> Any:
    return visit.row(
        "SELECT * FROM list WHERE id = ? AND person_id = ?", number, visit.session.account
    )


@views.post("/place/{slug}/save")
def save(visit: Visit, slug: str) -> Response:
    if not visit.session.account:
        return visit.sign_in_first()
    here, number = find(visit, slug), visit.form.get("list", "")
    kept = _list(visit, int(number) if number.isdecimal() else 0)
    visit.do(
        "INSERT OR IGNORE INTO saved (list_id, place_id, added) VALUES (?, ?, ?)",
        *(kept["id"], here["id"], visit.today),
    )
    return visit.redirect(f"/place/{slug}", f"{here['name']} was saved to {kept['name']}.")


@views.get("/saved/{number:int}")
def note_form(visit: Visit, number: int) -> Response:
    here = _saved(visit, number)
    return _note(visit, here, Form({"note": here["note"]}))


def _note(visit: Visit, here: Any, form: Form, status: int = 200) -> Response:
    point = here["x"], here["y"]
    picture = svg_map.picture(svg_map.Frame(*point, 1.9), [Pin(point)])
    return visit.page("note.html.j2", status, saved=here, form=form, picture=picture)


@views.post("/saved/{number:int}")
def note(visit: Visit, number: int) -> Response:
    here, form = _saved(visit, number), Form(visit.form)
    text = form.text("note", required=False, most=200)
    if form.errors:
        return _note(visit, here, form, 422)
    visit.do("UPDATE saved SET note = ? WHERE id = ?", text, number)
    return visit.redirect(f"/lists/{here['list_id']}", "The note was saved.")


@views.post("/saved/{number:int}/remove")
def remove(visit: Visit, number: int) -> Response:
    here = _saved(visit, number)
    visit.do("DELETE FROM saved WHERE id = ?", number)
    return visit.redirect(f"/lists/{here['list_id']}", f"{here['name']} was removed.")


def _saved(visit: Visit, number: int) -> Any:
    return visit.row(
        "SELECT saved.*, place.name, place.slug, x, y, list.name AS list FROM saved"
        " JOIN place ON place.id = place_id JOIN list ON list.id = list_id"
        " WHERE saved.id = ? AND person_id = ?",
        *(number, visit.session.account),
    )


# --- reports -------------------------------------------------------------------------------------


@views.get("/place/{slug}/report")
def report_form(visit: Visit, slug: str) -> Response:
    if not visit.session.account:
        return visit.sign_in_first()
    return _report(visit, slug, Form())


def _report(visit: Visit, slug: str, form: Form, status: int = 200) -> Response:
    here = find(visit, slug)
    point = here["x"], here["y"]
    picture = svg_map.picture(svg_map.Frame(*point, 1.9), [Pin(point)])
    return visit.page(
        "report.html.j2", status, place=here, form=form, problems=PROBLEMS, picture=picture
    )


@views.post("/place/{slug}/report")
def report(visit: Visit, slug: str) -> Response:
    if not visit.session.account:
        return visit.sign_in_first()
    here, form = find(visit, slug), Form(visit.form)
    problem = form.choice("problem", PROBLEMS)
    body = form.text("body", most=500, least=10)
    if form.errors:
        return _report(visit, slug, form, 422)
    visit.do(
        "INSERT INTO report (person_id, place_id, problem, body, sent, status)"
        " VALUES (?, ?, ?, ?, ?, 'Open')",
        *(visit.session.account, here["id"], problem, body, visit.today),
    )
    return visit.redirect("/reports", "Thank you. Your report was sent.")


@views.get("/reports")
def reports(visit: Visit) -> Response:
    if not visit.session.account:
        return visit.sign_in_first()
    rest = (
        "FROM report JOIN place ON place.id = place_id WHERE person_id = ? ORDER BY report.id DESC"
    )
    found = listing(visit, "report.*, name, slug", rest, [visit.session.account], size=6)
    picture = svg_map.picture(svg_map.region())
    return visit.page("reports.html.j2", found=found, picture=picture)


# --- signing in ----------------------------------------------------------------------------------


@views.get("/sign-in")
def sign_in_form(visit: Visit) -> Response:
    return _sign_in(visit, Form(visit.query))


def _sign_in(visit: Visit, form: Form, status: int = 200) -> Response:
    picture = svg_map.picture(svg_map.region())
    return visit.page("sign_in.html.j2", status, form=form, picture=picture)


@views.post("/sign-in")
def sign_in(visit: Visit) -> Response:
    form = Form(visit.form)
    email, password = form.email("email"), form.text("password")
    if not form.errors:
        number = visit.value(
            "SELECT id FROM person WHERE email = ? COLLATE NOCASE AND password = ?",
            *(email, password),
        )
        if number:
            return visit.sign_in(number, "/lists")
        form.errors["password"] = "The email address or the password is wrong."
    return _sign_in(visit, form, 422)


@views.post("/sign-out")
def sign_out(visit: Visit) -> Response:
    visit.session.account = None
    visit.session.notes.clear()
    return visit.redirect("/", "You are signed out.")
