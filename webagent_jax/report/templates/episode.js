// Turns of one episode, or of two episodes side by side.

const view = { state: {}, panes: [] };

class Pane {
  constructor(episode, key) {
    this.episode = episode;
    this.key = key; // key of the turn in the URL fragment
    this.turnIndex = 0; // index of the shown turn; the number of turns for the end
    this.turns = null;
    this.counter = h("p", { class: "counter", "aria-live": "polite" });
    this.previous = this.button("Previous turn", "←", -1);
    this.next = this.button("Next turn", "→", 1);
    this.timeline = h("ol", { class: "timeline" });
    this.body = h("div", { class: "turn" }, h("p", { class: "empty", "aria-busy": "true" }, "Loading …"));
    const label = `${OUTCOMES[episode.outcome].name} in ${plural(episode.turns, "turn")}`;
    this.panel = h("div", {}); // below the body, whose left side is sticky
    this.element = h("section", { class: "pane", tabindex: "-1", "aria-label": `${episode.log.name}: ${label}` },
      this.header(),
      h("div", { class: "controls" }, this.previous, h("div", {}, this.counter, this.timeline), this.next),
      this.body, this.panel);
    this.element.addEventListener("keydown", (event) => this.onKey(event));
  }

  button(label, sign, offset) {
    return h("button", { type: "button", "aria-label": label, onclick: () => this.move(offset) }, sign);
  }

  header() {
    const { log, outcome, reward, turns, tokens, seconds: duration } = this.episode;
    const members = groupMembers(this.episode);
    const position = members.length > 1 && h("small", {}, ` attempt ${this.episode.attempt + 1}`);
    // The outcome already shows a truncation.
    const others = this.episode.findings.filter((finding) => finding !== OUTCOMES[outcome].name);
    const findings = others.map((finding) =>
      h("span", { class: "pill finding", title: index.findings[finding] }, finding));
    const rewardText = reward === null ? "no reward" : `reward ${reward}`;
    const figures = [rewardText, advantageText(this.episode), plural(turns, "turn"), plural(tokens, "token"), seconds(duration)].filter(Boolean).join(" · ");
    return h("header", {},
      h("h3", {}, log.name, position), outcomePill(outcome), findings, h("p", { class: "note" }, figures));
  }

  async load(turn) {
    try {
      Object.assign(this, await loadTurns(this.episode)); // turns, last
    } catch (error) {
      const message = `${error.message}: rebuild the report with webagent report.`;
      this.body.replaceChildren(h("p", { class: "empty" }, message));
      return;
    }
    this.timeline.append(...this.marks());
    this.show(turn);
  }

  marks() {
    const { trace, outcome } = this.episode;
    const { kind, sign } = OUTCOMES[outcome];
    const turns = [...trace].map((grade, i) =>
      this.mark(i, `Turn ${i + 1}${GRADE_NAMES[grade] && `: ${GRADE_NAMES[grade]}`}`, GRADES[grade], i + 1));
    return [...turns, this.mark(trace.length, "End of episode", kind, sign)];
  }

  mark(turnIndex, title, kind, sign) {
    const go = () => this.move(turnIndex - this.turnIndex);
    return h("li", {},
      h("button", { type: "button", class: kind, "aria-label": title, title, onclick: go }, sign));
  }

  show(turnIndex) {
    this.turnIndex = Math.max(0, Math.min(turnIndex, this.turns.length));
    const isEnd = this.turnIndex === this.turns.length;
    this.counter.textContent = isEnd ? "End of episode" : `Turn ${this.turnIndex + 1} of ${this.turns.length}`;
    // `disabled` would remove the focus from the button; aria-disabled keeps it.
    this.previous.setAttribute("aria-disabled", this.turnIndex === 0);
    this.next.setAttribute("aria-disabled", isEnd);
    [...this.timeline.children].forEach(({ firstChild }, i) => {
      if (i === this.turnIndex) firstChild.setAttribute("aria-current", "step");
      else firstChild.removeAttribute("aria-current");
    });
    const content = isEnd ? renderEnd(this.episode, this.last) : renderTurn(this.episode, this.turns, this.turnIndex);
    this.body.replaceChildren(...content);
    // Only pages of the server contain the script of the panel.
    const hasPanel = !isEnd && typeof sendPanel === "function";
    this.panel.replaceChildren(...(hasPanel ? [sendPanel(this.episode, this.turns[this.turnIndex], this.turnIndex)] : []));
  }

