"""Tests of the config: parsing, validation and the recipes in `configs`."""

from __future__ import annotations

import pytest

from configs import arena, infinity, instruct, miniwob, quickstart, webagent_r1
from webagent_jax import config
from webagent_jax.config import ConfigError, GRPOConfig, RunConfig, SuiteConfig


def test_config_dict_round_trip():
    cfg = RunConfig(seed=3, grpo=GRPOConfig(updates=7))
    assert config.from_config_dict(config.to_config_dict(cfg)) == cfg


@pytest.mark.parametrize(
    ("module", "variants"),
    [
        (arena, arena._VARIANTS),
        (infinity, infinity._VARIANTS),
        (instruct, instruct._SUITES),
        (miniwob, miniwob._VARIANTS),
        (quickstart, quickstart._VARIANTS),
        (webagent_r1, webagent_r1._VARIANTS),
    ],
)
def test_variants_of_package_have_valid_types(module, variants):
    for name in variants:
        cfg = module.get_config(name)
        assert config.from_config_dict(config.to_config_dict(cfg)) == cfg, name


def test_unknown_option_error_lists_valid_options():
    with pytest.raises(ConfigError, match=r"unknown option config\.grpo\.updtes; .*updates"):
        config.from_config_dict({"grpo": {"updtes": 7}})


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"seed": "x"}, "config.seed='x' is not of type int"),
        ({"grpo": 3}, "config.grpo is a group of options"),
        ({"policy": {"dtype": "float16"}}, "config.policy.dtype='float16' is not one of: float32"),
        ({"grpo": {"group_size": 1}}, "group_size must be at least 2"),
        ({"rollout": {"temperature": 0.0}}, "temperature must be above 0"),
        ({"rollout": {"max_new_tokens": 5000}}, "must be below engine.max_model_len"),
        ({"engine": {"max_model_len": 4096}}, "needs training rows that fit any turn"),
        ({"suite": {"webarena": {"reset_every": 0}}}, "reset_every must be at least 1"),
        ({"bc": {"checkpoint_interval": 0}}, "checkpoint_interval must be at least 1"),
        ({"seed": -1}, "seed must not be negative"),
        ({"suite": {"train_seeds_per_task": 0}}, "train_seeds_per_task must be at least 1"),
        (
            {"suite": {"arena": {"num_generated_tasks": -1}}},
            "suite.arena.num_generated_tasks must be at least 1",
        ),
        ({"bc": {"batch_episodes": 0}}, "batch_episodes must be at least 1"),
        ({"bc": {"epochs": 0}}, "bc.epochs and .* must be at least 1"),
        ({"bc": {"demos_per_task": -1}}, "demos_per_task, .* must be at least 1"),
        ({"bc": {"eval_episodes": -1}}, "eval_episodes must not be negative"),
        ({"rollout": {"group_timeout": -1.0}}, "group_timeout must be 0 to 1,000,000 seconds"),
        ({"grpo": {"optimizer": {"max_grad_norm": 0}}}, "max_grad_norm must be above 0"),
        ({"grpo": {"optimizer": {"learning_rate": -1e-3}}}, "learning_rate must not be negative"),
        (
            {"bc": {"optimizer": {"warmup_fraction": 10.0}}},
            "warmup_fraction must be a fraction",
        ),
        ({"grpo": {"updates": 0}}, "updates and grpo.tasks_per_update must be at least 1"),
        ({"engine": {"slots": 0}}, "engine.slots must be at least 1"),
        ({"browser": {"max_rss_mib": 0}}, "browser.max_rss_mib must be above 0"),
        ({"rollout": {"top_p": 1.5}}, "rollout.top_p must be above 0 and at most 1"),
        ({"rollout": {"top_k": -1}}, "rollout.top_k must not be negative; set 0 for all tokens"),
        (
            {"engine": {"max_model_len": 4096}},
            "set --config.bc.row_tokens=4096 --config.grpo.row_tokens=4096",
        ),
        (
            {"engine": {"max_model_len": 4096}, "bc": {"row_tokens": 4096}},
            "any turn: set --config.grpo.row_tokens=4096",
        ),
        ({"bc": {"optimizer": {"b2": 1.0}}}, "b2 must be at least 0 and below 1"),
        ({"bc": {"optimizer": {"weight_decay": -0.1}}}, "weight_decay must not be negative"),
        (
            {"grpo": {"optimizer": {"max_grad_norm": float("inf")}}},
            "grpo.optimizer.max_grad_norm=inf must be finite",
        ),
        ({"guard": {"max_kl": float("nan")}}, "guard.max_kl=nan must be finite"),
        ({"lora": {"target_modules": ["q_proj"]}}, "target_modules must list some of: q, k, v, o"),
        ({"lora": {"target_modules": []}}, "target_modules must list some of: q, k, v, o"),
        (
            {"guard": {"max_kl": 0.1}, "grpo": {"kl_beta": 0.0}},
            "guard.max_kl needs grpo.kl_beta above 0",
        ),
        ({"grpo": {"max_extra_groups": -1}}, "max_extra_groups must not be negative"),
        ({"grpo": {"max_staleness": -1}}, "max_staleness must not be negative"),
        ({"guard": {"patience": 0}}, "patience must be at least 1"),
        ({"rollout": {"max_new_tokens": 0}}, "max_new_tokens must be at least 1"),
        ({"rollout": {"infra_retries": -1}}, "infra_retries must not be negative"),
        ({"rollout": {"episode_timeout": 0}}, "episode_timeout must be above 0"),
        (
            {"suite": {"webarena": {"judge": {"url": "http://j"}}}},
            "judge.model must name the model",
        ),
    ],
)
def test_from_config_dict_rejects_invalid_values(values, message):
    with pytest.raises(ConfigError, match=message):
        config.from_config_dict(values)


