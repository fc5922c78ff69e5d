"""Prompt template that a policy was trained with, in a file of its directory.

The system message of the template `webarena` describes the actions, so instruct models can follow
it. `compact` does not: policies learn its grammar in training.
"""

from __future__ import annotations

import dataclasses
import json
import typing
from pathlib import Path
from typing import Literal

from webagent_jax.config import ConfigError, RunConfig
from webagent_jax.policy.hf import WEBAGENT_TINY, adapter_chain, tokenizer_dir
from webagent_jax.policy.hf_writer import PROMPT_FILE

Template = Literal["compact", "webarena"]


def write(directory: Path, template: str) -> None:
    """Write the template that a policy was trained with to the directory of the policy."""
    (directory / PROMPT_FILE).write_text(json.dumps({"template": template}) + "\n")


def read(directory: Path) -> Template | None:
    """Return the template that a policy was trained with; None for a model of another project.

    Raises:
        ConfigError: the file is damaged.
    """
    file = directory / PROMPT_FILE
    try:
        template = json.loads(file.read_text())["template"]
        if template not in typing.get_args(Template):
            raise ValueError(template)
        return typing.cast(Template, template)
    except FileNotFoundError:
        # Policies that were trained from webagent-tiny before the file existed have its tokenizer.
        tokenizers = (path / "tokenizer.json" for path in (directory, WEBAGENT_TINY))
        contents = {path.read_bytes() if path.is_file() else None for path in tokenizers}
        return "compact" if len(contents) == 1 else None
    except (ValueError, KeyError, TypeError) as error:
        raise ConfigError(
            f'{file} is damaged: write {{"template": "webarena"}} or {{"template": "compact"}}'
        ) from error


def with_template(cfg: RunConfig) -> RunConfig:
    """Return the config with the template of its policy in place of "auto".

    Raises:
        ConfigError: the config sets another template than the policy was trained with.
        PolicyNotFoundError: the policy does not exist; see `tokenizer_dir`.
    """
    template = cfg.prompt.template
    trained = _read_policy(cfg.policy.path)
    if template == "auto":
        prompt = dataclasses.replace(cfg.prompt, template=trained or "webarena")
        return dataclasses.replace(cfg, prompt=prompt)
    # With an endpoint, the policy at this path only counts tokens.
    if trained not in (None, template) and cfg.policy.kind == "weights":
        raise ConfigError(
            f"{cfg.policy.path} was trained with prompt.template={trained}, and the config sets "
            f"{template}: set --config.prompt.template=auto, or train from its base model"
        )
    return cfg


def untrained_template_note(cfg: RunConfig) -> str:
    """Return a message if the policy was not trained with the compact prompt, else an empty text.

    Other templates describe the actions.
    """
    if cfg.prompt.template != "compact" or _read_policy(cfg.policy.path):
        return ""
    return (
        f"{cfg.policy.path} was not trained with prompt.template=compact, which does not describe "
        "the actions: an instruct model needs --config.prompt.template=webarena"
    )


def _read_policy(path: str) -> Template | None:
    """Return the template that a policy was trained with, without its weights if they are remote.

    The file of an adapter precedes that of its base, as in the merged directory.
    """
    adapters, _ = adapter_chain(path)
    directories = [adapter for adapter in adapters if (adapter / PROMPT_FILE).is_file()]
    return read(directories[0] if directories else tokenizer_dir(path))