  move(offset) {
    if (!this.turns) return;
    this.show(this.turnIndex + offset);
    view.state = { ...view.state, [this.key]: String(this.turnIndex + 1) };
    replaceState(view.state);
  }

  onKey(event) {
    const offset = arrowDirection(event, "ArrowLeft", "ArrowRight");
    if (!offset || isTyping(event) || isScrolling(event)) return;
    event.preventDefault();
    event.stopPropagation();
    this.move(offset);
  }
}

// Advantage of an attempt of a training group; empty outside of training.
function advantageText({ advantage }) {
  return typeof advantage === "number" ? `advantage ${signed(advantage)}` : "";
}

// Attempts of the same training group, or at the same task in the same evaluation.
const groupMembers = (episode) => index.episodes.filter((other) => other.groupKey === episode.groupKey);

// Episodes of the same task in other logs.
const otherLogEpisodes = (episode) =>
  index.episodes.filter((other) => other.task.id === episode.task.id && other.log !== episode.log
    && other.groupKey !== episode.groupKey);

function showEpisode(state) {
  const episode = index.byId.get(state.episode);
  const other = index.byId.get(state.with);
  view.state = state;
  view.panes = [];
  if (!episode) {
    const message = `There is no episode ${state.episode} in this report. `;
    const back = h("a", { href: "#trajectories" }, "All episodes");
    byId("episode").replaceChildren(h("p", { class: "empty" }, message, back));
    return;
  }
  view.panes.push(new Pane(episode, "turn"));
  if (other) view.panes.push(new Pane(other, "turn2"));
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
  const matches = select(state);
  const position = matches.indexOf(episode);
  const go = (offset, label, sign) => h("button", {
    class: "tool", type: "button", "aria-label": label, title: label,
    "aria-disabled": String(position < 0 || !matches[position + offset]), onclick: () => moveEpisode(offset),
  }, sign);
  return h("nav", { class: "toolbar", "aria-label": "Episodes" },
    h("a", { class: "tool back", href: toHash(pickFilters(state)) },
      h("span", { "aria-hidden": "true" }, "←"), "List"),
    position >= 0 && h("p", { class: "note" }, `${number(position + 1)} of ${number(matches.length)}`),
    h("span", { class: "space" }),
    go(-1, "Previous episode", "↑"),
    go(1, "Next episode", "↓"),
    h("button", { class: "tool", type: "button", "aria-label": "Keys", title: "Keys", onclick: showHelp }, "?"));
}

function moveEpisode(offset) {
  const matches = select(view.state);
  const current = index.byId.get(view.state.episode);
  const target = matches[matches.indexOf(current) + offset];
  if (!target) return;
  const other = counterpart(target, index.byId.get(view.state.with));
  replaceState({ ...pickFilters(view.state), episode: target.id, with: other?.id });
  showEpisode(readState());
  byId("episode-title").focus({ preventScroll: true });
}

// Episode to compare with `episode` in the way `other` was compared with the previous episode: another
// attempt of the group, or the same attempt in the log of `other`.
function counterpart(episode, other) {
  if (!other) return undefined;
  if (other.log === episode.log) return groupMembers(episode).find((e) => e !== episode);
  return otherLogEpisodes(episode).find((e) => e.log === other.log && e.attempt === episode.attempt);
}

function comparisons(state, episode) {
  const others = [...groupMembers(episode).filter((e) => e !== episode), ...otherLogEpisodes(episode)].slice(0, 40);
  if (others.length === 0) return null;
  return h("nav", { class: "compare", "aria-label": "Compare with" },
    h("p", { class: "note" }, "Compare with"),
    h("ul", {}, others.map((other) => h("li", {}, comparison(state, episode, other)))));
}

function comparison(state, episode, other) {
  const isSelected = state.with === other.id;
  const attempt = other.attempt + 1;
  const suffix = groupMembers(other).length > 1 ? ` ${attempt}` : "";
  const name = other.groupKey === episode.groupKey ? `attempt ${attempt}` : other.log.name + suffix;
  const href = toHash({ ...state, with: isSelected ? undefined : other.id, turn2: undefined });
  return h("a", { class: "chip", href, "aria-current": isSelected ? "true" : undefined },
    outcomeSign(other.outcome), name, " ",
    h("small", {}, [advantageText(other), plural(other.turns, "turn")].filter(Boolean).join(" · ")));
}
