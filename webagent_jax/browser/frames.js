// Scripts cannot access cross-origin frames around or inside their document. The scripts in such a
// frame traverse it, and its entries are inserted where the parent document has the frame's number.
"use strict";
const frameNumbers = new WeakMap(); // frame element -> number, in the current observation

/** Stores the number of a cross-origin frame, null to skip it; returns whether it is one. */
function numberFrame(frame, number) {
  if (frame.contentDocument) return false;
  frameNumbers.set(frame, number);
  return true;
}

/** Returns the entry data {frame, frameBox} of a numbered cross-origin frame; otherwise null. */
function crossOriginFrame(element, outer) {
  const numbers = element.ownerDocument.defaultView?.__webagent?.frameNumbers;
  const number = numbers?.get(element) ?? null;
  return number === null ? null : { frame: number, frameBox: frameBoxOf(element, outer) };
}

const hasElement = (id) => byId.has(Number(id));
const highestId = () => lastId;

/** Converts a point in a frame to parent coordinates, after scrolling it into view there. */
function toParentCoordinates(frame, point) {
  const view = frame.ownerDocument.defaultView;
  const convert = () => {
    const rect = frame.getBoundingClientRect();
    return { x: rect.x + frame.clientLeft + point.x, y: rect.y + frame.clientTop + point.y };
  };
  let { x, y } = convert();
  if (x < 0 || y < 0 || x >= view.innerWidth || y >= view.innerHeight) {
    const [left, top] = [x - view.innerWidth / 2, y - view.innerHeight / 2];
    view.scrollBy({ left, top, behavior: "instant" });
    ({ x, y } = convert());
  }
  const hit = hitAt(frame, x, y);
  if (!hit) return { error: "the frame of the element is outside the visible part of the page" };
  if (hit !== frame) return { error: `the frame of the element is covered by ${describe(hit)}` };
  return { ...point, x, y };
}
