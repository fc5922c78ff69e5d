// Conversion of an element id to a point in the viewport that hits the element, and actions without
// a pointer. Every function returns {error}, a message for the agent, or its result.
"use strict";
const describe = (element) => {
  // The agent knows only listed elements, so the message names the nearest one around the element.
  let listedElement = element;
  while (listedElement && !ids.has(listedElement)) listedElement = listedElement.parentElement;
  const id = ids.get(listedElement);
  const words = firstOf(
    shorten(
      squeeze(element.getAttribute("aria-label") || element.innerText || element.textContent || ""),
    ),
    60,
  );
  const tag = `<${element.tagName.toLowerCase()}>`;
  return squeeze(`${id ? `element ${id}` : tag} ${words ? `"${words}"` : ""}`);
};

/** Returns the same-origin frames around an element, from the inside out. */
function framesAround(element) {
  const frame = element.ownerDocument.defaultView?.frameElement;
  return frame ? [frame, ...framesAround(frame)] : [];
}

/** Returns the element's box in the top viewport. */
const boxOf = (element) =>
  framesAround(element).reduce((rect, frame) => toParentRect(frame, rect), boundsOf(element));

const notOnPage = (id) => `element ${id} is not on the page any more`;

function find(id) {
  const number = Number(id);
  if (!byId.has(number)) return { error: `there is no element ${id}` };
  let element = byId.get(number).deref();
  if (!isLive(element)) element = replacementOf(number);
  return element ? { element } : { error: notOnPage(id) };
}

/** Returns the innermost element drawn at a point of the element's frame. */
function hitAt(element, x, y) {
  let hit =
    element.getRootNode().elementFromPoint?.(x, y) ?? element.ownerDocument.elementFromPoint(x, y);
  // elementFromPoint stops at a shadow host; continue inside until the hit contains the element.
  while (hit?.shadowRoot && !hit.contains(element)) {
    const innerHit = hit.shadowRoot.elementFromPoint(x, y);
    if (!innerHit || innerHit === hit) break;
    hit = innerHit;
  }
  return hit;
}

const isInside = (element, hit) => {
  for (let node = hit; node; node = renderedParent(node)) if (node === element) return true;
  return false;
};
/** Returns whether no other listed element is between `hit` and `element`. */
const isOwn = (element, hit) => {
  for (let node = hit; node && node !== element; node = renderedParent(node))
    if (ids.has(node)) return false;
  return true;
};
/** Returns whether `hit` belongs to the drawing over a transparent checkbox or radio button. */
function isDrawing(element, hit) {
  const box = element.parentElement;
  return (
    /^(checkbox|radio)$/.test(nativeKind(element)) &&
    getComputedStyle(element).opacity === "0" &&
    isInside(box, hit) &&
    isOwn(box, hit)
  );
}
/** Returns whether a box between the element and `outer`, which contains it, cuts off the point. */
function isCutOff(element, outer, { x, y }) {
  for (let box = scrollParent(element); box; box = scrollParent(box)) {
    if (box !== outer && isInside(box, outer)) return false;
    if (isClobbered(box)) continue;
    const { overflow, display } = getComputedStyle(box);
    if (overflow === "visible" || display === "inline") continue;
    const { left, top, right, bottom } = contentBox(box);
    if (x < left || x >= right || y < top || y >= bottom) return true;
  }
  return false;
}
const isTolerated = (element, { hit, ...point }) =>
  hit !== null &&
  ((isInside(hit, element) && !isCutOff(element, hit, point)) ||
    isDrawing(element, hit) ||
    Array.from(element.labels ?? []).some((label) => isInside(label, hit))) &&
  hit !== bodyOf(element.ownerDocument) &&
  hit !== element.ownerDocument.documentElement;

// Fractions of a box, the center first, because most elements are hit there.
const STEPS = [0.5, 0.25, 0.75, 0.1, 0.9, 0.02, 0.98];

/** Returns a point that hits the element: the center of a line box, otherwise any grid point. */
function hittingPoint(element) {
  const view = element.ownerDocument.defaultView;
  const isInViewport = (x, y) => x >= 0 && y >= 0 && x < view.innerWidth && y < view.innerHeight;
  const rects = tagOf(element) === "AREA" ? [areaRect(element)].filter(hasArea) : rectsOf(element);
  let coveredPoint = null;
  let sharedPoint = null; // point that hits a listed descendant of the element, such as a button
  // A link over several lines has a box per line; the number of hit tests is bounded.
  for (const rect of rects.slice(0, 8)) {
    for (const fy of STEPS) {
      for (const fx of STEPS) {
        const x = rect.x + rect.width * fx;
        const y = rect.y + rect.height * fy;
        if (!isInViewport(x, y)) continue;
        const hit = hitAt(element, x, y);
        if (hit && isInside(element, hit)) {
          if (isOwn(element, hit)) return { x, y };
          sharedPoint ??= { x, y };
        }
        coveredPoint ??= { x, y, hit };
      }
    }
  }
  // Without a point of its own: a point on listed content, then one that hits a parent or a label.
  if (sharedPoint) return sharedPoint;
  if (coveredPoint && isTolerated(element, coveredPoint)) return coveredPoint;
  return { hit: coveredPoint?.hit ?? null, none: true, isCovered: coveredPoint !== null };
}

