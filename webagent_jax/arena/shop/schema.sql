-- Money is in cents, days and times are ISO 8601 text.

CREATE TABLE customer (
  id INTEGER PRIMARY KEY,  -- that of common.Person
  first TEXT NOT NULL, last TEXT NOT NULL, email TEXT NOT NULL UNIQUE, phone TEXT NOT NULL,
  password TEXT NOT NULL,
  customer_group TEXT NOT NULL,  -- General, Wholesale, Retailer
  joined TEXT NOT NULL,
  newsletter INTEGER NOT NULL DEFAULT 0
);
CREATE TABLE address (
  id INTEGER PRIMARY KEY, customer_id INTEGER NOT NULL, name TEXT NOT NULL, street TEXT NOT NULL,
  city TEXT NOT NULL, zip_code TEXT NOT NULL, phone TEXT NOT NULL,
  is_default INTEGER NOT NULL DEFAULT 0
);

CREATE TABLE department (id INTEGER PRIMARY KEY, name TEXT NOT NULL, slug TEXT NOT NULL UNIQUE);
CREATE TABLE category (
  id INTEGER PRIMARY KEY, department_id INTEGER NOT NULL, name TEXT NOT NULL,
  slug TEXT NOT NULL UNIQUE, icon TEXT NOT NULL
);
CREATE TABLE product (
  id INTEGER PRIMARY KEY,
  sku TEXT NOT NULL UNIQUE, name TEXT NOT NULL UNIQUE, slug TEXT NOT NULL UNIQUE,
  brand TEXT NOT NULL, kind TEXT NOT NULL, category_id INTEGER NOT NULL,
  price INTEGER NOT NULL, old_price INTEGER,  -- the latter while it is reduced
  material TEXT NOT NULL, features TEXT NOT NULL,  -- features: one a line
  option_name TEXT NOT NULL, option_values TEXT NOT NULL,  -- values: joined by ", "
  stock INTEGER NOT NULL, active INTEGER NOT NULL DEFAULT 1,
  added TEXT NOT NULL,  -- when it came into the shop
  icon TEXT NOT NULL, hue INTEGER NOT NULL,  -- its picture, and the colour of it in degrees
  review_count INTEGER NOT NULL DEFAULT 0, stars_sum INTEGER NOT NULL DEFAULT 0,  -- approved only
  sold INTEGER NOT NULL DEFAULT 0,  -- pieces, cancelled orders left out
  words TEXT NOT NULL DEFAULT ''  -- what the search looks at, in lower case
);
CREATE TABLE review (
  id INTEGER PRIMARY KEY, product_id INTEGER NOT NULL, customer_id INTEGER,
  nickname TEXT NOT NULL, stars INTEGER NOT NULL, title TEXT NOT NULL, body TEXT NOT NULL,
  written TEXT NOT NULL, status TEXT NOT NULL  -- Approved, Pending, Rejected
);

CREATE TABLE purchase (
  id INTEGER PRIMARY KEY,  -- the order number
  customer_id INTEGER NOT NULL, placed TEXT NOT NULL,
  status TEXT NOT NULL,  -- Pending, Processing, Shipped, Complete, Cancelled, Refunded
  name TEXT NOT NULL, street TEXT NOT NULL, city TEXT NOT NULL, zip_code TEXT NOT NULL,
  phone TEXT NOT NULL, delivery TEXT NOT NULL, payment TEXT NOT NULL,
  coupon TEXT NOT NULL DEFAULT '',
  subtotal INTEGER NOT NULL, discount INTEGER NOT NULL, shipping INTEGER NOT NULL,
  total INTEGER NOT NULL
);
CREATE TABLE purchase_item (
  purchase_id INTEGER NOT NULL, product_id INTEGER NOT NULL, choice TEXT NOT NULL,
  quantity INTEGER NOT NULL, price INTEGER NOT NULL  -- of one piece
);
CREATE TABLE promotion (
  id INTEGER PRIMARY KEY, code TEXT NOT NULL UNIQUE, name TEXT NOT NULL,
  percent INTEGER NOT NULL, minimum INTEGER NOT NULL, starts TEXT NOT NULL, ends TEXT NOT NULL,
  active INTEGER NOT NULL DEFAULT 1
);

-- What a customer leaves in the shop; customer 0 is whoever is not signed in.
CREATE TABLE cart_item (
  id INTEGER PRIMARY KEY, customer_id INTEGER NOT NULL, product_id INTEGER NOT NULL,
  choice TEXT NOT NULL, quantity INTEGER NOT NULL, UNIQUE (customer_id, product_id, choice)
);
CREATE TABLE wish (
  id INTEGER PRIMARY KEY, customer_id INTEGER NOT NULL, product_id INTEGER NOT NULL,
  UNIQUE (customer_id, product_id)
);
CREATE TABLE message (
  id INTEGER PRIMARY KEY, customer_id INTEGER NOT NULL, topic TEXT NOT NULL,
  order_number TEXT NOT NULL, body TEXT NOT NULL, sent TEXT NOT NULL
);

CREATE INDEX address_customer ON address (customer_id);
CREATE INDEX product_category ON product (category_id);
CREATE INDEX review_product ON review (product_id, status);
CREATE INDEX review_customer ON review (customer_id);
CREATE INDEX purchase_customer ON purchase (customer_id, placed);
CREATE INDEX purchase_placed ON purchase (placed);
CREATE INDEX purchase_item_purchase ON purchase_item (purchase_id);
CREATE INDEX purchase_item_product ON purchase_item (product_id);

CREATE TRIGGER product_named AFTER INSERT ON product BEGIN
  UPDATE product SET words = lower(name || ' ' || sku || ' ' ||
    (SELECT name FROM category WHERE id = category_id)) WHERE id = new.id;
END;
CREATE TRIGGER product_renamed AFTER UPDATE OF name, category_id ON product BEGIN
  UPDATE product SET words = lower(name || ' ' || sku || ' ' ||
    (SELECT name FROM category WHERE id = category_id)) WHERE id = new.id;
END;
