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
function normalizeText(text) {
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
  return normalizeText(text);
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
      const isSelected = list?.options[list.selectedIndex] === element;
      return isSelected ? { ...texts, "data-status": "selected" } : texts;
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
    normalizeText(state[name] ?? element.getAttribute(name) ?? ""),
  ]).filter(([, value]) => value);
}

/** Returns `<tag id="7" title="x"> words` without repeated values. */
function openingTag(tag, id, attributes, text) {
  const values = new Map();
  // The first attribute with a value keeps it; later ones with the same value are left out.
  for (const [name, value] of attributes) if (!values.has(value)) values.set(value, name);
  const words = [`<${tag}`];
  if (id) words.push(`id="${id}"`);
  for (const [value, name] of values) words.push(`${name}="${value}"`);
  return `${words.join(" ")}>${text && " "}${text}`;
}

// --- visible and clickable elements -------------------------------------------------------------

/** Returns the first box of the element in whole pixels of the viewport; null without one. */
function firstBox(element, frameBox) {
  const [rect] = element.getClientRects();
  if (!rect) return null;
  const [left, top] = [Math.round(frameBox.x + rect.left), Math.round(frameBox.y + rect.top)];
  const [right, bottom] = [
    Math.round(frameBox.x + rect.right),
    Math.round(frameBox.y + rect.bottom),
  ];
  return { left, top, right, bottom };
}

/** Returns whether the element has a box in the viewport, even if styles make it invisible. */
const isVisible = (element, box, frameBox) =>
  box !== null &&
  element.getAttribute("aria-hidden") !== "true" &&
  box.right >= frameBox.left &&
  box.left <= frameBox.right &&
  box.bottom >= frameBox.top &&
  box.top <= frameBox.bottom;

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
    if (!hit || !isInside(element, hit)) continue;
    const [visibleWidth, visibleHeight] = [
      Math.min(right, innerWidth) - Math.max(left, 0),
      Math.min(bottom, innerHeight) - Math.max(top, 0),
    ];
    area += visibleWidth * visibleHeight;
  }
  return area >= 1;
}

/** Returns the entry data of an actionable element but its id, in the words of both formats. */
function action(element, frameBox) {
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
  const { value = "" } = stateOf(element, kind);
  return { element, kind, name: shorten(name), value, box: boxAt(element, frameBox) };
}

// --- traversal ----------------------------------------------------------------------------------

class WebArenaLiteWalk extends Walk {
  constructor(limits) {
    super(limits);
    this.boxes = limits.boxes;
    this.numNew = 0; // actionable elements without an id
    this.frameBox = limits.frameBox ?? wholeViewport();
  }

  /** Returns all entries. */
  collectEntries() {
    const root = document.documentElement;
    if (root) this.element(root, { depth: 0, frameBox: this.frameBox, options: false });
    assignIds(this.entries.filter(({ element }) => element));
    return this.entries
      .filter((entry) => entry.text || entry.close)
      .map((entry) => (entry.element ? this.withId(entry) : entry));
  }

  /** Returns the entry of an actionable element with its id. */
  withId({ element, attributes, words, ...entry }) {
    const id = String(ids.get(element));
    return { ...entry, id, text: openingTag(entry.tag, id, attributes, words) };
  }

  /**
   * Adds the entries of an element and its content. Returns {hasText, isClickable}: whether any of
   * them has words, visible or not, and whether any of them is clickable.
   */
  element(element, { depth, frameBox, options }) {
    if (OMITTED_TAGS.has(element.localName) || depth > DEPTH_LIMIT || !this.countElement())
      return { hasText: false, isClickable: false };
    if (isClobbered(element))
      return this.fieldsOf(element, { depth: depth + 1, frameBox, options });
    const tag = element.localName.toLowerCase();
    const root = element.contentDocument?.documentElement;
    const nodes = root ? [root] : nodesIn(element);
    const box = firstBox(element, frameBox);
    const attributes = attributesOf(element, this.boxes ? box : null);
    const text = leadingText(nodes);
    const crossOrigin = crossOriginFrame(element, frameBox);
    const own = {
      isVisible: isVisible(element, box, frameBox),
      hasText: Boolean(text) || attributes.some(([name]) => name !== "data-bbox"),
      // Only the content of a cross-origin frame is clickable. An <embed> is an exception, because
      // no script can access its document, not even to test whether it is an image.
      isClickable: (!crossOrigin || tag === "embed") && isClickable(element) && isOnTop(element),
    };
    // Pushed before its content but filled in after it, because the content decides about the tag.
    const opening = { ...crossOrigin };
    this.entries.push(opening);
    const inner = this.children(nodes, {
      depth: depth + 1,
      frameBox: root ? frameBoxOf(element, frameBox) : frameBox,
      options: tag === "select" && (own.isVisible || own.isClickable),
    });
    // Only the innermost clickable element has an id.
    const isLeaf = own.isClickable && !inner.isClickable;
    const isListed = own.isVisible || isLeaf || (tag === "option" && options);
    if (
      isListed &&
      (own.hasText || inner.numWithText > 1 || (own.isVisible && (isLeaf || crossOrigin)))
    ) {
      if (isLeaf)
        Object.assign(opening, action(element, this.frameBox), { attributes, words: text });
      // The id that the element gets unless it takes one over.
      const id = isLeaf && (ids.get(element) ?? lastId + (this.numNew += 1));
      opening.tag = tag;
      opening.text = openingTag(tag, id, attributes, text);
      this.entries.push({ close: true });
      this.countChars(opening.text.length + tag.length + 5);
    }
    return {
      hasText: own.hasText || inner.numWithText > 0,
      isClickable: own.isClickable || inner.isClickable,
    };
  }

  /** Visits a form whose fields hide its properties: only its children are accessible. */
  fieldsOf(form, context) {
    const { numWithText, isClickable } = this.children(childNodesOf.call(form), context);
    return { hasText: numWithText > 0, isClickable };
  }

  /** Returns the number of nodes with words, and whether any of their content is clickable. */
  children(nodes, context) {
    let numWithText = 0;
    let isClickable = false;
    for (const node of nodes) {
      if (node.nodeType !== Node.ELEMENT_NODE) continue;
      const inner = this.element(node, context);
      numWithText += inner.hasText ? 1 : 0;
      isClickable ||= inner.isClickable;
    }
    return { numWithText, isClickable };
  }
}
