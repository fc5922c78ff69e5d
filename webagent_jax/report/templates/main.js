// Selection of the view, list or episode, and keyboard shortcuts.

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
  const position = list.matches.findIndex((episode) => episode.id === id);
  while (list.numShown <= position) showMore();
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

function arrowDirection(event, back, forward) {
  if (event.altKey || event.ctrlKey || event.metaKey || event.shiftKey) return 0;
  return { [back]: -1, [forward]: 1 }[event.key] ?? 0;
}

// Shortcuts do not apply in form fields, open dialogs and scrollable regions. The button of a dialog
// that has just closed keeps the focus until the next frame.
const isTyping = (event) => event.target.closest?.("input, select, textarea, dialog[open]");
const isScrolling = (event) => event.target.closest?.("[data-scrolls]");

function key(event) {
  if (event.defaultPrevented || isTyping(event)) return;
  const isEpisode = !byId("episode").hidden;
  const step = !isScrolling(event) && arrowDirection(event, "ArrowLeft", "ArrowRight");
  const episode = !isScrolling(event) && arrowDirection(event, "ArrowUp", "ArrowDown");
  if (isEpisode && step) view.panes.forEach((pane) => pane.move(step));
  else if (isEpisode && episode) moveEpisode(episode);
  else if (isEpisode && event.key === "Escape") location.hash = toHash(pickFilters(view.state));
  else if (event.key === "?") showHelp();
  else if (event.key === "/" && !isEpisode && !byId("browser").hidden) byId("filters").elements.q.focus();
  else return;
  event.preventDefault();
}

async function start() {
  if (!byId("browser")) return;
  try {
    await loadScript("report/index.js");
  } catch {
    return; // the page shows the message of #missing
  }
  byId("missing").hidden = true;
  byId("browser").hidden = false;
  fillFilters();
  listenToFilters();
  addEventListener("hashchange", () => {
    const { hash } = location;
    const isView = hash.includes("=") || hash === "#trajectories";
    // A section of the summary closes an episode. Other fragments, such as #main, change nothing.
    const isSection = hash === "" || byId("overview").contains(byId(hash.slice(1)));
    if (isView || (isSection && !byId("episode").hidden)) route();
  });
  document.addEventListener("keydown", key);
  // A served page has new results. An open episode stays as it is.
  addEventListener("results", async () => {
    chunks.clear();
    await loadScript("report/index.js");
    refreshList();
    showFeatured();
  });
  route();
  showFeatured();
  document.documentElement.dataset.ready = "true";
}

start();
