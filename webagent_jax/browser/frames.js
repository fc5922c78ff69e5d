// Frames of other origins are closed to the scripts around them. Such a frame is walked by scripts
// of its own; what it holds is put in where the walk around it left the frame's number.
"use strict";
const frameNumbers = new WeakMap(); // frame element -> number, in the observation under way

/** Whether the frame is closed. It keeps the number from now on; null: it is not to be walked. */
function numberFrame(frame, number) {
  if (frame.contentDocument) return false;
  frameNumbers.set(frame, number);
  return true;
}

/** What an entry says of a closed frame that is walked: {frame, place}; null for any other. */
function closedFrame(element, outer) {
  const numbers = element.ownerDocument.defaultView?.__webagent?.frameNumbers;
  const number = numbers?.get(element) ?? null;
  return number === null ? null : { frame: number, place: placeIn(element, outer) };
}

const holds = (id) => byId.has(Number(id));
const highestId = () => lastId;

/** A place to point at in a frame, as one of the document around it, scrolled into view there. */
function outward(frame, at) {
  const view = frame.ownerDocument.defaultView;
  const moved = () => {
    const rect = frame.getBoundingClientRect();
    return { x: rect.x + frame.clientLeft + at.x, y: rect.y + frame.clientTop + at.y };
  };
  let { x, y } = moved();
  if (x < 0 || y < 0 || x >= view.innerWidth || y >= view.innerHeight) {
    const [left, top] = [x - view.innerWidth / 2, y - view.innerHeight / 2];
    view.scrollBy({ left, top, behavior: "instant" });
    ({ x, y } = moved());
  }
  const hit = hitAt(frame, x, y);
  if (!hit) return { error: "the frame of the element is outside the visible part of the page" };
  if (hit !== frame) return { error: `the frame of the element is covered by ${describe(hit)}` };
  return { ...at, x, y };
}
