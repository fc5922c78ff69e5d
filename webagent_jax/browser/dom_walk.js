// DOM traversal shared by all formats: limits, child nodes and frame boxes.
"use strict";
const DEPTH_LIMIT = 400;

/** Returns the rendered child nodes: those of the shadow root, of the slot, or of the element. */
function nodesIn(element) {
  if (element.shadowRoot) return element.shadowRoot.childNodes;
  const assigned = tagOf(element) === "SLOT" ? element.assignedNodes() : [];
  return assigned.length ? assigned : element.childNodes;
}

/** Traversal of one document with limits on characters, elements and time. */
class Walk {
  constructor({ chars, nodes, millis }) {
    this.entries = [];
    this.numVisited = 0; // visited elements
    this.chars = 0;
    this.limits = { chars, nodes, end: performance.now() + millis };
    this.hasStopped = false;
  }

  /** Counts an element; returns false if the traversal has to end. */
  countElement() {
    this.numVisited += 1;
    if (
      this.numVisited > this.limits.nodes ||
      // The clock is read for every 128th element only, to keep the traversal fast.
      (this.numVisited % 128 === 0 && performance.now() > this.limits.end)
    )
      this.hasStopped = true;
    return !this.hasStopped;
  }

  /** Counts characters of the observation; the traversal ends at the limit. */
  countChars(chars) {
    this.chars += chars;
    if (this.chars > this.limits.chars) this.hasStopped = true;
  }
}

// --- frame boxes --------------------------------------------------------------------------------
// A frame box is the position of a document in the page's viewport, and its visible part there:
//   {x, y, left, top, right, bottom}

const wholeViewport = () => ({
  x: 0,
  y: 0,
  left: 0,
  top: 0,
  right: window.innerWidth,
  bottom: window.innerHeight,
});

/** Returns the frame box of the document in a frame, given that of its parent document. */
function frameBoxOf(frame, outer) {
  const { width, height } = documentBox(frame);
  const rect = toParentRect(frame, { x: 0, y: 0, width, height });
  const [x, y] = [outer.x + rect.x, outer.y + rect.y];
  return {
    x,
    y,
    left: Math.max(outer.left, x),
    top: Math.max(outer.top, y),
    right: Math.min(outer.right, x + rect.width),
    bottom: Math.min(outer.bottom, y + rect.height),
  };
}

/** Returns [x, y, width, height] of an element in the page's viewport. */
function boxAt(element, { x, y }) {
  const box = boxOf(element);
  return [x + box.x, y + box.y, box.width, box.height].map((v) => Math.round(v * 10) / 10);
}