def time_limits(values, *path):
    """Yield the path of each option in a config dict that is a time limit."""
    for name, value in values.items():
        if isinstance(value, dict):
            yield from time_limits(value, *path, name)
        elif name.endswith("timeout"):
            yield (*path, name)


@pytest.mark.parametrize("seconds", [1e7, -1.0])
def test_time_limits_have_bounds(seconds):
    paths = set(time_limits(config.to_config_dict(RunConfig()).to_dict()))
    assert ("rollout", "episode_timeout") in paths
    # Checked only for policy.kind=openai, in tests/test_endpoint.py.
    for path in paths - {("policy", "endpoint", "timeout")}:
        values = seconds
        for name in reversed(path):
            values = {name: values}
        with pytest.raises(ConfigError, match=rf"^{'.'.join(path)} must be .* 1,000,000 seconds"):
            config.from_config_dict(values)


def test_from_config_dict_converts_comma_lists_and_integers():
    cfg = config.from_config_dict(
        {"suite": {"tasks": "a,b"}, "grpo": {"kl_beta": 0}, "bc": {"row_tokens": 2048}}
    )
    assert cfg.suite.tasks == ("a", "b")
    assert cfg.grpo.kl_beta == 0.0
    assert isinstance(cfg.grpo.kl_beta, float)


def test_config_dict_contains_only_flag_types():
    """Flags cannot override ConfigDict fields of other types."""
    options = config.to_config_dict(RunConfig()).to_dict()

    def leaves(value):
        if isinstance(value, dict):
            for child in value.values():
                yield from leaves(child)
        else:
            yield value

    assert {type(leaf) for leaf in leaves(options)} <= {int, float, str, bool, tuple}


def test_nested_options_are_parsed_and_checked():
    cfg = config.from_config_dict(
        {"suite": {"webarena": {"sites": "gitlab,map", "judge": {"url": "http://j", "model": "m"}}}}
    )
    assert cfg.suite.webarena.sites == ("gitlab", "map")
    assert cfg.suite.webarena.judge.model == "m"
    with pytest.raises(ConfigError, match=r"config\.suite\.webarena\.judge\.modle; .*model"):
        config.from_config_dict({"suite": {"webarena": {"judge": {"modle": "m"}}}})


