"""Content of the forum: members, communities, posts, comments and messages, drawn from data/."""

from __future__ import annotations

import datetime
import random
import re
import sqlite3
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from webagent_jax.arena import common, database, random_data
from webagent_jax.arena.common import NOW, Person
from webagent_jax.arena.database import Database, insert_rows
from webagent_jax.arena.shop.data import DATABASE as SHOP

NUM_POSTS = 3_000
NUM_AGENT_POSTS = 28  # posts of the agent's account
NUM_AGENT_COMMENTS = 60
MODERATED_SLUGS = (
    "port-hadley",
    "gardening",
    "boardgames",
)  # communities that the account moderates
SUBSCRIBED_SLUGS = (
    *MODERATED_SLUGS,
    "cooking",
    "hiking",
    "books",
    "history",
    "worthit",
    "photography",
)
FIRST_DAY = datetime.datetime(2022, 1, 3)
MAX_DEPTH = 3  # maximum nesting level of comments, 1 for one on the post itself
MAX_COMMENTS = 20  # maximum number of comments of a post

_A_BEFORE_VOWEL = re.compile(r"\ba (?=[aeio])(?!one\b)")

# Relative frequency of topics: "link" is an external link, "product" a product of the shop.
_TOPIC_WEIGHTS = {"problem": 26, "thing": 18, "doing": 20, "opinion": 14, "tip": 8, "link": 14}
_BUYING_TOPIC_WEIGHTS = {"product": 55, "thing": 20, "opinion": 10, "tip": 10, "link": 5}


@dataclass(frozen=True, slots=True)
class Community:
    slug: str
    title: str
    description: str
    sidebar: str
    words: dict[str, list[str]]  # words by kind: things, problems, doing, opinions, tips
    town: str = ""  # town that the community is about, "" for none


def communities() -> Iterator[Community]:
    """Yield the communities of data/forum_communities.txt; its last entry yields one per town."""
    for head, *lines in _read_paragraphs():
        words = dict(line.split(": ", 1) for line in lines)
        sidebar = words.pop("sidebar")
        lists = {name: text.split("; ") for name, text in words.items()}
        if head.startswith("== "):
            yield Community(*_split_head(head[3:]), sidebar, lists)
            continue
        description_template = head[2:].split(" | ")[1]
        for city in common.cities():
            town = city.name
            texts = (description_template.format(town=town), sidebar.format(town=town))
            yield Community(town.lower().replace(" ", "-"), town, *texts, lists, town)


def _split_head(head: str) -> tuple[str, str, str]:
    """Return slug, title and description."""
    slug, title, description = head.split(" | ")
    return slug, title, description


def _read_paragraphs() -> Iterator[list[str]]:
    paragraph: list[str] = []
    for line in random_data.read_lines("forum_communities"):
        if line.startswith("=") and paragraph:
            yield paragraph
            paragraph = []
        paragraph.append(line)
    yield paragraph


class SentenceSampler:
    """Source of sentences for a community: fills the {braces} of patterns with its words."""

    def __init__(self, rng: random.Random, community: Community) -> None:
        self._rng, self._community = rng, community

    def words(self, name: str) -> list[str]:
        """Return the words of one kind, such as "things"."""
        return self._community.words[name]

    def sample(self, pattern: str, **overrides: str) -> str:
        rng, words = self._rng, self._community.words
        slots = {
            "thing": "it",
            "things": rng.choice(words["things"]),
            "problem": rng.choice(words["problems"]),
            "doing": rng.choice(words["doing"]),
            "opinion": rng.choice(words["opinions"]),
            "tip": rng.choice(words["tips"]),
            "town": self._community.town or rng.choice(common.cities()).name,
            "n": str(rng.randint(2, 12)),
            "year": rng.choice(("2022", "2023")),
        } | overrides
        slots |= {name.capitalize(): _to_sentence(word) for name, word in slots.items()}
        return _to_sentence(_A_BEFORE_VOWEL.sub("an ", pattern.format(**slots)))


