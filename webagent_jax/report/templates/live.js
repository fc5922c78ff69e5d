// Update of a served page: the server answers with a new version when files of a run have changed.

const POLL_MS = 3000;

const live = { version: document.documentElement.dataset.version };

async function poll() {
  try {
    // The browser sends the version that it has, and the server answers without a body if it is current.
    const response = await fetch(location.pathname + location.search, { cache: "no-cache" });
    const version = response.headers.get("etag")?.replaceAll('"', "");
    if (response.ok && version !== live.version) {
      update(new DOMParser().parseFromString(await response.text(), "text/html"));
      live.version = version;
    }
    setLive(response.ok);
  } catch {
    setLive(false);
  }
}

function setLive(isLive) {
  const element = byId("live");
  if (!element || element.classList.contains("lost") === !isLive) return;
  element.classList.toggle("lost", !isLive);
  element.textContent = isLive ? "live" : "not updated: the server does not respond";
}

// Replaces the parts that show results. The rest, such as an open episode, stays.
function update(page) {
  // The page gets its list of episodes with its scripts.
  if (page.getElementById("trajectories") && !byId("trajectories")) location.reload();
  for (const part of document.querySelectorAll("[data-live]")) {
    const next = page.getElementById(part.id);
    if (!next) continue;
    for (const details of part.querySelectorAll("details[id]")) {
      const same = next.querySelector(`#${CSS.escape(details.id)}`);
      if (same) same.open = details.open;
    }
    for (const box of part.querySelectorAll("input:checked")) {
      const same = [...next.querySelectorAll("input")].find(({ value }) => value === box.value);
      if (same) same.checked = true;
    }
    const focused = part.contains(document.activeElement) && controlKey(document.activeElement);
    part.replaceWith(document.adoptNode(next));
    // The new part has none of the old elements, so the focus would move to the page.
    if (focused) controls(next).find((element) => controlKey(element) === focused)?.focus({ preventScroll: true });
  }
  document.title = page.title;
  dispatchEvent(new Event("results"));
}

function controls(part) {
  return [...part.querySelectorAll("a[href], button, input, summary, [tabindex]")];
}

// The address, value or id of a control is the same in the next version of its part.
function controlKey(element) {
  const { localName, id, value, parentElement } = element;
  return [localName, element.getAttribute("href") || value || id || parentElement.id].join(" ");
}

async function watch() {
  for (;;) {
    await new Promise((resolve) => setTimeout(resolve, POLL_MS));
    if (!document.hidden) await poll();
  }
}

watch();
