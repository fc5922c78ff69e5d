// One walk over the document: what a person sees and can act on, as a list of entries in document order.
//   {text}                                              one run of plain text
//   {id, kind, name, value, options, disabled, box}     one element to act on
"use strict";
const NAME_LIMIT = 100; // characters
const OPTIONS_LIMIT = 100; // options of a select that are listed
const DEPTH_LIMIT = 400;
const SHAPES_LIMIT = 40; // plain shapes told of one drawing
const VALUE_LIMIT = 2000; // characters of a field's value
const LABEL_LIMIT = 40; // longer text before a field is no label of it

const ids = new WeakMap(); // Element -> id
const byId = new Map(); // id -> WeakRef(Element)

function idOf(element) {
  if (!ids.has(element)) {
    const id = byId.size + 1;
    ids.set(element, id);
    byId.set(id, new WeakRef(element));
  }
  return ids.get(element);
}

// --- text and names -----------------------------------------------------------------------------

const squeeze = (text) => text.replace(/[\s\u200b\u00ad]+/g, " ").trim();
const shorten = (text) => (text.length > NAME_LIMIT ? text.slice(0, NAME_LIMIT - 1).trimEnd() + "…" : text);
const SILENT = new Set([
  "SCRIPT", "STYLE", "NOSCRIPT", "TEMPLATE", "HEAD", "META", "LINK", "TITLE", "DATALIST", "OPTION",
  "OPTGROUP", "DEFS", "SYMBOL", "CLIPPATH", "LINEARGRADIENT", "RADIALGRADIENT", "METADATA", "DESC",
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
      ids.split(/\s+/).map((id) => root.getElementById?.(id)?.textContent ?? "").join(" "),
    );
    if (name) return name;
  }
  return squeeze(element.getAttribute("aria-label") ?? "");
}

function labelName(element) {
  return squeeze(Array.from(element.labels ?? [], textOf).join(" "));
}

const HUES = [
  [15, "red"], [42, "orange"], [70, "yellow"], [165, "green"], [195, "cyan"], [255, "blue"],
  [290, "purple"], [325, "magenta"], [345, "pink"], [361, "red"],
];

/** The everyday word for a computed CSS colour; "" for none. */
function colourWord(css) {
  const [r, g, b, alpha = 1] = (css.match(/[\d.]+/g) ?? [0, 0, 0, 0]).map(Number);
  if (!css.startsWith("rgb") || alpha === 0) return "";
  const high = Math.max(r, g, b);
  const low = Math.min(r, g, b);
  if (high - low < 26) return high < 64 ? "black" : high > 235 ? "white" : "gray";
  const spread = high - low;
  const sector = high === r ? ((g - b) / spread + 6) % 6 : high === g ? (b - r) / spread + 2 : (r - g) / spread + 4;
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
  if (tag === "polygon") names.polygon = { 3: "triangle", 4: "quadrilateral" }[element.points.numberOfItems] ?? "polygon";
  return squeeze(`${names[tag] ?? tag} ${colour}`);
}

/** The colour of a thing that has something else to be known by: black, white and gray say nothing. */
const accent = (css) => colourWord(css).replace(/black|white|gray/, "");

const TELLING = /^[a-z][a-z-]+$/i; // a word, rather than something generated
const STYLING = /^(fa|icon|btn|button)$|^ui-(state|corner|widget|button|icon|helper|front|draggable|resizable)\b/;

