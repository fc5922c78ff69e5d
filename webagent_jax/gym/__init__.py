"""Task suites as gymnasium environments, for agents and trainers of other projects.

Importing this package registers `webagent_jax/miniwob.<task>` for every MiniWoB++ task, and
`webagent_jax/arena.<site>` for every site of the arena and for `across`, its tasks on several
sites. `make_env` creates an environment of any other suite. `webagent_jax.gym.openenv` serves
environments over a network; `webagent_jax.gym.browsergym` registers the tasks of MiniWoB++ with
BrowserGym.
"""

import gymnasium

from webagent_jax.arena.registry import TEMPLATES
from webagent_jax.config import SuiteConfig, SuiteName
from webagent_jax.gym.environment import WebEnv, make_env
from webagent_jax.suites.miniwob import all_task_names

__all__ = ["WebEnv", "make_env"]


def _register(suite: SuiteName, name: str) -> None:
    gymnasium.register(
        f"webagent_jax/{suite}.{name}",
        "webagent_jax.gym:make_env",
        kwargs={"suite": SuiteConfig(name=suite, tasks=(name,))},
    )


for _name in all_task_names():
    _register("miniwob", _name)
# Templates are named site/template; tasks of several sites have the site "across".
for _site in sorted({template.name.partition("/")[0] for template in TEMPLATES}):
    _register("arena", _site)
