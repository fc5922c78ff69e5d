"""Data of the shop: products, customers, orders and reviews, composed from the word lists."""

from __future__ import annotations

import datetime
import random
import sqlite3
from pathlib import Path

from webagent_jax.arena import common, random_data
from webagent_jax.arena.common import TODAY, Person
from webagent_jax.arena.database import Database, insert_rows
from webagent_jax.arena.shop.policies import DELIVERIES, PAYMENTS, PROMOTIONS, shipping_cost
from webagent_jax.arena.shop.product_catalog import Category, ProductKind, categories
from webagent_jax.arena.site import to_slug

NUM_CUSTOMERS = 900
NUM_PURCHASES = 5_000
NUM_AGENT_PURCHASES = 38  # orders of the user whose browser the agent controls
FIRST_ORDER_NUMBER = 300_001  # number of the first order
FIRST_DAY = datetime.date(2022, 1, 3)  # opening of the shop


def fill(connection: sqlite3.Connection) -> None:
    people = common.persons()[:NUM_CUSTOMERS]
    _fill_customers(connection, people)
    category_of = _fill_products(connection)
    _fill_purchases(connection, people)
    # Nobody orders before registering.
    connection.execute(
        "UPDATE customer SET joined = min(joined, coalesce((SELECT min(date(placed)) FROM purchase"
        " WHERE customer_id = customer.id), joined))"
    )
    _fill_reviews(connection, people, category_of)
    insert_rows(connection, "promotion", [(i, *row) for i, row in enumerate(PROMOTIONS, 1)])
    wishes = random_data.random_stream("shop", "wishes").sample(range(1, len(category_of) + 1), 5)
    insert_rows(connection, "wish", [(i, 1, product) for i, product in enumerate(wishes, 1)])


def _fill_customers(connection: sqlite3.Connection, people: tuple[Person, ...]) -> None:
    rng = random_data.random_stream("shop", "customers")
    customers: list[tuple[object, ...]] = []
    addresses: list[tuple[object, ...]] = []
    for person in people:
        group = rng.choices(("General", "Wholesale", "Retailer"), (85, 10, 5))[0]
        join_date = FIRST_DAY + datetime.timedelta(rng.randrange(0, 500))
        join_date = FIRST_DAY if person.id == 1 else join_date
        row = (person.id, person.first, person.last, person.email, person.phone, person.password)
        customers.append(
            (*row, group, join_date.isoformat(), int(rng.random() < 0.3 and person.id > 1))
        )
        addresses.append(_address_row(len(addresses) + 1, person, person.street, is_default=1))
    work_address = _address_row(len(addresses) + 1, people[0], "48 Library Street", is_default=0)
    insert_rows(connection, "customer", customers)
    insert_rows(connection, "address", [*addresses, work_address])


def _address_row(number: int, person: Person, street: str, is_default: int) -> tuple[object, ...]:
    city = person.city
    place = (street, city.name, city.zip_code, person.phone)
    return (number, person.id, person.name, *place, is_default)


def _fill_products(connection: sqlite3.Connection) -> dict[int, Category]:
    """Fill the tables of the catalog, and return the category of each product for its reviews."""
    rng = random_data.random_stream("shop", "products")
    all_categories = list(categories())
    departments = list(dict.fromkeys(category.department for category in all_categories))
    names = [(i, name, to_slug(name)) for i, name in enumerate(departments, 1)]
    insert_rows(connection, "department", names)
    rows: list[tuple[object, ...]] = []
    products: list[tuple[object, ...]] = []
    category_of: dict[int, Category] = {}
    for number, category in enumerate(all_categories, 1):
        department = departments.index(category.department) + 1
        rows.append(
            (number, department, category.name, to_slug(category.name), *category.words["icon"])
        )
        for kind in category.kinds:
            for line in category.words["lines"]:
                category_of[len(category_of) + 1] = category
                products.append(
                    _product_row(
                        rng, len(category_of), number, category=category, kind=kind, line=line
                    )
                )
    insert_rows(connection, "category", rows)
    insert_rows(connection, "product", products)
    return category_of


