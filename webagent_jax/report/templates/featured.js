// Featured episode on the first screen: a solved episode that plays turn by turn.

const PLAY_MS = 2600; // time of one turn
const SHOT_HEIGHT = 216; // maximum height of a screenshot in pixels

// Higher for an episode that the previous stage failed, with screenshots, without findings, and of 2 to 8 turns;
// among equals, for a policy that was more certain.
function featuredScore({ change, screenshots, findings, turns, logp }) {
  return 16 * (change === "learned") + 8 * screenshots + 4 * (findings.length === 0) + 2 * (turns >= 2 && turns <= 8)
    + Math.exp(logp ?? -9);
}

// A solved episode of the last evaluation that has one, else of the last training log.
function pickFeatured() {
  const isEvaluation = (log) => log.update === null;
  const logs = [...index.logs.filter((log) => !isEvaluation(log)), ...index.logs.filter(isEvaluation)];
  for (const log of logs.reverse()) {
    const solved = index.episodes.filter((e) => e.log === log && e.reward > 0 && e.turns > 0);
    if (solved.length) return solved.reduce((a, b) => (featuredScore(b) > featuredScore(a) ? b : a));
  }
  return null;
}

class Player {
  constructor(episode, { turns, last }) {
    this.episode = episode;
    this.frames = [...turns.map((turn, i) => this.turnFrame(turn, i)), this.endFrame(last)];
    this.position = 0;
    this.timer = 0;
    this.stage = h("div", { class: "stage-view" });
    this.button = h("button", { type: "button", class: "tool", onclick: () => this.toggle() });
    this.dots = this.frames.map((frame, i) => h("button", {
      type: "button", "aria-label": i < turns.length ? `Turn ${i + 1}` : "End of episode", onclick: () => this.jump(i),
    }));
    this.show(0);
  }

  turnFrame(turn, i) {
    return () => [
      pageFrame(turn, `at turn ${i + 1}`, SHOT_HEIGHT),
      h("div", { class: "words" },
        h("p", { class: "act" }, h("b", {}, `${i + 1} `), turn.action),
        turn.thought && h("p", { class: "note" }, turn.thought)),
    ];
  }

  endFrame(last) {
    const { outcome, answer, turns } = this.episode;
    return () => [
      last ? pageFrame({ shot: last }, "at the end of the episode", SHOT_HEIGHT) : h("p", { class: "empty" }, "End of the episode"),
      h("div", { class: "words" },
        h("p", { class: "act" }, outcomePill(outcome), ` in ${plural(turns, "turn")}`),
        answer !== null && h("p", { class: "note" }, `Answer: ${answer || "(empty)"}`)),
    ];
  }

  element() {
    const { task, log, baseline } = this.episode;
    const state = { episode: this.episode.id };
    const compare = baseline && h("p", { class: "note" }, `${baseline.log.name} on the same task and seed: `,
      outcomeSign(baseline.outcome), ` ${OUTCOMES[baseline.outcome].name} in ${plural(baseline.turns, "turn")}. `,
      h("a", { href: toHash({ ...state, with: baseline.id }) }, "Compare"));
    return [
      h("p", { class: "eyebrow" }, `${log.name} solves ${task.id}`),
      h("h2", {}, h("a", { href: toHash(state) }, task.intent || task.id)),
      this.stage,
      h("div", { class: "player" }, this.button, h("div", { class: "dots-bar" }, this.dots)),
      compare,
    ];
  }

  show(position) {
    this.position = position;
    this.stage.replaceChildren(...this.frames[position]());
    // An element that is not on the page has no scroll position, so the target moves into view afterwards.
    requestAnimationFrame(() => {
      const target = this.stage.querySelector(".observation mark");
      const page = target?.closest(".observation");
      if (target && target.offsetTop > page.clientHeight - 40) page.scrollTop = target.offsetTop - 90;
    });
    this.dots.forEach((dot, i) => {
      if (i === position) dot.setAttribute("aria-current", "step");
      else dot.removeAttribute("aria-current");
    });
    this.label();
  }

  label() {
    const isEnd = this.position === this.frames.length - 1;
    const [sign, name] = this.timer ? ["❚❚", "Pause"] : isEnd ? ["↻", "Play again"] : ["▶", "Play"];
    this.button.replaceChildren(h("span", { "aria-hidden": "true" }, sign));
    this.button.setAttribute("aria-label", name);
    this.button.title = name;
  }

  play() {
    this.timer = setInterval(() => this.advance(), PLAY_MS);
    this.label();
  }

  pause() {
    clearInterval(this.timer);
    this.timer = 0;
    this.label();
  }

  advance() {
    // Time that the reader cannot see does not count.
    if (document.hidden || !this.stage.checkVisibility()) return;
    this.show(this.position + 1);
    if (this.position === this.frames.length - 1) this.pause();
  }

  toggle() {
    if (this.timer) return this.pause();
    if (this.position === this.frames.length - 1) this.show(0);
    return this.play();
  }

  jump(position) {
    this.pause();
    this.show(position);
  }
}

async function showFeatured() {
  const episode = byId("featured").hidden && pickFeatured();
  if (!episode) return;
  try {
    const player = new Player(episode, await loadTurns(episode));
    byId("featured").replaceChildren(...player.element().filter(Boolean));
    byId("featured").hidden = false;
    if (!matchMedia("(prefers-reduced-motion: reduce)").matches) player.play();
  } catch {
    // Without the turns there is no featured episode; an opened episode names the missing file.
  }
}
