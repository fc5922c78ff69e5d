"""Our suites as gymnasium environments, for agents and trainers that are not ours.

Importing it registers `webagent_jax/miniwob.<page>` for every page of MiniWoB++. As tasks of
BrowserGym they are registered by `webagent_jax.gym.browsergym`.
"""

import gymnasium

from webagent_jax.gym.environment import WebEnv, open_miniwob
from webagent_jax.suites.miniwob import all_pages

__all__ = ["WebEnv", "open_miniwob"]

for _page in all_pages():
    gymnasium.register(
        f"webagent_jax/miniwob.{_page}", "webagent_jax.gym:open_miniwob", kwargs={"page": _page}
    )
