"""Forms: values that are read field by field, and an error message for each wrong field."""

from __future__ import annotations

import datetime
import re
from collections.abc import Collection, Mapping

_DAY_FORMATS = ("%Y-%m-%d", "%m/%d/%Y", "%b %d, %Y", "%B %d, %Y")
_EMAIL = re.compile(r"[^@\s]+@[^@\s]+\.[^@\s]+")


class Form:
    """Values of a form and its errors by field; templates show both (`macros.field`).

    The methods that read a field always return a value: check `errors` before using it.
    """

    def __init__(self, values: Mapping[str, str] | None = None) -> None:
        self.values = dict(values or {})
        self.errors: dict[str, str] = {}

    def text(
        self, name: str, *, required: bool = True, max_chars: int = 200, min_chars: int = 0
    ) -> str:
        """Return the text of a field, from `min_chars` to `max_chars` characters."""
        value = self.values.get(name, "").strip()
        if required and not value:
            self.errors[name] = "This is a required field."
        elif len(value) > max_chars:
            self.errors[name] = f"At most {max_chars} characters."
        elif value and len(value) < min_chars:
            self.errors[name] = f"At least {min_chars} characters."
        return value

    def email(self, name: str) -> str:
        """Return the email address in a field."""
        value = self.text(name)
        if value and not _EMAIL.fullmatch(value):
            self.errors[name] = "Enter a valid email address, such as ann@mailbox.example."
        return value

    def integer(self, name: str, min_value: int, max_value: int) -> int:
        """Return the integer in a field, from `min_value` to `max_value`."""
        value = self.text(name)
        if value and not (
            re.fullmatch(r"-?\d{1,9}", value) and min_value <= int(value) <= max_value
        ):
            self.errors[name] = f"Enter a whole number from {min_value} to {max_value}."
        # Any valid number would do: the caller checks `errors` before it uses the value.
        return min_value if name in self.errors else int(value)

    def cents(self, name: str, *, max_cents: int = 1_000_000) -> int:
        """Return the cents of an amount in a field, such as 12.50 or $12, up to `max_cents`."""
        value = self.text(name).removeprefix("$").replace(",", "")
        if name not in self.errors and not re.fullmatch(r"\d{1,7}(\.\d{1,2})?", value):
            self.errors[name] = "Enter an amount, such as 12.50."
        if name in self.errors:
            return 0
        # Rounded, because 1.15 * 100 is below 115 in floating point.
        amount = round(float(value) * 100)
        if amount > max_cents:
            self.errors[name] = f"At most {max_cents / 100:,.2f}."
        return amount

    def day(self, name: str, *, required: bool = True) -> str:
        """Return the day in a field in ISO format; "" without one."""
        text = self.text(name, required=required, max_chars=20)
        day = parse_day(text)
        if text and not day:
            self.errors[name] = "Enter a day, such as 2023-06-15."
        return day

    def choice(self, name: str, options: Collection[str]) -> str:
        """Return the value of a field, which must be one of `options`."""
        value = self.text(name)
        if value and value not in options:
            self.errors[name] = "Choose one of the options."
        return value

    def is_checked(self, name: str) -> bool:
        """Return whether a check box is checked."""
        return name in self.values


def parse_day(text: str) -> str:
    """Return a day in ISO format, also from 1/31/2023 or Jan 31, 2023; "" for any other text."""
    for day_format in _DAY_FORMATS:
        try:
            return datetime.datetime.strptime(text.strip(), day_format).date().isoformat()
        except ValueError:
            continue
    return ""
