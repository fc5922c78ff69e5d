"""HTTP tests of the shop site."""

from __future__ import annotations

import html
import re
from urllib.parse import urlencode

import pytest

from tests.arena.conftest import SiteClient, call_asgi
from tests.report.browsing import PHONE, launch_chromium
from webagent_jax.arena import common
from webagent_jax.arena.client import ArenaServerHandle
from webagent_jax.arena.registry import SITES
from webagent_jax.arena.server import ArenaApp
from webagent_jax.arena.task import Data

NEXT_ORDER = 305_001


@pytest.fixture(scope="session")
def product(data: Data):
    return (
        data["shop"].execute("SELECT * FROM product WHERE stock > 50 AND price > 9000").fetchone()
    )


def add_to_cart(shop: SiteClient, product, quantity: object = 1):
    choice = product["option_values"].split(", ")[0]
    return shop.post("/cart/add", slug=product["slug"], choice=choice, quantity=quantity)


@pytest.mark.parametrize(
    "path",
    "/ /department/clothing /category/cookware /deals /search?q=lamp /cart /wishlist /compare "
    "/account /account/orders /account/addresses /account/addresses/new /account/details "
    "/account/reviews /help /contact /sign-in /register".split(),
)
def test_pages_return_200(shop: SiteClient, path: str) -> None:
    page = shop.get(path)
    assert page.status == 200 and "<h1>" in page.text


@pytest.mark.parametrize("path", ["/nothing", "/product/none", "/account/orders/1"])
def test_missing_pages_return_404(shop: SiteClient, path: str) -> None:
    page = shop.get(path)
    assert page.status == 404 and "Marigold" in page.text


def test_search_matches_all_words_in_any_order(shop: SiteClient) -> None:
    assert "of 10 products" in shop.get("/search?q=PAN+frying").text
    assert "No products found" in shop.get("/search?q=frying+zebra").text
    assert shop.get("/search?q=").location == "/"


def test_product_list_filters_sorts_and_paginates(shop: SiteClient) -> None:
    page = shop.get("/category/cookware?sort=price-up&from=30&to=60")
    prices = [float(price) for price in re.findall(r'class="price">\$([\d.]+)', page.text)]
    assert prices == sorted(prices) and prices[0] >= 30 and prices[-1] <= 60
    last_page = shop.get("/category/cookware?page=99")
    assert "Page 7 of 7" in last_page.text and "49-50 of 50 products" in last_page.text
    redirect_page = shop.get("/category/cookware?sort=newest&from=&to=&stars=")
    assert redirect_page.location == "/category/cookware?sort=newest"
    assert shop.get("/category/cookware?from=cheap").errors == ["Enter an amount, such as 12.50."]


def test_search_without_filters_has_the_url_of_the_search(shop: SiteClient) -> None:
    url = shop.get("/search?q=frying+pan&from=").location
    assert url == "/search?q=frying+pan"
    assert f'<a href="{url}">Clear filters</a>' in shop.get(f"{url}&from=5").text


@pytest.mark.parametrize(
    ("site", "path"),
    [
        ("shop", "/category/cookware"),
        ("shop", "/category/cookware?sort=price-up&from=5"),
        ("shop", "/account/orders"),
        ("admin", "/orders"),
        ("admin", "/reviews?status=Pending"),
        ("code", "/lanternworks/lantern/issues?state=all"),
        ("forum", "/search?q=the"),
    ],
)
def test_previous_page_has_the_first_url_of_the_list(
    server: ArenaServerHandle, world: str, site: str, path: str
) -> None:
    client = SiteClient(server, world, site)
    links = {}
    for url in (path, f"{path}{'&' if '?' in path else '?'}page=2"):
        page = client.get(url)
        assert page.status == 200
        pattern = r'<a href="([^"]+)">(Previous|Next)</a>'
        links[url] = {name: html.unescape(link) for link, name in re.findall(pattern, page.text)}
    first, second = links
    assert links[first] == {"Next": second}
    assert links[second]["Previous"] == first


