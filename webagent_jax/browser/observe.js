// Entry point of observations: one traversal of the document in the requested format.
"use strict";

/** Returns JSON of {title, entries, lastId, numVisited, total, hasStopped}. */
function observe(limits) {
  document.documentElement?.getBoundingClientRect(); // layout before the time limit starts
  // Ids continue after those of other frames, so that they are unique within the page.
  lastId = Math.max(lastId, limits.lastId);
  const Format = { compact: CompactWalk, webarena_lite: WebArenaLiteWalk }[limits.format];
  const walk = new Format(limits);
  const entries = walk.collectEntries();
  return JSON.stringify({
    title: document.title,
    entries,
    lastId,
    numVisited: walk.numVisited,
    total: walk.hasStopped ? document.getElementsByTagName("*").length : walk.numVisited,
    hasStopped: walk.hasStopped,
  });
}
