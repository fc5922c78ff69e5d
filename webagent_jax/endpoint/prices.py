"""What tokens cost. A price that is not here is not known: nothing is guessed."""

from __future__ import annotations

from urllib.parse import urlsplit

# By host and model: dollars for a million tokens of prompt and of completion, as the price list of
# the host was in March 2026. Names are whole: dated and tuned variants have prices of their own.
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
    """Dollars for a million tokens of prompt and of completion; None where they are not known."""
    return PRICES.get(urlsplit(url).hostname or "", {}).get(model, (None, None))