@pytest.mark.parametrize(
    ("site", "path", "name", "fields"),
    [
        ("shop", "/account/details", "newsletter", {"first": "", "email": "nora"}),
        ("code", "/projects/new", "readme", {"name": "", "space": "whitfieldno33"}),
        ("forum", "/settings", "mail", {"bio": "x" * 401, "town": "Harwick", "sort": "new"}),
    ],
)
def test_rejected_form_keeps_its_check_box(
    server: ArenaServerHandle, world: str, site: str, path: str, name: str, fields: dict
) -> None:
    client = SiteClient(server, world, site)
    for checked_fields, state in (({name: "1"}, " checked"), ({}, "")):
        page = client.post(path, **fields, **checked_fields)
        assert page.status == 422 and page.errors
        assert re.findall(rf'name="{name}" value="1"( checked|)>', page.text) == [state]


@pytest.mark.parametrize("quantity", ["0", "-1", "21", "two", ""])
def test_cart_rejects_invalid_quantities(shop: SiteClient, product, quantity: str) -> None:
    assert "Not added to your cart." in add_to_cart(shop, product, quantity).text
    assert "Your cart is empty." in shop.get("/cart").text


def test_cart_rejects_quantity_above_stock(shop: SiteClient, data: Data) -> None:
    scarce_product = (
        data["shop"].execute("SELECT * FROM product WHERE stock BETWEEN 1 AND 5").fetchone()
    )
    page = add_to_cart(shop, scarce_product, scarce_product["stock"] + 1)
    assert f"Only {scarce_product['stock']} in stock." in page.text
    assert (
        "was added to your cart" in add_to_cart(shop, scarce_product, scarce_product["stock"]).text
    )


def test_checkout_creates_order(
    server: ArenaServerHandle, world: str, shop: SiteClient, product
) -> None:
    add_to_cart(shop, product, 2)
    assert shop.post("/cart/coupon", code="nonsense").errors
    assert "SPRING10 was applied" in shop.post("/cart/coupon", code="spring10").text
    shop.post("/checkout", address=1)
    shop.post("/checkout/delivery", delivery="Express")
    assert f">{NEXT_ORDER}</a>" in shop.post("/checkout/payment", payment="Bank transfer").text
    ((subtotal, discount, total, status),) = server.rows(
        world,
        "shop",
        f"SELECT subtotal, discount, total, status FROM purchase WHERE id = {NEXT_ORDER}",
    )
    assert subtotal == 2 * product["price"] and discount == subtotal // 10
    assert total == subtotal - discount + 1295 and status == "Pending"
    ((stock,),) = server.rows(
        world, "shop", f"SELECT stock FROM product WHERE id = {product['id']}"
    )
    assert stock == product["stock"] - 2
    assert "Your cart is empty." in shop.get("/cart").text
    assert "was cancelled" in shop.post(f"/account/orders/{NEXT_ORDER}/cancel").text
    assert "cannot be cancelled" in shop.post(f"/account/orders/{NEXT_ORDER}/cancel").text


def test_cart_limits_pieces_of_all_lines(shop: SiteClient, product) -> None:
    add_to_cart(shop, product, 20)
    assert "At most 20 per order." in add_to_cart(shop, product, 1).text
    (number,) = re.findall(r'name="quantity-(\d+)" value="20"', shop.get("/cart").text)
    assert "was updated" in shop.post("/cart/update", **{f"quantity-{number}": 20}).text


def test_cart_and_order_check_stock(
    server: ArenaServerHandle, world: str, shop: SiteClient, data: Data
) -> None:
    sql = "SELECT * FROM product WHERE stock = 2"
    scarce_product = data["shop"].execute(sql).fetchone()
    add_to_cart(shop, scarce_product, 2)
    assert "Only 2 in stock." in add_to_cart(shop, scarce_product, 1).text
    (number,) = re.findall(r'name="quantity-(\d+)"', shop.get("/cart").text)
    page = shop.post("/cart/update", **{f"quantity-{number}": 3})
    assert page.errors == ["Only 2 in stock."]
    shop.post("/checkout", address=1)
    # Another customer buys a piece.
    admin = SiteClient(server, world, "admin")
    fields = {key: scarce_product[key] for key in ("name", "sku", "brand", "category_id")}
    admin.post(f"/products/{scarce_product['id']}", **fields, price=1, stock=1, state="Enabled")
    page = shop.post("/checkout/payment", payment="Credit card")
    assert "Only 1 in stock." in page.text and "Shopping cart" in page.text


