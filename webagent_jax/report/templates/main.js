// Which of the two views is shown, and the keys.

function route() {
  const state = readState();
  const wasEpisode = !byId("episode").hidden;
  const isEpisode = Boolean(state.episode);
  document.body.classList.toggle("one-episode", isEpisode);
  byId("episode").hidden = !isEpisode;
  byId("overview").hidden = isEpisode;
  if (isEpisode) {
    showEpisode(state);
    if (!wasEpisode) scrollTo(0, 0);
    byId("episode-title")?.focus({ preventScroll: true });
  } else {
    showList(state);
    if (wasEpisode) backToRow(view.state?.episode);
    else if (Object.keys(state).length) jumpTo(byId("trajectories"));
  }
}

function backToRow(id) {
  while (list.shown < list.found.findIndex((episode) => episode.id === id)) showMore();
  const row = [...byId("episodes").querySelectorAll("a")].find((link) => link.dataset.id === id);
  jumpTo(row ?? byId("trajectories"), row ? "center" : "start");
  row?.focus({ preventScroll: true });
}

function jumpTo(element, block = "start") {
  element.scrollIntoView({ behavior: "instant", block });
}

function showHelp() {
  byId("help").showModal();
}

function arrow(event, back, forth) {
  if (event.altKey || event.ctrlKey || event.metaKey || event.shiftKey) return 0;
  return { [back]: -1, [forth]: 1 }[event.key] ?? 0;
}

// Keys belong to fields, and to what can be scrolled with them.
const typing = (event) => event.target.closest?.("input, select, textarea, dialog");
const scrolls = (event) => event.target.closest?.("[data-scrolls]");

function key(event) {
  if (event.defaultPrevented || typing(event)) return;
  const one = !byId("episode").hidden;
  const step = !scrolls(event) && arrow(event, "ArrowLeft", "ArrowRight");
  const episode = !scrolls(event) && arrow(event, "ArrowUp", "ArrowDown");
  if (one && step) view.panes.forEach((pane) => pane.move(step));
  else if (one && episode) moveEpisode(episode);
  else if (one && event.key === "Escape") location.hash = hashOf(filtersOf(view.state));
  else if (event.key === "?") showHelp();
  else if (event.key === "/" && !one && !byId("browser").hidden) byId("filters").elements.q.focus();
  else return;
  event.preventDefault();
}

async function start() {
  if (!byId("browser")) return;
  try {
    await loadScript("report/index.js");
  } catch {
    return; // the page says where the episodes are
  }
  byId("missing").hidden = true;
  byId("browser").hidden = false;
  fillFilters();
  listenToFilters();
  addEventListener("hashchange", () => {
    // Other places of the page have names, too.
    const ours = location.hash.includes("=") || location.hash === "#trajectories";
    if (ours || !byId("episode").hidden) route();
  });
  document.addEventListener("keydown", key);
  route();
  document.documentElement.dataset.ready = "true";
}

start();
