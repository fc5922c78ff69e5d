// List of episodes and its filters.

const PAGE = 60; // rows added at a time

const list = { state: {}, matches: [], numShown: 0 };

const option = (value, text) => h("option", { value }, text);

function fillFilters() {
  const { log, site, sort, change, finding } = byId("filters").elements;
  for (const filled of [log, site, sort, change, finding, byId("task-ids"), byId("outcomes")]) filled.replaceChildren();
  log.append(option("", "all"), ...logGroup("Evaluation", false), ...logGroup("Training", true));
  const sites = [...new Set(index.tasks.map((task) => task.site))].sort();
  site.append(option("", "all"), ...sites.map((name) => option(name, name)));
  sort.append(...Object.entries(ORDERS).map(([key, { name }]) => option(key, name)));
  change.append(option("", "any"), ...Object.entries(CHANGES).map(([key, name]) => option(key, name)));
  change.closest("label").hidden = !index.episodes.some((episode) => episode.change);
  finding.append(option("", "any"), ...Object.keys(index.findings).map((name) => option(name, name)));
  const ids = [...new Set(index.tasks.map((task) => task.id))].slice(0, 2000);
  byId("task-ids").append(...ids.map((id) => option(id)));
  byId("outcomes").append(...Object.keys(OUTCOMES).map(facet));
}

function logGroup(label, isTraining) {
  const logs = index.logs.filter((log) => (log.update !== null) === isTraining);
  const all = option(label.toLowerCase(), `all ${label.toLowerCase()} episodes`);
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
  // No delay: a filter applied after the reader follows a link would replace the address of the link.
  form.addEventListener("input", readFilters);
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    readFilters();
  });
  byId("fold").addEventListener("click", () => {
    const isOpen = form.classList.toggle("unfolded");
    byId("fold").setAttribute("aria-expanded", isOpen);
    byId("fold").textContent = isOpen ? "Fewer filters" : "More filters";
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
  const selected = new Set(list.state.outcome?.split(","));
  if (!selected.delete(outcome)) selected.add(outcome);
  changeFilters({ ...list.state, outcome: [...selected].join(",") });
}

function changeFilters(state) {
  replaceState(state);
  showList(readState());
}

function showList(state) {
  list.state = pickFilters(state);
  list.matches = select(state);
  list.numShown = 0;
  const { elements } = byId("filters");
  for (const key of FILTERS) {
    const field = elements[key];
    // Text that the reader is typing stays. A focused <select> may have been filled anew.
    const isTyped = field === document.activeElement && field.tagName === "INPUT";
    if (field && !isTyped) field.value = state[key] ?? "";
  }
  showFacets(state);
  byId("reset").hidden = Object.keys(list.state).length === 0;
  byId("count").textContent = countText(list.matches);
  byId("episodes").replaceChildren();
  showMore();
}

function showFacets(state) {
  const counts = outcomeCounts(state);
  const selected = state.outcome?.split(",") ?? [];
  for (const button of byId("outcomes").children) {
    const outcome = button.value;
    const { sign, name } = OUTCOMES[outcome];
    button.setAttribute("aria-pressed", selected.includes(outcome));
    button.hidden = counts[outcome] === 0 && !selected.includes(outcome);
    button.replaceChildren(
      h("span", { "aria-hidden": "true" }, sign), ` ${name} `, h("b", {}, number(counts[outcome])));
  }
}

function countText(episodes) {
  if (episodes.length === 0) return "No episode matches the filters.";
  const scored = episodes.filter((episode) => episode.reward !== null);
  const solved = scored.filter((episode) => episode.reward > 0);
  const rate = scored.length ? `, ${percent(solved.length / scored.length)} solved` : "";
  return plural(episodes.length, "episode") + rate;
}

// Show the list after the index has changed, with as many rows as before.
function refreshList() {
  const { numShown } = list;
  fillFilters();
  showList(list.state);
  while (list.numShown < Math.min(numShown, list.matches.length)) showMore();
}

function showMore() {
  const rows = list.matches.slice(list.numShown, list.numShown + PAGE).map(row);
  byId("episodes").append(...rows);
  list.numShown += rows.length;
  const remaining = list.matches.length - list.numShown;
  byId("more").hidden = remaining === 0;
  byId("more").textContent = `Show more (${number(remaining)} left)`;
}

function row(episode) {
  const { baseline, task, log } = episode;
  const state = { ...list.state, episode: episode.id };
  if (list.state.change && baseline) state.with = baseline.id;
  const baselineOutcome = baseline && [outcomeSign(baseline.outcome), h("span", { class: "then", "aria-label": "then" }, "→")];
  return h("li", {}, h("a", { href: toHash(state), "data-id": episode.id },
    h("span", { class: "signs" }, baselineOutcome, outcomeSign(episode.outcome)),
    h("span", { class: "task-text" },
      h("span", { class: "intent" }, task.intent || task.id),
      h("span", { class: "where" }, h("b", {}, log.name), ` · ${task.id}`,
        episode.attempt > 0 && ` · attempt ${episode.attempt + 1}`,
        episode.screenshots && " · screenshots")),
    traceMarks(episode.trace),
    h("span", { class: "figure" }, plural(episode.turns, "turn")),
    h("span", { class: "figure wide-only" }, plural(episode.tokens, "token")),
    h("span", { class: "figure wide-only" }, seconds(episode.seconds))));
}
