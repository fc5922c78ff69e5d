"""Registry of the sites of the arena and of the templates of its tasks.

To add a site, add a line to each tuple. The order of the sites is that of the index page; the order
of the templates determines the tasks.
"""

from __future__ import annotations

from webagent_jax.arena import database
from webagent_jax.arena.admin import tasks as admin_tasks
from webagent_jax.arena.admin.site import SITE as ADMIN
from webagent_jax.arena.code import tasks as code_tasks
from webagent_jax.arena.code.site import SITE as CODE
from webagent_jax.arena.forum import tasks as forum_tasks
from webagent_jax.arena.forum.site import SITE as FORUM
from webagent_jax.arena.map import tasks as map_tasks
from webagent_jax.arena.map.site import SITE as MAP
from webagent_jax.arena.shop import tasks as shop_tasks
from webagent_jax.arena.shop.site import SITE as SHOP
from webagent_jax.arena.site import Site
from webagent_jax.arena.task import Data, TaskTemplate

SITES: tuple[Site, ...] = (SHOP, ADMIN, FORUM, CODE, MAP)

TEMPLATES: tuple[TaskTemplate, ...] = (
    *shop_tasks.TEMPLATES,
    *admin_tasks.TEMPLATES,
    *map_tasks.TEMPLATES,
    *code_tasks.TEMPLATES,
    *forum_tasks.TEMPLATES,
)


def seed_data() -> Data:
    """Return read-only connections to the seed databases, from which tasks are drawn."""
    # Sites that share a database have one connection.
    databases = {site.database.name: site.database for site in SITES}
    return {
        name: database.connect_read_only(database.load_image(entry))
        for name, entry in databases.items()
    }
