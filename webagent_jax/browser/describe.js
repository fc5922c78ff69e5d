// Kind, name and state of one element, in the words of the observation.
"use strict";
const NAME_LIMIT = 100; // characters
const VALUE_LIMIT = 2000; // characters of a field's value
const OPTIONS_LIMIT = 100; // options of a select that are listed

// --- text and names -----------------------------------------------------------------------------

const squeeze = (text) => text.replace(/[\s\u200b\u00ad]+/g, " ").trim();
/** Returns the first `limit` UTF-16 units, without a split surrogate pair at the end. */
const firstOf = (text, limit) => text.slice(0, limit).replace(/[\ud800-\udbff]$/, "");
const shorten = (text) =>
  text.length > NAME_LIMIT ? firstOf(text, NAME_LIMIT - 1).trimEnd() + "…" : text;
const TAGS_WITHOUT_TEXT = new Set([
  "SCRIPT",
  "STYLE",
  "NOSCRIPT",
  "TEMPLATE",
  "HEAD",
  "META",
  "LINK",
  "TITLE",
  "DATALIST",
  "OPTION",
  "OPTGROUP",
  "DEFS",
  "SYMBOL",
  "CLIPPATH",
  "LINEARGRADIENT",
  "RADIALGRADIENT",
  "METADATA",
  "DESC",
]);
const CONTROLS = "input, select, textarea, button, script, style";

/** Returns the text of `root` without its controls. */
function textOf(root) {
  const parts = [];
  const collect = (node) => {
    if (node.nodeType === Node.TEXT_NODE) parts.push(node.data);
    else if (node.nodeType === Node.ELEMENT_NODE && !node.matches(CONTROLS)) {
      if (node.tagName === "BR") parts.push(" ");
      node.childNodes.forEach(collect);
    }
  };
  root.childNodes.forEach(collect);
  return squeeze(parts.join(""));
}

function ariaName(element) {
  const ids = element.getAttribute("aria-labelledby");
  if (ids) {
    const root = element.getRootNode();
    const name = squeeze(
      ids
        .split(/\s+/)
        .map((id) => root.getElementById?.(id)?.textContent ?? "")
        .join(" "),
    );
    if (name) return name;
  }
  return squeeze(element.getAttribute("aria-label") ?? "");
}

function labelName(element) {
  return squeeze(Array.from(element.labels ?? [], textOf).join(" "));
}

const PLAIN_WORD = /^[a-z][a-z-]+$/i; // a word, not a generated name
const STYLING =
  /^(fa|icon|btn|button)$|^ui-(state|corner|widget|button|icon|helper|front|draggable|resizable)\b/;