/** Returns {x, y} in the top viewport, after scrolling the element into view if necessary. */
function locate(id) {
  const { element, error } = find(id);
  if (error) return { error };
  const target = tagOf(element) === "AREA" ? pictureOf(element) : element;
  if (!target || !isDrawn(target)) return { error: `element ${id} is hidden now` };
  if (isDisabled(element)) return { error: `element ${id} is disabled` };
  // The viewport of a frame may be outside that of the page, so elements in frames always scroll.
  const inFrame = element.ownerDocument !== document;
  let point = inFrame ? { none: true } : hittingPoint(element);
  if (point.none) {
    reveal(target, { rectOf: () => boundsOf(target) });
    point = hittingPoint(element);
  }
  if (point.none) {
    const attempt = () => {
      const forcedPoint = hittingPoint(element);
      return forcedPoint.none ? null : forcedPoint;
    };
    point = withForcedScroll(target, attempt) ?? point;
  }
  if (point.none && point.hit)
    return { error: `element ${id} is covered by ${describe(point.hit)}` };
  if (point.none) return { error: `element ${id} is outside the visible part of the page` };
  // The point is relative to the frame of the element, the result to the top viewport.
  let result = { x: point.x, y: point.y, tag: tagOf(element), type: element.type ?? "" };
  for (const frame of framesAround(element))
    if (!result.error) result = toParentCoordinates(frame, result);
  return result;
}

const DIRECT_VALUE_TYPES = new Set([
  "date",
  "time",
  "month",
  "week",
  "datetime-local",
  "color",
  "range",
]);

/** Focuses an element without the scrolling of the browser, which `reveal` replaces. */
function focusInView(element) {
  reveal(element, { onlyIfOutside: true });
  element.focus({ preventScroll: true });
}

/** Returns the focused element in the shadow root of an element, otherwise that of its document. */
const focusNear = (element) =>
  element.getRootNode().activeElement ?? element.ownerDocument.activeElement;

/**
 * Focuses an element; returns whether it takes the focus, or passes it on to another one. Behind a
 * modal dialog, or if a script keeps the focus elsewhere, keys would go to another field.
 */
function takesFocus(element) {
  const oldFocus = focusNear(element);
  focusInView(element);
  const focus = focusNear(element);
  if (element.contains(focus)) return true;
  return focus !== null && focus !== oldFocus && focus !== bodyOf(element.ownerDocument);
}

/** Returns the text field of an element: itself, or that of its code editor; null without one. */
function textFieldOf(element) {
  const kind = nativeKind(element) || ROLES[element.getAttribute("role")];
  // The arrow keys move the slider of a script.
  if (kind) return kind === "textbox" || nativeKind(element) === "slider" ? element : null;
  // A code editor draws the text beside its field, which is too small to be listed.
  const isOther = (inner) => inner !== element && ids.has(inner);
  const isBeside = (field, box) => {
    const [a, b] = [field, box].map((each) => each.getBoundingClientRect());
    return a.right >= b.left && a.left <= b.right && a.bottom >= b.top && a.top <= b.bottom;
  };
  for (let box = element; box && !Array.from(box.querySelectorAll("*")).some(isOther); ) {
    const field = box.querySelector("textarea, [contenteditable]");
    // A field elsewhere may copy text or detect bots.
    if (field) return isBeside(field, box) ? field : null;
    box = outerElement(box);
  }
  return null;
}

/**
 * Focuses a field and selects its content. Returns {done} if it could set the value directly,
 * otherwise {empty, isRich, isCode}: whether it is empty, a rich text editor, or a code editor,
 * which has its own selection.
 */
