// One episode step by step, or two beside each other.

const view = { state: {}, panes: [] };

class Pane {
  constructor(episode, key) {
    this.episode = episode;
    this.key = key; // of its step in the address
    this.at = 0;
    this.steps = null;
    this.counter = h("p", { class: "counter", "aria-live": "polite" });
    this.previous = this.button("Previous step", "←", -1);
    this.next = this.button("Next step", "→", 1);
    this.timeline = h("ol", { class: "timeline" });
    this.body = h("div", { class: "step" }, h("p", { class: "nothing", "aria-busy": "true" }, "Loading …"));
    const told = `${OUTCOMES[episode.outcome].name} in ${plural(episode.turns, "turn")}`;
    this.element = h("section", { class: "pane", tabindex: "-1", "aria-label": `${episode.log.name}: ${told}` },
      this.header(),
      h("div", { class: "controls" }, this.previous, h("div", {}, this.counter, this.timeline), this.next),
      this.body);
    this.element.addEventListener("keydown", (event) => this.onKey(event));
  }

  button(label, sign, by) {
    return h("button", { type: "button", "aria-label": label, onclick: () => this.move(by) }, sign);
  }

  header() {
    const { log, outcome, reward, turns, tokens, seconds: took } = this.episode;
    const all = siblings(this.episode);
    const place = all.length > 1 && h("small", {}, ` ${all.indexOf(this.episode) + 1} of ${all.length}`);
    const rewarded = reward === null ? "no reward" : `reward ${reward}`;
    const figures = [rewarded, plural(turns, "turn"), plural(tokens, "token"), seconds(took)].join(" · ");
    return h("header", {},
      h("h3", {}, log.name, place), outcomePill(outcome), h("p", { class: "note" }, figures));
  }

  async load(step) {
    try {
      Object.assign(this, await loadSteps(this.episode)); // steps, last
    } catch (error) {
      const told = `${error.message}: build the report again with launch/report.py.`;
      this.body.replaceChildren(h("p", { class: "nothing" }, told));
      return;
    }
    this.timeline.append(...this.marks());
    this.show(step);
  }

  marks() {
    const { trace, outcome } = this.episode;
    const { kind, sign } = OUTCOMES[outcome];
    const steps = [...trace].map((grade, i) =>
      this.mark(i, `Step ${i + 1}${GRADE_NAMES[grade] && `: ${GRADE_NAMES[grade]}`}`, GRADES[grade], i + 1));
    return [...steps, this.mark(trace.length, "How it ended", kind, sign)];
  }

  mark(at, title, kind, sign) {
    const go = () => this.move(at - this.at);
    return h("li", {},
      h("button", { type: "button", class: kind, "aria-label": title, title, onclick: go }, sign));
  }

  show(at) {
    this.at = Math.max(0, Math.min(at, this.steps.length));
    const end = this.at === this.steps.length;
    this.counter.textContent = end ? "How it ended" : `Step ${this.at + 1} of ${this.steps.length}`;
    // aria-disabled keeps the focus on the button, where `disabled` would drop it.
    this.previous.setAttribute("aria-disabled", this.at === 0);
    this.next.setAttribute("aria-disabled", end);
    [...this.timeline.children].forEach(({ firstChild }, i) => {
      if (i === this.at) firstChild.setAttribute("aria-current", "step");
      else firstChild.removeAttribute("aria-current");
    });
    const shown = end ? renderEnd(this.episode, this.last) : renderStep(this.episode, this.steps, this.at);
    this.body.replaceChildren(...shown);
  }

  move(by) {
    if (!this.steps) return;
    this.show(this.at + by);
    view.state = { ...view.state, [this.key]: String(this.at + 1) };
    replaceState(view.state);
  }

  onKey(event) {
    const by = arrow(event, "ArrowLeft", "ArrowRight");
    if (!by || scrolls(event)) return;
    event.preventDefault();
    event.stopPropagation();
    this.move(by);
  }
}

