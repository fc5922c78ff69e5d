// Traversal that collects entries and runs of text; a run continues until its block ends.
"use strict";
const TEXT_LIMIT = 4000; // characters of one run of text

class TextWalk extends Walk {
  constructor(limits) {
    super(limits);
    this.buffer = "";
    this.lastText = null; // text node of the last text
    this.muted = 0; // above 0: text is ignored
    this.inline = 0; // above 0: block borders only separate words, as in a table row
    this.cellBorder = false;
  }

  say(text, node, top) {
    if (this.muted || !text) return;
    if (this.cellBorder && this.buffer.trim() && text.trim()) this.buffer += " | ";
    if (text.trim()) this.cellBorder = false;
    this.buffer += text;
    if (node && text.trim()) this.lastText = node;
    if (top !== undefined) this.top = top;
  }

  flush(more = null) {
    const said = squeeze(this.buffer);
    this.buffer = "";
    this.cellBorder = false;
    const left = said.length - TEXT_LIMIT;
    const text = left > 0 ? `${firstOf(said, TEXT_LIMIT)}… (${left} more characters)` : said;
    if (text) this.push({ text, node: this.lastText, above: this.top < 0, ...more });
  }

  border() {
    if (this.inline) this.say(" ");
    else this.flush();
  }

  push(entry) {
    this.entries.push(entry);
    // A page that does not fit starts at the upper border of the viewport.
    if (!entry.above) this.spend(lengthOf(entry));
  }
}

/** Returns an upper bound of the entry's characters in the observation, line end included. */
function lengthOf({ text, name, value = "", options = [] }) {
  return text === undefined
    ? name.length + value.length + options.join(", ").length + 8
    : text.length + 1;
}
