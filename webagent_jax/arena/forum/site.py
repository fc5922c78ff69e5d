"""Fencepost, a forum."""

from __future__ import annotations

import datetime
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from webagent_jax.arena import common
from webagent_jax.arena.forum import communities, members, messages, post_lists, posts, threads
from webagent_jax.arena.forum.data import DATABASE
from webagent_jax.arena.site import Site, Visit, plural


def _everywhere(visit: Visit) -> Mapping[str, Any]:
    account = visit.session.account
    joined = visit.rows(
        "SELECT slug, title FROM community WHERE id IN"
        " (SELECT community_id FROM subscription WHERE member_id = ?) ORDER BY title",
        account,
    )
    unseen = "SELECT count(*) FROM message WHERE recipient_id = ? AND NOT seen"
    return {
        "reader": visit.value("SELECT username FROM member WHERE id = ?", account),
        "joined": joined,
        "unseen": visit.value(unseen, account),
    }


def ago(iso: str) -> str:
    """2023-06-12 08:00:00 -> 3 days ago"""
    minutes = int((common.NOW - datetime.datetime.fromisoformat(iso)).total_seconds()) // 60
    for name, size in (("year", 525_600), ("month", 43_200), ("day", 1440), ("hour", 60)):
        if minutes >= size:
            return f"{plural(minutes // size, name)} ago"
    return f"{plural(minutes, 'minute')} ago" if minutes else "just now"


def domain(url: str) -> str:
    """https://slowread.example/a-map -> slowread.example"""
    return url.split("/")[2]


SITE = Site(
    name="forum",
    task_name="reddit",
    title="Fencepost",
    about="A forum: 41 communities, 3,000 posts, nested comments, votes, messages",
    database=DATABASE,
    views=[
        communities.views,
        posts.views,
        threads.views,
        members.views,
        messages.views,
        post_lists.views,
    ],
    folder=Path(__file__).parent,
    account=common.me().id,
    everywhere=_everywhere,
    filters={"ago": ago, "domain": domain},
)
