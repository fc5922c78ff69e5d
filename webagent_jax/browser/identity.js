// Element ids. An element keeps its id for its lifetime. Scripts that render a part of the page
// again replace its elements by new ones; such a replacement takes over the id.
"use strict";
const ROW_LIMIT = 200; // characters of the text of a row that identify it
// Other attributes contain state, as `class` does, or are part of the name.
const IDENTIFYING = /^(id|name|type|href|role|onclick|data-.+)$/;
const { getAttribute: attributeOf, getAttributeNames: attributeNamesOf } = Element.prototype;

// Weak in both directions, so that ids do not keep removed elements alive.
const ids = new WeakMap(); // Element -> id
const byId = new Map(); // id -> WeakRef(Element)
let lastId = 0; // highest id in this document, or in other frames of the page
let lastIdentities = []; // [identity, id] of elements of the last observation

function setId(element, id) {
  ids.set(element, id);
  byId.set(id, new WeakRef(element));
}

/** Returns whether an element is on the page: its frame may have been removed or have navigated. */
const isLive = (element) =>
  Boolean(element?.isConnected) && element.ownerDocument.defaultView !== null;

/** Returns the id of an element; undefined if no observation has listed it. */
const idOf = (element) => ids.get(element);

/** Returns a map from each key of the [key, value] pairs to its values. */
function groupByKey(pairs) {
  const groups = new Map();
  for (const [key, value] of pairs) {
    if (groups.has(key)) groups.get(key).push(value);
    else groups.set(key, [value]);
  }
  return groups;
}

/**
 * Returns [identity, element] of the entries. An identity is text that describes an element and its
 * position; re-rendering by a script does not change it. Elements with equal kind, name and
 * row text have none, even if their attributes differ: an attribute may contain the row number,
 * which another row has after the next rendering.
 */
function identify(entries) {
  const places = new Map();
  const place = (element) => {
    if (!element) return "";
    let path = places.get(element);
    if (path === undefined) {
      path = element.localName;
      for (const name of attributeNamesOf.call(element))
        if (IDENTIFYING.test(name)) path += ` ${name}=${attributeOf.call(element, name)}`;
      // An id is unique in its document.
      if (!element.id) path = `${place(outerElement(element))} > ${path}`;
      places.set(element, path);
    }
    return path;
  };
  const identities = [];
  const groups = groupByKey(entries.map(({ element, kind, name }) => [`${kind} ${name}`, element]));
  for (const [words, elements] of groups) {
    const rows = elements.length > 1 ? rowTexts(elements) : [""];
    const byRow = groupByKey(elements.map((element, i) => [rows[i], element]));
    for (const [row, [element, ...others]] of byRow)
      if (others.length === 0) identities.push([`${words}\n${row}\n${place(element)}`, element]);
  }
  return identities;
}

/** Returns the text of each element's row: its outermost ancestor with no other of `elements`. */
function rowTexts(elements) {
  const counts = new Map();
  for (const element of elements) {
    // Around an element that contains two of them, all elements do.
    let count = 0;
    for (let outer = outerElement(element); outer && count < 2; outer = outerElement(outer)) {
      count = (counts.get(outer) ?? 0) + 1;
      counts.set(outer, count);
    }
  }
  return elements.map((element) => {
    let row = element;
    for (let outer = outerElement(row); counts.get(outer) === 1; outer = outerElement(row))
      row = outer;
    const text = squeeze(row.textContent);
    return `${text.length} ${text.slice(0, ROW_LIMIT)}`;
  });
}

/** Gives all entries with an element an id; replacements take over those of removed elements. */
function assignIds(entries) {
  const identities = identify(entries);
  const newPairs = identities.filter(([, element]) => !ids.has(element));
  // Strings become keys only if there are new elements, because that takes time.
  const idsByIdentity = new Map(newPairs.length > 0 ? lastIdentities : []);
  for (const [identity, element] of newPairs) {
    const id = idsByIdentity.get(identity);
    const predecessor = byId.get(id)?.deref();
    if (id === undefined || isLive(predecessor)) continue;
    ids.delete(predecessor); // a script may put it back
    setId(element, id);
  }
  for (const { element } of entries) if (!ids.has(element)) setId(element, (lastId += 1));
  lastIdentities = identities.map(([identity, element]) => [identity, ids.get(element)]);
}
