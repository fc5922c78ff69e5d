-- Days and times are ISO 8601 text.

CREATE TABLE member (
  id INTEGER PRIMARY KEY,  -- that of common.Person
  username TEXT NOT NULL UNIQUE, password TEXT NOT NULL, bio TEXT NOT NULL, town TEXT NOT NULL,
  joined TEXT NOT NULL,
  sort TEXT NOT NULL DEFAULT 'hot',  -- of lists, unless asked for another
  mail INTEGER NOT NULL DEFAULT 0  -- wants to be told of replies
);
CREATE TABLE community (
  id INTEGER PRIMARY KEY, slug TEXT NOT NULL UNIQUE, title TEXT NOT NULL UNIQUE,
  description TEXT NOT NULL, sidebar TEXT NOT NULL, created TEXT NOT NULL,
  subscribers INTEGER NOT NULL,
  hue INTEGER NOT NULL  -- of its colour, in degrees
);
CREATE TABLE moderator (
  community_id INTEGER NOT NULL, member_id INTEGER NOT NULL, PRIMARY KEY (community_id, member_id)
) WITHOUT ROWID;
CREATE TABLE subscription (  -- of those who read in this world; the others are but counted
  member_id INTEGER NOT NULL, community_id INTEGER NOT NULL, PRIMARY KEY (member_id, community_id)
) WITHOUT ROWID;

CREATE TABLE post (
  id INTEGER PRIMARY KEY, community_id INTEGER NOT NULL, author_id INTEGER NOT NULL,
  title TEXT NOT NULL, body TEXT NOT NULL, url TEXT NOT NULL,  -- url: empty for a text
  posted TEXT NOT NULL,
  minute INTEGER NOT NULL,  -- the same, in minutes since 2022
  up INTEGER NOT NULL DEFAULT 1, down INTEGER NOT NULL DEFAULT 0,
  comments INTEGER NOT NULL DEFAULT 0,
  edited INTEGER NOT NULL DEFAULT 0
);
CREATE TABLE comment (
  id INTEGER PRIMARY KEY, post_id INTEGER NOT NULL, parent_id INTEGER,
  author_id INTEGER,  -- none: it was deleted, and only its replies are left
  body TEXT NOT NULL, written TEXT NOT NULL,
  up INTEGER NOT NULL DEFAULT 1, down INTEGER NOT NULL DEFAULT 0,
  edited INTEGER NOT NULL DEFAULT 0
);

CREATE TABLE vote (
  member_id INTEGER NOT NULL, kind TEXT NOT NULL,  -- post, comment
  thing_id INTEGER NOT NULL, direction INTEGER NOT NULL,  -- 1 up, -1 down
  PRIMARY KEY (member_id, kind, thing_id)
) WITHOUT ROWID;
CREATE TABLE saved (
  member_id INTEGER NOT NULL, post_id INTEGER NOT NULL, PRIMARY KEY (member_id, post_id)
) WITHOUT ROWID;
CREATE TABLE blocked (
  member_id INTEGER NOT NULL, other_id INTEGER NOT NULL, PRIMARY KEY (member_id, other_id)
) WITHOUT ROWID;
CREATE TABLE message (
  id INTEGER PRIMARY KEY, sender_id INTEGER NOT NULL, recipient_id INTEGER NOT NULL,
  subject TEXT NOT NULL, body TEXT NOT NULL, sent TEXT NOT NULL, seen INTEGER NOT NULL DEFAULT 0
);

CREATE INDEX post_community ON post (community_id);
CREATE INDEX post_author ON post (author_id);
CREATE INDEX comment_post ON comment (post_id);
CREATE INDEX comment_author ON comment (author_id);
