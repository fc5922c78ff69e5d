// What one element is: its kind, its name, its state, in the words of the observation.
"use strict";
const NAME_LIMIT = 100; // characters
const VALUE_LIMIT = 2000; // characters of a field's value
const OPTIONS_LIMIT = 100; // options of a select that are listed

// --- text and names -----------------------------------------------------------------------------

const squeeze = (text) => text.replace(/[\s\u200b\u00ad]+/g, " ").trim();
const shorten = (text) =>
  text.length > NAME_LIMIT ? text.slice(0, NAME_LIMIT - 1).trimEnd() + "…" : text;
const SILENT = new Set([
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

/** Text of `root`, without the controls in it. */
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

const HUES = [
  [15, "red"],
  [42, "orange"],
  [70, "yellow"],
  [165, "green"],
  [195, "cyan"],
  [255, "blue"],
  [290, "purple"],
  [325, "magenta"],
  [345, "pink"],
  [361, "red"],
];

/** The everyday word for a computed CSS colour; "" for none. */
function colourWord(css) {
  const [r, g, b, alpha = 1] = (css.match(/[\d.]+/g) ?? [0, 0, 0, 0]).map(Number);
  if (!css.startsWith("rgb") || alpha === 0) return "";
  const high = Math.max(r, g, b);
  const low = Math.min(r, g, b);
  if (high - low < 26) return high < 64 ? "black" : high > 235 ? "white" : "gray";
  const spread = high - low;
  const sector =
    high === r
      ? ((g - b) / spread + 6) % 6
      : high === g
        ? (b - r) / spread + 2
        : (r - g) / spread + 4;
  const hue = sector * 60;
  if (hue >= 15 && hue < 42 && high < 180) return "brown";
  if (hue >= 290 && hue < 325 && high < 180) return "purple";
  if ((hue < 15 || hue >= 325) && low > 150) return "pink";
  return HUES.find(([end]) => hue < end)[1];
}

const FIGURES = new Set(["circle", "ellipse", "rect", "polygon"]);
const SHAPES = new Set([...FIGURES, "polyline", "line", "path"]);

/** "circle red": what there is to say of a drawn shape. */
function shapeName(element, style) {
  const tag = element.tagName.toLowerCase();
  const colour = colourWord(style.fill) || colourWord(style.stroke);
  const names = { rect: "rectangle", polyline: "line", path: "shape" };
  if (tag === "polygon")
    names.polygon =
      { 3: "triangle", 4: "quadrilateral" }[element.points.numberOfItems] ?? "polygon";
  return squeeze(`${names[tag] ?? tag} ${colour}`);
}

/** The colour of a thing known by something else: black, white and gray say nothing then. */
const accent = (css) => colourWord(css).replace(/black|white|gray/, "");

const TELLING = /^[a-z][a-z-]+$/i; // a word, rather than something generated
const STYLING =
  /^(fa|icon|btn|button)$|^ui-(state|corner|widget|button|icon|helper|front|draggable|resizable)\b/;

/** A last resort for an element with no text: its picture's file, its class or id, its colour. */
function hint(element, style) {
  const image = element.matches("img[src]") ? element : element.querySelector("img[src]");
  const file = image?.src.startsWith("http") ? image.src.split(/[?#]/)[0].split("/").pop() : "";
  if (file) return file.replace(/\.\w+$/, "");
  if (SHAPES.has(element.tagName)) return shapeName(element, style);
  const word = (element.getAttribute("class") ?? "")
    .split(/\s+/)
    .filter((w) => TELLING.test(w) && !STYLING.test(w))
    .pop();
  const id = TELLING.test(element.id) ? element.id : "";
  return squeeze(`${(word ?? id).replace(/^ui-/, "")} ${accent(style.backgroundColor)}`);
}

// --- what an element is -------------------------------------------------------------------------

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
  return element.isContentEditable && !element.parentElement?.isContentEditable ? "textbox" : "";
}

const hasListener = (element) => {
  const watcher = element.ownerDocument.defaultView?.__webagent;
  return Boolean(
    element.onclick ||
    element.onmousedown ||
    element.onmouseup ||
    watcher?.listensToPointer(element),
  );
};
const hasClickListener = (element) =>
  Boolean(
    element.onclick ||
    element.ownerDocument.defaultView?.__webagent?.listensToPointer(element, "click"),
  );

/** [kind, own]; the kind is "" for nothing to act on, `own` means that it listens for itself. */
function kindOf(element, style, parentCursor) {
  const kind = nativeKind(element) || (ROLES[element.getAttribute("role")] ?? "");
  if (element === element.ownerDocument.body || element === element.ownerDocument.documentElement)
    return ["", false];
  const own = hasListener(element);
  if (kind) return [kind, own];
  const pointer = style.cursor === "pointer" && parentCursor !== "pointer";
  if (own || pointer || (element.tabIndex >= 0 && element.hasAttribute("tabindex"))) {
    return [element.tagName === "A" ? "link" : "item", own];
  }
  return ["", false];
}

function stateOf(element, kind) {
  if (kind === "checkbox" || kind === "radio") {
    const on = element.checked ?? element.getAttribute("aria-checked") === "true";
    return { value: on ? "on" : "off" };
  }
  if (kind === "select") {
    const name = (option) => squeeze(option.label);
    const options = Array.from(element.options);
    const listed = options.slice(0, OPTIONS_LIMIT).map(name);
    if (options.length > OPTIONS_LIMIT) listed.push(`… ${options.length - OPTIONS_LIMIT} more`);
    return { value: Array.from(element.selectedOptions, name).join(", "), options: listed };
  }
  if (kind === "slider")
    return { value: String(element.value ?? element.getAttribute("aria-valuenow") ?? "") };
  if (kind === "textbox") {
    const value = squeeze(element.value ?? element.textContent ?? "");
    return { value: value.length > VALUE_LIMIT ? value.slice(0, VALUE_LIMIT) + "…" : value };
  }
  return {};
}

const isDisabled = (element) =>
  element.matches(":disabled") || element.getAttribute("aria-disabled") === "true";

// --- what is seen -------------------------------------------------------------------------------

const INLINE = new Set([
  "inline",
  "inline-block",
  "inline-flex",
  "inline-grid",
  "inline-table",
  "contents",
  "ruby",
]);

/** Whether the element is hidden with all that is in it. */
function isHidden(element, style, rect) {
  if (element.hidden || style.display === "none" || style.opacity === "0") return true;
  // Controls for the mouse alone, such as the arrows of a spinner, are hidden from screen readers.
  const forMouse = nativeKind(element) || ROLES[element.getAttribute("role")];
  if (element.getAttribute("aria-hidden") === "true" && !forMouse) return true;
  const tiny = rect.width * rect.height === 0 || (rect.width <= 1 && rect.height <= 1);
  return tiny && style.overflow !== "visible" && style.display !== "contents";
}

/** Whether there is something to click: a box of its own, or a link around a floated picture. */
function hasBox(element, style, rect) {
  if (rect.width * rect.height > 0 || style.display === "contents") return true;
  return element.firstElementChild !== null && ["A", "BUTTON"].includes(element.tagName);
}

const isOnlyControl = (element) =>
  element.parentElement !== element.ownerDocument.body &&
  element.parentElement?.querySelectorAll(CONTROLS).length === 1;

/** Adds "large" or "small" to the figures of drawings that hold both sizes. */
function sizeFigures(entries) {
  const drawings = new Map();
  for (const entry of entries) {
    const tag = entry.element?.tagName;
    if (!FIGURES.has(tag) && tag !== "text") continue;
    const box = entry.element.getBoundingClientRect();
    const extent =
      tag === "text"
        ? parseFloat(getComputedStyle(entry.element).fontSize)
        : Math.max(box.width, box.height);
    const drawing = entry.element.ownerSVGElement;
    drawings.set(drawing, [...(drawings.get(drawing) ?? []), { entry, extent }]);
  }
  for (const figures of drawings.values()) {
    const extents = figures.map(({ extent }) => extent);
    const [small, large] = [Math.min(...extents), Math.max(...extents)];
    if (large < 1.6 * small) continue;
    for (const { entry, extent } of figures)
      entry.name += extent > Math.sqrt(small * large) ? " large" : " small";
  }
}
