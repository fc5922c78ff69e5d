// The list of episodes and its filters.

const PAGE = 60; // rows added at a time

const list = { state: {}, found: [], shown: 0 };

const option = (value, text) => h("option", { value }, text);

function fillFilters() {
  const { log, site, sort, change } = byId("filters").elements;
  log.append(option("", "all"), ...logGroup("Evaluation", null), ...logGroup("Training", "update"));
  const sites = [...new Set(index.tasks.map((task) => task.site))].sort();
  site.append(option("", "all"), ...sites.map((name) => option(name, name)));
  sort.append(...Object.entries(ORDERS).map(([key, { name }]) => option(key, name)));
  change.append(option("", "any"), ...Object.entries(CHANGES).map(([key, name]) => option(key, name)));
  change.closest("label").hidden = !index.episodes.some((episode) => episode.change);
  const ids = [...new Set(index.tasks.map((task) => task.id))].slice(0, 2000);
  byId("task-ids").append(...ids.map((id) => option(id)));
  byId("outcomes").append(...Object.keys(OUTCOMES).map(facet));
}

function logGroup(label, training) {
  const logs = index.logs.filter((log) => (log.update !== null) === Boolean(training));
  const all = option(label.toLowerCase(), `all of ${label.toLowerCase()}`);
  return logs.length ? [h("optgroup", { label }, all, logs.map((log) => option(log.id, log.name)))] : [];
}

function facet(outcome) {
  const { kind } = OUTCOMES[outcome];
  return h("button", {
    type: "button", class: `facet ${kind}`, value: outcome, onclick: () => toggleOutcome(outcome),
  });
}

function listenToFilters() {
  const form = byId("filters");
  let waiting = 0;
  form.addEventListener("input", () => {
    clearTimeout(waiting);
    waiting = setTimeout(readFilters, 120);
  });
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    readFilters();
  });
  byId("fold").addEventListener("click", () => {
    const open = form.classList.toggle("unfolded");
    byId("fold").setAttribute("aria-expanded", open);
    byId("fold").textContent = open ? "Fewer filters" : "More filters";
  });
  byId("reset").addEventListener("click", () => {
    changeFilters({});
    form.elements.q.focus();
  });
  byId("more").addEventListener("click", showMore);
}

function readFilters() {
  const { elements } = byId("filters");
  const values = Object.fromEntries(FILTERS.map((key) => [key, elements[key]?.value.trim()]));
  changeFilters({ ...values, outcome: list.state.outcome });
}

function toggleOutcome(outcome) {
  const chosen = new Set(list.state.outcome?.split(","));
  if (!chosen.delete(outcome)) chosen.add(outcome);
  changeFilters({ ...list.state, outcome: [...chosen].join(",") });
}

function changeFilters(state) {
  replaceState(state);
  showList(readState());
}

function showList(state) {
  list.state = filtersOf(state);
  list.found = select(state);
  list.shown = 0;
  const { elements } = byId("filters");
  for (const key of FILTERS) {
    const field = elements[key];
    if (field && field !== document.activeElement) field.value = state[key] ?? "";
  }
  showFacets(state);
  byId("reset").hidden = Object.keys(list.state).length === 0;
  byId("count").textContent = counted(list.found);
  byId("episodes").replaceChildren();
  showMore();
}

function showFacets(state) {
  const counts = outcomeCounts(state);
  const chosen = state.outcome?.split(",") ?? [];
  for (const button of byId("outcomes").children) {
    const outcome = button.value;
    const { sign, name } = OUTCOMES[outcome];
    button.setAttribute("aria-pressed", chosen.includes(outcome));
    button.hidden = counts[outcome] === 0 && !chosen.includes(outcome);
    button.replaceChildren(
      h("span", { "aria-hidden": "true" }, sign), ` ${name} `, h("b", {}, number(counts[outcome])));
  }
}

function counted(episodes) {
  if (episodes.length === 0) return "No episode is like that.";
  const scored = episodes.filter((episode) => episode.reward !== null);
  const solved = scored.filter((episode) => episode.reward > 0);
  const rate = scored.length ? `, ${percent(solved.length / scored.length)} solved` : "";
  return plural(episodes.length, "episode") + rate;
}

function showMore() {
  const rows = list.found.slice(list.shown, list.shown + PAGE).map(row);
  byId("episodes").append(...rows);
  list.shown += rows.length;
  const left = list.found.length - list.shown;
  byId("more").hidden = left === 0;
  byId("more").textContent = `Show more (${number(left)} left)`;
}

function row(episode) {
  const { before, task, log } = episode;
  const shown = { ...list.state, episode: episode.id };
  if (list.state.change && before) shown.with = before.id;
  const was = before && [outcomeSign(before.outcome), h("span", { class: "then", "aria-label": "then" }, "→")];
  return h("li", {}, h("a", { href: hashOf(shown), "data-id": episode.id },
    h("span", { class: "signs" }, was, outcomeSign(episode.outcome)),
    h("span", { class: "told-task" },
      h("span", { class: "intent" }, task.intent || task.id),
      h("span", { class: "where" }, h("b", {}, log.name), ` · ${task.id}`,
        episode.sibling > 0 && ` · sibling ${episode.sibling + 1}`,
        episode.pictures && " · pictures")),
    traceMarks(episode.trace),
    h("span", { class: "figure" }, plural(episode.turns, "turn")),
    h("span", { class: "figure wide-only" }, plural(episode.tokens, "token")),
    h("span", { class: "figure wide-only" }, seconds(episode.seconds))));
}
