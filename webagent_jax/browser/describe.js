// Kind, name and state of one element, in the words of the observation.
"use strict";
const NAME_LIMIT = 100; // characters of a name or an option
const VALUE_LIMIT = 2000; // characters of a field's value
const OPTIONS_LIMIT = 100; // options of a select that are listed

// --- text and names -----------------------------------------------------------------------------

/** Removes invisible break opportunities within words, and replaces white space by one space. */
const withoutBreaks = (text) => text.replace(/[\u200b\u00ad]+/g, "").replace(/\s+/g, " ");
const squeeze = (text) => withoutBreaks(text).trim();
/** Returns the first `limit` UTF-16 units, without a split surrogate pair at the end. */
const firstOf = (text, limit) => text.slice(0, limit).replace(/[\ud800-\udbff]$/, "");
const shorten = (text) =>
  text.length > NAME_LIMIT ? firstOf(text, NAME_LIMIT - 1).trimEnd() + "…" : text;
const shortenValue = (value) =>
  value.length > VALUE_LIMIT ? firstOf(value, VALUE_LIMIT) + "…" : value;
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

/** Returns the tag name of an HTML element in upper case, also in XHTML; otherwise as written. */
const tagOf = (element) =>
  element.namespaceURI === "http://www.w3.org/1999/xhtml"
    ? element.localName.toUpperCase()
    : element.tagName;

/** Returns the text of `root` without its controls. */
function textOf(root) {
  const parts = [];
  const collect = (node) => {
    if (node.nodeType === Node.TEXT_NODE) parts.push(node.data);
    else if (node.nodeType === Node.ELEMENT_NODE && !node.matches(CONTROLS)) {
      if (tagOf(node) === "BR") parts.push(" ");
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

/** Returns the title of an element; a custom element may have a property of that name. */
const tooltipOf = (element) => squeeze(element.getAttribute("title") ?? "");

/** Returns the name of the first visible named element in another one: an icon in a button. */
function innerName(element) {
  const inner = Array.from(element.querySelectorAll("[aria-label], [title]")).find((each) =>
    each.checkVisibility({ visibilityProperty: true }),
  );
  return inner && (ariaName(inner) || tooltipOf(inner));
}

function labelName(element) {
  // Prototype.js replaces Array.from by a function without the second parameter.
  return squeeze([...(element.labels ?? [])].map(textOf).join(" "));
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

// Without a prototype, because a role may have the name of one of its properties.
const ROLES = {
  __proto__: null,
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
  switch (tagOf(element)) {
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
    case "BODY":
      // That of a frame is the content of a text editor; fields in a whole page are listed.
      return element.isContentEditable && element.ownerDocument !== document ? "textbox" : "";
  }
  // Only the outermost editable element is a field; its content is editable too.
  return element.isContentEditable && !element.parentElement?.isContentEditable ? "textbox" : "";
}

/** Returns whether the text around the element names it, unlike a button with a switch role. */
const isNativeField = (element) =>
  FIELDS.has(nativeKind(element)) && !/^(BUTTON|SUMMARY|A|AREA)$/.test(tagOf(element));

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
  if (element === element.ownerDocument.documentElement) return ["", false];
  if (element === bodyOf(element.ownerDocument)) return [nativeKind(element), false];
  const isListener = hasListener(element);
  if (kind) return [kind, isListener];
  // The cursor style is inherited, so only the outermost element with a pointer cursor counts. An
  // <a> without href counts too, because a script may listen to it alone, not to its row.
  const hasPointer =
    style.cursor === "pointer" && (parentCursor !== "pointer" || tagOf(element) === "A");
  if (isListener || hasPointer || (element.tabIndex >= 0 && element.hasAttribute("tabindex"))) {
    return [tagOf(element) === "A" ? "link" : "item", isListener];
  }
  return ["", false];
}

/** Returns the text of a field; the value of an editable list item, for one, is a number. */
const textIn = (element) =>
  typeof element.value === "string" ? element.value : (element.textContent ?? "");

/** Returns the text of an option in the observation. */
const optionName = (option) => shorten(squeeze(option.label));

/** Returns the options of a dropdown that a user can see. */
const optionsOf = (element) => {
  const isShown = (node) => getComputedStyle(node).display !== "none";
  const isGroupShown = ({ parentElement: group }) => group === element || isShown(group);
  return Array.from(element.options).filter((option) => isShown(option) && isGroupShown(option));
};

function stateOf(element, kind) {
  if (kind === "checkbox" || kind === "radio") {
    const isOn = element.checked ?? element.getAttribute("aria-checked") === "true";
    return { value: isOn ? "on" : "off" };
  }
  if (kind === "select") {
    const options = optionsOf(element);
    const names = options.slice(0, OPTIONS_LIMIT).map(optionName);
    if (options.length > OPTIONS_LIMIT) names.push(`… ${options.length - OPTIONS_LIMIT} more`);
    const value = [...element.selectedOptions].map(optionName).join(", ");
    return { value: shortenValue(value), options: names };
  }
  if (kind === "slider")
    return { value: squeeze(`${element.value ?? element.getAttribute("aria-valuenow") ?? ""}`) };
  if (kind === "textbox") {
    // Unlike textContent, innerText separates paragraphs and contains no styles.
    const value = squeeze(typeof element.value === "string" ? element.value : element.innerText ?? "");
    return { value: shortenValue(value) };
  }
  return {};
}

const isDisabled = (element) =>
  element.matches(":disabled") || element.getAttribute("aria-disabled") === "true";
