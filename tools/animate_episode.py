"""Write an animated picture of one recorded episode, such as that of the README.

    python tools/animate_episode.py WORKDIR TASK_ID PICTURE.webp

WORKDIR is that of an evaluation with screenshots. A frame per step shows the page, a ring around
the target of the action, the task above and the action below.
"""

from __future__ import annotations

import io
import sys
from pathlib import Path

from PIL import Image, ImageDraw, ImageFont

from webagent_jax.agent import actions
from webagent_jax.tracking import episode_log
from webagent_jax.types import Episode, ParseError, Turn

_WIDTH = 800  # pixels
_BAR = 44  # pixels of the bars above and below the page
_RING = (217, 72, 15)
_BACKGROUND = (27, 31, 36)
_STEP_MS, _LAST_STEP_MS = 1_500, 4_000


def main(argv: list[str]) -> None:
    """Write the picture."""
    if len(argv) != 4:
        sys.exit(__doc__)
    workdir, task_id, picture = Path(argv[1]), argv[2], Path(argv[3])
    episodes = episode_log.load_episodes(workdir / "episodes" / "episodes.jsonl")
    episode = next((e for e in episodes if e.task.id == task_id), None)
    if episode is None or any(turn.screenshot is None for turn in episode.turns):
        sys.exit(f"{workdir} has no episode of {task_id!r} with screenshots")
    frames = [_draw_step(episode, number) for number in range(len(episode.turns))]
    durations = [_STEP_MS] * (len(frames) - 1) + [_LAST_STEP_MS]
    frames[0].save(
        picture, save_all=True, append_images=frames[1:], duration=durations, loop=0, quality=60
    )


def _draw_step(episode: Episode, index: int) -> Image.Image:
    turn = episode.turns[index]
    page = Image.open(io.BytesIO(turn.screenshot or b"")).convert("RGB")
    _draw_ring(page, turn)
    height = round(page.height * _WIDTH / page.width)
    frame = Image.new("RGB", (_WIDTH, height + 2 * _BAR), _BACKGROUND)
    frame.paste(page.resize((_WIDTH, height), Image.Resampling.LANCZOS), (0, _BAR))
    _draw_text(frame, 0, f"Task: {episode.intent}")
    result = f"    reward {episode.reward:.0f}" if index == len(episode.turns) - 1 else ""
    text = (
        "no action" if isinstance(turn.action, ParseError) else actions.format_action(turn.action)
    )
    _draw_text(frame, height + _BAR, f"{index + 1}/{len(episode.turns)}  {text}{result}")
    return frame


def _draw_ring(page: Image.Image, turn: Turn) -> None:
    """Draw a ring around the element of the action; screenshots have one pixel per CSS pixel."""
    if isinstance(turn.action, ParseError) or turn.action.element_id is None:
        return
    element = turn.observation.elements.get(turn.action.element_id)
    if element is None or element.box is None:
        return
    x, y, width, height = element.box
    corners = (x - 6, y - 6, x + width + 6, y + height + 6)
    ImageDraw.Draw(page).rounded_rectangle(corners, radius=8, outline=_RING, width=4)


def _draw_text(frame: Image.Image, top: int, text: str) -> None:
    font = ImageFont.load_default(18)
    ImageDraw.Draw(frame).text((16, top + _BAR // 2), text, "white", font, anchor="lm")


if __name__ == "__main__":
    main(sys.argv)
