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
  const rectOf = () => toParentRect(frame, point);
  const hit = () => hitAt(frame, rectOf().x, rectOf().y);
  const attempt = () => (hit() === frame ? rectOf() : null);
  let rect = attempt();
  if (!rect) {
    reveal(frame, { rectOf });
    rect = attempt() ?? withForcedScroll(frame, attempt);
  }
  if (rect) return { ...point, x: rect.x, y: rect.y };
  if (hit()) return { error: `the frame of the element is covered by ${describe(hit())}` };
  return { error: "the frame of the element is outside the visible part of the page" };
}
