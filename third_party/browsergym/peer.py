"""BrowserGym as its public classes give it: what the two measurements share."""

from __future__ import annotations

import browsergym.core.env
from browsergym.core.registration import register_task
from browsergym.core.task import AbstractBrowserTask


class Messages:
    """Its chat without the second Chromium, which takes no part in a step."""

    def __init__(self, **_):
        self.messages = []

    def add_message(self, role, msg):
        self.messages.append({"role": role, "message": msg})

    def close(self):
        pass


class Counter(AbstractBrowserTask):
    """A page whose script keeps a reward."""

    def __init__(self, seed, url):
        super().__init__(seed)
        self.url = url

    def setup(self, page):
        page.goto(self.url)
        return "Click", {}

    def validate(self, page, chat_messages):
        return float(page.evaluate("window.reward ?? 0")), False, "", {}


browsergym.core.env.Chat = Messages
register_task("counter", Counter)
