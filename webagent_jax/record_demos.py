"""Recording of demonstrations by a person who does the tasks in a visible browser."""

from __future__ import annotations

import queue
import sys
from collections import deque
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from webagent_jax import demos, expert_steps
from webagent_jax.agent import actions
from webagent_jax.browser import keys
from webagent_jax.browser.recorder import Recorder
from webagent_jax.collect_demos import check_num_demos, demo_tasks, longest_prompt
from webagent_jax.config import ConfigError, RunConfig
from webagent_jax.demos import Demonstration
from webagent_jax.rollout import EpisodeConfig, ExpertAgent
from webagent_jax.rollout.episode import run_episode
from webagent_jax.rollout.runtime import RolloutRuntime
from webagent_jax.suites.browser_environment import BrowserEnvironment
from webagent_jax.tracking.progress import Progress
from webagent_jax.types import (
    Action,
    ActionKind,
    Episode,
    Expert,
    InfraError,
    Observation,
    Outcome,
    ParseError,
    ResetResult,
    Suite,
    Task,
)

HELP = """\
Do each task in the window. After each action, wait until it is printed here. Press Tab to finish
typing; Shift+click hovers over an element without clicking it. In this terminal:
  Enter, or an answer    end the task; /answer TEXT if the answer begins with a slash
  /back, /forward    go back or forward in the history; /goto ADDRESS opens an address
  /wait    wait a second and observe the page again; /up, /down scroll
  /again, /skip, /quit    restart the task, skip it, quit"""

_ACTION_COMMANDS = {
    "/answer": ActionKind.EXIT,
    "/back": ActionKind.GO_BACK,
    "/forward": ActionKind.GO_FORWARD,
    "/goto": ActionKind.GOTO,
    "/wait": ActionKind.WAIT,
    "/up": ActionKind.SCROLL_UP,
    "/down": ActionKind.SCROLL_DOWN,
}
_TASK_COMMANDS = ("/again", "/skip", "/quit")
_CHECK_SECONDS = 1.0  # time between checks that the window still shows the observed page

Event = str | tuple[Recorder, Sequence[Action]]
"""Line from the terminal, or actions of the person in the window of a recorder."""


class _TaskCommand(BaseException):
    """Command of the person that ends the episode; the message is the command.

    Not an Exception, because those in an expert are reported as errors of its code.
    """


def record_demos(
    cfg: RunConfig,
    directory: Path,
    progress: Progress,
    events: queue.SimpleQueue[Event],
    *,
    headless: bool = False,
) -> None:
    """Record a person doing the tasks of `collect_demos`, and write the successful episodes.

    Skips tasks that already have a demonstration, so the person can continue later. Writes each
    demonstration immediately.

    Args:
        cfg: config of the run.
        directory: folder of the demonstrations; new ones are added to it.
        progress: receives the lines for the person.
        events: lines that the person types in the terminal; recorders add actions.
        headless: whether to run the browser without a window, for tests.

    Raises:
        ConfigError: there is no display, or the suite does not use a browser of this package.
        InfraError: a task cannot be opened.
    """
    check_num_demos(cfg)
    if cfg.browser.ws_endpoints:
        raise ConfigError("recording needs a browser on this machine: unset browser.ws_endpoints")
    # A reused context would contain the recorder of an earlier episode. The recorder uses
    # Session.with_page, which needs threads.
    cfg = replace(cfg, browser=replace(cfg.browser, reuse_contexts=False, worker_type="thread"))
    recorded = list(demos.read(directory)) if demos.exists(directory) else []
    with RolloutRuntime(cfg, progress, headless=headless) as runtime:
        limit = runtime.episode_config(0).max_prompt_tokens
        # No limit on turns, time or prompts: a person reads no prompts.
        episode_config = replace(
            runtime.episode_config(sys.maxsize), max_prompt_tokens=sys.maxsize, timeout=float("inf")
        )
        # Observations of webarena_lite contain the viewport only.
        sees_viewport = cfg.browser.observation_format == "webarena_lite"
        terminal = _Terminal(events, progress)
        done = {demonstration.task.id for demonstration in recorded}
        tasks = [task for task, _ in demo_tasks(cfg, runtime.suite) if task.id not in done]
        progress.log(f"{len(recorded)} demonstrations in {directory}; {len(tasks)} tasks to do")
        progress.log(HELP)
        for number, task in enumerate(tasks, 1):
            progress.log(f"\nTask {number} of {len(tasks)}: {task.id}")
            try:
                episode = _record_until_success(
                    runtime.suite, task, episode_config, terminal, sees_viewport
                )
            except _TaskCommand as command:
                if str(command) == "/quit":
                    return
                continue
            required_len = longest_prompt(episode) + cfg.rollout.max_new_tokens
            if longest_prompt(episode) > limit:
                progress.log(f"not kept: requires --config.engine.max_model_len={required_len}")
                continue
            recorded.append(_without_focus_clicks(demos.from_episode(episode)))
            demos.write(directory, recorded, overwrite=True)
            progress.log(f"kept: {len(recorded)} demonstrations in {directory}")


class _Terminal:
    """Queue of events and output of the person's terminal."""

    def __init__(self, events: queue.SimpleQueue[Event], progress: Progress) -> None:
        self.events = events
        self.log = progress.log

    def wait_for_retry(self) -> None:
        """Wait for a line before the task is opened again."""
        self.log("Press Enter to do the task again, or type /skip or /quit.")
        while not isinstance(line := self.events.get(), str):
            continue  # ignore actions in the window that is now closed
        if line.strip() in ("/skip", "/quit"):
            raise _TaskCommand(line.strip())


