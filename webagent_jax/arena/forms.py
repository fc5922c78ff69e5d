"""Forms: what was sent, read field by field; what is wrong with it, told beside the field."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping

_EMAIL = re.compile(r"[^@\s]+@[^@\s]+\.[^@\s]+")


class Form:
    """The values of a form, and its errors by field. Templates show both (`macros.field`).

    A reading method returns a value in any case: look at `errors` before it is used.
    """

    def __init__(self, values: Mapping[str, str] | None = None) -> None:
        self.values = dict(values or {})
        self.errors: dict[str, str] = {}

    def text(self, name: str, *, required: bool = True, most: int = 200, least: int = 0) -> str:
        value = self.values.get(name, "").strip()
        if required and not value:
            self.errors[name] = "This is a required field."
        elif len(value) > most:
            self.errors[name] = f"At most {most} characters."
        elif value and len(value) < least:
            self.errors[name] = f"At least {least} characters."
        return value

    def email(self, name: str) -> str:
        value = self.text(name)
        if value and not _EMAIL.fullmatch(value):
            self.errors[name] = "Enter a valid email address, such as ann@mailbox.example."
        return value

    def whole(self, name: str, least: int, most: int) -> int:
        """A whole number between two others."""
        value = self.text(name)
        if value and not (re.fullmatch(r"-?\d{1,9}", value) and least <= int(value) <= most):
            self.errors[name] = f"Enter a whole number from {least} to {most}."
        return least if name in self.errors else int(value)

    def cents(self, name: str, *, most: int = 1_000_000) -> int:
        """An amount of money, such as 12.50 or $12."""
        value = self.text(name).removeprefix("$").replace(",", "")
        if name not in self.errors and not re.fullmatch(r"\d{1,7}(\.\d{1,2})?", value):
            self.errors[name] = "Enter an amount, such as 12.50."
        if name in self.errors:
            return 0
        amount = round(float(value) * 100)
        if amount > most:
            self.errors[name] = f"At most {most / 100:,.2f}."
        return amount

    def choice(self, name: str, among: Collection[str]) -> str:
        value = self.text(name)
        if value and value not in among:
            self.errors[name] = "Choose one of the options."
        return value

    def ticked(self, name: str) -> bool:
        return name in self.values
