// Scrolling: to show an element, and as an action.
"use strict";
// Stored because Prototype.js replaces it.
const { scrollTo: scrollBoxTo } = Element.prototype;

/** Returns whether a user can scroll the box along an axis, "X" or "Y". */
function canScroll(box, axis) {
  if (isClobbered(box)) return false;
  const isX = axis === "X";
  const hidden = isX ? box.scrollWidth - box.clientWidth : box.scrollHeight - box.clientHeight;
  if (hidden <= 1) return false;
  const overflow = (element) => getComputedStyle(element)[`overflow${axis}`];
  const { documentElement: root, scrollingElement: page } = box.ownerDocument;
  const body = bodyOf(box.ownerDocument);
  if (box !== page) return /auto|scroll/.test(overflow(box));
  // The viewport has the overflow of the root element, or that of the body if that is visible.
  return !/hidden|clip/.test(overflow(overflow(root) === "visible" && body ? body : root));
}

/** Returns the box of an element without its borders and scroll bars. */
function contentBox(element) {
  const { x, y } = element.getBoundingClientRect();
  const { clientLeft, clientTop, clientWidth, clientHeight } = element;
  return new DOMRect(x + clientLeft, y + clientTop, clientWidth, clientHeight);
}

/** Returns the box of the document in a frame, relative to the frame without its CSS transforms. */
function documentBox(frame) {
  const { clientLeft, clientTop, clientWidth, clientHeight } = frame;
  const style = getComputedStyle(frame);
  const [left, top, right, bottom] = ["Left", "Top", "Right", "Bottom"].map((side) =>
    parseFloat(style[`padding${side}`]),
  );
  const [width, height] = [clientWidth - left - right, clientHeight - top - bottom];
  return new DOMRect(clientLeft + left, clientTop + top, width, height);
}

/** Converts a box or a point in a frame to the coordinates of its parent document. */
function toParentRect(frame, { x, y, width = 0, height = 0 }) {
  const outer = frame.getBoundingClientRect();
  const inner = documentBox(frame);
  // CSS transforms may scale the frame. Its offset size is rounded, which is no scaling.
  const scale = (size, offsetSize) => (Math.abs(size - offsetSize) > 1 ? size / offsetSize : 1);
  const scaleX = scale(outer.width, frame.offsetWidth);
  const scaleY = scale(outer.height, frame.offsetHeight);
  return new DOMRect(
    outer.x + scaleX * (inner.x + x),
    outer.y + scaleY * (inner.y + y),
    scaleX * width,
    scaleY * height,
  );
}

/**
 * Scrolls the boxes around an element until it is in their centers, those outside its frame too.
 * Boxes that a user cannot scroll stay as they are, unlike with `scrollIntoView`: the agent could
 * not scroll them back. With `onlyIfOutside`, so do boxes that show all of the element. `rectOf`
 * returns the box of the part of the element to show.
 */
function reveal(
  element,
  { onlyIfOutside = false, rectOf = () => element.getBoundingClientRect() } = {},
) {
  const { defaultView: view, documentElement: root, scrollingElement } = element.ownerDocument;
  const page = scrollingElement ?? root;
  // A fixed element does not move with the page: the last box is null.
  for (let box = scrollParent(element); box; box = box === page ? null : scrollParent(box)) {
    if (box === root) box = page;
    const [scrollsX, scrollsY] = [canScroll(box, "X"), canScroll(box, "Y")];
    if (!scrollsX && !scrollsY) continue;
    const area =
      box === page ? new DOMRect(0, 0, view.innerWidth, view.innerHeight) : contentBox(box);
    const rect = rectOf();
    const isInside =
      rect.left >= area.left &&
      rect.top >= area.top &&
      rect.right <= area.right &&
      rect.bottom <= area.bottom;
    if (onlyIfOutside && isInside) continue;
    box.scrollBy({
      left: scrollsX ? rect.x + rect.width / 2 - (area.x + area.width / 2) : 0,
      top: scrollsY ? rect.y + rect.height / 2 - (area.y + area.height / 2) : 0,
      behavior: "instant",
    });
  }
  const frame = view.frameElement;
  if (frame) reveal(frame, { onlyIfOutside, rectOf: () => toParentRect(frame, rectOf()) });
}

/**
 * Scrolls boxes that only scripts scroll, as a page with its own scroll bars does, and returns what
 * `attempt` returns then. If that is null, scrolls them back.
 */
function withForcedScroll(element, attempt) {
  const offsets = [];
  for (let box = outerElement(element); box; box = outerElement(box))
    if (!isClobbered(box)) offsets.push([box, box.scrollLeft, box.scrollTop]);
  element.scrollIntoView({ block: "nearest", inline: "nearest", behavior: "instant" });
  const result = attempt();
  if (result === null)
    for (const [box, left, top] of offsets)
      scrollBoxTo.call(box, { left, top, behavior: "instant" });
  return result;
}

/** Returns the elements below the body of a document, those of shadow roots and frames too. */
function elementsIn(root) {
  return Array.from(root.querySelectorAll("*")).flatMap((element) => {
    const inner = [element.shadowRoot, element.contentDocument].filter(Boolean);
    return [element, ...inner.flatMap(elementsIn)];
  });
}

/**
 * Scrolls by 2/3 of the height: the box around the element, otherwise the page, otherwise the
 * largest box that can scroll.
 */
function scroll(id, direction) {
  // What a script or `withForcedScroll` has scrolled down can be scrolled up, even if no user can.
  const scrolls = (box) => canScroll(box, "Y") || (direction < 0 && box.scrollTop > 0);
  const page = document.scrollingElement ?? document.documentElement;
  let box = page;
  if (id !== null) {
    const { element, error } = find(id);
    if (error) return { error };
    box = element;
    while (box && !scrolls(box))
      box = renderedParent(box) ?? box.ownerDocument.defaultView?.frameElement;
    box ??= page;
  } else if (!scrolls(page)) {
    const area = (e) => e.clientWidth * e.clientHeight;
    // The limit bounds the number of computed styles on a large page.
    const boxes = elementsIn(document).slice(0, 5000).filter(scrolls);
    box = boxes.reduce((best, e) => (area(e) > area(best) ? e : best), boxes[0] ?? page);
  }
  const oldScrollTop = box.scrollTop;
  const height = box === page ? window.innerHeight : box.clientHeight;
  if (scrolls(box)) box.scrollBy({ top: (direction * height * 2) / 3, behavior: "instant" });
  if (box.scrollTop === oldScrollTop)
    return { error: `the page does not scroll further ${direction > 0 ? "down" : "up"}` };
  return { done: true };
}
