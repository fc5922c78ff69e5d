// DOM traversal of the `compact` format: visible text and actionable elements in document order.
//   {text}                                                      one run of plain text
//   {id, kind, name, value, options, disabled, pressed, box}    one actionable element
// An entry with {frame, frameBox} precedes the entries of a cross-origin frame (frames.js).
"use strict";
const LABEL_LIMIT = 40; // maximum length of the text before a field that becomes its label
const SHAPES_LIMIT = 40; // plain shapes listed per drawing

class CompactWalk extends TextWalk {
  constructor(limits) {
    super(limits);
    this.used = new Set(); // text nodes that are part of a name
    this.frameBox = limits.frameBox ?? wholeViewport();
    this.frameTop = this.frameBox.y;
  }

  /** Returns all entries, with ids and boxes. */
  collectEntries() {
    const root = bodyOf(document) ?? document.documentElement;
    const { frameBox } = this;
    if (root)
      this.element(root, {
        depth: 0,
        cursor: "auto",
        isVisible: true,
        rect: { bottom: 0 },
        drawing: null,
        frameBox,
      });
    this.flush();
    // Only now are all figures of a drawing known, whose sizes are relative to each other.
    sizeFigures(this.entries);
    assignIds(this.entries.filter(({ element }) => element));
    return this.entries.map(({ element, node, ...entry }) =>
      element
        ? { id: String(ids.get(element)), ...entry, box: boxAt(element, frameBox) }
        : entry,
    );
  }

  node(node, context) {
    if (this.hasStopped) return;
    if (node.nodeType === Node.TEXT_NODE) {
      if (context.isVisible && !this.used.has(node))
        this.addText(withoutBreaks(node.data), node, context.rect.bottom);
    } else if (isClobbered(node)) this.fieldsOf(node, context);
    else if (node.nodeType === Node.ELEMENT_NODE) this.element(node, context);
  }