def test_cart_survives_sign_in_during_checkout(shop: SiteClient, product) -> None:
    add_to_cart(shop, product, 15)
    shop.post("/sign-out")
    add_to_cart(shop, product, 10)
    assert shop.get("/checkout").location == "/sign-in?back=%2Fcheckout"
    user = common.agent_user()
    page = shop.post("/sign-in", email=user.email, password=user.password, back="/checkout")
    assert "Continue to Delivery" in page.text
    assert 'value="20"' in shop.get("/cart").text
    shop.post("/sign-out")
    assert "Your cart is empty." in shop.get("/cart").text


@pytest.mark.parametrize("path", ["/register", "/sign-in"])
def test_inputs_of_another_account_are_forgotten(
    shop: SiteClient, data: Data, product, path: str
) -> None:
    other = data["shop"].execute("SELECT email, password FROM customer WHERE id = 2").fetchone()
    add_to_cart(shop, product)
    shop.post("/cart/coupon", code="SPRING10")
    shop.post("/compare/add", slug=product["slug"])
    shop.post("/checkout", address=1)
    shop.post("/checkout/delivery", delivery="Express")
    fields = dict(other) if path == "/sign-in" else {"email": "new@mailbox.example"}
    page = shop.post(path, **{"first": "N", "last": "W", "password": "long enough"} | fields)
    assert "<h1>" in page.text and not page.errors
    add_to_cart(shop, product)
    assert "SPRING10" not in shop.get("/cart").text
    assert product["name"] not in shop.get("/compare").text
    assert "address first" in shop.post("/checkout/payment", payment="Credit card").text


def test_inputs_of_a_visitor_survive_sign_in(shop: SiteClient, product) -> None:
    shop.post("/sign-out")
    add_to_cart(shop, product)
    shop.post("/cart/coupon", code="SPRING10")
    user = common.agent_user()
    shop.post("/sign-in", email=user.email, password=user.password)
    assert "SPRING10" in shop.get("/cart").text


def test_order_needs_an_address_of_its_customer(product) -> None:
    arena = ArenaApp(SITES)
    world = arena.worlds.new()

    def post(path: str, **fields: object) -> int:
        body = urlencode(fields).encode()
        return call_asgi(arena, f"shop.{world.name}.localhost:1", path, "POST", body).status

    choice = product["option_values"].split(", ")[0]
    assert post("/cart/add", slug=product["slug"], choice=choice, quantity=1) == 303
    for address, status in ((2, 404), (1, 303)):
        world.sessions["shop"].pending_inputs["address"] = address
        assert post("/checkout/payment", payment="Credit card") == status


def test_cancelled_order_returns_its_products(
    server: ArenaServerHandle, world: str, shop: SiteClient, data: Data
) -> None:
    sql = "SELECT id FROM purchase WHERE customer_id = 1 AND status = 'Processing'"
    (number,) = data["shop"].execute(sql).fetchone()
    sql = (
        "SELECT product.id, stock, sold, sum(quantity) FROM product JOIN purchase_item"
        f" ON product_id = product.id WHERE purchase_id = {number} GROUP BY product.id"
    )
    before = server.rows(world, "shop", sql)
    assert "was cancelled" in shop.post(f"/account/orders/{number}/cancel").text
    assert server.rows(world, "shop", sql) == [
        [product, stock + quantity, sold - quantity, quantity]
        for product, stock, sold, quantity in before
    ]
    assert "cannot be cancelled" in shop.post(f"/account/orders/{number}/cancel").text


def test_deleted_address_restarts_checkout(
    server: ArenaServerHandle, world: str, shop: SiteClient, product
) -> None:
    address = {"name": "N", "street": "S", "city": "C", "zip_code": "12345", "phone": "1"}
    shop.post("/account/addresses/new", **address)
    ((number,),) = server.rows(world, "shop", "SELECT max(id) FROM address")
    add_to_cart(shop, product)
    shop.post("/checkout", address=number)
    shop.post(f"/account/addresses/{number}/delete")
    assert "address first" in shop.post("/checkout/payment", payment="Credit card").text


