"""HTTP tests of the admin site and its effects on the shop."""

from __future__ import annotations

import re
from urllib.parse import quote

import pytest

from tests.arena.conftest import SiteClient
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
def admin(server: ArenaServerHandle, world: str) -> SiteClient:
    return SiteClient(server, world, "admin")


@pytest.fixture(scope="module")
def product(data: Data):
    sql = "SELECT * FROM product WHERE old_price IS NULL AND stock > 20 AND review_count > 2"
    return data["shop"].execute(sql).fetchone()


def latest_order(data: Data, status: str):
    sql = "SELECT * FROM purchase WHERE status = ? ORDER BY id DESC"
    return data["shop"].execute(sql, [status]).fetchone()


def read_status(page) -> str:
    return re.findall(r'<h1>.*?<span class="status [\w-]+">(.*?)</span>', page.text)[0]


def read_low_stock(admin: SiteClient) -> int:
    """Return the number of products that run out, as on the dashboard."""
    return int(re.findall(r'<b>(\d+)</b> <a href="/reports/low-stock">', admin.get("/").text)[0])


def read_cells(page) -> list[str]:
    return re.findall(r"<td[^>]*>(?:<[^>]+>)*([^<]*)", page.text)


@pytest.mark.parametrize("path", PAGES.split())
def test_pages_return_200(admin: SiteClient, path: str) -> None:
    page = admin.get(path)
    assert page.status == 200 and "<h1>" in page.text


@pytest.mark.parametrize("path", ["/nothing", "/orders/1", "/customers/5000", "/orders/300001/eat"])
def test_missing_pages_return_404(admin: SiteClient, path: str) -> None:
    page = admin.get(path)
    assert page.status == 404 and "Page not found" in page.text


def test_admin_requires_sign_in(admin: SiteClient) -> None:
    admin.post("/sign-out")
    assert admin.get("/orders?q=5").location == "/sign-in?back=%2Forders%3Fq%3D5"
    assert "Please sign in" in admin.post("/promotions/1/switch").text
    error_page = admin.post("/sign-in", email=agent_user().email, password="guess")
    assert error_page.errors == ["The email address or the password is wrong."]
    assert (
        "Welcome back."
        in admin.post("/sign-in", email=agent_user().email, password=agent_user().password).text
    )
    assert read_status(admin.get("/promotions/1")) == "Active"


def test_order_filter_redirects_to_canonical_url(admin: SiteClient) -> None:
    path = "/orders?sort=oldest&to=1/31/2023&from=&status=Complete&q=&other=1"
    assert admin.get(path).location == "/orders?status=Complete&to=2023-01-31&sort=oldest"
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
def test_first_and_last_day_parses_periods(period: str, days: tuple[str, str]) -> None:
    assert first_and_last_day(period) == days


def test_bestsellers_report_matches_sales(admin: SiteClient, data: Data) -> None:
    """Case study of the WebAgent-R1 paper."""
    page = admin.get("/reports/bestsellers?period=month&from=2023-01-01&to=2023-01-31")
    quantities: dict[str, int] = {}
    for name, quantity in data["shop"].execute(
        "SELECT product.name, quantity FROM purchase_item, purchase, product"
        " WHERE purchase.id = purchase_id AND product.id = product_id"
        " AND placed LIKE '2023-01-%' AND status != 'Cancelled'"
    ):
        quantities[name] = quantities.get(name, 0) + quantity
    first, second, third, fourth = sorted(quantities, key=lambda name: -quantities[name])[:4]
    assert quantities[third] > quantities[fourth]
    cells = read_cells(page)
    assert [cells[2], cells[7], cells[12]] == [first, second, third]
    assert [cells[4], cells[9], cells[14]] == [
        str(quantities[name]) for name in (first, second, third)
    ]