def _to_sentence(text: str) -> str:
    return text[:1].upper() + text[1:]


def _to_inline(kind: str) -> str:
    """Return text for the middle of a sentence: "Vitamin D" gives "vitamin D"."""
    return " ".join(word if len(word) == 1 else word.lower() for word in kind.split())


# --- the tables ----------------------------------------------------------------------------------


def fill(connection: sqlite3.Connection) -> None:
    community_list = list(communities())
    _fill_members(connection, community_list)
    _fill_communities(connection, community_list)
    _fill_posts(connection, community_list)
    _fill_comments(connection, community_list)
    _fill_messages(connection)
    connection.execute(
        "UPDATE post SET comments = (SELECT count(*) FROM comment WHERE post_id = post.id)"
    )


def _fill_members(connection: sqlite3.Connection, community_list: list[Community]) -> None:
    rng = random_data.random_stream("forum", "members")
    bios = random_data.read_json("forum_words")["bios"]
    topics = [community for community in community_list if not community.town]
    rows: list[tuple[object, ...]] = []
    for person in common.persons():
        interest = rng.choice(topics).title.lower()
        bio = rng.choice(bios).format(interest=interest, town=person.city.name)
        bio = _to_sentence(bio) if rng.random() < 0.7 or person.id == 1 else ""
        join_date = (FIRST_DAY - datetime.timedelta(rng.randint(1, 300))).date().isoformat()
        row = (person.id, person.username, person.password, bio, person.city.name, join_date)
        rows.append((*row, "hot", int(rng.random() < 0.3 and person.id > 1)))
    insert_rows(connection, "member", rows)


def _fill_communities(connection: sqlite3.Connection, community_list: list[Community]) -> None:
    rng = random_data.random_stream("forum", "communities")
    rows: list[tuple[object, ...]] = []
    moderators: set[tuple[int, int]] = set()
    for number, community in enumerate(community_list, 1):
        created = (FIRST_DAY - datetime.timedelta(rng.randint(5, 300))).date().isoformat()
        row = (
            number,
            community.slug,
            community.title,
            community.description,
            community.sidebar,
            created,
        )
        rows.append((*row, int(180 * 50 ** rng.random()), rng.randrange(0, 360, 12)))
        moderators |= {(number, rng.randint(2, 900)) for _ in range(rng.randint(1, 2))}
        if community.slug in MODERATED_SLUGS:
            moderators.add((number, 1))
    insert_rows(connection, "community", rows)
    insert_rows(connection, "moderator", sorted(moderators))
    numbers = [
        n for n, community in enumerate(community_list, 1) if community.slug in SUBSCRIBED_SLUGS
    ]
    insert_rows(connection, "subscription", [(1, number) for number in numbers])


def _fill_posts(connection: sqlite3.Connection, community_list: list[Community]) -> None:
    rng = random_data.random_stream("forum", "posts")
    community_sampler = random_data.ZipfSampler(rng, range(len(community_list)), exponent=0.5)
    authors = random_data.ZipfSampler(rng, common.persons()[1:], exponent=0.6)
    products = _read_products()
    titles: set[str] = set()
    rows: list[tuple[Any, ...]] = []
    for posted in _sample_times(rng):
        index = community_sampler.sample(rng)[0]
        title, body, url = _sample_post(rng, community_list[index], products, titles)
        author: Person = authors.sample(rng)[0]
        up, down = _sample_votes(rng, 28.0)
        post_time = posted.isoformat(" ")
        row = (
            len(rows) + 1,
            index + 1,
            author.id,
            title,
            body,
            url,
            post_time,
            minutes_since_2022(posted),
        )
        rows.append((*row, up, down, 0, 0))
    candidates = [
        i for i, row in enumerate(rows) if community_list[row[1] - 1].slug in SUBSCRIBED_SLUGS
    ]
    for i in rng.sample(candidates, NUM_AGENT_POSTS):
        rows[i] = (*rows[i][:2], 1, *rows[i][3:])
    insert_rows(connection, "post", rows)
    own_votes = [(1, "post", row[0], 1) for row in rows if row[2] == 1]
    other_posts = [row[0] for row in rows if row[2] != 1]
    insert_rows(
        connection, "vote", [*own_votes, *((1, "post", n, 1) for n in rng.sample(other_posts, 20))]
    )
    insert_rows(connection, "saved", [(1, number) for number in rng.sample(other_posts, 5)])


