"""Policies of the Hugging Face Hub: the files that this project reads, in the cache of the Hub."""

from __future__ import annotations

import fnmatch
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from webagent_jax.config import PolicyNotFoundError
from webagent_jax.policy import hf_tensors, hub_id, peft_adapter
from webagent_jax.policy.hf_writer import TOKENIZER_FILES

_CONFIG_FILES = ("config.json", "adapter_*", *TOKENIZER_FILES)  # adapters are small
_WEIGHT_FILES = "model*.safetensors*"


def snapshot_dir(name: str, *, download: bool = True, needs_weights: bool = True) -> Path:
    """Return the directory of a Hub id; download it if the cache of the Hub lacks it.

    A complete copy in the cache is used without a request, so a resumed run reads the same files.
    Processes of one machine share the download.

    Args:
        name: OWNER/NAME or OWNER/NAME@REVISION.
        download: whether to download; otherwise only the cache is read.
        needs_weights: whether the weights of a model are necessary too; otherwise only its config
            and tokenizer are downloaded.

    Raises:
        PolicyNotFoundError: the Hub has no such model, cannot be reached, or has no files that this
            project reads.
    """
    # The import is slow, and most policies are directories.
    from huggingface_hub import errors

    patterns = [*_CONFIG_FILES, _WEIGHT_FILES] if needs_weights else [*_CONFIG_FILES]
    try:
        directory = _fetch(name, patterns, local_files_only=True)
        if not _missing_files(directory, needs_weights=needs_weights):
            return directory
    except errors.HFValidationError as error:
        raise PolicyNotFoundError(
            f"no policy at {name}: no such directory, and not a name of the Hugging Face Hub"
        ) from error
    except errors.LocalEntryNotFoundError:
        pass
    if not download:
        raise PolicyNotFoundError(f"{name} is not in the cache of the Hub")
    with _describe_errors(name):
        directory = _fetch(name, patterns)
        # Only its weights distinguish a model with an adapter from an adapter with a copy of the
        # config of its base.
        has_config = (directory / "config.json").is_file()
        if not needs_weights and has_config and peft_adapter.is_adapter(directory):
            directory = _fetch(name, [*_CONFIG_FILES, _WEIGHT_FILES])
    missing = _missing_files(directory, needs_weights=needs_weights)
    if missing:
        raise _incomplete(name, missing, f" in {directory}")
    return directory


def download_bytes(name: str) -> int:
    """Return the bytes that `snapshot_dir` downloads for a Hub id, without downloading them.

    Raises:
        PolicyNotFoundError: as `snapshot_dir`.
    """
    from huggingface_hub import snapshot_download

    repo, revision = hub_id.split(name)
    patterns = [*_CONFIG_FILES, _WEIGHT_FILES]
    with _describe_errors(name):
        files = snapshot_download(repo, revision=revision, allow_patterns=patterns, dry_run=True)
    if not any(fnmatch.fnmatch(file.filename, _WEIGHT_FILES) for file in files):
        raise _incomplete(name, ["model.safetensors"])
    return sum(file.file_size or 0 for file in files if file.will_download)


def _fetch(name: str, patterns: list[str], *, local_files_only: bool = False) -> Path:
    from huggingface_hub import snapshot_download

    repo, revision = hub_id.split(name)
    return Path(
        snapshot_download(
            repo, revision=revision, allow_patterns=patterns, local_files_only=local_files_only
        )
    )


@contextmanager
def _describe_errors(name: str) -> Iterator[None]:
    """Convert errors of the Hub client to PolicyNotFoundError; the message says how to fix it."""
    from huggingface_hub import errors

    repo, _ = hub_id.split(name)
    try:
        yield
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
            f"With a network, run `{_download_command(name)} --local-dir DIR`, copy DIR here and "
            "set --config.policy.path=DIR"
        ) from error


def _incomplete(name: str, missing: list[str], place: str = "") -> PolicyNotFoundError:
    """Return the error of a model without files that a policy needs."""
    repo, _ = hub_id.split(name)
    return PolicyNotFoundError(
        f"{name} has no {' and no '.join(missing[:2])}{place}\n"
        f"If the copy is incomplete, run `{_download_command(name)}` with a network.\n"
        f"For a GGUF file, run `hf download {repo} FILE.gguf --local-dir DIR` and set "
        "--config.policy.path=DIR"
    )


def _download_command(name: str) -> str:
    return f"hf download {name.replace('@', ' --revision ')}"


def _reason(error: Exception) -> str:
    """Return the first line of the original error."""
    cause = error.__cause__ or error
    return (str(cause).strip().splitlines() or [type(cause).__name__])[0]


def _missing_files(directory: Path, *, needs_weights: bool) -> list[str]:
    """Return the names of the files that a policy needs and the directory lacks."""
    if peft_adapter.is_adapter(directory):
        names = [peft_adapter.TENSOR_FILE]
    else:
        names = ["config.json", "tokenizer.json"]
        if needs_weights and not (directory / hf_tensors.INDEX_FILE).is_file():
            names.append("model.safetensors")
    missing = [name for name in names if not (directory / name).is_file()]
    return missing + (hf_tensors.missing_shards(directory) if needs_weights else [])
