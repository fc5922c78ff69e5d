"""Published success rates on WebArena-Lite (165 tasks), for comparison.

Source: Wei et al. 2025, WebAgent-R1 (arXiv 2505.16421), table 1 and the ablations. Machines, site
images, prompts and labels differ from ours. Tables therefore mark these rows as published and show
them for the same tasks only.
"""

from __future__ import annotations

from dataclasses import dataclass

SOURCE = "arXiv 2505.16421"
TASKS = 165

COLUMNS = {
    "reddit": "Reddit",
    "gitlab": "GitLab",
    "shopping_admin": "CMS",
    "map": "Map",
    "shopping": "Shopping",
}
"""Column titles of the paper, in its order, by site name of the task files."""

_Rates = tuple[float | None, ...]
_NO_RATES: _Rates = (None,) * len(COLUMNS)


@dataclass(frozen=True)
class Row:
    """Published success rates of one policy in percent."""

    policy: str  # model and training method
    average: float  # mean over all tasks, including tasks across sites
    by_site: _Rates = _NO_RATES  # in the order of COLUMNS; None if only the average is published


WEBARENA_LITE = (
    Row("Qwen2.5-3B, prompted", 6.1, (5.3, 13.3, 5.7, 0.0, 4.4)),
    Row("Llama-3.1-8B, prompted", 8.5, (5.3, 10.0, 5.7, 15.4, 8.9)),
    Row("GPT-4o, prompted", 13.9, (10.5, 10.0, 20.0, 20.0, 11.1)),
    Row("QwQ-32B, prompted", 22.4, (15.8, 33.3, 25.7, 15.4, 20.0)),
    Row("o3, prompted", 39.4, (36.8, 46.7, 45.7, 38.5, 33.3)),
    Row("Qwen2.5-3B, BC", 20.0, (42.1, 16.7, 22.9, 26.9, 11.1)),
    Row("Qwen2.5-3B, WebAgent-R1", 33.9, (26.3, 53.3, 48.6, 26.9, 24.4)),
    Row("Qwen2.5-3B, R1-Zero", 4.8),
    Row("Qwen2.5-3B, BC with long thoughts", 24.5),
    Row("Qwen2.5-3B, R1-CoT", 30.3),
    Row("Llama-3.1-8B, BC", 20.6, (36.8, 6.7, 20.0, 33.3, 17.8)),
    Row("Llama-3.1-8B, filtered BC", 23.0),
    Row("Llama-3.1-8B, AWR", 28.5),
    Row("Llama-3.1-8B, DigiRL", 30.3),
    Row("Llama-3.1-8B, WebRL", 42.4),
    Row("Llama-3.1-8B, WebAgent-R1", 44.8, (47.4, 56.7, 57.1, 23.1, 44.4)),
)
