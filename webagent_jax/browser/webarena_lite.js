// DOM traversal of the `webarena_lite` format: the viewport as nested tags in document order. Tags,
// attributes and ids follow VisualAgentBench line by line, because published policies were trained
// on its pages (docs/observations.md).
//   {text, tag}                             opening tag and its text: `<p title="x"> words`
//   {text, tag, id, kind, name, value, box} the same of an actionable element: `<a id="7"> words`
//   {close: true}                           end of the last open tag
"use strict";
const WORDS_LIMIT = 500; // characters of a text or an attribute
const REPORTED_ATTRIBUTES = [
  "title",
  "value",
  "type",
  "placeholder",
  "selected",
  "data-value",
  "data-text",
  "data-testid",
  "data-label",
  "data-bbox",
  "data-status",
];
const OMITTED_TAGS = new Set(["script", "style"]);
const CLICKABLE = [
  "input, textarea, select, button, a, iframe, video, object, embed, details, img[usemap]",
  "[contenteditable=''], [contenteditable=true i], [contenteditable=contenteditable i]",
  ...["button", "tab", "link", "checkbox", "radio", "menuitem", "menuitemcheckbox"].map(
    (role) => `[role=${role} i]`,
  ),
  "[role=menuitemradio i], [class*=button i]",
].join(", ");

// --- the words of one element -------------------------------------------------------------------

/** Replaces runs of white space, except no-break spaces, by one space; limits the length. */
function plain(text) {
  const flat = text.replace(/[^\S\u00a0]+/g, " ").trim();
  return flat.length > WORDS_LIMIT ? [...flat].slice(0, WORDS_LIMIT).join("") : flat;
}

/** Returns the text before the first child element; data-text contains the later text. */
function leadingText(nodes) {
  let text = "";
  for (const node of nodes) {
    if (node.nodeType === Node.TEXT_NODE) text += node.data;
    else if (node.nodeType === Node.ELEMENT_NODE && !OMITTED_TAGS.has(node.localName)) break;
  }
  return plain(text);
}

const ownTexts = (element) =>
  Array.from(element.childNodes)
    .filter((node) => node.nodeType === Node.TEXT_NODE)
    .map((node) => node.data.trim().replace(/\s{2,}/g, " "))
    .filter(Boolean)
    .join(",");

/** Returns the state that is not in attributes, by attribute name. */
function stateAttributes(element) {
  const texts = element.hasChildNodes() ? { "data-text": ownTexts(element) } : {};
  switch (element.localName) {
    case "select":
      return {
        "data-value": element.value,
        "data-text": element.options[element.selectedIndex]?.text ?? "",
      };
    case "option": {
      const list = element.closest("select");
      const chosen = list?.options[list.selectedIndex] === element;
      return chosen ? { ...texts, "data-status": "selected" } : texts;
    }
    case "textarea":
      return { ...texts, "data-value": element.value };
    case "input":
      if (element.getAttribute("type") !== "checkbox") return { "data-value": element.value };
      return {
        "data-value": element.value,
        "data-status": element.checked ? "checked" : "not-checked",
      };
  }
  return texts;
}

/** Returns [name, value] of each reported attribute that is not empty; data-bbox is `box`. */
function attributesOf(element, box) {
  const state = { ...stateAttributes(element), "data-bbox": "" };
  if (box) {
    const [width, height] = [box.right - box.left, box.bottom - box.top];
    state["data-bbox"] = `${box.left},${box.top},${width},${height}`;
  }
  if (element.getAttribute("type") === "hidden") state.type = "";
  return REPORTED_ATTRIBUTES.map((name) => [
    name,
    plain(state[name] ?? element.getAttribute(name) ?? ""),
  ]).filter(([, value]) => value);
}

/** Returns `<tag id="7" title="x"> words` without repeated values. */
function openingTag(tag, id, attributes, text) {
  const values = new Map();
  for (const [name, value] of attributes) if (!values.has(value)) values.set(value, name);
  const words = [`<${tag}`];
  if (id) words.push(`id="${id}"`);
  for (const [value, name] of values) words.push(`${name}="${value}"`);
  return `${words.join(" ")}>${text && " "}${text}`;
}

// --- visible and clickable elements -------------------------------------------------------------

/** Returns the first box of the element in whole pixels of the viewport; null without one. */
function firstBox(element, place) {
  const [rect] = element.getClientRects();
  if (!rect) return null;
  const [left, top] = [Math.round(place.x + rect.left), Math.round(place.y + rect.top)];
  const [right, bottom] = [Math.round(place.x + rect.right), Math.round(place.y + rect.bottom)];
  return { left, top, right, bottom };
}

/** Returns whether the element has a box in the viewport, even if styles make it invisible. */
const isVisible = (element, box, place) =>
  box !== null &&
  element.getAttribute("aria-hidden") !== "true" &&
  box.right >= place.left &&
  box.left <= place.right &&
  box.bottom >= place.top &&
  box.top <= place.bottom;

