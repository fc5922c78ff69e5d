// List of runs: times relative to now, and the button that compares the selected runs.

function relativeTime(unixTime) {
  const elapsed = Date.now() / 1000 - unixTime;
  if (elapsed < 60) return `${Math.max(0, Math.round(elapsed))} s ago`;
  if (elapsed < 3600) return `${Math.round(elapsed / 60)} min ago`;
  if (elapsed < 172800) return `${Math.round(elapsed / 3600)} h ago`;
  return new Date(1000 * unixTime).toISOString().slice(0, 10);
}

function showTimes() {
  for (const element of document.querySelectorAll("time[data-unix]")) {
    const unixTime = Number(element.dataset.unix);
    element.textContent = relativeTime(unixTime);
    element.classList.toggle("recent", Date.now() / 1000 - unixTime < 120);
  }
}

function countSelection() {
  const count = document.querySelectorAll("input[name=run]:checked").length;
  const button = byId("compare");
  if (!button) return;
  button.disabled = count < 2;
  button.textContent = count < 2 ? "Select runs to compare" : `Compare ${count} runs`;
}

function refresh() {
  showTimes();
  countSelection();
}

document.addEventListener("change", countSelection);
addEventListener("results", refresh);
// A page from the history of the browser has its checkboxes set after this script.
addEventListener("pageshow", refresh);
setInterval(showTimes, 5000);
refresh();