def _record_until_success(
    suite: Suite, task: Task, config: EpisodeConfig, terminal: _Terminal, sees_viewport: bool
) -> Episode:
    """Return the first successful episode of a task; other episodes are not kept.

    Raises:
        _TaskCommand: the person leaves the task.
    """
    while True:
        environment = suite.make_env(task)
        try:
            if not isinstance(environment, BrowserEnvironment):
                raise ConfigError(
                    f"the suite of {task.id} has no browser of this package: use webagent collect, "
                    "with --demo_source=policy if it has no experts"
                )
            person = _Person(environment, terminal, sees_viewport)
            episode = run_episode(
                environment,
                ExpertAgent(person, config.tokenizer, thinking=config.prompt.thinking),
                task,
                config,
            )
        except _TaskCommand as command:
            if str(command) != "/again":
                raise
            continue
        finally:
            environment.close()
        if episode.outcome is Outcome.SUCCESS and episode.reward == 1:
            return episode
        reason = episode.infra_error or f"reward {episode.reward:g}"
        terminal.log(f"not kept: {reason}")
        terminal.wait_for_retry()


class _Person:
    """Expert source whose decisions are the actions of a person in the window.

    The episode loop executes them like those of any agent, so a recorded episode consists of the
    observations and actions of an agent.
    """

    def __init__(
        self, environment: BrowserEnvironment, terminal: _Terminal, sees_viewport: bool
    ) -> None:
        self._terminal, self._sees_viewport = terminal, sees_viewport
        self._recorder = Recorder(
            environment.session, lambda acts: terminal.events.put((self._recorder, acts))
        )
        self._pending: deque[Action] = deque()  # recorded actions that no step has executed

    def make_expert(self, task: Task, reset_result: ResetResult) -> Expert:
        """Return the expert of the episode."""
        observation = reset_result.observation
        self._terminal.log(reset_result.intent)
        while True:
            action = self._next_action(observation)
            decision = expert_steps.decide(observation, action)
            self._terminal.log(f"  {actions.format_action(action)}  # {decision.thought}")
            self._recorder.allow_events(action)
            observation = yield decision
            if observation.error:
                self._terminal.log(f"  the page or the browser reports: {observation.error}")

    def _next_action(self, observation: Observation) -> Action:
        while True:
            while self._pending:
                action = self._pending.popleft()
                if (reason := _refusal(action, observation)) is None:
                    return action
                self._terminal.log(f"  not recorded: {reason}")
            scrolls = self._sees_viewport or observation.truncated
            self._recorder.listen(observation, scrolls=scrolls)
            self._pending.extend(self._wait())

    def _wait(self) -> Sequence[Action]:
        """Wait for the person and return their next actions, including an unfinished text.

        Raises:
            InfraError: the window shows another document, or it is closed.
        """
        has_left = False
        while True:
            try:
                event = self._terminal.events.get(timeout=_CHECK_SECONDS)
            except queue.Empty:
                # Checked twice: the page stops listening shortly before its event arrives.
                if has_left:
                    raise InfraError(
                        "the page changed without an action: use /back, /goto or /wait here, not "
                        "the buttons of the browser"
                    ) from None
                has_left = not self._recorder.is_listening()
                continue
            if isinstance(event, str):
                line = event.strip()
                commands = {*_ACTION_COMMANDS, *_TASK_COMMANDS}
                if line.startswith("/") and line.split()[0] not in commands:
                    self._terminal.log(HELP)
                    continue
                return [*self._recorder.stop(), _parse_line(line)]
            recorder, new_actions = event
            # Another recorder is that of an earlier episode.
            if recorder is self._recorder:
                return [*recorder.stop(), *new_actions]


def _parse_line(line: str) -> Action:
    """Return the action of a stripped line from the terminal.

    Raises:
        _TaskCommand: the line is a task command, which ends the episode.
    """
    command, *arguments = line.split(maxsplit=1) or [""]
    if command in _TASK_COMMANDS:
        raise _TaskCommand(command)
    kind = _ACTION_COMMANDS.get(command)
    if kind is None:
        return Action(ActionKind.EXIT, value=line)
    return Action(kind, value=arguments[0] if arguments else None)


def _refusal(action: Action, observation: Observation) -> str | None:
    """Return why the agent could not choose this action on the observation; None if it could."""
    parsed = actions.parse(actions.format_action(action))
    if isinstance(parsed, ParseError):
        if action.element_id is None and action.kind not in (ActionKind.GOTO, ActionKind.EXIT):
            return "the agent does not see this element; look again with /wait, or hover with Shift"
        return parsed.reason
    if not demos.is_storable(action):
        return "the text contains a tag of responses, such as <think>"
    # The text before a click may have changed the page.
    if action.element_id is not None and action.element_id not in observation.elements:
        return "the page has changed; do it again"
    if action.kind is ActionKind.PRESS:
        try:
            keys.parse_key(action.value or "")
        except ValueError as error:
            return str(error)
    return None


def _without_focus_clicks(demonstration: Demonstration) -> Demonstration:
    """Return the demonstration without clicks into a field that only precede its text.

    People click before they type; the agent's actions focus the field themselves. A click that
    changes the observation stays.
    """
    turns: list[demos.DemoTurn] = []
    for turn in reversed(demonstration.turns):
        action = turn.decision.action
        following = turns[-1] if turns else None
        is_redundant = (
            following is not None
            and action.kind is ActionKind.CLICK
            and following.decision.action.kind in (ActionKind.TYPE, ActionKind.SEARCH)
            and following.decision.action.element_id == action.element_id
            and replace(following.observation, error=turn.observation.error) == turn.observation
            and following.observation.error is None
        )
        if not is_redundant:
            turns.append(turn)
        elif following is not None:
            # Its observation may contain the error of the action before the click.
            turns[-1] = replace(following, observation=turn.observation)
    return replace(demonstration, turns=tuple(reversed(turns)))
