-- Times are ISO 8601 text. Issues and merge requests are numbered within their project.

CREATE TABLE user (
  id INTEGER PRIMARY KEY,  -- that of common.Person
  username TEXT NOT NULL UNIQUE, name TEXT NOT NULL, email TEXT NOT NULL UNIQUE,
  password TEXT NOT NULL, bio TEXT NOT NULL, location TEXT NOT NULL,
  status TEXT NOT NULL DEFAULT '', joined TEXT NOT NULL
);
CREATE TABLE follow (
  follower_id INTEGER NOT NULL, followed_id INTEGER NOT NULL, UNIQUE (follower_id, followed_id)
);
CREATE TABLE namespace (  -- what stands before the slash: a user or a group
  id INTEGER PRIMARY KEY, path TEXT NOT NULL UNIQUE, name TEXT NOT NULL,
  user_id INTEGER,  -- NULL for a group
  description TEXT NOT NULL, visibility TEXT NOT NULL, created TEXT NOT NULL
);
CREATE TABLE group_member (
  namespace_id INTEGER NOT NULL, user_id INTEGER NOT NULL, role TEXT NOT NULL,
  UNIQUE (namespace_id, user_id)
);

CREATE TABLE project (
  id INTEGER PRIMARY KEY, namespace_id INTEGER NOT NULL,
  name TEXT NOT NULL, slug TEXT NOT NULL, description TEXT NOT NULL,
  visibility TEXT NOT NULL,  -- public, internal, private
  language TEXT NOT NULL, license TEXT NOT NULL, topics TEXT NOT NULL,  -- topics: joined by ", "
  forked_from INTEGER, created TEXT NOT NULL, active TEXT NOT NULL,  -- active: latest happening
  stars INTEGER NOT NULL DEFAULT 0, forks INTEGER NOT NULL DEFAULT 0,
  UNIQUE (namespace_id, slug)
);
CREATE TABLE star (
  user_id INTEGER NOT NULL, project_id INTEGER NOT NULL, UNIQUE (project_id, user_id)
);
CREATE TABLE member (
  project_id INTEGER NOT NULL, user_id INTEGER NOT NULL,
  role TEXT NOT NULL,  -- Guest, Reporter, Developer, Maintainer, Owner
  since TEXT NOT NULL, UNIQUE (project_id, user_id)
);
CREATE TABLE file (
  id INTEGER PRIMARY KEY, project_id INTEGER NOT NULL, path TEXT NOT NULL, content TEXT NOT NULL,
  UNIQUE (project_id, path)
);
CREATE TABLE branch (
  project_id INTEGER NOT NULL, name TEXT NOT NULL, updated TEXT NOT NULL,
  is_default INTEGER NOT NULL DEFAULT 0, UNIQUE (project_id, name)
);
CREATE TABLE revision (  -- "commit" is a word of SQL
  id INTEGER PRIMARY KEY, project_id INTEGER NOT NULL, branch TEXT NOT NULL,
  sha TEXT NOT NULL, author_id INTEGER NOT NULL, title TEXT NOT NULL, written TEXT NOT NULL
);
CREATE TABLE revision_file (
  revision_id INTEGER NOT NULL, path TEXT NOT NULL,
  start INTEGER NOT NULL, added INTEGER NOT NULL, removed INTEGER NOT NULL  -- lines
);

CREATE TABLE milestone (
  id INTEGER PRIMARY KEY, project_id INTEGER NOT NULL, title TEXT NOT NULL,
  description TEXT NOT NULL, due TEXT NOT NULL, state TEXT NOT NULL,  -- open, closed
  UNIQUE (project_id, title)
);
CREATE TABLE label (
  id INTEGER PRIMARY KEY, project_id INTEGER NOT NULL, name TEXT NOT NULL, hue INTEGER NOT NULL,
  UNIQUE (project_id, name)
);
CREATE TABLE issue (
  id INTEGER PRIMARY KEY, project_id INTEGER NOT NULL, number INTEGER NOT NULL,
  title TEXT NOT NULL, body TEXT NOT NULL, state TEXT NOT NULL,  -- open, closed
  author_id INTEGER NOT NULL, assignee_id INTEGER, milestone_id INTEGER, due TEXT,
  created TEXT NOT NULL, updated TEXT NOT NULL, UNIQUE (project_id, number)
);
CREATE TABLE issue_label (
  issue_id INTEGER NOT NULL, label_id INTEGER NOT NULL, UNIQUE (issue_id, label_id)
);
CREATE TABLE merge_request (
  id INTEGER PRIMARY KEY, project_id INTEGER NOT NULL, number INTEGER NOT NULL,
  title TEXT NOT NULL, body TEXT NOT NULL, state TEXT NOT NULL,  -- open, merged, closed
  source TEXT NOT NULL, target TEXT NOT NULL,  -- branches
  author_id INTEGER NOT NULL, reviewer_id INTEGER, created TEXT NOT NULL, updated TEXT NOT NULL,
  UNIQUE (project_id, number)
);
CREATE TABLE approval (
  merge_request_id INTEGER NOT NULL, user_id INTEGER NOT NULL, UNIQUE (merge_request_id, user_id)
);
CREATE TABLE comment (
  id INTEGER PRIMARY KEY, issue_id INTEGER, merge_request_id INTEGER,  -- one of them
  author_id INTEGER NOT NULL, body TEXT NOT NULL, written TEXT NOT NULL
);
CREATE TABLE to_do (
  id INTEGER PRIMARY KEY, user_id INTEGER NOT NULL, author_id INTEGER NOT NULL,
  action TEXT NOT NULL,  -- "assigned you", "mentioned you in", "asked you to review"
  issue_id INTEGER, merge_request_id INTEGER, written TEXT NOT NULL,
  done INTEGER NOT NULL DEFAULT 0
);

CREATE INDEX star_user ON star (user_id);
CREATE INDEX member_user ON member (user_id);
CREATE INDEX revision_project ON revision (project_id, branch, written);
CREATE INDEX revision_file_revision ON revision_file (revision_id);
CREATE INDEX issue_project ON issue (project_id, state, created);
CREATE INDEX issue_assignee ON issue (assignee_id);
CREATE INDEX issue_milestone ON issue (milestone_id);
CREATE INDEX issue_label_label ON issue_label (label_id);
CREATE INDEX merge_request_project ON merge_request (project_id, state, created);
CREATE INDEX comment_issue ON comment (issue_id);
CREATE INDEX comment_merge_request ON comment (merge_request_id);
CREATE INDEX to_do_user ON to_do (user_id, done);
