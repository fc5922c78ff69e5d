"""Policies of the Hugging Face Hub: the files that this project reads, in the cache of the Hub."""

from __future__ import annotations

import json
import re
from pathlib import Path

from webagent_jax.config import PolicyNotFoundError
from webagent_jax.policy import peft_adapter
from webagent_jax.policy.hf_writer import TOKENIZER_FILES

# OWNER/NAME, and a branch, tag or commit after @.
_HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]*/[\w.-]+(@[\w./-]+)?")
_FILES = ("config.json", "model*.safetensors*", "adapter_*", *TOKENIZER_FILES)


def is_hub_id(name: str) -> bool:
    """Return whether a policy path has the form of a Hub id, OWNER/NAME or OWNER/NAME@REVISION."""
    return _HUB_ID.fullmatch(name) is not None


def snapshot_dir(name: str, *, download: bool = True) -> Path:
    """Return the directory of a Hub id; download it if the cache of the Hub lacks it.

    A complete copy in the cache is used without a request, so a resumed run reads the same files.
    Processes of one machine share the download.

    Args:
        name: OWNER/NAME or OWNER/NAME@REVISION.
        download: whether to download; otherwise only the cache is read.

    Raises:
        PolicyNotFoundError: the Hub has no such model, cannot be reached, or has no files that this
            project reads.
    """
    # The import is slow, and most policies are directories.
    from huggingface_hub import errors, snapshot_download

    repo, _, revision = name.partition("@")
    command = f"hf download {name.replace('@', ' --revision ')}"

    def fetch(local_files_only: bool) -> Path:
        return Path(
            snapshot_download(
                repo,
                revision=revision or None,
                allow_patterns=list(_FILES),
                local_files_only=local_files_only,
            )
        )

    try:
        directory = fetch(local_files_only=True)
        if not download or not _missing_files(directory):
            return directory
    except errors.HFValidationError as error:
        raise PolicyNotFoundError(
            f"no policy at {name}: no such directory, and not a name of the Hugging Face Hub"
        ) from error
    except errors.LocalEntryNotFoundError as error:
        if not download:
            raise PolicyNotFoundError(f"{name} is not in the cache of the Hub") from error
    try:
        directory = fetch(local_files_only=False)
    except errors.GatedRepoError as error:
        raise PolicyNotFoundError(
            f"{name} needs a license: accept it at https://huggingface.co/{repo}, then run "
            "`hf auth login`"
        ) from error
    except (errors.RepositoryNotFoundError, errors.RevisionNotFoundError) as error:
        raise PolicyNotFoundError(
            f"no policy at {name}: neither a directory nor a model of the Hugging Face Hub. Check "
            "the spelling; for a private model, run `hf auth login`"
        ) from error
    # The errors of the HTTP client have several types.
    except Exception as error:
        raise PolicyNotFoundError(
            f"no policy at {name}: no such directory, and the Hugging Face Hub cannot be read: "
            f"{_reason(error)}\n"
            f"With a network, run `{command} --local-dir DIR`, copy DIR here and set "
            "--config.policy.path=DIR"
        ) from error
    missing = _missing_files(directory)
    if missing:
        raise PolicyNotFoundError(
            f"{name} has no {' and no '.join(missing[:2])} in {directory}\n"
            f"If the copy is incomplete, run `{command}` with a network.\n"
            f"For a GGUF file, run `hf download {repo} FILE.gguf --local-dir DIR` and set "
            "--config.policy.path=DIR"
        )
    return directory


def _reason(error: Exception) -> str:
    """Return the first line of the original error."""
    cause = error.__cause__ or error
    return (str(cause).strip().splitlines() or [type(cause).__name__])[0]


def _missing_files(directory: Path) -> list[str]:
    """Return the names of the files that a policy needs and the directory lacks."""
    names = ["config.json", "tokenizer.json"]
    index = directory / "model.safetensors.index.json"
    if peft_adapter.is_adapter(directory):
        names = [peft_adapter.TENSOR_FILE]
    elif index.is_file():
        names += sorted(set(json.loads(index.read_text())["weight_map"].values()))
    else:
        names.append("model.safetensors")
    return [name for name in names if not (directory / name).is_file()]
