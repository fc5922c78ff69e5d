// What is visible: hidden elements, elements that no scrolling shows, controls shown on hover.
"use strict";
// Getters of the prototypes, because fields of a form may hide its properties (isClobbered).
const getter = (prototype, name) => Object.getOwnPropertyDescriptor(prototype, name).get;
const childNodesOf = getter(Node.prototype, "childNodes");
const parentOf = getter(Node.prototype, "parentNode");
const slotOf = getter(Element.prototype, "assignedSlot");
const offsetParentOf = getter(HTMLElement.prototype, "offsetParent");
const fieldsIn = getter(HTMLFormElement.prototype, "elements");
const typeOf = getter(Node.prototype, "nodeType");
// Frames and forms named "body" or "title" hide the properties of their document.
const bodyGetter = getter(Document.prototype, "body");
const titleGetter = getter(Document.prototype, "title");
const bodyOf = (page) => bodyGetter.call(page);
const titleOf = (page) => titleGetter.call(page);

/** Returns the parent element, that of a shadow root for its children; null at the top. */
function outerElement(element) {
  const parent = parentOf.call(element);
  switch (parent && typeOf.call(parent)) {
    case Node.ELEMENT_NODE:
      return parent;
    case Node.DOCUMENT_FRAGMENT_NODE:
      return parent.host ?? null;
  }
  return null;
}

/** Returns the element that contains the box of another one: its slot, or its outer element. */
const renderedParent = (element) => slotOf.call(element) ?? outerElement(element);

const REQUIRED_PROPERTIES = new Set(
  (
    "tagName localName hidden style onclick tabIndex ownerDocument ownerSVGElement parentElement " +
    "parentNode firstChild childNodes children shadowRoot getAttribute hasAttribute matches " +
    "closest contains querySelector getBoundingClientRect getClientRects checkVisibility " +
    "hasChildNodes isContentEditable scrollWidth scrollHeight scrollLeft scrollTop clientWidth " +
    "clientHeight clientLeft clientTop scrollBy scrollTo"
  ).split(" "),
);

/** Returns whether fields of a form hide its properties, as <input name=tagName> does. */
const isClobbered = (node) =>
  node instanceof HTMLFormElement &&
  Array.from(fieldsIn.call(node)).some(
    ({ name, id }) => REQUIRED_PROPERTIES.has(name) || REQUIRED_PROPERTIES.has(id),
  );

const hasArea = ({ width, height }) => width * height > 0;

/** Returns a range over the content of an element. */
function contentRange(element) {
  const range = element.ownerDocument.createRange();
  range.selectNodeContents(element);
  return range;
}

/**
 * Returns the boxes of an element, one per line. If it has none of its own, returns those of its
 * content: the content floats or is positioned, or the element has `display: contents`.
 */
function rectsOf(element) {
  const rects = Array.from(element.getClientRects()).filter(hasArea);
  if (rects.length > 0) return rects;
  return Array.from(contentRange(element).getClientRects()).filter(hasArea);
}

/** Returns the box around `rectsOf`. */
function boundsOf(element) {
  const rect = element.getBoundingClientRect();
  if (hasArea(rect)) return rect;
  const contentRect = contentRange(element).getBoundingClientRect();
  return hasArea(contentRect) ? contentRect : rect;
}

/** Returns the nearest box that moves the element when it scrolls; null for a fixed element. */
function scrollParent(element) {
  const { position } = getComputedStyle(element);
  if (position === "fixed") return null;
  // An absolute position is relative to the nearest ancestor with a position.
  if (position === "absolute")
    return "offsetParent" in element ? offsetParentOf.call(element) : null;
  return renderedParent(element);
}

/**
 * Returns the smallest scroll offsets {left, top} of a box: 0, or negative if its content starts at
 * the right or at the bottom.
 */
function minScrollOffsets(box) {
  const { direction, display, flexDirection } = getComputedStyle(box);
  const isReversed = (axis) => display.includes("flex") && flexDirection === `${axis}-reverse`;
  const startsRight = (direction === "rtl") !== isReversed("row");
  return {
    left: startsRight ? Math.min(box.clientWidth - box.scrollWidth, 0) : 0,
    top: isReversed("column") ? Math.min(box.clientHeight - box.scrollHeight, 0) : 0,
  };
}

/** Returns whether no scrolling, of the page or of a box in it, can bring the element into view. */
function isOutOfReach(element, rect) {
  const { defaultView: view, documentElement, scrollingElement: page } = element.ownerDocument;
  if (rect.width * rect.height === 0 || !view) return false;
  let [right, bottom] = [rect.right + view.scrollX, rect.bottom + view.scrollY];
  // Elements in view need no look at the boxes around them.
  if (page && (right <= 0 || bottom <= 0)) {
    const { left, top } = minScrollOffsets(page);
    right -= left;
    bottom -= top;
  }
  for (let box = element; right <= 0 || bottom <= 0; ) {
    box = scrollParent(box);
    if (!box || box === documentElement) return true;
    if (box === page) continue; // the offsets of the view contain it
    if (isClobbered(box)) continue;
    const { left, top } = minScrollOffsets(box);
    right += box.scrollLeft - left;
    bottom += box.scrollTop - top;
  }
  return false;
}

const INLINE = new Set([
  "inline",
  "inline-block",
  "inline-flex",
  "inline-grid",
  "inline-table",
  "contents",
  "ruby",
]);

const hoverRules = new WeakMap(); // style sheet -> {numRules, selectors}