const siblings = (episode) => index.episodes.filter((other) => other.family === episode.family);

const sameTask = (episode) =>
  index.episodes.filter((other) => other.task.id === episode.task.id && other.log !== episode.log);

function showEpisode(state) {
  const episode = index.byId.get(state.episode);
  const other = index.byId.get(state.with);
  view.state = state;
  view.panes = [];
  if (!episode) {
    const told = `There is no episode ${state.episode} in this report. `;
    const back = h("a", { href: "#trajectories" }, "All episodes");
    byId("episode").replaceChildren(h("p", { class: "nothing" }, told, back));
    return;
  }
  view.panes.push(new Pane(episode, "step"));
  if (other) view.panes.push(new Pane(other, "step2"));
  const { id, site, intent } = episode.task;
  byId("episode").replaceChildren(...[
    toolbar(state, episode),
    h("header", { class: "task" },
      h("p", { class: "eyebrow" }, `${id} · ${site}`),
      h("h2", { tabindex: "-1", id: "episode-title" }, intent || id)),
    comparisons(state, episode),
    h("div", { class: other ? "panes two" : "panes" }, view.panes.map((pane) => pane.element)),
  ].filter(Boolean));
  view.panes.forEach((pane) => pane.load(Number(state[pane.key] ?? 1) - 1));
}

function toolbar(state, episode) {
  const found = select(state);
  const at = found.indexOf(episode);
  const go = (by, label, sign) => h("button", {
    class: "tool", type: "button", "aria-label": label, title: label,
    "aria-disabled": String(at < 0 || !found[at + by]), onclick: () => moveEpisode(by),
  }, sign);
  return h("nav", { class: "toolbar", "aria-label": "Episodes" },
    h("a", { class: "tool back", href: hashOf(filtersOf(state)) },
      h("span", { "aria-hidden": "true" }, "←"), "List"),
    at >= 0 && h("p", { class: "note" }, `${number(at + 1)} of ${number(found.length)}`),
    h("span", { class: "space" }),
    go(-1, "Previous episode", "↑"),
    go(1, "Next episode", "↓"),
    h("button", { class: "tool", type: "button", "aria-label": "Keys", title: "Keys", onclick: showHelp }, "?"));
}

function moveEpisode(by) {
  const found = select(view.state);
  const now = index.byId.get(view.state.episode);
  const to = found[found.indexOf(now) + by];
  if (!to) return;
  const other = counterpart(to, index.byId.get(view.state.with));
  replaceState({ ...filtersOf(view.state), episode: to.id, with: other?.id });
  showEpisode(readState());
  byId("episode-title").focus({ preventScroll: true });
}

// What corresponds to `other` for another episode: a sibling, or the same attempt in the same log.
function counterpart(episode, other) {
  if (!other) return undefined;
  if (other.log === episode.log) return siblings(episode).find((e) => e !== episode);
  return sameTask(episode).find((e) => e.log === other.log && e.sibling === episode.sibling);
}

function comparisons(state, episode) {
  const others = [...siblings(episode).filter((e) => e !== episode), ...sameTask(episode)].slice(0, 40);
  if (others.length === 0) return null;
  return h("nav", { class: "compare", "aria-label": "Compare with" },
    h("p", { class: "note" }, "Compare with"),
    h("ul", {}, others.map((other) => h("li", {}, comparison(state, episode, other)))));
}

function comparison(state, episode, other) {
  const chosen = state.with === other.id;
  const family = siblings(other);
  const place = family.indexOf(other) + 1;
  const numbered = family.length > 1 ? ` ${place}` : "";
  const name = other.log === episode.log ? `sibling ${place}` : other.log.name + numbered;
  const href = hashOf({ ...state, with: chosen ? undefined : other.id, step2: undefined });
  return h("a", { class: "chip", href, "aria-current": chosen ? "true" : undefined },
    outcomeSign(other.outcome), name, " ", h("small", {}, plural(other.turns, "turn")));
}
