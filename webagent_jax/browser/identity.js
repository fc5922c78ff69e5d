// Element ids. An element keeps its id for its lifetime. A script that renders a part of the page
// again replaces elements by new ones; a replacement takes over the id if it is the same control.
"use strict";
const ROW_LIMIT = 200; // characters of the text of a row that distinguish it from other rows
// Other attributes contain state, such as class, or are part of the name.
const IDENTIFYING = /^(id|name|type|href|role|onclick|data-.+)$/;

// Weak in both directions, so that ids do not keep removed elements alive.
const ids = new WeakMap(); // Element -> id
const byId = new Map(); // id -> WeakRef(Element)
let lastId = 0; // highest id in this document, or in other frames of the page
let uniqueIds = new Map(); // identity -> id, if one element of the last observation has it

function setId(element, id) {
  ids.set(element, id);
  byId.set(id, new WeakRef(element));
}

/** Returns the elements around an element, from the inside. */
function* ancestorsOf(element) {
  for (let node = parentOrHost(element); node; node = parentOrHost(node))
    if (node.nodeType === Node.ELEMENT_NODE) yield node;
}

/** Groups [key, value] pairs: returns a map from each key to its values. */
function groupByKey(pairs) {
  const groups = new Map();
  for (const [key, value] of pairs) {
    if (groups.has(key)) groups.get(key).push(value);
    else groups.set(key, [value]);
  }
  return groups;
}

/**
 * Returns the identity of each entry with an element, as [identity, element]: what the entry is and
 * where, in words that do not change if a script renders it again.
 */
function identify(entries) {
  const places = new Map();
  const place = (element) => {
    if (!element) return "";
    if (!places.has(element)) {
      const attributes = [...attributesIn.call(element)].filter(({ name }) => IDENTIFYING.test(name));
      const own = [element.localName, ...attributes.map(({ name, value }) => `${name}=${value}`)];
      // An id is unique in its document.
      const hasId = attributes.some(({ name }) => name === "id");
      const outer = hasId ? "" : place(ancestorsOf(element).next().value);
      places.set(element, `${outer} > ${own.join(" ")}`);
    }
    return places.get(element);
  };
  const groups = groupByKey(
    entries.map(({ element, kind, name }) => [`${kind} ${name}${place(element)}`, element]),
  );
  return [...groups].flatMap(([identity, elements]) =>
    elements.length === 1
      ? [[identity, elements[0]]]
      : rowTexts(elements).map((text, i) => [`${identity} in ${text}`, elements[i]]),
  );
}

/** Returns the text of the row of each element: of what is around it and around no other. */
function rowTexts(elements) {
  const counts = new Map();
  for (const element of elements)
    for (const ancestor of ancestorsOf(element))
      counts.set(ancestor, (counts.get(ancestor) ?? 0) + 1);
  return elements.map((element) => {
    let row = element;
    for (const ancestor of ancestorsOf(element)) {
      if (counts.get(ancestor) > 1) break;
      row = ancestor;
    }
    return firstOf(squeeze(row.textContent), ROW_LIMIT);
  });
}

/**
 * Gives ids to the elements of all entries. A replacement takes over the id of a removed element if
 * nothing else on the page was or is like it, so that no id changes its meaning.
 */
function assignIds(entries) {
  const groups = groupByKey(identify(entries));
  for (const [identity, [element, ...others]] of groups) {
    const id = uniqueIds.get(identity);
    if (id === undefined || others.length > 0 || ids.has(element)) continue;
    const predecessor = byId.get(id).deref();
    if (predecessor?.isConnected) continue;
    ids.delete(predecessor); // a script may put it back
    setId(element, id);
  }
  for (const { element } of entries) if (!ids.has(element)) setId(element, (lastId += 1));
  uniqueIds = new Map();
  for (const [identity, [element, ...others]] of groups)
    if (others.length === 0) uniqueIds.set(identity, ids.get(element));
}