/** Returns the selectors, without :hover, by which a style sheet makes elements opaque. */
function hoverSelectors(sheet) {
  const selectors = [];
  const collect = (rules) => {
    for (const rule of rules) {
      if (rule.selectorText?.includes(":hover") && parseFloat(rule.style.opacity) > 0)
        selectors.push(rule.selectorText.replaceAll(":hover", ":is(*)"));
      try {
        collect(rule.cssRules ?? rule.styleSheet?.cssRules ?? []);
      } catch {
        continue; // scripts cannot read an imported sheet of another origin
      }
    }
  };
  try {
    // The rules of large sheets take milliseconds, so they are read again only if some were added.
    const numRules = sheet.cssRules.length;
    if (hoverRules.get(sheet)?.numRules !== numRules) {
      collect(sheet.cssRules);
      hoverRules.set(sheet, { numRules, selectors });
    }
  } catch {
    return []; // scripts cannot read a sheet of another origin
  }
  return hoverRules.get(sheet).selectors;
}

const HOVER_CONTROLS = `a, summary, [role], [tabindex], [onclick], ${CONTROLS}`;

/** Returns whether a transparent element has controls and becomes opaque under the pointer. */
function isShownOnHover(element, style) {
  if (style.pointerEvents === "none") return false; // the pointer may not reach it
  if (!element.matches(HOVER_CONTROLS) && !element.querySelector(HOVER_CONTROLS)) return false;
  const { styleSheets, adoptedStyleSheets } = element.getRootNode();
  // Array.from also takes what is no list: an element of that name.
  const sheets = [styleSheets, adoptedStyleSheets].flatMap((list) => Array.from(list ?? []));
  const selectors = sheets.flatMap(hoverSelectors);
  // Inside :is(), a selector that is invalid on its own does not invalidate the others.
  return selectors.length > 0 && element.matches(`:is(${selectors.join()})`);
}

/**
 * Returns whether the element is a transparent checkbox or radio button over its drawing. With a
 * label, the label is listed instead.
 */
const isOverDrawing = (element, style, rect) =>
  tagOf(element) === "INPUT" &&
  /^(checkbox|radio)$/.test(element.type) &&
  element.labels.length === 0 &&
  style.pointerEvents !== "none" &&
  Math.min(rect.width, rect.height) > 1;

/** Returns whether the element is drawn; one with `display: contents` has only content to draw. */
const isDrawn = (element) =>
  getComputedStyle(element).display === "contents"
    ? rectsOf(element).length > 0
    : element.checkVisibility({ visibilityProperty: true });

/** Returns whether the element and all its content are hidden. */
function isHidden(element, style, rect) {
  // A style may display an element with the attribute `hidden`; `hidden=until-found` is not none.
  if (style.display === "none" || style.contentVisibility === "hidden") return true;
  if (
    style.opacity === "0" &&
    !isOverDrawing(element, style, rect) &&
    !isShownOnHover(element, style)
  )
    return true;
  // Mouse-only controls, such as the arrows of a spinner, are hidden from screen readers.
  const isControl = nativeKind(element) || ROLES[element.getAttribute("role")];
  if (element.getAttribute("aria-hidden") === "true" && !isControl) return true;
  return isOutsideViewport(element, style, rect) || isOutOfReach(element, rect);
}

/** Returns whether the element is fixed to the right of the viewport or below it. */
function isOutsideViewport(element, style, rect) {
  if (style.position !== "fixed" || !hasArea(rect) || !("offsetParent" in element)) return false;
  // A transformed box around the element, which can scroll into view, is its offsetParent.
  if (offsetParentOf.call(element)) return false;
  const { clientWidth, clientHeight } = element.ownerDocument.documentElement;
  return rect.left >= clientWidth || rect.top >= clientHeight;
}

/** Returns whether the box of the element has no area and cuts off its content. */
function cutsOffContent(element, style, rect) {
  const isTiny = rect.width * rect.height === 0 || (rect.width <= 1 && rect.height <= 1);
  if (!isTiny || style.overflow === "visible" || style.display === "contents") return false;
  // The viewport takes over the overflow of the body if that of the root element is visible.
  const { documentElement: root } = element.ownerDocument;
  const isBody = element === bodyOf(element.ownerDocument);
  return !isBody || getComputedStyle(root).overflow !== "visible";
}

/**
 * Returns the outermost visible elements in a box whose position is relative to the viewport or to
 * a box around it, so that it does not cut them off.
 */
function positionedOutside(box) {
  const body = bodyOf(box.ownerDocument);
  const found = [];
  for (const element of box.querySelectorAll("*")) {
    if (isClobbered(element) || found.at(-1)?.contains(element)) continue;
    if (!("offsetParent" in element)) continue; // only HTML elements have a position
    if (!/fixed|absolute/.test(getComputedStyle(element).position)) continue;
    let outer = offsetParentOf.call(element);
    // The body stands for the viewport, unless it has a position itself.
    if (outer === body && getComputedStyle(body).position === "static") outer = null;
    if (box.contains(outer) || !element.checkVisibility({ opacityProperty: true })) continue;
    if (!element.closest("[aria-hidden=true]")) found.push(element);
  }
  return found;
}

/** Returns whether the element has a box to click, or is a link around a floated image. */
function hasBox(element, style, rect) {
  if (hasArea(rect) || style.display === "contents") return true;
  return element.firstElementChild !== null && ["A", "BUTTON"].includes(tagOf(element));
}

const isOnlyControl = (element) =>
  element.parentElement !== bodyOf(element.ownerDocument) &&
  element.parentElement?.querySelectorAll(CONTROLS).length === 1;
