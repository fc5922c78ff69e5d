// Traversal that collects entries and runs of text; a run continues until its block ends.
"use strict";
const TEXT_LIMIT = 4000; // characters of one run of text

class TextWalk extends Walk {
  constructor(limits) {
    super(limits);
    this.buffer = "";
    this.lastText = null; // text node of the last text
    this.ignoreTextDepth = 0; // above 0: text is ignored
    this.inlineDepth = 0; // above 0: block borders only separate words, as in a table row
    this.cellBorder = false;
    this.numEmptyCells = 0; // cells of the row without content since its last content
    this.numContents = 0; // texts and entries, to find cells without any
    this.frameTop = 0; // of the current document in the viewport of the page
  }

  addText(text, node, top) {
    if (text.trim()) this.numContents += 1;
    if (this.ignoreTextDepth || !text) return;
    if (text.trim()) {
      // An empty cell keeps its column.
      const hasText = this.buffer.trim() !== "";
      this.buffer += (hasText ? " |" : "| ").repeat(this.numEmptyCells);
      if (this.cellBorder && hasText) this.buffer += " | ";
      this.cellBorder = false;
      this.numEmptyCells = 0;
    }
    this.buffer += text;
    if (node && text.trim()) this.lastText = node;
    if (top !== undefined) this.top = top;
  }

  flush(fields = null) {
    const content = squeeze(this.buffer);
    this.buffer = "";
    this.cellBorder = false;
    this.numEmptyCells = 0;
    const numOmitted = content.length - TEXT_LIMIT;
    const text =
      numOmitted > 0
        ? `${firstOf(content, TEXT_LIMIT)}… (${numOmitted} more characters)`
        : content;
    const above = this.top + this.frameTop < 0;
    if (text) this.push({ text, node: this.lastText, above, ...fields });
  }

  border() {
    if (this.inlineDepth) this.addText(" ");
    else this.flush();
  }

  push(entry) {
    this.entries.push(entry);
    this.numContents += 1;
    // A page that does not fit starts at the upper border of the viewport.
    if (!entry.above) this.countChars(lengthOf(entry));
  }
}

/** Returns an upper bound of the entry's characters in the observation, line end included. */
function lengthOf({ text, name, value = "", options = [] }) {
  return text === undefined
    ? name.length + value.length + options.join(", ").length + 8
    : text.length + 1;
}
