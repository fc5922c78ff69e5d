// The door of an observation: one walk over the document, in the format asked for.
"use strict";

/** JSON of {title, entries, lastId, seen, total, stopped}. */
function observe(limits) {
  document.documentElement?.getBoundingClientRect(); // layout comes before the clock of the walk
  lastId = Math.max(lastId, limits.lastId);
  const Format = { compact: CompactWalk, webarena_lite: WebArenaLiteWalk }[limits.format];
  const walk = new Format(limits);
  const entries = walk.told();
  return JSON.stringify({
    title: document.title,
    entries,
    lastId,
    seen: walk.seen,
    total: walk.stopped ? document.getElementsByTagName("*").length : walk.seen,
    stopped: walk.stopped,
  });
}
