// The walk of the `webarena_lite` format: what lies in the viewport, as nested tags in document
// order. Which tags and attributes are told, and who gets an id, is as in VisualAgentBench, line by
// line: published policies were trained on its pages (docs/observation.md).
//   {text, tag}                             a tag opens: `<p title="x"> words`, the words with it
//   {text, tag, id, kind, name, value, box} one to act on: `<a id="7"> words`
//   {close: true}                           the last open tag closes
"use strict";
const WORDS_LIMIT = 500; // characters of a text or an attribute
const KEPT = [
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
const UNTOLD = new Set(["script", "style"]);
const CLICKABLE = [
  "input, textarea, select, button, a, iframe, video, object, embed, details, img[usemap]",
  "[contenteditable=''], [contenteditable=true i], [contenteditable=contenteditable i]",
  ...["button", "tab", "link", "checkbox", "radio", "menuitem", "menuitemcheckbox"].map(
    (role) => `[role=${role} i]`,
  ),
  "[role=menuitemradio i], [class*=button i]",
].join(", ");

// --- the words of one element -------------------------------------------------------------------

/** Runs of white space become one space; a no-break space is none. */
function plain(text) {
  const flat = text.replace(/[^\S\u00a0]+/g, " ").trim();
  return flat.length > WORDS_LIMIT ? [...flat].slice(0, WORDS_LIMIT).join("") : flat;
}

/** The text before the first element inside. What follows an element is told by data-text alone. */
function leadingText(nodes) {
  let text = "";
  for (const node of nodes) {
    if (node.nodeType === Node.TEXT_NODE) text += node.data;
    else if (node.nodeType === Node.ELEMENT_NODE && !UNTOLD.has(node.localName)) break;
  }
  return plain(text);
}

const ownTexts = (element) =>
  Array.from(element.childNodes)
    .filter((node) => node.nodeType === Node.TEXT_NODE)
    .map((node) => node.data.trim().replace(/\s{2,}/g, " "))
    .filter(Boolean)
    .join(",");

/** The state that no attribute tells, under the names it is told by. */
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

/** [name, value] of each kept attribute that says something; `box` is told as data-bbox. */
function attributesOf(element, box) {
  const state = { ...stateAttributes(element), "data-bbox": "" };
  if (box) {
    const [width, height] = [box.right - box.left, box.bottom - box.top];
    state["data-bbox"] = `${box.left},${box.top},${width},${height}`;
  }
  if (element.getAttribute("type") === "hidden") state.type = "";
  return KEPT.map((name) => [name, plain(state[name] ?? element.getAttribute(name) ?? "")]).filter(
    ([, value]) => value,
  );
}

/** `<tag id="7" title="x"> words`. A value that was told already is not repeated. */
function openingTag(tag, id, attributes, text) {
  const values = new Map();
  for (const [name, value] of attributes) if (!values.has(value)) values.set(value, name);
  const words = [`<${tag}`];
  if (id) words.push(`id="${id}"`);
  for (const [value, name] of values) words.push(`${name}="${value}"`);
  return `${words.join(" ")}>${text && " "}${text}`;
}

// --- what is seen and can be clicked ------------------------------------------------------------

/** The first box of the element, in whole pixels of the viewport; null when it has none. */
function firstBox(element, place) {
  const [rect] = element.getClientRects();
  if (!rect) return null;
  const [left, top] = [Math.round(place.x + rect.left), Math.round(place.y + rect.top)];
  const [right, bottom] = [Math.round(place.x + rect.right), Math.round(place.y + rect.bottom)];
  return { left, top, right, bottom };
}

/** Whether the element has a box in the viewport. Styles that only hide it are not asked. */
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

/** Whether the element is on top at the centre of its boxes, one pixel of them at least. */
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

/** What an entry says of an element to act on, in the words that both formats have for it. */
function action(element, place) {
  const style = getComputedStyle(element);
  const kind = kindOf(element, style, "")[0] || "item";
  const isField = nativeKind(element) && FIELDS.has(kind);
  const told = ["value", "title", "placeholder", "alt"].slice(kind === "button" ? 0 : 1);
  const name =
    ariaName(element) ||
    labelName(element) ||
    (!isField && textOf(element)) ||
    squeeze(told.map((attribute) => element.getAttribute(attribute)).find(Boolean) ?? "") ||
    hint(element, style);
  const id = String(idOf(element));
  const { value = "" } = stateOf(element, kind);
  return { id, kind, name: shorten(name), value, box: boxAt(element, place) };
}

// --- the walk -----------------------------------------------------------------------------------

class WebArenaLiteWalk extends Walk {
  constructor(limits) {
    super(limits);
    this.boxes = limits.boxes;
    this.place = limits.place ?? wholeViewport();
  }

  told() {
    const root = document.documentElement;
    if (root) this.element(root, { depth: 0, place: this.place, options: false });
    return this.entries.filter((entry) => entry.text || entry.close);
  }

  /**
   * Tells an element and what is in it: {speaks, clickable}, whether it or anything in it has
   * words, in view or not, and whether it or anything in it can be clicked.
   */
  element(element, { depth, place, options }) {
    if (UNTOLD.has(element.localName) || depth > DEPTH_LIMIT || !this.goesOn())
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
      // Of a closed frame only what is in it can be clicked, but for an <embed>, whose document no
      // script can enter, not even to ask whether it is a picture.
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
    const there = own.visible || leaf || (tag === "option" && options);
    if (there && (own.speaks || inner.speaking > 1 || (own.visible && (leaf || closed)))) {
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

  /** A form of which nothing can be known but what is in it. */
  fieldsOf(form, context) {
    const { speaking, clickable } = this.children(childNodesOf.call(form), context);
    return { speaks: speaking > 0, clickable };
  }

  /** How many of the nodes have words, and whether anything in them can be clicked. */
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
