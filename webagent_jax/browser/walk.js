// What the walks of all formats share: the ids of elements, their bounds, and the way down.
"use strict";
const DEPTH_LIMIT = 400;

const ids = new WeakMap(); // Element -> id
const byId = new Map(); // id -> WeakRef(Element)
let lastId = 0; // of this document, or of frames beside it that share the numbers

function idOf(element) {
  if (!ids.has(element)) {
    lastId += 1;
    ids.set(element, lastId);
    byId.set(lastId, new WeakRef(element));
  }
  return ids.get(element);
}

/** The nodes drawn inside an element: of its shadow, of what fills its slot, else its own. */
function nodesIn(element) {
  if (element.shadowRoot) return element.shadowRoot.childNodes;
  const assigned = element.tagName === "SLOT" ? element.assignedNodes() : [];
  return assigned.length ? assigned : element.childNodes;
}

/** A walk over one document; `limits` bound it in characters, elements and time. */
class Walk {
  constructor({ chars, nodes, millis }) {
    this.entries = [];
    this.seen = 0; // elements
    this.chars = 0;
    this.limits = { chars, nodes, end: performance.now() + millis };
    this.stopped = false;
  }

  /** Counts one more element; false when the walk has to end. */
  goesOn() {
    this.seen += 1;
    if (
      this.seen > this.limits.nodes ||
      (this.seen % 128 === 0 && performance.now() > this.limits.end)
    )
      this.stopped = true;
    return !this.stopped;
  }

  /** Counts characters that are told; the walk ends when there is no room for more. */
  spend(chars) {
    this.chars += chars;
    if (this.chars > this.limits.chars) this.stopped = true;
  }
}

// --- places -------------------------------------------------------------------------------------
// A place is where a document lies in the page's viewport, and what of it can be seen there:
//   {x, y, left, top, right, bottom}

const wholeViewport = () => ({
  x: 0,
  y: 0,
  left: 0,
  top: 0,
  right: window.innerWidth,
  bottom: window.innerHeight,
});

/** The place of the document in a frame, given that of the document around it. */
function placeIn(frame, outer) {
  const rect = frame.getBoundingClientRect();
  const [x, y] = [outer.x + rect.x + frame.clientLeft, outer.y + rect.y + frame.clientTop];
  return {
    x,
    y,
    left: Math.max(outer.left, x),
    top: Math.max(outer.top, y),
    right: Math.min(outer.right, x + frame.clientWidth),
    bottom: Math.min(outer.bottom, y + frame.clientHeight),
  };
}

/** [x, y, width, height] of an element in the page's viewport. */
function boxAt(element, { x, y }) {
  const box = boxOf(element);
  return [x + box.x, y + box.y, box.width, box.height].map((v) => Math.round(v * 10) / 10);
}
