// Entry point of observations: one traversal of the document in the requested format.
"use strict";

let lastObservation = null; // {limits, entries}

/** Returns JSON of {title, entries, lastId, numVisited, total, hasStopped}. */
function observe(limits) {
  document.documentElement?.getBoundingClientRect(); // layout before the time limit starts
  // Ids continue after those of other frames, so that they are unique within the page.
  lastId = Math.max(lastId, limits.lastId);
  const Format = { compact: CompactWalk, webarena_lite: WebArenaLiteWalk }[limits.format];
  const walk = new Format(limits);
  const entries = walk.collectEntries();
  lastObservation = { limits, entries };
  return JSON.stringify({
    title: titleOf(document),
    entries,
    lastId,
    numVisited: walk.numVisited,
    total: walk.hasStopped ? document.getElementsByTagName("*").length : walk.numVisited,
    hasStopped: walk.hasStopped,
  });
}

/**
 * Returns the element that replaces a removed one and takes over its id, null without one. The page
 * must equal the last observation, from which the agent chose the id. With `isOwnChange` it may
 * differ, because the agent's typing changes the page.
 */
function replacementOf(id, { isOwnChange = false } = {}) {
  if (!lastObservation) return null;
  const words = () => lastObservation.entries.map((e) => `${e.id} ${e.kind} ${e.name} ${e.text}`);
  const oldWords = words().join("\n");
  observe(lastObservation.limits);
  const element = byId.get(id)?.deref();
  return isLive(element) && (isOwnChange || words().join("\n") === oldWords) ? element : null;
}