const isClickable = (element) =>
  element.onclick != null ||
  element.matches(CLICKABLE) ||
  parseInt(element.getAttribute("tabindex"), 10) >= 0 ||
  (element.localName === "label" && element.control !== null && !element.control.disabled) ||
  (element.localName === "img" && /^zoom-(in|out)$/.test(element.style.cursor)) ||
  getComputedStyle(element).cursor === "pointer";

/** Returns whether the centers of its boxes hit the element, with at least one pixel in view. */
function isOnTop(element) {
  const { innerWidth, innerHeight } = element.ownerDocument.defaultView;
  let area = 0;
  for (const { x, y, left, top, right, bottom, width, height } of element.getClientRects()) {
    const hit = hitAt(element, x + width / 2, y + height / 2);
    if (!hit || !inside(element, hit)) continue;
    const [across, down] = [
      Math.min(right, innerWidth) - Math.max(left, 0),
      Math.min(bottom, innerHeight) - Math.max(top, 0),
    ];
    area += across * down;
  }
  return area >= 1;
}

/** Returns the entry data of an actionable element, in the words of both formats. */
function action(element, place) {
  const style = getComputedStyle(element);
  const kind = kindOf(element, style, "")[0] || "item";
  const isField = nativeKind(element) && FIELDS.has(kind);
  const nameAttributes = ["value", "title", "placeholder", "alt"].slice(kind === "button" ? 0 : 1);
  const name =
    ariaName(element) ||
    labelName(element) ||
    (!isField && textOf(element)) ||
    squeeze(nameAttributes.map((key) => element.getAttribute(key)).find(Boolean) ?? "") ||
    hint(element, style);
  const id = String(idOf(element));
  const { value = "" } = stateOf(element, kind);
  return { id, kind, name: shorten(name), value, box: boxAt(element, place) };
}

// --- traversal ----------------------------------------------------------------------------------

class WebArenaLiteWalk extends Walk {
  constructor(limits) {
    super(limits);
    this.boxes = limits.boxes;
    this.place = limits.place ?? wholeViewport();
  }

  /** Returns all entries. */
  collectEntries() {
    const root = document.documentElement;
    if (root) this.element(root, { depth: 0, place: this.place, options: false });
    return this.entries.filter((entry) => entry.text || entry.close);
  }

  /**
   * Adds the entries of an element and its content. Returns {speaks, clickable}: whether any of
   * them has words, visible or not, and whether any of them is clickable.
   */
  element(element, { depth, place, options }) {
    if (OMITTED_TAGS.has(element.localName) || depth > DEPTH_LIMIT || !this.countElement())
      return { speaks: false, clickable: false };
    if (isClobbered(element)) return this.fieldsOf(element, { depth: depth + 1, place, options });
    const tag = element.localName.toLowerCase();
    const root = element.contentDocument?.documentElement;
    const nodes = root ? [root] : nodesIn(element);
    const box = firstBox(element, place);
    const attributes = attributesOf(element, this.boxes ? box : null);
    const text = leadingText(nodes);
    const closed = closedFrame(element, place);
    const own = {
      visible: isVisible(element, box, place),
      speaks: Boolean(text) || attributes.some(([name]) => name !== "data-bbox"),
      // Only the content of a cross-origin frame is clickable. An <embed> is an exception, because
      // no script can access its document, not even to test whether it is an image.
      clickable: (!closed || tag === "embed") && isClickable(element) && isOnTop(element),
    };
    const opening = { ...closed };
    this.entries.push(opening);
    const inner = this.children(nodes, {
      depth: depth + 1,
      place: root ? placeIn(element, place) : place,
      options: tag === "select" && (own.visible || own.clickable),
    });
    const leaf = own.clickable && !inner.clickable;
    const isListed = own.visible || leaf || (tag === "option" && options);
    if (isListed && (own.speaks || inner.speaking > 1 || (own.visible && (leaf || closed)))) {
      if (leaf) Object.assign(opening, action(element, this.place));
      opening.tag = tag;
      opening.text = openingTag(tag, opening.id, attributes, text);
      this.entries.push({ close: true });
      this.spend(opening.text.length + tag.length + 5);
    }
    return {
      speaks: own.speaks || inner.speaking > 0,
      clickable: own.clickable || inner.clickable,
    };
  }

  /** Visits a form whose fields hide its properties: only its children are accessible. */
  fieldsOf(form, context) {
    const { speaking, clickable } = this.children(childNodesOf.call(form), context);
    return { speaks: speaking > 0, clickable };
  }

  /** Returns the number of nodes with words, and whether any of their content is clickable. */
  children(nodes, context) {
    let speaking = 0;
    let clickable = false;
    for (const node of nodes) {
      if (node.nodeType !== Node.ELEMENT_NODE) continue;
      const inner = this.element(node, context);
      speaking += inner.speaks ? 1 : 0;
      clickable ||= inner.clickable;
    }
    return { speaking, clickable };
  }
}
