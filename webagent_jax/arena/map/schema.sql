-- Positions are metres east and north of Alder Falls; roads are no tables (see roads.py).

CREATE TABLE person (
  id INTEGER PRIMARY KEY,  -- that of common.Person
  name TEXT NOT NULL, email TEXT NOT NULL UNIQUE, password TEXT NOT NULL
);
CREATE TABLE town (
  id INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE, slug TEXT NOT NULL UNIQUE,
  zip_code TEXT NOT NULL, population INTEGER NOT NULL, x INTEGER NOT NULL, y INTEGER NOT NULL
);
CREATE TABLE category (
  id INTEGER PRIMARY KEY, section TEXT NOT NULL,
  name TEXT NOT NULL UNIQUE, plural TEXT NOT NULL, slug TEXT NOT NULL UNIQUE,
  listed INTEGER NOT NULL  -- 0: towns and homes, which are found by name alone
);
CREATE TABLE place (
  id INTEGER PRIMARY KEY,
  name TEXT NOT NULL UNIQUE, slug TEXT NOT NULL UNIQUE, category_id INTEGER NOT NULL,
  street TEXT NOT NULL,  -- with the number
  town TEXT NOT NULL, zip_code TEXT NOT NULL,
  phone TEXT NOT NULL, website TEXT NOT NULL,  -- "" where there is none
  hours TEXT NOT NULL,  -- seven days from Monday, joined by ";": "09:00-18:00", "" when closed
  accessible INTEGER NOT NULL,  -- by wheelchair
  x INTEGER NOT NULL, y INTEGER NOT NULL,
  edge INTEGER NOT NULL, along INTEGER NOT NULL,  -- on the road network
  open_now INTEGER NOT NULL, open_saturday INTEGER NOT NULL, open_sunday INTEGER NOT NULL,
  words TEXT NOT NULL  -- what the search looks at, in lower case
);

-- What people keep and tell.
CREATE TABLE list (
  id INTEGER PRIMARY KEY, person_id INTEGER NOT NULL, name TEXT NOT NULL,
  UNIQUE (person_id, name)
);
CREATE TABLE saved (
  id INTEGER PRIMARY KEY, list_id INTEGER NOT NULL, place_id INTEGER NOT NULL,
  note TEXT NOT NULL DEFAULT '', added TEXT NOT NULL, UNIQUE (list_id, place_id)
);
CREATE TABLE report (
  id INTEGER PRIMARY KEY, person_id INTEGER NOT NULL, place_id INTEGER NOT NULL,
  problem TEXT NOT NULL, body TEXT NOT NULL, sent TEXT NOT NULL, status TEXT NOT NULL
);

CREATE INDEX place_category ON place (category_id, town);
CREATE INDEX place_town ON place (town);
CREATE INDEX saved_list ON saved (list_id);
CREATE INDEX report_place ON report (place_id);
