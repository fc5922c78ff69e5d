"""Task suites as gymnasium environments, for agents and trainers of other projects.

Importing this package registers `webagent_jax/miniwob.<task>` for every MiniWoB++ task.
`webagent_jax.gym.browsergym` registers the same tasks with BrowserGym.
"""

import gymnasium

from webagent_jax.gym.environment import WebEnv, make_miniwob_env
from webagent_jax.suites.miniwob import all_pages

__all__ = ["WebEnv", "make_miniwob_env"]

for _page in all_pages():
    gymnasium.register(
        f"webagent_jax/miniwob.{_page}", "webagent_jax.gym:make_miniwob_env", kwargs={"page": _page}
    )
