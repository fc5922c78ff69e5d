"""Suite of WebArena tasks on the sites whose addresses are in environment variables.

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
from typing import Any

from webagent_jax.browser import BrowserPool
from webagent_jax.browser.context import origin_of
from webagent_jax.config import ConfigError, JudgeConfig, WebArenaConfig
from webagent_jax.suites import task_file
from webagent_jax.suites.judge import EndpointJudge
from webagent_jax.suites.matching import LITE, LITE_V2, WEBARENA, MatchingRules
from webagent_jax.suites.webarena import catalog, map_probe, sites, verified
from webagent_jax.suites.webarena.auth import AuthStateStore, accounts_from_environment
from webagent_jax.suites.webarena.catalog import ACCOUNT_SITES, Catalog
from webagent_jax.suites.webarena.environment import Scoring, WebArenaEnvironment
from webagent_jax.suites.webarena.replicas import ReplicaPool
from webagent_jax.suites.webarena.sites import Addresses, ResetHook
from webagent_jax.types import Expert, InfraError, ResetResult, Split, Task

_MATCHING_RULES = {"lite": LITE, "webarena": WEBARENA}


def read(
    config: WebArenaConfig, names: Sequence[str], environ: Mapping[str, str]
) -> tuple[Catalog, Addresses]:
    """Return the tasks of a config and the addresses of their sites, without any request.

    Args:
        config: files, sites and judge.
        names: names of the tasks; empty for all tasks.
        environ: environment variables with the addresses.

    Raises:
        ConfigError: as `catalog.read`, or sites that the tasks need have no address; the message
            names all of them.
    """
    addresses = catalog.configured_addresses(config)
    environ = {**environ, **{f"WA_{site.upper()}": text for site, text in addresses.items()}}
    # Without any address, the message names all sites, before a missing task file is reported.
    if not addresses and not task_file.addresses_from_environment(environ):
        required_sites = config.sites or tuple(
            site for site in task_file.SITES if site != "homepage"
        )
        task_file.addresses_from_environment(environ, required_sites)  # raises ConfigError
    tasks = catalog.read(config, names)
    return tasks, sites.addresses_from_environment(environ, tasks.sites)


class WebArena:
    """Suite of WebArena tasks; thread-safe.

    Creating it checks the health of every replica of every site, signs in to it, and checks the
    tiles and routes of maps.

    Args:
        pool: pool of browsers; the caller closes it.
        config: files, judge and resets.
        names: names of the tasks; empty for all tasks of the files.
        log: receives messages for users, such as which tasks are skipped.
        environ: environment variables with the sites and their accounts.

    Raises:
        ConfigError: a file, site or account is not valid; the message names it and the fix.
    """

    def __init__(
        self,
        pool: BrowserPool,
        config: WebArenaConfig,
        names: Sequence[str] = (),
        log: Callable[[str], None] = lambda line: None,
        environ: Mapping[str, str] = os.environ,
    ) -> None:
        self._pool, self._config = pool, config
        self._catalog, addresses = read(config, names, environ)
        for note in self._catalog.notes:
            log(note)
        accounts = accounts_from_environment(environ)
        self._extra_origins = sites.extra_origins(config.extra_origins, addresses)
        is_verified = config.labels == "verified"
        self._keep_network_logs = is_verified or config.keep_network_logs
        self._scoring = Scoring(
            rules=matching_rules(config),
            judge=make_judge(config.judge, environ),
            shop_admin=accounts["shopping_site_admin"],
            verified_python=(
                verified.find_installation(config.verified_python).python if is_verified else ""
            ),
        )
        # Everything that a user can get wrong is checked here, before the first episode.
        reset = _make_reset_hook(config)
        sites.check_health(addresses)
        for address in addresses.get("map", ()):
            map_probe.check(pool, address, self._extra_origins.get("map", ()), log)
        self._auth_states = AuthStateStore(
            pool, Path(config.auth_dir), accounts, self._extra_origins
        )
        self._try_accounts(addresses, log)
        self._replicas = ReplicaPool(
            addresses,
            timeout=config.replica_timeout,
            reset=reset,
            reset_group_key=reset.url_of if reset else None,
            reset_every=config.reset_every,
            # A site of your own is reset like those with an account.
            resettable_sites=(*ACCOUNT_SITES, *(s for s in addresses if s not in task_file.SITES)),
            probe=sites.health_error,
        )

    def task_names(self, split: Split) -> tuple[str, ...]:
        """Return the task_ids of a split.

        Raises:
            ConfigError: the config names no file of the split.
        """
        return self._catalog.names(split)

    def tasks(self, split: Split) -> Sequence[Task]:
        """Return all tasks of a split.

        Raises:
            ConfigError: the config names no file of the split.
        """
        return [self.task(name, split, 0) for name in self.task_names(split)]

    def task(self, name: str, split: Split, index: int) -> Task:
        """Return the index-th attempt at a task; attempts differ only in id and seed.

        Raises:
            ConfigError: the split does not contain the name.
        """
        task = self._catalog.task(name, split)
        return replace(task, id=f"{task.id}/{index}", seed=index) if index else task

    def make_env(self, task: Task) -> WebArenaEnvironment:
        """Wait for free replicas of the task's sites and create an environment on them.

        Raises:
            InfraError: no replica became free in time, or a site fails.
        """
        with ExitStack() as resources:
            # Replicas, then state, then browser; a failure releases what was acquired.
            lease = resources.enter_context(
                self._replicas.acquire(task.sites, writes=catalog.modified_sites(task))
            )
            addresses = lease.addresses
            login_addresses = {site: addresses[site] for site in catalog.login_sites(task)}
            try:
                state = resources.enter_context(self._auth_states.borrow(login_addresses))
                session = self._pool.session(
                    origins=self._origins(addresses),
                    storage_state=str(state) if state else None,
                    log_network=self._keep_network_logs,
                )
            except InfraError:
                lease.has_fault = True
                raise
            # Released in reverse order: the session closes before its state and replicas are free.
            resources.callback(session.close)
            return WebArenaEnvironment(
                task_file.with_addresses(task, addresses),
                session,
                lease,
                scoring=replace(self._scoring, rules=task_rules(self._config, task)),
                find_site_error=partial(self._find_site_error, addresses, login_addresses),
                keep_network_log=self._keep_network_logs,
                # The environment owns the resources from now on.
                resources=resources.pop_all(),
            )

    def make_expert(self, task: Task, reset_result: ResetResult) -> Expert:
        """Raise KeyError, because these tasks have no experts."""
        raise KeyError(f"{task.id} has no scripted expert")

    def close(self) -> None:
        """Close the suite; calls that wait in `make_env` raise InfraError."""
        self._replicas.close()

    def _find_site_error(
        self,
        addresses: Mapping[str, str],
        login_addresses: Mapping[str, str],
        state: Mapping[str, Any],
    ) -> str | None:
        """Describe a site that fails or has ended the session of a browser state."""
        for site, address in addresses.items():
            # The request for the session covers the others.
            if site not in login_addresses and (error := sites.health_error(site, address)):
                return error
        return self._auth_states.find_session_error(login_addresses, state)

    def _origins(self, addresses: Mapping[str, str]) -> list[str]:
        """Return the origins that an episode can reach: its replicas and their extra origins."""
        origins = [origin_of(address) or "" for address in addresses.values()]
        for site in addresses:
            origins += self._extra_origins.get(site, ())
        return list(dict.fromkeys(origins))

    def _try_accounts(self, addresses: Addresses, log: Callable[[str], None]) -> None:
        """Sign in to every replica once.

        Raises:
            ConfigError: a login fails, which would make episodes fail later.
        """
        for site in ACCOUNT_SITES:
            for address in addresses.get(site, ()):
                try:
                    warning = self._auth_states.try_account(site, address)
                except InfraError as error:
                    raise ConfigError(str(error)) from error
                if warning:
                    log(warning)


def matching_rules(config: WebArenaConfig) -> MatchingRules:
    """Return the rules of text comparison: those of the option, or of the harness of the labels."""
    return LITE_V2 if config.labels == "lite-v2" else _MATCHING_RULES[config.matching_rules]


def task_rules(config: WebArenaConfig, task: Task) -> MatchingRules:
    """Return the rules for a task; training tasks have the original labels in every run."""
    if task.id.startswith("webarena/train/"):
        return _MATCHING_RULES[config.matching_rules]
    return matching_rules(config)


def _make_reset_hook(config: WebArenaConfig) -> ResetHook | None:
    if config.reset_url:
        return ResetHook(config.reset_url, config.reset_timeout, config.reset_status_url)
    if config.reset_status_url:
        raise ConfigError(
            "suite.webarena.reset_status_url needs suite.webarena.reset_url: set both, or none"
        )
    return None


def make_judge(config: JudgeConfig, environ: Mapping[str, str]) -> EndpointJudge | None:
    """Create the judge of a config; return None without an endpoint.

    Raises:
        ConfigError: the environment variable of the key is not set.
    """
    if not config.url:
        return None
    if config.api_key_env and not environ.get(config.api_key_env):
        raise ConfigError(
            f"the variable of suite.webarena.judge.api_key_env={config.api_key_env!r} is not set: "
            "export the judge's key in it, or leave the option empty if it needs no key"
        )
    key = environ.get(config.api_key_env, "")
    cache = Path(config.cache_dir) if config.cache_dir else None
    return EndpointJudge(
        config.url, config.model, api_key=key.strip(), cache=cache, json_schema=config.json_schema
    )