def minutes_since_2022(moment: datetime.datetime) -> int:
    """Return the minutes since 2022, the unit of the order "hot"."""
    return int((moment - datetime.datetime(2022, 1, 1)).total_seconds()) // 60


def _sample_times(rng: random.Random) -> list[datetime.datetime]:
    """Return the times of posts in ascending order, more every month."""
    last = (NOW - FIRST_DAY).days
    days = rng.choices(range(last), [1 + day / 200 for day in range(last)], k=NUM_POSTS)
    offsets = (datetime.timedelta(day, rng.randrange(5 * 60, 24 * 60) * 60) for day in days)
    return sorted(FIRST_DAY + offset for offset in offsets)


def _sample_votes(rng: random.Random, mean: float) -> tuple[int, int]:
    """Return upvotes and downvotes; only a few posts get many."""
    up = 1 + int(rng.expovariate(1 / mean) * rng.choice((0.2, 0.5, 1, 1, 4)))
    return up, int(up * rng.random() ** 2 * 0.7)


def _sample_post(
    rng: random.Random, community: Community, products: Sequence[Any], titles: set[str]
) -> tuple[str, str, str]:
    """Return title, text and link of a post, and add its title to `titles`, which stay distinct."""
    sentence_sampler, templates = (
        SentenceSampler(rng, community),
        random_data.read_json("forum_words"),
    )
    weights = _BUYING_TOPIC_WEIGHTS if community.slug == "worthit" else _TOPIC_WEIGHTS
    while True:
        (topic,) = rng.choices(tuple(weights), tuple(weights.values()))
        product = rng.choice(products)
        # Title and body share one choice of words, so that they have the same subject.
        theme = {
            name: sentence_sampler.sample(f"{{{name}}}")
            for name in ("things", "doing", "problem", "tip")
        }
        theme = {name: word[0].lower() + word[1:] for name, word in theme.items()}
        theme |= {"product": product[0], "thing": _to_inline(product[1])}
        title = sentence_sampler.sample(rng.choice(templates[topic]["titles"]), **theme)
        if title not in titles and len(title) <= 90:
            break
    titles.add(title)
    bodies = templates[topic]["bodies"]
    if topic == "product":
        sentences = [rng.choice(bodies), *rng.sample(templates[topic]["ends"], 2)]
    else:
        sentences = rng.sample(bodies, 1 if topic == "link" else rng.randint(2, 3))
        sentences = [bodies[i] for i in sorted(bodies.index(text) for text in sentences)]
    body = " ".join(sentence_sampler.sample(text, **theme) for text in sentences)
    slug = "-".join(re.findall(r"[a-z0-9]+", title.lower()))
    url = f"https://{rng.choice(templates['sources'])}/{slug}" if topic == "link" else ""
    return title, body, url


def _read_products() -> list[Any]:
    """Return name and kind of each product of the shop."""
    shop = database.connect_read_only(database.build_image(SHOP))
    rows = shop.execute("SELECT name, kind FROM product WHERE active ORDER BY id").fetchall()
    shop.close()
    return [tuple(row) for row in rows]


# --- comments ------------------------------------------------------------------------------------


@dataclass(slots=True)
class _Comment:
    post: int
    parent: _Comment | None
    depth: int
    author: int
    body: str
    time: datetime.datetime
    votes: tuple[int, int]
    number: int = 0


