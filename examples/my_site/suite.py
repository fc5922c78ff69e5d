"""Suite of a page of your own: two kinds of tasks, with rewards and experts (docs/your_site.md)."""

import random
from pathlib import Path

from webagent_jax.browser import BrowserPool
from webagent_jax.config import SuiteConfig
from webagent_jax.expert_steps import click, type_text
from webagent_jax.suites.site import SiteSuite, SiteTask
from webagent_jax.types import Expert, Observation

DRINKS = ("Tea", "Coffee", "Juice", "Water", "Cocoa", "Milk")
NAMES = ("Ada", "Grace", "Alan", "Edsger", "Barbara", "Donald")


def order(rng: random.Random) -> SiteTask:
    """Return a task to order one drink."""
    drink = rng.choice(DRINKS)

    def expert(page: Observation) -> Expert:
        yield from click(page, drink)

    return SiteTask(
        f'Order one "{drink}".',
        reward=lambda session, answer: session.evaluate("cafe.order") == [drink],
        is_done=lambda session: session.evaluate("cafe.order.length > 0"),
        expert=expert,
    )


def save_name(rng: random.Random) -> SiteTask:
    """Return a task to enter and save a name."""
    name = rng.choice(NAMES)

    def expert(page: Observation) -> Expert:
        page = yield from type_text(page, "Name", name)
        yield from click(page, "Save", intent_phrase="")

    return SiteTask(
        f'Save the name "{name}".',
        reward=lambda session, answer: session.evaluate("cafe.name") == name,
        is_done=lambda session: session.evaluate("cafe.name !== ''"),
        expert=expert,
    )


def make_suite(pool: BrowserPool, config: SuiteConfig) -> SiteSuite:
    """Return the suite; `config.suite.factory` names this function."""
    site = Path(__file__).parent / "site"
    return SiteSuite(pool, config, site, {"order": order, "save-name": save_name}, name="my_site")