def _product_row(
    rng: random.Random,
    number: int,
    category_id: int,
    *,
    category: Category,
    kind: ProductKind,
    line: str,
) -> tuple[object, ...]:
    brand = rng.choice(category.words["brands"])
    name = f"{brand} {line} {kind.name}"
    dollars = kind.min_dollars * (kind.max_dollars / kind.min_dollars) ** rng.random()
    price = round(dollars) * 100 - rng.choice((0, 1, 5, 10, 50))
    old_price = round(price * rng.choice((1.15, 1.2, 1.25, 1.4)) / 100) * 100 + 99
    features = rng.sample(category.words["features"], 3)
    initials = "".join(word[0] for word in category.department.split() if word != "&")
    return (
        number,
        f"{initials.upper()}{10_000 + number}",
        name,
        to_slug(name),
        brand,
        kind.name,
        category_id,
        price,
        old_price if rng.random() < 0.12 else None,
        rng.choice(category.words["material"]),
        "\n".join(features),
        kind.option_name,
        kind.option_values,
        0 if rng.random() < 0.04 else rng.randint(2, 180),
        1,
        (FIRST_DAY + datetime.timedelta(rng.randrange(0, 520))).isoformat(),
        kind.icon,
        rng.randrange(0, 360, 12),
        0,
        0,
        0,
        "",
    )


def _fill_purchases(connection: sqlite3.Connection, people: tuple[Person, ...]) -> None:
    rng = random_data.random_stream("shop", "purchases")
    products = connection.execute("SELECT id, price, option_values FROM product").fetchall()
    product_sampler = random_data.ZipfSampler(rng, products)
    buyer_sampler = random_data.ZipfSampler(rng, people[1:], exponent=0.5)
    buyers = [people[0]] * NUM_AGENT_PURCHASES + buyer_sampler.sample(
        rng, NUM_PURCHASES - NUM_AGENT_PURCHASES
    )
    rng.shuffle(buyers)
    purchases: list[tuple[object, ...]] = []
    items: list[tuple[object, ...]] = []
    for number, time in enumerate(_sample_times(rng), FIRST_ORDER_NUMBER):
        basket = []
        for product, price, values in product_sampler.sample(
            rng, rng.choices((1, 2, 3, 4), (40, 32, 18, 10))[0]
        ):
            quantity = rng.choices((1, 2, 3), (80, 15, 5))[0]
            basket.append((number, product, rng.choice(values.split(", ")), quantity, price))
        buyer = buyers[number - FIRST_ORDER_NUMBER]
        purchases.append(_purchase_row(rng, number, time, buyer, basket))
        items += basket
    insert_rows(connection, "purchase", purchases)
    insert_rows(connection, "purchase_item", items)
    connection.execute(
        "UPDATE product SET sold = (SELECT coalesce(sum(quantity), 0) FROM purchase_item"
        " JOIN purchase ON purchase.id = purchase_id"
        " WHERE product_id = product.id AND status != 'Cancelled')"
    )


def _sample_times(rng: random.Random) -> list[datetime.datetime]:
    """Return the sorted times of all orders: more every month, most before the holidays."""
    days = [FIRST_DAY + datetime.timedelta(n) for n in range((TODAY - FIRST_DAY).days)]
    weights = [1 + n / 300 + (1.5 if day.month in (11, 12) else 0) for n, day in enumerate(days)]
    order_days = rng.choices(days, weights, k=NUM_PURCHASES)
    times = [datetime.time(rng.randint(6, 23), rng.randint(0, 59)) for _ in order_days]
    return sorted(map(datetime.datetime.combine, order_days, times))


