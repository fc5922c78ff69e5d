"""Seed images of databases, built from code and word lists alone; the bytes are reproducible."""

from __future__ import annotations

import contextlib
import hashlib
import os
import sqlite3
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

_PACKAGE_FOLDER = Path(__file__).parent


@dataclass(frozen=True, slots=True)
class Database:
    """Database of a site. Sites may share one: the shop and its back office do."""

    name: str
    schema: str  # SQL of the tables and indexes
    fill: Callable[[sqlite3.Connection], None]  # inserts all rows, in a fixed order


def build_image(database: Database) -> bytes:
    """Return the image of a database: no timestamps, fixed page size, no free pages."""
    connection = _open_empty()
    connection.executescript(f"PRAGMA page_size = 4096; {database.schema}")
    with connection:
        database.fill(connection)
    # ANALYZE stores statistics for the query planner; VACUUM removes free pages.
    connection.executescript("ANALYZE; VACUUM")
    image = connection.serialize()
    connection.close()
    return image


def load_image(database: Database) -> bytes:
    """Return the image of a database, cached until code or word lists of the arena change.

    The image is stored in the user's cache folder.
    """
    cache = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "webagent_jax/arena"
    path = cache / f"{database.name}-{_content_hash(database)}.sqlite"
    with contextlib.suppress(OSError):
        # A missing file is the usual case; an unreadable one is built again.
        return path.read_bytes()
    content = build_image(database)
    # The cache is optional: its folder may be read-only.
    with contextlib.suppress(OSError):
        cache.mkdir(parents=True, exist_ok=True)
        # One image per database: those of other versions of the code are deleted.
        for old_file in cache.glob(f"{database.name}-*.sqlite"):
            old_file.unlink(missing_ok=True)
        # Renamed when complete, because another process may start at the same time.
        temporary_file = path.with_suffix(f".{os.getpid()}")
        temporary_file.write_bytes(content)
        temporary_file.replace(path)
    return content


def connect(image: bytes) -> sqlite3.Connection:
    """Return a connection to a private copy of an image, in memory; rows have column names."""
    connection = _open_empty()
    connection.deserialize(image)
    connection.row_factory = sqlite3.Row
    return connection


def _open_empty() -> sqlite3.Connection:
    """Return a connection to an empty database in memory, whose `lower` is that of Python."""
    # Requests repeat few statements; the cache keeps them compiled.
    connection = sqlite3.connect(":memory:", cached_statements=512)
    # The `lower` of SQLite keeps capitals outside ASCII; views compare with words of `str.lower`.
    connection.create_function("lower", 1, _lower, deterministic=True)
    return connection


def _lower(value: object) -> str | None:
    return None if value is None else str(value).lower()


def insert_rows(
    connection: sqlite3.Connection, table: str, rows: Sequence[Sequence[object]]
) -> None:
    """Insert rows with the values of all columns; at least one row."""
    placeholders = ", ".join("?" * len(rows[0]))
    connection.executemany(f"INSERT INTO {table} VALUES ({placeholders})", rows)


def connect_read_only(image: bytes) -> sqlite3.Connection:
    """Return a connection to a private copy of an image that refuses writes."""
    connection = connect(image)
    connection.execute("PRAGMA query_only = ON")
    return connection


def _content_hash(database: Database) -> str:
    """Return a hash of all inputs of the data: SQLite, schema, code and word lists.

    The schema distinguishes the shop's database from the one with the back office's tables.
    """
    patterns = ("*.py", "*.sql", "data/*")
    files = sorted(
        file for kind in patterns for file in _PACKAGE_FOLDER.rglob(kind) if file.is_file()
    )
    digest = hashlib.sha256(f"{sqlite3.sqlite_version} {database.schema}".encode())
    for file in files:
        digest.update(file.read_bytes())
    return digest.hexdigest()[:16]