def test_cancel_order_updates_report_and_stock(
    server: ArenaServerHandle, world: str, admin: SiteClient, data: Data
) -> None:
    order = latest_order(data, "Processing")
    report = f"/reports/sales?period=day&from={order['placed'][:10]}&to={order['placed'][:10]}"
    num_orders = int(read_cells(admin.get(report))[1])
    (quantity,) = (
        data["shop"]
        .execute("SELECT sum(quantity) FROM purchase_item WHERE purchase_id = ?", [order["id"]])
        .fetchone()
    )
    page = admin.post(f"/orders/{order['id']}/cancel", reason="Out of stock")
    assert read_status(page) == "Cancelled" and "Cancelled: Out of stock." in page.text
    assert int(read_cells(admin.get(report))[1]) == num_orders - 1
    sql = "SELECT sum(stock) FROM product"
    (stock,) = data["shop"].execute(sql).fetchone()
    assert server.rows(world, "shop", sql) == [[stock + quantity]]
    assert "This cannot be done" in admin.post(f"/orders/{order['id']}/hold").text
    assert admin.get(f"/orders/{order['id']}/ship").location == f"/orders/{order['id']}"


def test_order_actions_update_status(admin: SiteClient, data: Data) -> None:
    order = latest_order(data, "Pending")
    path = f"/orders/{order['id']}"
    assert read_status(admin.post(f"{path}/hold")) == "On Hold"
    assert read_status(admin.post(f"{path}/release")) == "Processing"
    error_page = admin.post(f"{path}/ship", carrier="Pigeon", tracking="1")
    assert error_page.status == 422 and len(error_page.errors) == 2
    page = admin.post(f"{path}/ship", carrier="Northline", tracking="NL123456", notify=1)
    assert read_status(page) == "Shipped" and "tracking number NL123456" in page.text
    refund_page = admin.post(f"{path}/refund", amount=order["total"], reason="Does not fit")
    assert refund_page.errors == [f"At most {order['total'] / 100:,.2f}."]
    page = admin.post(f"{path}/refund", amount="1.50", reason="Does not fit")
    assert read_status(page) == "Refunded" and "Refunded $1.50 on Jun 15, 2023" in page.text


def test_order_remarks_require_text(admin: SiteClient) -> None:
    assert admin.post("/orders/300001/remarks", body=" ").errors == ["This is a required field."]
    page = admin.post("/orders/300001/remarks", body="Rang <twice>", notify=1)
    assert "customer notified</span> Rang &lt;twice&gt;" in page.text


def test_product_edits_appear_in_shop(admin: SiteClient, shop: SiteClient, product) -> None:
    fields = {key: product[key] for key in ("name", "sku", "brand", "material", "category_id")}
    admin_path, shop_path = f"/products/{product['id']}", f"/product/{product['slug']}"
    error_page = admin.post(
        admin_path, **{**fields, "name": ""}, price="cheap", stock=-1, state="Enabled"
    )
    assert error_page.status == 422 and len(error_page.errors) == 3
    admin.post(admin_path, **fields, price="1.25", old_price="2", stock=3, state="Enabled")
    page = shop.get(shop_path)
    assert "$1.25" in page.text and "was $2.00" in page.text and "Only 3 left" in page.text
    admin.post(admin_path, **fields, price="1.25", old_price="", stock=3, state="Disabled")
    assert shop.get(shop_path).status == 404


def test_searches_ignore_case_of_all_letters(admin: SiteClient, shop: SiteClient, product) -> None:
    fields = {key: product[key] for key in ("sku", "brand", "category_id", "stock")}
    name = "Étoile Pan"
    page = admin.post(f"/products/{product['id']}", **fields, name=name, price="5", state="Enabled")
    assert not page.errors
    for query in ("ÉTOILE", "étoile"):
        for client, path in ((admin, "/products"), (shop, "/search")):
            assert name in client.get(f"{path}?q={quote(query)}").text


def test_new_product_appears_in_shop(admin: SiteClient, shop: SiteClient, product) -> None:
    path = "/products/new?department=home-kitchen"
    fields = {"name": "Plain Pan", "sku": product["sku"], "brand": "Plain", "category_id": 1}
    fields |= {"price": "9.50", "stock": 4, "state": "Enabled"}
    assert admin.post(path, **fields).errors == ["There is a product with this one already."]
    assert "The product was added." in admin.post(path, **fields | {"sku": "PP1"}).text
    assert "$9.50" in shop.get("/product/plain-pan").text
    error_page = admin.post(path, **fields | {"sku": "PP2", "name": "\u8336\u58f6"})
    assert error_page.errors == ["A name needs a letter or a digit."]


@pytest.mark.parametrize("stars", ["x", "54"])
def test_review_list_rejects_unknown_stars(admin: SiteClient, stars: str) -> None:
    page = admin.get(f"/reviews?stars={stars}")
    assert page.status == 200 and "No reviews found." in page.text