/** A last resort for an element with no text: its picture's file, its class or id, its colour. */
function hint(element, style) {
  const image = element.matches("img[src]") ? element : element.querySelector("img[src]");
  const file = image?.src.startsWith("http") ? image.src.split(/[?#]/)[0].split("/").pop() : "";
  if (file) return file.replace(/\.\w+$/, "");
  if (SHAPES.has(element.tagName)) return shapeName(element, style);
  const word = (element.getAttribute("class") ?? "").split(/\s+/).filter((w) => TELLING.test(w) && !STYLING.test(w)).pop();
  const id = TELLING.test(element.id) ? element.id : "";
  return squeeze(`${(word ?? id).replace(/^ui-/, "")} ${accent(style.backgroundColor)}`);
}

// --- what an element is -------------------------------------------------------------------------

const ROLES = {
  button: "button", link: "link", checkbox: "checkbox", switch: "checkbox", menuitemcheckbox: "checkbox",
  radio: "radio", menuitemradio: "radio", tab: "tab", option: "option", menuitem: "option", treeitem: "option",
  slider: "slider", textbox: "textbox", searchbox: "textbox", combobox: "button",
};
const INPUTS = {
  button: "button", submit: "button", reset: "button", image: "button", file: "button",
  checkbox: "checkbox", radio: "radio", range: "slider",
};
const FIELDS = new Set(["textbox", "checkbox", "radio", "select", "slider"]);

function nativeKind(element) {
  switch (element.tagName) {
    case "INPUT": return INPUTS[element.type] ?? "textbox";
    case "TEXTAREA": return "textbox";
    case "SELECT": return "select";
    case "BUTTON": case "SUMMARY": return ROLES[element.getAttribute("role")] ?? "button";
    case "A": case "AREA": return element.hasAttribute("href") ? ROLES[element.getAttribute("role")] ?? "link" : "";
  }
  return element.isContentEditable && !element.parentElement?.isContentEditable ? "textbox" : "";
}

const hasListener = (element) => {
  const watcher = element.ownerDocument.defaultView?.__webagent;
  return Boolean(element.onclick || element.onmousedown || element.onmouseup || watcher?.listensToPointer(element));
};
const hasClickListener = (element) =>
  Boolean(element.onclick || element.ownerDocument.defaultView?.__webagent?.listensToPointer(element, "click"));

/** "" when the element is nothing to act on. `own`: it listens for itself, whatever is inside it. */
function kindOf(element, style, parentCursor) {
  const kind = nativeKind(element) || (ROLES[element.getAttribute("role")] ?? "");
  if (element === element.ownerDocument.body || element === element.ownerDocument.documentElement) return ["", false];
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
  if (kind === "slider") return { value: String(element.value ?? element.getAttribute("aria-valuenow") ?? "") };
  if (kind === "textbox") {
    const value = squeeze(element.value ?? element.textContent ?? "");
    return { value: value.length > VALUE_LIMIT ? value.slice(0, VALUE_LIMIT) + "…" : value };
  }
  return {};
}

const isDisabled = (element) => element.matches(":disabled") || element.getAttribute("aria-disabled") === "true";

// --- the walk -----------------------------------------------------------------------------------

const INLINE = new Set(["inline", "inline-block", "inline-flex", "inline-grid", "inline-table", "contents", "ruby"]);

class Walk {
  constructor({ chars, nodes, millis }) {
    this.entries = [];
    this.buffer = "";
    this.lastText = null; // the text node that spoke last
    this.used = new Set(); // text that became a name
    this.muted = 0;
    this.inline = 0; // above 0: block borders only separate words, as in a table row
    this.cellBorder = false;
    this.seen = 0;
    this.chars = 0; // below the upper border of the viewport
    this.limits = { chars, nodes, end: performance.now() + millis };
    this.stopped = false;
  }

  say(text, node, top) {
    if (this.muted || !text) return;
    if (this.cellBorder && this.buffer.trim() && text.trim()) this.buffer += " | ";
    if (text.trim()) this.cellBorder = false;
    this.buffer += text;
    if (node && text.trim()) this.lastText = node;
    if (top !== undefined) this.top = top;
  }

  flush() {
    const text = squeeze(this.buffer);
    this.buffer = "";
    this.cellBorder = false;
    if (text) this.push({ text, node: this.lastText, above: this.top < 0 });
  }

  border() {
    if (this.inline) this.say(" ");
    else this.flush();
  }

  push(entry) {
    this.entries.push(entry);
    if (entry.above) return;
    this.chars += (entry.text ?? entry.name ?? "").length + (entry.options ?? []).join(", ").length + 8;
    if (this.chars > this.limits.chars) this.stopped = true;
  }

  /** Counts one more element; false when the walk has to end. */
  goesOn() {
    this.seen += 1;
    if (this.seen > this.limits.nodes || (this.seen % 128 === 0 && performance.now() > this.limits.end)) this.stopped = true;
    return !this.stopped;
  }

  node(node, context) {
    if (this.stopped) return;
    if (node.nodeType === Node.TEXT_NODE) {
      if (context.shown && !this.used.has(node)) this.say(node.data.replace(/[\s\u200b\u00ad]+/g, " "), node, context.rect.bottom);
    } else if (node.nodeType === Node.ELEMENT_NODE) this.element(node, context);
  }

  children(element, context) {
    if (context.depth > DEPTH_LIMIT) return;
    if (element.shadowRoot) for (const child of element.shadowRoot.childNodes) this.node(child, context);
    else if (element.tagName === "SLOT" && element.assignedNodes().length) {
      for (const child of element.assignedNodes()) this.node(child, context);
    } else for (let child = element.firstChild; child; child = child.nextSibling) this.node(child, context);
  }

  element(element, parent) {
    if (SILENT.has(element.tagName.toUpperCase()) || this.used.has(element) || !this.goesOn()) return;
    if (element.hidden) return;
    // Mouse-only controls, such as the arrows of a spinner, are hidden from screen readers by themselves.
    if (element.getAttribute("aria-hidden") === "true" && !nativeKind(element) && !ROLES[element.getAttribute("role")]) return;
    const style = getComputedStyle(element);
    if (style.display === "none" || style.opacity === "0") return;
    const rect = element.getBoundingClientRect();
    const boxless = style.display === "contents";
    const empty = rect.width === 0 || rect.height === 0;
    if (!boxless && (empty || (rect.width <= 1 && rect.height <= 1)) && style.overflow !== "visible") return;
    const shown = style.visibility === "visible";
    const context = { depth: parent.depth + 1, cursor: style.cursor, shown, rect, drawing: parent.drawing };
    if (element.tagName === "BR") return this.border();
    if (element.tagName === "IFRAME") return this.frame(element, context);
    const [kind, own] = shown && (!empty || boxless || kindOfLine(element)) ? kindOf(element, style, parent.cursor) : ["", false];
    const block = !INLINE.has(style.display) && !element.ownerSVGElement;
    if (element.tagName === "LABEL" && element.control) return this.label(element, style, context, block);
    if (FIELDS.has(kind) && (nativeKind(element) || kind === "textbox")) return this.field(element, kind, rect);
    if (kind) return this.clickable({ element, kind, own, style, rect, context });
    if (element.ownerSVGElement && this.shape(element, style, context)) return;
    if (style.display === "table-row") return this.row(element, context);
    if (element.tagName === "IMG") this.say(` ${squeeze(element.alt)} `, element, rect.bottom);
    if (element.tagName === "svg") context.drawing = rect.width >= 48 && rect.height >= 48 ? { shapes: 0 } : null;
    if (block) this.border();
    else if (style.display !== "inline") this.say(" ");
    this.children(element, context);
    if (block) this.border();
    else if (style.display !== "inline") this.say(" ");
  }

  /** A plain shape of a drawing that is large enough to be more than an icon. */
  shape(element, style, context) {
    if (!FIGURES.has(element.tagName) || !context.drawing || !context.shown) return false;
    context.drawing.shapes += 1;
    if (context.drawing.shapes <= SHAPES_LIMIT) {
      this.say(`${this.buffer.trim() ? ", " : ""}${shapeName(element, style)}`, element, context.rect.bottom);
    }
    return true;
  }

  row(element, context) {
    this.flush();
    for (const cell of element.children) {
      this.cellBorder = true;
      const simple = cell.getElementsByTagName("*").length <= 8;
      this.inline += simple ? 1 : 0;
      this.node(cell, context);
      this.inline -= simple ? 1 : 0;
    }
    this.flush();
  }

  frame(element, context) {
    this.flush();
    const inner = element.contentDocument?.documentElement;
    if (inner) {
      this.children(inner, { ...context, drawing: null });
    } else if (context.shown) this.say(`[frame: ${element.title || element.src}]`, element, context.rect.bottom);
    this.flush();
  }

  /** A label speaks through its control. It stands in for one that is drawn by style sheets alone. */
  label(element, style, context, block) {
    const control = element.control;
    const box = control.getBoundingClientRect();
    const visible = control.checkVisibility({ opacityProperty: true, visibilityProperty: true }) && box.width > 1 && box.height > 1;
    const kind = nativeKind(control);
    if (block) this.border();
    if (!visible && context.shown && (kind === "checkbox" || kind === "radio" || control.type === "file")) {
      this.flush();
      this.list({ element, kind, name: ariaName(control) || textOf(element) || squeeze(control.title), control, rect: context.rect });
    } else {
      const named = visible && FIELDS.has(kind) && !ariaName(control);
      this.muted += named ? 1 : 0;
      this.children(element, context);
      this.muted -= named ? 1 : 0;
    }
    if (block) this.border();
  }

  list({ element, kind, name, rect, control = element }) {
    const entry = { element, kind, name: shorten(name), ...stateOf(control, kind), above: rect.bottom < 0 };
    if (isDisabled(control)) entry.disabled = true;
    this.push(entry);
    return entry;
  }

  field(element, kind, rect) {
    let name = ariaName(element) || labelName(element) || squeeze(element.title || element.getAttribute("placeholder") || "");
    const box = kind === "checkbox" || kind === "radio";
    if (!name && box) name = this.textAfter(element);
    if (!name) name = this.textBefore(element);
    if (!name && !box && isOnlyControl(element)) name = this.textAfter(element);
    const muted = this.muted;
    this.muted = 0;
    this.flush();
    this.list({ element, kind, name: name.replace(/\s*[:=]$/, ""), rect });
    this.muted = muted;
  }

  /** The text that stands right before an unlabelled field becomes its name, and is not repeated. */
  textBefore(element) {
    const running = squeeze(this.buffer);
    if (running) {
      if (running.length > NAME_LIMIT) return "";
      this.buffer = "";
      this.cellBorder = false;
      return running;
    }
    const last = this.entries.at(-1);
    const parent = element.parentElement;
    if (!last?.text || !last.node || last.text.length > LABEL_LIMIT || !parent) return "";
    const near = parent.childElementCount === 1 && !textOf(parent) ? parent.parentElement : parent;
    if (!near?.contains(last.node) || near === near.ownerDocument.body) return "";
    this.chars -= last.text.length;
    this.entries.pop();
    return last.text;
  }

  textAfter(element) {
    let next = element.nextSibling;
    while (next && next.nodeType === Node.TEXT_NODE && !next.data.trim()) next = next.nextSibling;
    if (!next || next.nodeType > Node.TEXT_NODE) return "";
    if (next.nodeType === Node.ELEMENT_NODE && (next.matches(`br, ${CONTROLS}`) || next.querySelector(CONTROLS))) return "";
    const name = squeeze(next.textContent);
    if (name.length > (next.nodeType === Node.TEXT_NODE ? NAME_LIMIT : LABEL_LIMIT)) return "";
    this.used.add(next);
    return name;
  }

  /** Walks what is inside a clickable element apart, then decides who is listed. */
  clickable({ element, kind, own, style, rect, context }) {
    const outer = { muted: this.muted, inline: this.inline };
    const before = this.buffer;
    const separator = this.cellBorder && before.trim();
    this.flush();
    const start = this.entries.length;
    const button = nativeKind(element) === "button" && element.tagName === "INPUT";
    this.muted = this.inline = 0;
    if (!button) this.children(element, { ...context, drawing: null });
    if (element.tagName === "IMG") this.say(squeeze(element.alt), element);
    this.flush();
    this.muted = outer.muted;
    this.inline = outer.inline;
    this.cellBorder = Boolean(separator);
    const inside = this.entries.splice(start);
    const texts = inside.filter((entry) => entry.text !== undefined);
    const actionable = inside.filter((entry) => entry.text === undefined);
    const words = squeeze(texts.map((entry) => entry.text).join(" "));
    const given = ariaName(element) || (button ? squeeze(element.value || element.alt || element.title || element.type) : words);

    if (actionable.length === 0) {
      const named = given || squeeze(element.title || element.getAttribute("placeholder") || textOf(element)) || hint(element, style);
      const colour = words && element.ownerSVGElement ? accent(style.fill) : "";
      const name = squeeze(`${named} ${colour}`);
      const spills = kind === "item" && named === words && words.length > NAME_LIMIT;
      this.list({ element, kind, name: spills ? "" : name, rect });
      if (spills) this.entries.push(...texts);
    } else if (actionable.length === 1 && !words) {
      const [inner] = actionable;
      if (!FIELDS.has(inner.kind) && kind !== "item") inner.kind = kind;
      inner.name ||= shorten(ariaName(element));
      this.entries.push(inner);
    } else if (own && (kind !== "item" || isCard({ element, style, words, actionable }))) {
      const spills = words.length > NAME_LIMIT;
      this.list({ element, kind, name: spills ? "" : given, rect });
      this.entries.push(...(spills ? inside : actionable));
    } else this.entries.push(...inside);
  }
}

/** A thing to click with a few controls in it, unlike a container that listens on behalf of its content. */
function isCard({ element, style, words, actionable }) {
  if (!words) return false;
  return style.cursor === "pointer" || (hasClickListener(element) && words.length <= NAME_LIMIT && actionable.length <= 3);
}

const isOnlyControl = (element) =>
  element.parentElement !== element.ownerDocument.body && element.parentElement?.querySelectorAll(CONTROLS).length === 1;

/** Adds "large" or "small" to the figures of drawings that hold both sizes. */
function sizeFigures(entries) {
  const drawings = new Map();
  for (const entry of entries) {
    const tag = entry.element?.tagName;
    if (!FIGURES.has(tag) && tag !== "text") continue;
    const box = entry.element.getBoundingClientRect();
    const extent = tag === "text" ? parseFloat(getComputedStyle(entry.element).fontSize) : Math.max(box.width, box.height);
    const drawing = entry.element.ownerSVGElement;
    drawings.set(drawing, [...(drawings.get(drawing) ?? []), { entry, extent }]);
  }
  for (const figures of drawings.values()) {
    const extents = figures.map(({ extent }) => extent);
    const [small, large] = [Math.min(...extents), Math.max(...extents)];
    if (large < 1.6 * small) continue;
    for (const { entry, extent } of figures) entry.name += extent > Math.sqrt(small * large) ? " large" : " small";
  }
}

/** An empty box still counts when its own line boxes show: an inline link around a floated picture. */
function kindOfLine(element) {
  return element.firstElementChild !== null && ["A", "BUTTON"].includes(element.tagName);
}

/** JSON of {title, url, entries, seen, total}. */
function observe(limits) {
  const root = document.body ?? document.documentElement;
  root?.getBoundingClientRect(); // lays the page out before the clock of the walk starts
  const walk = new Walk(limits);
  if (root) walk.element(root, { depth: 0, cursor: "auto", shown: true, rect: { bottom: 0 }, drawing: null });
  walk.flush();
  sizeFigures(walk.entries);
  const entries = walk.entries.map(({ element, node, ...entry }) => {
    if (!element) return entry;
    const { x, y, width, height } = boxOf(element);
    return { id: String(idOf(element)), ...entry, box: [x, y, width, height].map((v) => Math.round(v * 10) / 10) };
  });
  return JSON.stringify({
    title: document.title,
    entries,
    seen: walk.seen,
    total: walk.stopped ? document.getElementsByTagName("*").length : walk.seen,
    stopped: walk.stopped,
  });
}
