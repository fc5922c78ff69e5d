"""Site definition of Fencepost, the forum."""

from __future__ import annotations

import datetime
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from webagent_jax.arena import common
from webagent_jax.arena.forum import communities, members, messages, post_lists, posts, threads
from webagent_jax.arena.forum.data import DATABASE
from webagent_jax.arena.site import RequestContext, Site, pluralize


def _template_context(request: RequestContext) -> Mapping[str, Any]:
    account = request.session.account_id
    subscriptions = request.rows(
        "SELECT slug, title FROM community WHERE id IN"
        " (SELECT community_id FROM subscription WHERE member_id = ?) ORDER BY title",
        account,
    )
    unseen_sql = "SELECT count(*) FROM message WHERE recipient_id = ? AND NOT seen"
    return {
        "reader": request.value("SELECT username FROM member WHERE id = ?", account),
        "joined": subscriptions,
        "unseen": request.value(unseen_sql, account),
    }


def format_age(iso: str) -> str:
    """Return the time elapsed since a time: "2023-06-12 08:00:00" gives "3 days ago"."""
    minutes = int((common.NOW - datetime.datetime.fromisoformat(iso)).total_seconds()) // 60
    for name, size in (("year", 525_600), ("month", 43_200), ("day", 1440), ("hour", 60)):
        if minutes >= size:
            return f"{pluralize(minutes // size, name)} ago"
    return f"{pluralize(minutes, 'minute')} ago" if minutes else "just now"


def domain(url: str) -> str:
    """Return the hostname of a URL."""
    return url.split("/")[2]


SITE = Site(
    name="forum",
    task_name="reddit",
    title="Fencepost",
    description="A forum: 41 communities, 3,000 posts, nested comments, votes, messages",
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
    account_id=common.agent_user().id,
    template_context=_template_context,
    filters={"ago": format_age, "domain": domain},
)