def test_quickstart_objectives_are_valid_and_distinct():
    names = [*quickstart._OBJECTIVES]
    assert {"paper", "filtered_bc", "awr", "reinforce", "released"} <= set(names)
    assert quickstart.get_config("cot").bc.expert_thoughts == "long"
    objectives = [quickstart.get_config(name).grpo for name in names]
    assert len(set(objectives)) == len(names)
    with pytest.raises(ConfigError, match="smoke, cot, paper, "):
        quickstart.get_config("papre")


_VARIANTS = ["r1", "cot", "zero"]


@pytest.mark.parametrize(
    "variant", [*_VARIANTS, *(f"llama-3.1-8b-{variant}" for variant in _VARIANTS)]
)
def test_webagent_r1_recipes_match_paper(variant):
    cfg = webagent_r1.get_config(variant)
    assert cfg.suite.name == "webarena_lite"
    assert (cfg.browser.observation_format, cfg.prompt.template) == ("webarena_lite", "webarena")
    assert cfg.prompt.thinking
    assert (cfg.rollout.max_turns, cfg.eval.max_turns) == (15, (30,))
    assert (cfg.rollout.temperature, cfg.rollout.top_p, cfg.rollout.max_new_tokens) == (1, 1, 1024)
    # Each task has one seed.
    assert (cfg.eval.seeds_per_task, cfg.suite.train_seeds_per_task) == (1, 1)
    assert (cfg.grpo.tasks_per_update, cfg.grpo.group_size) == (16, 4)
    assert not cfg.grpo.filter_groups
    assert (cfg.grpo.kl_beta, cfg.grpo.clip_low, cfg.grpo.clip_high) == (0.001, 0.2, 0.2)
    assert cfg.bc.batch_episodes * 8.4 == pytest.approx(128, rel=0.02)  # WebRL's turns per episode


def test_instruct_config_fits_demonstrations_of_experts():
    for variant in ("arena", "miniwob"):
        cfg = instruct.get_config(variant)
        assert (cfg.prompt.template, cfg.browser.observation_format) == ("auto", "compact")
        # docs/recipes.md has the longest prompts.
        assert cfg.engine.max_model_len - cfg.rollout.max_new_tokens > 1_700
    with pytest.raises(ConfigError, match="available: arena, miniwob"):
        instruct.get_config("shop")


def test_only_r1_zero_starts_from_instruct_model():
    paths = {variant: webagent_r1.get_config(variant).policy.path for variant in _VARIANTS}
    assert paths == {
        "r1": "runs/r1/bc/policy",
        "cot": "runs/cot/bc/policy",
        "zero": "weights/Qwen2.5-3B-Instruct",
    }
    assert (
        webagent_r1.get_config("llama-3.1-8b-zero").policy.path == "weights/Llama-3.1-8B-Instruct"
    )
    assert webagent_r1.get_config().policy.path == paths["r1"]


def test_unknown_recipe_error_lists_available_recipes():
    with pytest.raises(ConfigError, match=r"available: r1, cot, zero, llama-3\.1-8b-r1"):
        webagent_r1.get_config("qwen2.5-3b")


def test_webagent_r1_accepts_published_eval_options():
    values = config.to_config_dict(webagent_r1.get_config("r1"))
    values.eval.update({"temperature": 1, "top_p": 0.9, "max_new_tokens": 2048, "max_repeats": 5})
    evaluation = config.from_config_dict(values).eval
    assert (evaluation.temperature, evaluation.top_p) == (1.0, 0.9)
    assert (evaluation.max_new_tokens, evaluation.max_repeats) == (2048, 5)


def test_suites_of_fixed_tasks_have_one_training_task_per_name():
    assert SuiteConfig(name="miniwob", train_seeds_per_task=50).num_train_seeds == 50
    assert SuiteConfig(name="arena", train_seeds_per_task=50).num_train_seeds == 1
    own = SuiteConfig(name="arena", factory="my_module:make_suite", train_seeds_per_task=50)
    assert own.num_train_seeds == 50