def test_disabled_product_cannot_be_ordered(
    server: ArenaServerHandle, world: str, admin: SiteClient, shop: SiteClient, product
) -> None:
    fields = {key: product[key] for key in ("name", "sku", "brand", "material", "category_id")}
    choice = product["option_values"].split(", ")[0]
    cart_fields = {"slug": product["slug"], "choice": choice, "quantity": 1}
    shop.post("/cart/add", **cart_fields)
    shop.post("/compare/add", slug=product["slug"])
    shop.post("/wishlist/add", slug=product["slug"])
    admin.post(f"/products/{product['id']}", **fields, price=1, stock=1, state="Disabled")
    low_stock = read_low_stock(admin)
    assert "Your cart is empty." in shop.get("/cart").text
    assert "no products to compare" in shop.get("/compare").text
    assert product["slug"] not in shop.get("/wishlist").text
    assert shop.post("/cart/add", **cart_fields).status == 404
    shop.post("/checkout", address=1)
    shop.post("/checkout/payment", payment="Credit card")
    assert server.rows(world, "shop", "SELECT count(*) FROM purchase WHERE id > 305000") == [[0]]
    admin.post(f"/products/{product['id']}", **fields, price=1, stock=1, state="Enabled")
    assert read_low_stock(admin) == low_stock + 1


def test_review_approval_updates_review_count(
    admin: SiteClient, shop: SiteClient, data: Data
) -> None:
    sql = (
        "SELECT review.id, slug, review_count, title FROM review"
        " JOIN product ON product.id = product_id WHERE status = 'Pending'"
    )
    number, slug, count, _ = data["shop"].execute(sql).fetchone()
    assert read_status(admin.post(f"/reviews/{number}/approve")) == "Approved"
    assert f"({count + 1})" in shop.get(f"/product/{slug}").text
    assert read_status(admin.post(f"/reviews/{number}/reject")) == "Rejected"
    admin.post(f"/reviews/{number}/delete")
    assert admin.get(f"/reviews/{number}").status == 404


def test_shop_accepts_coupon_only_while_enabled(
    admin: SiteClient, shop: SiteClient, product
) -> None:
    fields = {"name": "Test", "code": "half", "percent": 50, "minimum": 0, "active": 1}
    error_page = admin.post("/promotions/new", **fields, starts="2023-06-20", ends="2023-06-01")
    assert error_page.errors == ["This day is before the first one."]
    page = admin.post("/promotions/new", **fields, starts="2023-06-01", ends="6/20/2023")
    number = re.findall(r"/promotions/(\d+)", page.text)[0]
    choice = product["option_values"].split(", ")[0]
    shop.post("/cart/add", slug=product["slug"], choice=choice, quantity=1)
    assert "HALF was applied" in shop.post("/cart/coupon", code="HALF").text
    assert read_status(admin.post(f"/promotions/{number}/switch")) == "Disabled"
    assert shop.post("/cart/coupon", code="HALF").errors


def test_cart_loses_a_deleted_coupon(
    data: Data, admin: SiteClient, shop: SiteClient, product
) -> None:
    (number,) = data["shop"].execute("SELECT id FROM promotion WHERE code = 'SPRING10'").fetchone()
    choice = product["option_values"].split(", ")[0]
    shop.post("/cart/add", slug=product["slug"], choice=choice, quantity=5)
    assert "Discount" in shop.post("/cart/coupon", code="SPRING10").text
    admin.post(f"/promotions/{number}/delete")
    page = shop.get("/cart")
    assert page.status == 200 and "Discount" not in page.text


def test_customer_edits_stay_in_world(server: ArenaServerHandle, admin: SiteClient) -> None:
    fields = {"first": "Nora", "last": "W", "email": "nora@new.example", "phone": ""}
    fields |= {"customer_group": "Retailer", "note": "Ours."}
    error_page = admin.post("/customers/2/edit", **fields | {"email": agent_user().email})
    assert error_page.errors == ["There is a customer with this email address already."]
    page = admin.post("/customers/1/edit", **fields)
    assert "Retailer group" in page.text and ">Ours.</p>" in page.text
    other_world = server.new()
    assert "Retailer group" not in SiteClient(server, other_world, "admin").get("/customers/1").text
    server.drop(other_world)
