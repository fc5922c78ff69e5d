// DOM traversal of the `compact` format: visible text and actionable elements in document order.
//   {text}                                              one run of plain text
//   {id, kind, name, value, options, disabled, box}     one actionable element
// An entry with {frame, place} precedes the entries of a cross-origin frame (frames.js).
"use strict";
const LABEL_LIMIT = 40; // maximum length of the text before a field that becomes its label
const SHAPES_LIMIT = 40; // plain shapes listed per drawing

class CompactWalk extends TextWalk {
  constructor(limits) {
    super(limits);
    this.used = new Set(); // text nodes that are part of a name
    this.place = limits.place ?? wholeViewport();
  }

  /** Returns all entries, with ids and boxes. */
  collectEntries() {
    const root = document.body ?? document.documentElement;
    const { place } = this;
    if (root)
      this.element(root, {
        depth: 0,
        cursor: "auto",
        shown: true,
        rect: { bottom: 0 },
        drawing: null,
        place,
      });
    this.flush();
    sizeFigures(this.entries);
    return this.entries.map(({ element, node, ...entry }) =>
      element ? { id: String(idOf(element)), ...entry, box: boxAt(element, place) } : entry,
    );
  }

  node(node, context) {
    if (this.stopped) return;
    if (node.nodeType === Node.TEXT_NODE) {
      if (context.shown && !this.used.has(node))
        this.say(node.data.replace(/[\s\u200b\u00ad]+/g, " "), node, context.rect.bottom);
    } else if (isClobbered(node)) this.fieldsOf(node, context);
    else if (node.nodeType === Node.ELEMENT_NODE) this.element(node, context);
  }

  children(element, context) {
    if (context.depth > DEPTH_LIMIT) return;
    if (element.tagName === "DETAILS" && !element.open) {
      const summary = element.querySelector(":scope > summary");
      if (summary) this.node(summary, context);
    } else for (const child of nodesIn(element)) this.node(child, context);
  }

  element(element, parent) {
    if (
      TAGS_WITHOUT_TEXT.has(element.tagName.toUpperCase()) ||
      this.used.has(element) ||
      !this.countElement()
    )
      return;
    if (element.tagName === "AREA") return this.area(element);
    const style = getComputedStyle(element);
    const rect = element.getBoundingClientRect();
    if (isHidden(element, style, rect)) return;
    const shown = style.visibility === "visible";
    const context = {
      depth: parent.depth + 1,
      cursor: style.cursor,
      shown,
      rect,
      drawing: parent.drawing,
      place: parent.place,
    };
    if (element.tagName === "BR") return this.border();
    if (element.tagName === "IFRAME") return this.frame(element, context);
    const [kind, own] =
      shown && hasBox(element, style, rect) ? kindOf(element, style, parent.cursor) : ["", false];
    const block = !INLINE.has(style.display) && !element.ownerSVGElement;
    if (element.tagName === "LABEL" && element.control)
      return this.label(element, style, context, block);
    if (FIELDS.has(kind) && (isNativeField(element) || kind === "textbox"))
      return this.field(element, kind, rect);
    if (kind) return this.clickable({ element, kind, own, style, rect, context });
    if (element.ownerSVGElement && this.shape(element, style, context)) return;
    if (style.display === "table-row") return this.row(element, context);
    if (element.tagName === "IMG") this.say(` ${squeeze(element.alt)} `, element, rect.bottom);
    if (element.tagName === "svg")
      context.drawing = rect.width >= 48 && rect.height >= 48 ? { shapes: 0 } : null;
    if (block) this.border();
    else if (style.display !== "inline") this.say(" ");
    this.children(element, context);
    if (block) this.border();
    else if (style.display !== "inline") this.say(" ");
  }

  /** Visits a form whose fields hide its properties: only its children are accessible. */
  fieldsOf(form, context) {
    if (!this.countElement() || !Element.prototype.checkVisibility.call(form)) return;
    this.border();
    for (const child of childNodesOf.call(form)) this.node(child, context);
    this.border();
  }

  /** Lists an area of an image map, whose coordinates are relative to the image. */
  area(element) {
    const picture = pictureOf(element);
    const kind = nativeKind(element) || (hasListener(element) ? "item" : "");
    if (!kind || !picture?.checkVisibility({ visibilityProperty: true })) return;
    this.flush();
    const name = ariaName(element) || squeeze(element.alt || element.title);
    this.list({ element, kind, name, rect: areaRect(element) });
  }

  /** Adds a plain shape of a drawing, unless the drawing is as small as an icon. */
  shape(element, style, context) {
    if (!FIGURES.has(element.tagName) || !context.drawing || !context.shown) return false;
    context.drawing.shapes += 1;
    if (context.drawing.shapes <= SHAPES_LIMIT) {
      this.say(
        `${this.buffer.trim() ? ", " : ""}${shapeName(element, style)}`,
        element,
        context.rect.bottom,
      );
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
      const place = placeIn(element, context.place);
      this.children(inner, { ...context, drawing: null, place });
      this.flush();
    } else if (context.shown) {
      this.say(`[frame: ${element.title || element.src}]`, element, context.rect.bottom);
      this.flush(closedFrame(element, context.place));
    }
  }