def test_email_addresses_are_unique_in_any_case(shop: SiteClient) -> None:
    fields = {"first": "N", "last": "W", "password": "long enough", "phone": "1"}
    email = common.agent_user().email.upper()
    message = "There is an account with this email address already."
    assert shop.post("/register", email=email, **fields).errors == [message]


def test_checkout_steps_cannot_be_skipped(shop: SiteClient, product) -> None:
    assert shop.get("/checkout").location == "/cart"
    add_to_cart(shop, product)
    assert shop.get("/checkout/payment").location == "/checkout"
    assert "address first" in shop.post("/checkout/payment", payment="Credit card").text


def test_review_requires_approval(shop: SiteClient, product) -> None:
    path = f"/product/{product['slug']}/review"
    error_page = shop.post(path, stars="", title="", body="", nickname="")
    assert error_page.status == 422 and len(error_page.errors) == 4
    shop.post(path, stars=2, title="Hm <b>", body="Not for me.", nickname="Nora")
    assert "waiting for approval" in shop.get("/account/reviews").text
    assert "Hm &lt;b&gt;" in shop.get("/account/reviews").text
    assert "Hm" not in shop.get(f"/product/{product['slug']}/reviews").text


def test_account_requires_sign_in(shop: SiteClient, data: Data) -> None:
    shop.post("/sign-out")
    assert shop.get("/account").location == "/sign-in?back=%2Faccount"
    for path in ("/account/orders/300001/address", "/account/addresses/1", "/checkout/done"):
        assert shop.get(path).location.startswith("/sign-in"), path
    assert "Please sign in" in shop.post("/account/details", first="A").text
    error_page = shop.post("/sign-in", email="nora.whitfield@mailbox.example", password="guess")
    assert error_page.errors == ["The email address or the password is wrong."]
    (password,) = data["shop"].execute("SELECT password FROM customer WHERE id = 1").fetchone()
    email = "Nora.Whitfield@mailbox.example"
    assert "Welcome back." in shop.post("/sign-in", email=email, password=password).text


def test_data_of_other_customers_returns_404(shop: SiteClient, data: Data) -> None:
    (order_id,) = data["shop"].execute("SELECT id FROM purchase WHERE customer_id != 1").fetchone()
    assert shop.get(f"/account/orders/{order_id}").status == 404
    assert shop.post(f"/account/orders/{order_id}/cancel").status == 404
    assert shop.get("/account/addresses/2").status == 404


def test_failed_cart_request_writes_nothing(
    server: ArenaServerHandle, world: str, shop: SiteClient, product
) -> None:
    add_to_cart(shop, product)
    assert shop.post("/cart/add", slug="none", choice="S", quantity=1).status == 404
    assert server.rows(world, "shop", "SELECT count(*) FROM cart_item") == [[1]]


@pytest.mark.browser
def test_pages_fit_phone_width(server: ArenaServerHandle, world: str, shop: SiteClient) -> None:
    product_links = re.findall(r'href="(/product/[^"]+)"', shop.get("/department/clothing").text)
    order_links = re.findall(r'href="(/account/orders/\d+)"', shop.get("/account/orders").text)
    with launch_chromium() as browser:
        page = browser.new_page(viewport=PHONE)
        for path in (
            *("/", "/department/clothing", "/category/cookware", "/deals", "/cart", "/wishlist"),
            *("/account", "/account/orders", "/sign-in", "/contact"),
            *(product_links[0], order_links[0]),
        ):
            page.goto(f"http://shop.{world}.localhost:{server.port}{path}")
            assert page.evaluate("document.documentElement.scrollWidth") <= 390, path


def test_customers_register_before_their_first_order(data: Data) -> None:
    sql = (
        "SELECT count(*) FROM purchase JOIN customer ON customer.id = customer_id"
        " WHERE date(placed) < joined"
    )
    assert data["shop"].execute(sql).fetchone()[0] == 0