def _fill_comments(connection: sqlite3.Connection, community_list: list[Community]) -> None:
    rng = random_data.random_stream("forum", "comments")
    authors = random_data.ZipfSampler(rng, common.persons()[1:], exponent=0.6)
    drafts: list[_Comment] = []
    posts = connection.execute("SELECT id, community_id, author_id, posted, up FROM post")
    for post, community, author, posted, up in posts.fetchall():
        sentence_sampler = SentenceSampler(rng, community_list[community - 1])
        count = min(int(rng.expovariate(1 / (3.6 + up / 50))), MAX_COMMENTS)
        thread: list[_Comment] = []
        time = datetime.datetime.fromisoformat(posted)
        for _ in range(count):
            time += datetime.timedelta(minutes=1 + int(rng.expovariate(1 / 150)))
            if time >= NOW:
                break
            parent_draft = rng.choice(thread) if thread and rng.random() < 0.45 else None
            parent_draft = parent_draft if parent_draft and parent_draft.depth < MAX_DEPTH else None
            writer = author if rng.random() < 0.08 and author != 1 else authors.sample(rng)[0].id
            body, votes = _sample_comment(rng, sentence_sampler)
            depth = parent_draft.depth + 1 if parent_draft else 1
            thread.append(_Comment(post, parent_draft, depth, writer, body, time, votes))
        drafts += thread
    _assign_to_agent(rng, drafts, connection)
    drafts.sort(key=lambda draft: (draft.time, draft.post))
    for number, draft in enumerate(drafts, 1):
        draft.number = number
    rows: list[tuple[object, ...]] = []
    for draft_comment in drafts:
        parent = draft_comment.parent.number if draft_comment.parent else None
        time_text = draft_comment.time.isoformat(" ")
        row = (
            draft_comment.number,
            draft_comment.post,
            parent,
            draft_comment.author,
            draft_comment.body,
            time_text,
        )
        rows.append((*row, *draft_comment.votes, 0))
    insert_rows(connection, "comment", rows)
    own_comments = [draft.number for draft in drafts if draft.author == 1]
    insert_rows(connection, "vote", [(1, "comment", number, 1) for number in own_comments])


def _assign_to_agent(
    rng: random.Random, drafts: list[_Comment], connection: sqlite3.Connection
) -> None:
    """Assign comments to the agent's account: at most one per post, and none on its own posts."""
    own_posts = {post for (post,) in connection.execute("SELECT id FROM post WHERE author_id = 1")}
    first_drafts: dict[int, _Comment] = {}
    for draft in rng.sample(drafts, len(drafts)):
        if draft.post not in own_posts:
            first_drafts.setdefault(draft.post, draft)
    for draft in list(first_drafts.values())[:NUM_AGENT_COMMENTS]:
        draft.author = 1


def _sample_comment(
    rng: random.Random, sentence_sampler: SentenceSampler
) -> tuple[str, tuple[int, int]]:
    words = random_data.read_json("forum_words")
    tone = rng.choices(("comments", "short", "rude"), (66, 24, 10))[0]
    body = sentence_sampler.sample(rng.choice(words[tone]))
    if tone == "rude":
        return body, (1 + int(rng.expovariate(0.7)), 2 + int(rng.expovariate(0.25)))
    if tone == "comments" and rng.random() < 0.3:
        body += " " + sentence_sampler.sample(rng.choice(words["comments"]))
    return body, _sample_votes(rng, 6.0)


def _fill_messages(connection: sqlite3.Connection) -> None:
    rng = random_data.random_stream("forum", "messages")
    rows: list[tuple[object, ...]] = []
    for number, (subject, body) in enumerate(random_data.read_json("forum_words")["messages"], 1):
        sent = NOW - datetime.timedelta(12 - 2 * number, minutes=rng.randrange(600))
        sent_text = sent.isoformat(" ")
        rows.append((number, rng.randint(2, 900), 1, subject, body, sent_text, int(number < 4)))
    insert_rows(connection, "message", rows)


DATABASE = Database(
    name="forum",
    schema=(Path(__file__).parent / "schema.sql").read_text(encoding="utf-8"),
    fill=fill,
)