function prepareTyping(id, text) {
  const { element, error } = find(id);
  if (error) return { error };
  const field = textFieldOf(element);
  if (!field) return { error: `element ${id} is not a text field` };
  if (isDisabled(field)) return { error: `element ${id} is disabled` };
  if (field.readOnly) return { error: `element ${id} is read-only` };
  if (!element.checkVisibility({ visibilityProperty: true }))
    return { error: `element ${id} is hidden now` };
  if (!takesFocus(field)) {
    const other = ids.get(focusNear(field));
    const focus = other ? `: element ${other} has the focus` : "";
    return { error: `element ${id} takes no keys${focus}` };
  }
  if (DIRECT_VALUE_TYPES.has(field.type)) return setValue(field, id, text);
  const isCode = field !== element;
  // Typed text replaces a selection, so no key for deletion is needed. Prototype.js adds a method
  // `select` to all elements, also to those without a value.
  if (typeof field.value === "string" && field.select) field.select();
  else field.ownerDocument.getSelection().selectAllChildren(field);
  return { empty: !isCode && !textIn(field), isRich: typeof field.value !== "string", isCode };
}

/**
 * Restores the focus, with the caret after the text, if the page re-rendered the field because of
 * the typing. Otherwise the next key would go to the page, where it may be a shortcut. Returns
 * {isCleared}: whether the page re-rendered the field without its text.
 */
function resumeTyping(id) {
  let element = byId.get(Number(id))?.deref();
  const isReplaced = !isLive(element);
  if (isReplaced) element = replacementOf(Number(id), { isOwnChange: true });
  const focused = (element ?? document).getRootNode().activeElement;
  const isUnfocused = !focused || focused === bodyOf(focused.ownerDocument);
  // A page may move the focus to another field, or to a replacement that is not recognized.
  if (!element) return isUnfocused ? { error: notOnPage(id) } : { isCleared: false };
  if (isUnfocused) focusInView(element);
  else if (!isReplaced || focused !== element) return { isCleared: false };
  element.ownerDocument.getSelection().modify("move", "forward", "documentboundary");
  return { isCleared: isReplaced && !textIn(element) };
}

function setValue(element, id, text) {
  // The setter of the prototype bypasses one that a framework defines on the element.
  const oldValue = element.value;
  Object.getOwnPropertyDescriptor(HTMLInputElement.prototype, "value").set.call(
    element,
    text.trim(),
  );
  // The browser replaces an invalid value by an empty one, and that of a slider by a valid one.
  if (element.type !== "range" && element.value.toLowerCase() !== text.trim().toLowerCase()) {
    element.value = oldValue;
    const forms = {
      date: "2024-12-31",
      time: "17:30",
      month: "2024-12",
      week: "2024-W52",
      "datetime-local": "2024-12-31T17:30",
      color: "#ff8800",
    };
    return {
      error: `element ${id} takes a ${element.type} in the form ${forms[element.type]}, not "${text}"`,
    };
  }
  reportChange(element);
  return { done: true };
}

/** Dispatches the events of a changed value; as by the browser, only `input` leaves shadow roots. */
function reportChange(element) {
  element.dispatchEvent(new Event("input", { bubbles: true, composed: true }));
  element.dispatchEvent(new Event("change", { bubbles: true }));
}

function choose(id, optionText) {
  const { element, error } = find(id);
  if (error) return { error };
  if (tagOf(element) !== "SELECT") return { error: `element ${id} is not a dropdown` };
  if (isDisabled(element)) return { error: `element ${id} is disabled` };
  const visibleOptions = optionsOf(element);
  const enabledOptions = visibleOptions.filter((option) => !isDisabled(option));
  const options = [...enabledOptions, ...visibleOptions]; // an enabled one has priority
  const goal = squeeze(optionText).toLowerCase();
  const label = (option) => squeeze(option.label).toLowerCase();
  const option =
    // An exact label has priority, because it may be part of another label.
    options.find((o) => label(o) === goal) ??
    options.find((o) => optionName(o).toLowerCase() === goal) ??
    options.find((o) => goal && label(o).includes(goal));
  if (!option) {
    const names = shorten(enabledOptions.map((o) => squeeze(o.label)).join(", "));
    return { error: `element ${id} has no option "${optionText}"; it has: ${names}` };
  }
  if (isDisabled(option))
    return { error: `the option "${optionName(option)}" of element ${id} is disabled` };
  // A widget may draw a hidden dropdown, which cannot have the focus.
  if (!takesFocus(element) && element.checkVisibility({ visibilityProperty: true }))
    return { error: `element ${id} takes no keys` };
  option.selected = true;
  reportChange(element);
  return { done: true };
}

function focusOn(id) {
  const { element, error } = find(id);
  if (error) return { error };
  focusInView(element);
  const focusedElement = element.getRootNode().activeElement;
  if (!focusedElement || !element.contains(focusedElement))
    return { error: `element ${id} takes no keys` };
  return { done: true };
}
