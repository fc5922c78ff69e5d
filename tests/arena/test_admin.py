"""The back office over HTTP: what its pages refuse, what they do, and what the shop shows of it."""

from __future__ import annotations

import re

import pytest

from tests.arena.conftest import Visitor
from webagent_jax.arena.admin.tasks.helpers import first_and_last_day
from webagent_jax.arena.client import ArenaServerHandle
from webagent_jax.arena.common import agent_user
from webagent_jax.arena.task import Data

PAGES = """
/ /orders /orders/300001 /orders?q=whitfield&status=Complete /products
/products?q=wok&sort=stock-up /products/1 /products/new /customers
/products/new?department=clothing /customers?group=Retailer&sort=orders /customers/1
/customers/1/edit /customers/new /reviews?status=Pending /reviews/1 /reviews/1/delete
/promotions /promotions/1 /promotions/new /promotions/1/delete /reports /reports/bestsellers
/reports/customers /reports/sales?period=month&from=2022-01-01&to=2022-12-31 /reports/coupons
/reports/low-stock /reports/search-terms?sort=results /sign-in
"""


@pytest.fixture
def admin(host: ArenaServerHandle, world: str) -> Visitor:
    return Visitor(host, world, "admin")


@pytest.fixture(scope="module")
def product(data: Data):
    sql = "SELECT * FROM product WHERE old_price IS NULL AND stock > 20 AND review_count > 2"
    return data["shop"].execute(sql).fetchone()


def order_with(data: Data, status: str):
    sql = "SELECT * FROM purchase WHERE status = ? ORDER BY id DESC"
    return data["shop"].execute(sql, [status]).fetchone()


def status_of(page) -> str:
    return re.findall(r'<h1>.*?<span class="status [\w-]+">(.*?)</span>', page.text)[0]


def cells(page) -> list[str]:
    return re.findall(r"<td[^>]*>(?:<[^>]+>)*([^<]*)", page.text)


@pytest.mark.parametrize("path", PAGES.split())
def test_every_page_answers(admin: Visitor, path: str) -> None:
    page = admin.get(path)
    assert page.status == 200 and "<h1>" in page.text


@pytest.mark.parametrize("path", ["/nothing", "/orders/1", "/customers/5000", "/orders/300001/eat"])
def test_what_is_not_there_is_told(admin: Visitor, path: str) -> None:
    page = admin.get(path)
    assert page.status == 404 and "Page not found" in page.text


def test_only_staff_gets_in(admin: Visitor) -> None:
    admin.post("/sign-out")
    assert admin.get("/orders?q=5").location == "/sign-in?back=%2Forders%3Fq%3D5"
    assert "Please sign in" in admin.post("/promotions/1/switch").text
    wrong = admin.post("/sign-in", email=agent_user().email, password="guess")
    assert wrong.errors == ["The email address or the password is wrong."]
    assert (
        "Welcome back."
        in admin.post("/sign-in", email=agent_user().email, password=agent_user().password).text
    )
    assert status_of(admin.get("/promotions/1")) == "Active"


def test_a_filter_has_one_address(admin: Visitor) -> None:
    asked = "/orders?sort=oldest&to=1/31/2023&from=&status=Complete&q=&other=1"
    assert admin.get(asked).location == "/orders?status=Complete&to=2023-01-31&sort=oldest"
    assert "No orders found." in admin.get("/orders?q=nobody").text
    assert admin.get("/orders?from=soon").errors == ["Enter a day, such as 2023-06-15."]
    assert admin.get("/orders?from=2023-02-01&to=2023-01-01").errors


@pytest.mark.parametrize(
    ("period", "days"),
    [
        ("Feb 2023", ("2023-02-01", "2023-02-28")),
        ("the third quarter of 2022", ("2022-07-01", "2022-09-30")),
        ("the second half of 2022", ("2022-07-01", "2022-12-31")),
        ("2022", ("2022-01-01", "2022-12-31")),
    ],
)
def test_periods_are_read_as_people_write_them(period: str, days: tuple[str, str]) -> None:
    assert first_and_last_day(period) == days


def test_the_bestsellers_of_january(admin: Visitor, data: Data) -> None:
    """The case study of WebAgent-R1."""
    page = admin.get("/reports/bestsellers?period=month&from=2023-01-01&to=2023-01-31")
    sold: dict[str, int] = {}
    for name, quantity in data["shop"].execute(
        "SELECT product.name, quantity FROM purchase_item, purchase, product"
        " WHERE purchase.id = purchase_id AND product.id = product_id"
        " AND placed LIKE '2023-01-%' AND status != 'Cancelled'"
    ):
        sold[name] = sold.get(name, 0) + quantity
    first, second, third, fourth = sorted(sold, key=lambda name: -sold[name])[:4]
    assert sold[third] > sold[fourth]
    told = cells(page)
    assert [told[2], told[7], told[12]] == [first, second, third]
    assert [told[4], told[9], told[14]] == [str(sold[name]) for name in (first, second, third)]


def test_a_cancelled_order_leaves_reports_and_returns_to_stock(
    host: ArenaServerHandle, world: str, admin: Visitor, data: Data
) -> None:
    order = order_with(data, "Processing")
    report = f"/reports/sales?period=day&from={order['placed'][:10]}&to={order['placed'][:10]}"
    before = int(cells(admin.get(report))[1])
    (pieces,) = (
        data["shop"]
        .execute("SELECT sum(quantity) FROM purchase_item WHERE purchase_id = ?", [order["id"]])
        .fetchone()
    )
    page = admin.post(f"/orders/{order['id']}/cancel", reason="Out of stock")
    assert status_of(page) == "Cancelled" and "Cancelled: Out of stock." in page.text
    assert int(cells(admin.get(report))[1]) == before - 1
    sql = "SELECT sum(stock) FROM product"
    (stock,) = data["shop"].execute(sql).fetchone()
    assert host.rows(world, "shop", sql) == [[stock + pieces]]
    assert "This cannot be done" in admin.post(f"/orders/{order['id']}/hold").text
    assert admin.get(f"/orders/{order['id']}/ship").location == f"/orders/{order['id']}"


