-- What only the back office keeps; everything else is the shop's.

CREATE TABLE remark (
  id INTEGER PRIMARY KEY, purchase_id INTEGER NOT NULL, written TEXT NOT NULL,
  author TEXT NOT NULL, body TEXT NOT NULL,
  notified INTEGER NOT NULL DEFAULT 0  -- whether the customer got it by mail
);
CREATE TABLE shipment (
  purchase_id INTEGER PRIMARY KEY, carrier TEXT NOT NULL, tracking TEXT NOT NULL,
  sent TEXT NOT NULL
);
CREATE TABLE refund (
  purchase_id INTEGER PRIMARY KEY, amount INTEGER NOT NULL, reason TEXT NOT NULL,
  given TEXT NOT NULL
);
CREATE TABLE customer_note (customer_id INTEGER PRIMARY KEY, body TEXT NOT NULL);
CREATE TABLE search_term (  -- of the last twelve months
  id INTEGER PRIMARY KEY, term TEXT NOT NULL UNIQUE, uses INTEGER NOT NULL,
  results INTEGER NOT NULL, last TEXT NOT NULL
);

CREATE INDEX remark_purchase ON remark (purchase_id);
