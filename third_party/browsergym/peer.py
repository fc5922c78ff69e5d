"""BrowserGym task and chat shared by both measurements."""

from __future__ import annotations

import browsergym.core.env
from browsergym.core.registration import register_task
from browsergym.core.task import AbstractBrowserTask


class Messages:
    """Chat of BrowserGym without its second Chromium, which steps do not use."""

    def __init__(self, **_):
        self.messages = []

    def add_message(self, role, msg):
        """Append a message."""
        self.messages.append({"role": role, "message": msg})

    def close(self):
        """Do nothing."""


class Counter(AbstractBrowserTask):
    """Task with a page whose script counts the reward."""

    def __init__(self, seed, url):
        super().__init__(seed)
        self.url = url

    def setup(self, page):
        """Open the page and return its goal."""
        page.goto(self.url)
        return "Click", {}

    def validate(self, page, chat_messages):
        """Return the reward of the page."""
        return float(page.evaluate("window.reward ?? 0")), False, "", {}


browsergym.core.env.Chat = Messages
register_task("counter", Counter)