def test_from_invoice_to_refund(admin: Visitor, data: Data) -> None:
    order = order_with(data, "Pending")
    here = f"/orders/{order['id']}"
    assert status_of(admin.post(f"{here}/hold")) == "On Hold"
    assert status_of(admin.post(f"{here}/release")) == "Processing"
    refused = admin.post(f"{here}/ship", carrier="Pigeon", tracking="1")
    assert refused.status == 422 and len(refused.errors) == 2
    page = admin.post(f"{here}/ship", carrier="Northline", tracking="NL123456", notify=1)
    assert status_of(page) == "Shipped" and "tracking number NL123456" in page.text
    too_much = admin.post(f"{here}/refund", amount=order["total"], reason="Does not fit")
    assert too_much.errors == [f"At most {order['total'] / 100:,.2f}."]
    page = admin.post(f"{here}/refund", amount="1.50", reason="Does not fit")
    assert status_of(page) == "Refunded" and "Refunded $1.50 on Jun 15, 2023" in page.text


def test_comments_need_a_text(admin: Visitor) -> None:
    assert admin.post("/orders/300001/remarks", body=" ").errors == ["This is a required field."]
    page = admin.post("/orders/300001/remarks", body="Rang <twice>", notify=1)
    assert "customer notified</span> Rang &lt;twice&gt;" in page.text


def test_the_shop_shows_what_is_changed_here(admin: Visitor, shop: Visitor, product) -> None:
    fields = {key: product[key] for key in ("name", "sku", "brand", "material", "category_id")}
    here, there = f"/products/{product['id']}", f"/product/{product['slug']}"
    bad = admin.post(here, **{**fields, "name": ""}, price="cheap", stock=-1, state="Enabled")
    assert bad.status == 422 and len(bad.errors) == 3
    admin.post(here, **fields, price="1.25", old_price="2", stock=3, state="Enabled")
    page = shop.get(there)
    assert "$1.25" in page.text and "was $2.00" in page.text and "Only 3 left" in page.text
    admin.post(here, **fields, price="1.25", old_price="", stock=3, state="Disabled")
    assert shop.get(there).status == 404


def test_a_new_product_is_found_in_the_shop(admin: Visitor, shop: Visitor, product) -> None:
    path = "/products/new?department=home-kitchen"
    fields = {"name": "Plain Pan", "sku": product["sku"], "brand": "Plain", "category_id": 1}
    fields |= {"price": "9.50", "stock": 4, "state": "Enabled"}
    assert admin.post(path, **fields).errors == ["There is a product with this one already."]
    assert "The product was added." in admin.post(path, **fields | {"sku": "PP1"}).text
    assert "$9.50" in shop.get("/product/plain-pan").text


def test_reviews_count_once_they_are_approved(admin: Visitor, shop: Visitor, data: Data) -> None:
    sql = (
        "SELECT review.id, slug, review_count, title FROM review"
        " JOIN product ON product.id = product_id WHERE status = 'Pending'"
    )
    number, slug, count, _ = data["shop"].execute(sql).fetchone()
    assert status_of(admin.post(f"/reviews/{number}/approve")) == "Approved"
    assert f"({count + 1})" in shop.get(f"/product/{slug}").text
    assert status_of(admin.post(f"/reviews/{number}/reject")) == "Rejected"
    admin.post(f"/reviews/{number}/delete")
    assert admin.get(f"/reviews/{number}").status == 404


def test_coupons_work_in_the_shop_while_they_are_enabled(
    admin: Visitor, shop: Visitor, product
) -> None:
    fields = {"name": "Test", "code": "half", "percent": 50, "minimum": 0, "active": 1}
    wrong = admin.post("/promotions/new", **fields, starts="2023-06-20", ends="2023-06-01")
    assert wrong.errors == ["This day is before the first one."]
    page = admin.post("/promotions/new", **fields, starts="2023-06-01", ends="6/20/2023")
    number = re.findall(r"/promotions/(\d+)", page.text)[0]
    choice = product["option_values"].split(", ")[0]
    shop.post("/cart/add", slug=product["slug"], choice=choice, quantity=1)
    assert "HALF was applied" in shop.post("/cart/coupon", code="HALF").text
    assert status_of(admin.post(f"/promotions/{number}/switch")) == "Disabled"
    assert shop.post("/cart/coupon", code="HALF").errors


def test_customers_are_edited_in_one_world_only(host: ArenaServerHandle, admin: Visitor) -> None:
    fields = {"first": "Nora", "last": "W", "email": "nora@new.example", "phone": ""}
    fields |= {"customer_group": "Retailer", "note": "Ours."}
    taken = admin.post("/customers/2/edit", **fields | {"email": agent_user().email})
    assert taken.errors == ["There is a customer with this email address already."]
    page = admin.post("/customers/1/edit", **fields)
    assert "Retailer group" in page.text and ">Ours.</p>" in page.text
    other = host.new()
    assert "Retailer group" not in Visitor(host, other, "admin").get("/customers/1").text
    host.drop(other)
