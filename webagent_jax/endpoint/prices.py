"""Token prices of models; a price that is not listed is unknown, never estimated."""

from __future__ import annotations

from urllib.parse import urlsplit

# By hostname and model: US dollars per million tokens of prompt and completion, from the price
# lists of March 2026. Names match exactly: dated and fine-tuned variants have different prices.
PRICES = {
    "api.openai.com": {
        "gpt-4o": (2.50, 10.00),
        "gpt-4o-mini": (0.15, 0.60),
        "gpt-4.1": (2.00, 8.00),
        "gpt-4.1-mini": (0.40, 1.60),
        "gpt-4.1-nano": (0.10, 0.40),
        "gpt-5": (1.25, 10.00),
        "gpt-5-mini": (0.25, 2.00),
        "gpt-5-nano": (0.05, 0.40),
        "o3": (2.00, 8.00),
        "o3-mini": (1.10, 4.40),
        "o4-mini": (1.10, 4.40),
    },
}


def price(url: str, model: str) -> tuple[float | None, float | None]:
    """Return US dollars per million tokens of prompt and completion; None if unknown."""
    return PRICES.get(urlsplit(url).hostname or "", {}).get(model, (None, None))
