"""Registry of task suites: maps the name in a config to the suite."""

from __future__ import annotations

import importlib
import inspect
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from typing import Any, cast

from webagent_jax.browser import BrowserPool
from webagent_jax.config import BrowserConfig, ConfigError, SuiteConfig
from webagent_jax.suites import browsergym, miniwob, webarena
from webagent_jax.suites.arena import ArenaSuite, load_tasks
from webagent_jax.suites.browsergym import BrowserGym
from webagent_jax.suites.gym_suite import GymSuite
from webagent_jax.suites.infinity import Infinity
from webagent_jax.suites.infinity import catalog as infinity_catalog
from webagent_jax.suites.miniwob import MiniWob
from webagent_jax.suites.user_code import add_current_folder, convert_user_errors
from webagent_jax.suites.webarena import WebArena, catalog
from webagent_jax.types import Split, Suite, Task

# Function of a browser pool and a SuiteConfig that returns a Suite, or function without parameters
# that returns a gymnasium environment.
SuiteFactory = Callable[..., Any]


def make_suite(
    config: SuiteConfig, browser: BrowserConfig, pool: BrowserPool, log: Callable[[str], None]
) -> Suite:
    """Create the suite of a config; the caller closes it.

    Args:
        config: name and options of the suite.
        browser: settings of the browser, for BrowserGym, which starts its own.
        pool: browsers of the other suites.
        log: receives messages for users, such as which tasks are skipped.

    Raises:
        ConfigError: the suite lacks a requirement; the message says how to fix it.
        InfraError: an embedded site does not start.
    """
    if config.factory:
        factory = load_factory(config.factory)
        # A gymnasium environment needs no browser pool.
        if not _has_required_parameter(factory):
            return GymSuite(factory, config)
        with convert_user_errors(f"suite.factory={config.factory!r}"):
            suite = factory(pool, config)
        if not hasattr(suite, "task_names"):
            raise ConfigError(f"suite.factory={config.factory!r} returns {suite!r}: return a suite")
        return cast(Suite, suite)
    # Only embedded sites can delay their responses.
    latency = config.response_delay_ms / 1000
    match config.name:
        case "miniwob":
            return MiniWob(pool, config.tasks, config.train_seeds_per_task, latency=latency)
        case "arena":
            return ArenaSuite(pool, config.tasks, config.arena, latency=latency)
        case "webarena_lite":
            return WebArena(pool, config.webarena, config.tasks, log)
        case "browsergym":
            return BrowserGym(
                config.tasks,
                origins=config.browsergym.origins,
                config=browser,
                python=config.browsergym.python,
                train_seeds=config.train_seeds_per_task,
            )
        case "infinity":
            return Infinity(pool, config.infinity, config.tasks)


def check_requirements(config: SuiteConfig) -> None:
    """Check the requirements of a suite before the run loads anything large.

    Raises:
        ConfigError: the suite lacks a requirement.
    """
    if config.factory:
        load_factory(config.factory)
    elif config.name == "webarena_lite":
        webarena.read(config.webarena, config.tasks, os.environ)
    elif config.name == "infinity":
        infinity_catalog.read(config.infinity, config.tasks)


def require_task_names(suite: Suite, split: Split) -> Sequence[str]:
    """Return the task names of a split.

    Raises:
        ConfigError: it has none.
    """
    names = suite.task_names(split)
    if not names:
        raise ConfigError(
            f"the {split} split has no task with these suite options: change suite.tasks or the "
            f"options of the suite; `webagent list-tasks --split={split}` without suite.tasks "
            "lists the names"
        )
    return names


def list_tasks(
    config: SuiteConfig, split: Split, browser: BrowserConfig | None = None
) -> Iterator[Task]:
    """Yield the tasks of a split, only the first seed of each task name.

    Only a suite of `config.factory` may use a browser, with the given settings, and its site.

    Raises:
        ConfigError: the config names an unknown task, or a file is missing.
    """
    if config.factory:
        browser = browser or BrowserConfig()
        with (
            BrowserPool(browser) as pool,
            closing(make_suite(config, browser, pool, lambda line: None)) as suite,
        ):
            yield from (suite.task(name, split, 0) for name in suite.task_names(split))
        return
    match config.name:
        case "miniwob":
            yield from miniwob.first_tasks(config.tasks, split)
        case "arena":
            yield from (
                draft.task for draft in load_tasks(config.tasks, config.arena)[split].values()
            )
        case "webarena_lite":
            tasks = catalog.read(config.webarena, config.tasks)
            yield from (tasks.task(name, split) for name in tasks.names(split))
        case "browsergym":
            yield from browsergym.first_tasks(config.tasks, split)
        case "infinity":
            yield from infinity_catalog.read(config.infinity, config.tasks)[split].values()


def load_factory(spec: str) -> SuiteFactory:
    """Import the function or class of `suite.factory`, such as "my_module:make_suite".

    Modules of the current folder come first, as with `python -m`.

    Raises:
        ConfigError: the text is malformed, or there is no such module or function.
    """
    module_name, _, function_name = spec.partition(":")
    # `import_module` accepts neither a path nor a relative name here.
    is_path = module_name.startswith(".") or "/" in module_name
    if not module_name or not function_name or is_path:
        raise ConfigError(f"suite.factory={spec!r} must have the form module:function")
    add_current_folder()
    try:
        module = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{module_name}.".startswith(f"{error.name}."):
            # The module exists, but a package that it imports is missing.
            raise ConfigError(
                f"suite.factory={spec!r}: importing {module_name} failed: {error}"
            ) from error
        raise ConfigError(
            f"suite.factory={spec!r}: there is no module {module_name!r} in {os.getcwd()} or in an "
            "installed package: run webagent in the folder that contains it"
        ) from error
    except ConfigError:
        raise
    except Exception as error:  # of the module itself
        raise ConfigError(
            f"suite.factory={spec!r}: importing {module_name} failed: {error!r}"
        ) from error
    factory = getattr(module, function_name, None)
    if not callable(factory):
        raise ConfigError(
            f"suite.factory={spec!r}: {module.__file__} has no function {function_name!r}"
        )
    loaded: SuiteFactory = factory
    return loaded


def _has_required_parameter(function: SuiteFactory) -> bool:
    return any(
        parameter.default is parameter.empty
        and parameter.kind not in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD)
        for parameter in inspect.signature(function).parameters.values()
    )
