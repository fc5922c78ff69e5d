"""The suite: tasks from WebArena's files, played on the sites that the environment names.

Zhou et al. 2023, arXiv 2307.13854; Liu et al. 2024, arXiv 2408.06327; Wei et al. 2025, arXiv
2505.16421.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from pathlib import Path

from webagent_jax.browser import BrowserPool
from webagent_jax.browser.context import origin_of
from webagent_jax.config import ConfigError, JudgeConfig, WebArenaConfig
from webagent_jax.suites import task_file
from webagent_jax.suites.judge import EndpointJudge
from webagent_jax.suites.matching import LITE, WEBARENA
from webagent_jax.suites.webarena import catalog, map_probe, sites
from webagent_jax.suites.webarena.auth import SignIns, accounts_from_environment
from webagent_jax.suites.webarena.catalog import ACCOUNT_SITES, Catalogue
from webagent_jax.suites.webarena.environment import Scoring, WebArenaEnvironment
from webagent_jax.suites.webarena.replicas import Leases
from webagent_jax.suites.webarena.sites import Addresses, ResetHook
from webagent_jax.types import Expert, InfraError, Split, Start, Task

_RULES = {"lite": LITE, "webarena": WEBARENA}


def read(
    config: WebArenaConfig, names: Sequence[str], environ: Mapping[str, str]
) -> tuple[Catalogue, Addresses]:
    """The tasks of a config, and where their sites are. Asks no site anything.

    Raises:
        ConfigError: as `catalogue.read`, or a site that a task needs is not set; says all at once.
    """
    if not task_file.addresses_from_environment(environ):
        needed = config.sites or tuple(site for site in task_file.SITES if site != "homepage")
        task_file.addresses_from_environment(environ, needed)  # raises
    tasks = catalog.read(config, names)
    return tasks, sites.addresses_from_environment(environ, tasks.sites)


class WebArena:
    """The suite. Every method may be called from any thread.

    At the start every replica of every site is asked whether it is well, and is signed in to; maps
    must show tiles and a route.

    Args:
        pool: browsers, owned and closed by the caller.
        config: files, judge, resets.
        names: of the tasks; empty means all of the files.
        log: is told what was left out, and why.
        environ: where the sites and their accounts are told.

    Raises:
        ConfigError: a file, a site or an account is not right; says which, and how to mend it.
    """

    def __init__(
        self,
        pool: BrowserPool,
        config: WebArenaConfig,
        names: Sequence[str] = (),
        log: Callable[[str], None] = lambda line: None,
        environ: Mapping[str, str] = os.environ,
    ) -> None:
        self._pool = pool
        self._catalogue, addresses = read(config, names, environ)
        for note in self._catalogue.notes:
            log(note)
        accounts = accounts_from_environment(environ)
        self._extra_origins = sites.extra_origins(config.extra_origins)
        self._scoring = Scoring(
            rules=_RULES[config.rules],
            judge=_judge(config.judge, environ),
            shop_admin=accounts["shopping_site_admin"],
        )
        reset = _reset_hook(config)
        sites.check(addresses)
        for address in addresses.get("map", ()):
            map_probe.check(pool, address, self._extra_origins.get("map", ()), log)
        self._sign_ins = SignIns(pool, Path(config.state_folder), accounts, self._extra_origins)
        self._try_accounts(addresses, log)
        self._leases = Leases(
            addresses,
            timeout=config.turn_timeout,
            reset=reset,
            reset_together=reset.url_of if reset else None,
            reset_every=config.reset_every,
            resettable=ACCOUNT_SITES,
            probe=sites.trouble,
        )

    def names(self, split: Split) -> tuple[str, ...]:
        """The task_ids of a split. Raises ConfigError where no file of it is given."""
        return self._catalogue.names(split)

    def tasks(self, split: Split) -> Sequence[Task]:
        """Raises ConfigError where no file of the split is given."""
        return [self.task(name, split, 0) for name in self.names(split)]

    def task(self, name: str, split: Split, index: int) -> Task:
        """The index-th try at a task. It has one world, so that tries differ in their id alone.

        Raises ConfigError for a name that the split does not hold.
        """
        task = self._catalogue.task(name, split)
        return replace(task, id=f"{task.id}/{index}", seed=index) if index else task

    def open(self, task: Task) -> WebArenaEnvironment:
        """Waits for the task's turn on its sites. Raises InfraError: no turn, or a bad site."""
        with ExitStack() as opened:
            lease = opened.enter_context(
                self._leases.held(task.sites, writes=catalog.changes(task))
            )
            at = lease.addresses
            signed_in = {site: at[site] for site in catalog.signed_in(task)}
            try:
                state = opened.enter_context(self._sign_ins.lent(signed_in))
                session = self._pool.session(
                    origins=self._origins(at), storage_state=str(state) if state else None
                )
            except InfraError:
                lease.faulty = True
                raise
            opened.callback(session.close)
            return WebArenaEnvironment(
                task_file.placed(task, at),
                session,
                lease,
                scoring=self._scoring,
                ended_session=partial(self._sign_ins.ended, signed_in),
                opened=opened.pop_all(),
            )

    def expert(self, task: Task, start: Start) -> Expert:
        """Raises KeyError: nobody has scripted these tasks."""
        raise KeyError(f"{task.id} has no scripted expert")

    def close(self) -> None:
        """Whoever waits for a turn gets an InfraError."""
        self._leases.close()

    def _origins(self, addresses: Mapping[str, str]) -> list[str]:
        """All that an episode may reach: the replicas chosen for it, and what those load from."""
        listed = [origin_of(address) or "" for address in addresses.values()]
        for site in addresses:
            listed += self._extra_origins.get(site, ())
        return list(dict.fromkeys(listed))

    def _try_accounts(self, addresses: Addresses, log: Callable[[str], None]) -> None:
        """Signs in everywhere once. Raises ConfigError, for what fails now will fail later."""
        for site in ACCOUNT_SITES:
            for address in addresses.get(site, ()):
                try:
                    warning = self._sign_ins.try_account(site, address)
                except InfraError as error:
                    raise ConfigError(str(error)) from error
                if warning:
                    log(warning)


def _reset_hook(config: WebArenaConfig) -> ResetHook | None:
    if config.reset_url:
        return ResetHook(config.reset_url, config.reset_timeout, config.reset_status_url)
    if config.reset_status_url:
        raise ConfigError("suite.webarena.reset_status_url needs suite.webarena.reset_url")
    return None


def _judge(config: JudgeConfig, environ: Mapping[str, str]) -> EndpointJudge | None:
    """Raises ConfigError when the variable of the key is not set."""
    if not config.url:
        return None
    if config.key_variable and not environ.get(config.key_variable):
        raise ConfigError(
            f"suite.webarena.judge.key_variable={config.key_variable!r} is not set: "
            "export the judge's key in it, or leave the option empty where it needs none"
        )
    key = environ.get(config.key_variable, "") if config.key_variable else ""
    cache = Path(config.cache) if config.cache else None
    return EndpointJudge(config.url, config.model, api_key=key, cache=cache)