  children(element, context) {
    if (context.depth > DEPTH_LIMIT) return;
    // The content of a closed <details> is not rendered; its summary opens it.
    if (tagOf(element) === "DETAILS" && !element.open) {
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
    if (tagOf(element) === "AREA") return this.area(element);
    const style = getComputedStyle(element);
    const ownRect = element.getBoundingClientRect();
    if (isHidden(element, style, ownRect)) return;
    if (cutsOffContent(element, style, ownRect)) {
      // In an app of positioned panels, the box around them has no area.
      for (const inner of positionedOutside(element)) this.element(inner, parent);
      return;
    }
    const rect = style.display === "contents" ? boundsOf(element) : ownRect;
    const isVisible = style.visibility === "visible";
    const context = {
      depth: parent.depth + 1,
      cursor: style.cursor,
      isVisible,
      rect,
      drawing: parent.drawing,
      frameBox: parent.frameBox,
    };
    if (tagOf(element) === "BR") return this.border();
    if (/^I?FRAME$/.test(tagOf(element))) return this.frame(element, context);
    const [kind, isListener] =
      isVisible && hasBox(element, style, rect)
        ? kindOf(element, style, parent.cursor)
        : ["", false];
    const isBlock = !INLINE.has(style.display) && !element.ownerSVGElement;
    if (tagOf(element) === "LABEL" && element.control)
      return this.label(element, style, context, isBlock);
    // The first match decides: a field, a clickable element, a shape, a row, other content.
    if (FIELDS.has(kind) && (isNativeField(element) || kind === "textbox"))
      return this.field(element, kind, rect);
    if (kind) return this.clickable({ element, kind, isListener, style, rect, context });
    if (element.ownerSVGElement && this.shape(element, style, context)) return;
    if (isRow(element, style)) return this.row(element, context);
    if (tagOf(element) === "IMG") this.addText(` ${squeeze(element.alt)} `, element, rect.bottom);
    if (element.tagName === "svg")
      context.drawing = rect.width >= 48 && rect.height >= 48 ? { shapes: 0 } : null;
    if (isBlock) this.border();
    else if (style.display !== "inline") this.addText(" ");
    this.children(element, context);
    if (isBlock) this.border();
    else if (style.display !== "inline") this.addText(" ");
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
    const name = ariaName(element) || squeeze(element.alt) || tooltipOf(element);
    this.list({ element, kind, name, rect: areaRect(element) });
  }

  /** Adds a plain shape of a drawing, unless the drawing is as small as an icon. */
  shape(element, style, context) {
    if (!FIGURES.has(element.tagName) || !context.drawing || !context.isVisible) return false;
    context.drawing.shapes += 1;
    if (context.drawing.shapes <= SHAPES_LIMIT) {
      this.addText(
        `${this.buffer.trim() ? ", " : ""}${shapeName(element, style)}`,
        element,
        context.rect.bottom,
      );
    }
    return true;
  }

  row(element, context) {
    this.flush();
    const children = Array.from(nodesIn(element)).filter((n) => n.nodeType === Node.ELEMENT_NODE);
    const hasRoles = children.some(hasCellRole);
    for (const child of children) {
      const isCell = !hasRoles || hasCellRole(child);
      if (isCell) this.cellBorder = true;
      // Blocks in a small cell only separate words, so that the row stays one line.
      const isSimple = child.getElementsByTagName("*").length <= 8;
      const oldNumContents = this.numContents;
      this.inlineDepth += isSimple ? 1 : 0;
      this.node(child, context);
      this.inlineDepth -= isSimple ? 1 : 0;
      const isEmpty = this.numContents === oldNumContents;
      if (isEmpty && isCell && getComputedStyle(child).display !== "none") this.numEmptyCells += 1;
    }
    this.flush();
  }

  frame(element, context) {
    this.flush();
    const innerRoot = element.contentDocument?.documentElement;
    if (innerRoot) {
      const frameBox = frameBoxOf(element, context.frameBox);
      const outerTop = this.frameTop;
      this.frameTop = frameBox.y;
      this.children(innerRoot, { ...context, drawing: null, frameBox });
      this.flush();
      this.frameTop = outerTop;
    } else if (context.isVisible) {
      this.addText(`[frame: ${tooltipOf(element) || element.src}]`, element, context.rect.bottom);
      this.flush(crossOriginFrame(element, context.frameBox));
    }
  }

  /** Visits a label; it is listed instead of its control if only style sheets draw the control. */
  label(element, style, context, isBlock) {
    const control = element.control;
    const box = control.getBoundingClientRect();
    const isControlVisible =
      control.checkVisibility({ opacityProperty: true, visibilityProperty: true }) &&
      box.width > 1 &&
      box.height > 1;
    const kind = nativeKind(control);
    if (isBlock) this.border();
    if (
      !isControlVisible &&
      context.isVisible &&
      (kind === "checkbox" || kind === "radio" || control.type === "file")
    ) {
      this.flush();
      this.list({
        element,
        kind,
        name: ariaName(control) || textOf(element) || tooltipOf(control),
        control,
        rect: context.rect,
      });
      if (element.querySelector("a[href], button")) {
        // Links in the text of the label are targets of their own.
        this.ignoreTextDepth += 1;
        this.children(element, context);
        this.ignoreTextDepth -= 1;
      }
    } else {
      // The text of the label becomes the name of its field and is not listed twice.
      const isName = isControlVisible && FIELDS.has(kind) && !ariaName(control);
      this.ignoreTextDepth += isName ? 1 : 0;
      this.children(element, context);
      this.ignoreTextDepth -= isName ? 1 : 0;
    }
    if (isBlock) this.border();
  }

  list({ element, kind, name, rect, control = element }) {
    const entry = {
      element,
      kind,
      name: shorten(name),
      ...stateOf(control, kind),
      above: rect.bottom + this.frameTop < 0,
    };
    if (isDisabled(control)) entry.disabled = true;
    if (control.getAttribute("aria-pressed") === "true") entry.pressed = true;
    this.push(entry);
    return entry;
  }

  field(element, kind, rect) {
    // Sources of the name in order: ARIA, label, title or placeholder, text around the field.
    let name =
      ariaName(element) ||
      labelName(element) ||
      tooltipOf(element) ||
      squeeze(element.getAttribute("placeholder") ?? "");
    const isBox = kind === "checkbox" || kind === "radio";
    if (!name && isBox) name = this.textAfter(element);
    if (!name) name = this.textBefore(element);
    if (!name && !isBox && isOnlyControl(element)) name = this.textAfter(element);
    const oldDepth = this.ignoreTextDepth;
    this.ignoreTextDepth = 0;
    this.flush();
    this.list({ element, kind, name: name.replace(/\s*[:=]$/, ""), rect });
    this.ignoreTextDepth = oldDepth;
  }

  /** Returns the text right before an unlabeled field and removes it from the entries. */
  textBefore(element) {
    const run = squeeze(this.buffer);
    if (run) {
      if (run.length > NAME_LIMIT) return "";
      this.buffer = "";
      this.cellBorder = false;
      return run;
    }
    // Without pending text, a short previous entry in the same container is the label.
    const last = this.entries.at(-1);
    const parent = element.parentElement;
    if (!last?.text || !last.node || last.text.length > LABEL_LIMIT || !parent) return "";
    if ("frame" in last) return "";
    const container =
      parent.childElementCount === 1 && !textOf(parent) ? parent.parentElement : parent;
    if (!container?.contains(last.node) || container === bodyOf(container.ownerDocument)) return "";
    this.entries.pop();
    // The entry is removed, so its characters count no longer.
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
  clickable({ element, kind, isListener, style, rect, context }) {
    const outer = { ignoreTextDepth: this.ignoreTextDepth, inlineDepth: this.inlineDepth };
    const oldBuffer = this.buffer;
    const separator = this.cellBorder && oldBuffer.trim();
    this.flush();
    const start = this.entries.length;
    const chars = this.chars;
    const isInputButton = nativeKind(element) === "button" && tagOf(element) === "INPUT";
    this.ignoreTextDepth = this.inlineDepth = 0;
    // 1. Traverse the content on its own, with text and layout independent of the surroundings.
    if (!isInputButton) this.children(element, { ...context, drawing: null });
    if (tagOf(element) === "IMG") this.addText(squeeze(element.alt), element);
    this.flush();
    this.ignoreTextDepth = outer.ignoreTextDepth;
    this.inlineDepth = outer.inlineDepth;
    this.cellBorder = Boolean(separator);
    // 2. Take its entries back.
    const innerEntries = this.entries.splice(start);
    this.chars = chars; // entries that are pushed again below count then
    const texts = innerEntries.filter((entry) => entry.text !== undefined);
    const actionable = innerEntries.filter((entry) => entry.text === undefined);
    const words = squeeze(texts.map((entry) => entry.text).join(" "));
    const ownName =
      ariaName(element) ||
      (isInputButton
        ? squeeze(element.value || element.alt) || tooltipOf(element) || element.type
        : words);

    // 3. Decide which of them remain, by the number of actionable elements in the content.
    if (actionable.length === 0) {
      // None: list the element with its text as the name; a long text of an item stays plain text.
      const fullName =
        ownName ||
        tooltipOf(element) ||
        squeeze(element.getAttribute("placeholder") || textOf(element)) ||
        innerName(element) ||
        hint(element, style);
      const color = words && element.ownerSVGElement ? accent(style.fill) : "";
      const name = squeeze(`${fullName} ${color}`);
      const isTooLong = kind === "item" && fullName === words && words.length > NAME_LIMIT;
      this.list({ element, kind, name: isTooLong ? "" : name, rect });
      if (isTooLong) texts.forEach((entry) => this.push(entry));
    } else if (actionable.length === 1 && !words) {
      // One, and no text: both are one target for the agent, so only the inner one is listed.
      const [innerEntry] = actionable;
      if (!FIELDS.has(innerEntry.kind) && kind !== "item") innerEntry.kind = kind;
      innerEntry.name ||= shorten(ariaName(element) || tooltipOf(element));
      this.push(innerEntry);
    } else if (
      (isListener || (words && (nativeKind(element) || style.cursor === "pointer"))) &&
      (kind !== "item" || isCard({ element, style, words, actionable }))
    ) {
      // Several, or text beside one: the element is a target of its own, and so is its content.
      const isTooLong = words.length > NAME_LIMIT;
      this.list({ element, kind, name: isTooLong ? "" : ownName, rect });
      (isTooLong ? innerEntries : actionable).forEach((entry) => this.push(entry));
    } else innerEntries.forEach((entry) => this.push(entry));
  }
}

const CELL_ROLES = new Set(["cell", "gridcell", "columnheader", "rowheader"]);
const hasCellRole = (element) => CELL_ROLES.has(element.role);

/** Returns whether the children of the element are the cells of a row. */
function isRow(element, style) {
  const isText = (node) => node.nodeType === Node.TEXT_NODE && node.data.trim() !== "";
  // Text beside cells forms a cell without an element; such a row is read as plain text.
  if (style.display === "table-row") return !Array.from(nodesIn(element)).some(isText);
  return element.role === "row" && Array.from(element.children).some(hasCellRole);
}

/** Returns whether the element is a target itself and not only a listener for its content. */
function isCard({ element, style, words, actionable }) {
  if (!words) return false;
  return (
    style.cursor === "pointer" ||
    (hasClickListener(element) && words.length <= NAME_LIMIT && actionable.length <= 3)
  );
}