  /** Visits a label; it is listed instead of its control if only style sheets draw the control. */
  label(element, style, context, block) {
    const control = element.control;
    const box = control.getBoundingClientRect();
    const visible =
      control.checkVisibility({ opacityProperty: true, visibilityProperty: true }) &&
      box.width > 1 &&
      box.height > 1;
    const kind = nativeKind(control);
    if (block) this.border();
    if (
      !visible &&
      context.shown &&
      (kind === "checkbox" || kind === "radio" || control.type === "file")
    ) {
      this.flush();
      this.list({
        element,
        kind,
        name: ariaName(control) || textOf(element) || squeeze(control.title),
        control,
        rect: context.rect,
      });
    } else {
      const named = visible && FIELDS.has(kind) && !ariaName(control);
      this.muted += named ? 1 : 0;
      this.children(element, context);
      this.muted -= named ? 1 : 0;
    }
    if (block) this.border();
  }

  list({ element, kind, name, rect, control = element }) {
    const entry = {
      element,
      kind,
      name: shorten(name),
      ...stateOf(control, kind),
      above: rect.bottom < 0,
    };
    if (isDisabled(control)) entry.disabled = true;
    this.push(entry);
    return entry;
  }

  field(element, kind, rect) {
    let name =
      ariaName(element) ||
      labelName(element) ||
      squeeze(element.title || element.getAttribute("placeholder") || "");
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

  /** Returns the text right before an unlabeled field and removes it from the entries. */
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
    if ("frame" in last) return "";
    const near = parent.childElementCount === 1 && !textOf(parent) ? parent.parentElement : parent;
    if (!near?.contains(last.node) || near === near.ownerDocument.body) return "";
    this.entries.pop();
    if (!last.above) this.chars -= lengthOf(last);
    return last.text;
  }

  textAfter(element) {
    let next = element.nextSibling;
    while (next && next.nodeType === Node.TEXT_NODE && !next.data.trim()) next = next.nextSibling;
    if (!next || next.nodeType > Node.TEXT_NODE) return "";
    if (
      next.nodeType === Node.ELEMENT_NODE &&
      (next.matches(`br, ${CONTROLS}`) || next.querySelector(CONTROLS))
    )
      return "";
    const name = squeeze(next.textContent);
    if (name.length > (next.nodeType === Node.TEXT_NODE ? NAME_LIMIT : LABEL_LIMIT)) return "";
    this.used.add(next);
    return name;
  }

  /** Traverses the content of a clickable element separately, then decides what to list. */
  clickable({ element, kind, own, style, rect, context }) {
    const outer = { muted: this.muted, inline: this.inline };
    const before = this.buffer;
    const separator = this.cellBorder && before.trim();
    this.flush();
    const start = this.entries.length;
    const chars = this.chars;
    const button = nativeKind(element) === "button" && element.tagName === "INPUT";
    this.muted = this.inline = 0;
    if (!button) this.children(element, { ...context, drawing: null });
    if (element.tagName === "IMG") this.say(squeeze(element.alt), element);
    this.flush();
    this.muted = outer.muted;
    this.inline = outer.inline;
    this.cellBorder = Boolean(separator);
    const inside = this.entries.splice(start);
    this.chars = chars; // entries that are pushed again below count then
    const texts = inside.filter((entry) => entry.text !== undefined);
    const actionable = inside.filter((entry) => entry.text === undefined);
    const words = squeeze(texts.map((entry) => entry.text).join(" "));
    const given =
      ariaName(element) ||
      (button ? squeeze(element.value || element.alt || element.title || element.type) : words);

    if (actionable.length === 0) {
      const named =
        given ||
        squeeze(element.title || element.getAttribute("placeholder") || textOf(element)) ||
        hint(element, style);
      const color = words && element.ownerSVGElement ? accent(style.fill) : "";
      const name = squeeze(`${named} ${color}`);
      const spills = kind === "item" && named === words && words.length > NAME_LIMIT;
      this.list({ element, kind, name: spills ? "" : name, rect });
      if (spills) texts.forEach((entry) => this.push(entry));
    } else if (actionable.length === 1 && !words) {
      const [inner] = actionable;
      if (!FIELDS.has(inner.kind) && kind !== "item") inner.kind = kind;
      inner.name ||= shorten(ariaName(element));
      this.push(inner);
    } else if (
      (own || (words && nativeKind(element))) &&
      (kind !== "item" || isCard({ element, style, words, actionable }))
    ) {
      const spills = words.length > NAME_LIMIT;
      this.list({ element, kind, name: spills ? "" : given, rect });
      (spills ? inside : actionable).forEach((entry) => this.push(entry));
    } else inside.forEach((entry) => this.push(entry));
  }
}

/** Returns whether the element is a target itself and not only a listener for its content. */
function isCard({ element, style, words, actionable }) {
  if (!words) return false;
  return (
    style.cursor === "pointer" ||
    (hasClickListener(element) && words.length <= NAME_LIMIT && actionable.length <= 3)
  );
}