def _purchase_row(
    rng: random.Random,
    number: int,
    time: datetime.datetime,
    buyer: Person,
    basket: list[tuple[int, int, str, int, int]],
) -> tuple[object, ...]:
    subtotal = sum(quantity * price for *_, quantity, price in basket)
    coupons = [
        (code, percent)
        for code, _, percent, minimum, starts, ends, _ in PROMOTIONS
        if starts <= time.date().isoformat() <= ends and subtotal >= minimum
    ]
    code, percent = rng.choice(coupons) if coupons and rng.random() < 0.1 else ("", 0)
    discount = subtotal * percent // 100
    delivery = rng.choices(tuple(DELIVERIES), (70, 18, 12))[0]
    shipping = shipping_cost(delivery, subtotal - discount)
    return (
        number,
        buyer.id,
        time.isoformat(" "),
        _sample_status(rng, (TODAY - time.date()).days),
        buyer.name,
        buyer.street,
        buyer.city.name,
        buyer.city.zip_code,
        buyer.phone,
        delivery,
        rng.choices(PAYMENTS, (70, 20, 10))[0],
        code,
        subtotal,
        discount,
        shipping,
        subtotal - discount + shipping,
    )


def _sample_status(rng: random.Random, age: int) -> str:
    """Return a status for an order that is `age` days old."""
    if age <= 2:
        return rng.choices(("Pending", "Processing", "Cancelled"), (60, 35, 5))[0]
    if age <= 7:
        return rng.choices(("Processing", "Shipped", "Cancelled"), (30, 65, 5))[0]
    return rng.choices(("Complete", "Cancelled", "Refunded"), (86, 9, 5))[0]


# --- reviews -------------------------------------------------------------------------------------


def _fill_reviews(
    connection: sqlite3.Connection, people: tuple[Person, ...], category_of: dict[int, Category]
) -> None:
    """Insert the reviews; products that sell more have more reviews."""
    rng = random_data.random_stream("shop", "reviews")
    products = connection.execute("SELECT id, added, sold FROM product").fetchall()
    drafts: list[tuple[str, int, Person, int, str]] = []
    for product, first_day, sold in products:
        count = min(rng.randint(0, 4) + sold // 4, 14)
        quality = rng.random()
        first_day = datetime.date.fromisoformat(first_day)
        for person in rng.sample(people, count):
            stars = 1 + sum(rng.random() < 0.35 + 0.6 * quality for _ in range(4))
            age = rng.randrange(max(1, (TODAY - first_day).days))
            date = (TODAY - datetime.timedelta(age + 1)).isoformat()
            status = "Pending" if age < 25 and rng.random() < 0.4 else "Approved"
            drafts.append((date, product, person, stars, status))
    drafts.sort(key=lambda draft: (draft[0], draft[1], draft[2].id))
    rows: list[tuple[object, ...]] = []
    for number, (date, product, person, stars, status) in enumerate(drafts, 1):
        title, body = _sample_review(rng, stars, category_of[product])
        author = (product, person.id, f"{person.first} {person.last[0]}.")
        rows.append((number, *author, stars, title, body, date, status))
    insert_rows(connection, "review", rows)
    connection.execute(
        "UPDATE product SET (review_count, stars_sum) = (SELECT count(*), coalesce(sum(stars), 0)"
        " FROM review WHERE product_id = product.id AND status = 'Approved')"
    )


def _sample_review(rng: random.Random, stars: int, category: Category) -> tuple[str, str]:
    words = random_data.read_json("review_words")
    good, bad = rng.choice(category.words["good"]), rng.choice(category.words["bad"])
    main, other = (good, bad) if stars >= 3 else (bad, good)
    sentences = [rng.choice(words["openings"]), rng.choice(words["middles"]).format(main)]
    if stars == 3 or (stars in (2, 4) and rng.random() < 0.4):
        sentences.append(rng.choice(words["but"]).format(other))
    sentences.append(rng.choice(words["closings"][str(stars)]))
    return rng.choice(words["titles"][str(stars)]), " ".join(sentences)


DATABASE = Database(
    name="shop",
    schema=(Path(__file__).parent / "schema.sql").read_text(encoding="utf-8"),
    fill=fill,
)