/** Returns a name for an element without text: its image file, or its class or id and color. */
function hint(element, style) {
  const image = element.matches("img[src]") ? element : element.querySelector("img[src]");
  const file = image?.src.startsWith("http") ? image.src.split(/[?#]/)[0].split("/").pop() : "";
  if (file) return file.replace(/\.\w+$/, "");
  if (SHAPES.has(element.tagName)) return shapeName(element, style);
  const word = (element.getAttribute("class") ?? "")
    .split(/\s+/)
    .filter((w) => PLAIN_WORD.test(w) && !STYLING.test(w))
    .pop();
  const id = PLAIN_WORD.test(element.id) ? element.id : "";
  return squeeze(`${(word ?? id).replace(/^ui-/, "")} ${accent(style.backgroundColor)}`);
}

// --- kind and state -----------------------------------------------------------------------------

const ROLES = {
  button: "button",
  link: "link",
  checkbox: "checkbox",
  switch: "checkbox",
  menuitemcheckbox: "checkbox",
  radio: "radio",
  menuitemradio: "radio",
  tab: "tab",
  option: "option",
  menuitem: "option",
  treeitem: "option",
  slider: "slider",
  textbox: "textbox",
  searchbox: "textbox",
  combobox: "button",
};
const INPUTS = {
  button: "button",
  submit: "button",
  reset: "button",
  image: "button",
  file: "button",
  checkbox: "checkbox",
  radio: "radio",
  range: "slider",
};
const FIELDS = new Set(["textbox", "checkbox", "radio", "select", "slider"]);

function nativeKind(element) {
  switch (element.tagName) {
    case "INPUT":
      return INPUTS[element.type] ?? "textbox";
    case "TEXTAREA":
      return "textbox";
    case "SELECT":
      return "select";
    case "BUTTON":
    case "SUMMARY":
      return ROLES[element.getAttribute("role")] ?? "button";
    case "A":
    case "AREA":
      return element.hasAttribute("href") ? (ROLES[element.getAttribute("role")] ?? "link") : "";
  }
  // Only the outermost editable element is a field; its content is editable too.
  return element.isContentEditable && !element.parentElement?.isContentEditable ? "textbox" : "";
}

/** Returns whether the text around the element names it, unlike a button with a switch role. */
const isNativeField = (element) =>
  FIELDS.has(nativeKind(element)) && !/^(BUTTON|SUMMARY|A|AREA)$/.test(element.tagName);

const hasListener = (element) => {
  const instrument = element.ownerDocument.defaultView?.__webagent;
  return Boolean(
    element.onclick ||
    element.onmousedown ||
    element.onmouseup ||
    instrument?.listensToPointer(element),
  );
};
const hasClickListener = (element) =>
  Boolean(
    element.onclick ||
    element.ownerDocument.defaultView?.__webagent?.listensToPointer(element, "click"),
  );

/** Returns [kind, isListener]; kind is "" if not actionable. */
function kindOf(element, style, parentCursor) {
  const kind = nativeKind(element) || (ROLES[element.getAttribute("role")] ?? "");
  if (element === element.ownerDocument.body || element === element.ownerDocument.documentElement)
    return ["", false];
  const isListener = hasListener(element);
  if (kind) return [kind, isListener];
  // The cursor is inherited, so only the outermost element with a pointer counts, and a link whose
  // address only scripts know: they may listen for it alone, not for the row around it.
  const hasPointer =
    style.cursor === "pointer" && (parentCursor !== "pointer" || element.tagName === "A");
  if (isListener || hasPointer || (element.tabIndex >= 0 && element.hasAttribute("tabindex"))) {
    return [element.tagName === "A" ? "link" : "item", isListener];
  }
  return ["", false];
}

function stateOf(element, kind) {
  if (kind === "checkbox" || kind === "radio") {
    const isOn = element.checked ?? element.getAttribute("aria-checked") === "true";
    return { value: isOn ? "on" : "off" };
  }
  if (kind === "select") {
    const name = (option) => squeeze(option.label);
    const options = Array.from(element.options);
    const names = options.slice(0, OPTIONS_LIMIT).map(name);
    if (options.length > OPTIONS_LIMIT) names.push(`… ${options.length - OPTIONS_LIMIT} more`);
    return { value: Array.from(element.selectedOptions, name).join(", "), options: names };
  }
  if (kind === "slider")
    return { value: String(element.value ?? element.getAttribute("aria-valuenow") ?? "") };
  if (kind === "textbox") {
    const value = squeeze(element.value ?? element.textContent ?? "");
    return { value: value.length > VALUE_LIMIT ? firstOf(value, VALUE_LIMIT) + "…" : value };
  }
  return {};
}

const isDisabled = (element) =>
  element.matches(":disabled") || element.getAttribute("aria-disabled") === "true";

// --- visibility ---------------------------------------------------------------------------------

// Getters of the prototypes, because fields of a form may hide its properties (isClobbered).
const getter = (prototype, name) => Object.getOwnPropertyDescriptor(prototype, name).get;
const childNodesOf = getter(Node.prototype, "childNodes");
const parentOf = getter(Node.prototype, "parentNode");
const slotOf = getter(Element.prototype, "assignedSlot");
const offsetParentOf = getter(HTMLElement.prototype, "offsetParent");
const fieldsIn = getter(HTMLFormElement.prototype, "elements");
const typeOf = getter(Node.prototype, "nodeType");

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

/** Returns the nearest box that moves the element when it scrolls; null for a fixed element. */
function scrollParent(element) {
  const { position } = getComputedStyle(element);
  if (position === "fixed") return null;
  // An absolute position is relative to the nearest ancestor with a position.
  if (position === "absolute") return "offsetParent" in element ? offsetParentOf.call(element) : null;
  return slotOf.call(element) ?? outerElement(element);
}

/** Returns whether no scrolling, of the page or of a box in it, can bring the element into view. */
function isOutOfReach(element, rect) {
  const { defaultView: view, documentElement: root, scrollingElement: page } = element.ownerDocument;
  if (rect.width * rect.height === 0 || !view) return false;
  let [right, bottom] = [rect.right + view.scrollX, rect.bottom + view.scrollY];
  // Elements in view need no look at the boxes around them.
  for (let box = element; right <= 0 || bottom <= 0; ) {
    box = scrollParent(box);
    if (!box || box === root) return true;
    if (box === page) continue; // the offsets of the view contain it
    if (isClobbered(box)) continue;
    right += box.scrollLeft;
    bottom += box.scrollTop;
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
      collect(rule.cssRules ?? rule.styleSheet?.cssRules ?? []);
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
  const { styleSheets = [], adoptedStyleSheets = [] } = element.getRootNode();
  const selectors = [...styleSheets, ...adoptedStyleSheets].flatMap(hoverSelectors);
  // Inside :is(), a selector that is invalid on its own does not invalidate the others.
  return selectors.length > 0 && element.matches(`:is(${selectors.join()})`);
}

/** Returns whether the element and all its content are hidden. */
function isHidden(element, style, rect) {
  if (element.hidden || style.display === "none") return true;
  if (style.opacity === "0" && !isShownOnHover(element, style)) return true;
  // Mouse-only controls, such as the arrows of a spinner, are hidden from screen readers.
  const isControl = nativeKind(element) || ROLES[element.getAttribute("role")];
  if (element.getAttribute("aria-hidden") === "true" && !isControl) return true;
  if (isOutOfReach(element, rect)) return true;
  const isTiny = rect.width * rect.height === 0 || (rect.width <= 1 && rect.height <= 1);
  return isTiny && style.overflow !== "visible" && style.display !== "contents";
}

/** Returns whether the element has a box to click, or is a link around a floated image. */
function hasBox(element, style, rect) {
  if (rect.width * rect.height > 0 || style.display === "contents") return true;
  return element.firstElementChild !== null && ["A", "BUTTON"].includes(element.tagName);
}

const isOnlyControl = (element) =>
  element.parentElement !== element.ownerDocument.body &&
  element.parentElement?.querySelectorAll(CONTROLS).length === 1;
