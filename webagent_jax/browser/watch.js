// Runs before any script of the page. Remembers what only a script can see happen: which elements
// listen to the pointer, and which short timers are pending. Everything the browser room keeps in
// a page hangs on one name that `for ... in` does not list.
"use strict";
const POINTER_EVENTS = new Set([
  "click",
  "dblclick",
  "mousedown",
  "mouseup",
  "pointerdown",
  "pointerup",
  "touchstart",
]);
const SHORT_TIMER = 500; // ms; what a page promises to do so soon, an action waits for

const listeners = new WeakMap(); // Element -> Map(event type -> Set(listener))
const timers = new Set(); // ids of pending short timers
const native = {
  addEventListener: EventTarget.prototype.addEventListener,
  removeEventListener: EventTarget.prototype.removeEventListener,
  setTimeout: window.setTimeout.bind(window),
  clearTimeout: window.clearTimeout.bind(window),
  open: window.open.bind(window),
};

EventTarget.prototype.addEventListener = function addEventListener(type, listener, ...rest) {
  if (listener && this instanceof Node && POINTER_EVENTS.has(type)) {
    if (!listeners.has(this)) listeners.set(this, new Map());
    const byType = listeners.get(this);
    if (!byType.has(type)) byType.set(type, new Set());
    byType.get(type).add(listener);
  }
  return native.addEventListener.call(this, type, listener, ...rest);
};

EventTarget.prototype.removeEventListener = function removeEventListener(type, listener, ...rest) {
  if (this instanceof Node) listeners.get(this)?.get(type)?.delete(listener);
  return native.removeEventListener.call(this, type, listener, ...rest);
};

// Timers set by a timer are left out, or a page that polls itself would never count as quiet.
let insideTimer = false;
window.setTimeout = function setTimeout(callback, delay = 0, ...values) {
  if (typeof callback !== "function") return native.setTimeout(callback, delay, ...values);
  const counts = !insideTimer && delay <= SHORT_TIMER;
  const id = native.setTimeout(() => {
    timers.delete(id);
    insideTimer = true;
    try {
      callback.apply(window, values);
    } finally {
      insideTimer = false;
    }
  }, delay);
  if (counts) timers.add(id);
  return id;
};

window.clearTimeout = function clearTimeout(id) {
  timers.delete(id);
  native.clearTimeout(id);
};

/** Whether `element` itself listens to the pointer, or to the pointer event `type` alone. */
function listensToPointer(element, type) {
  const byType = listeners.get(element);
  const heard = type ? [byType?.get(type)] : [...(byType?.values() ?? [])];
  return heard.some((some) => some?.size > 0);
}

// A new tab comes some time after the click that asks for it: whoever waits should know of it.
let tabAsked = false;
const opensTab = (target) => Boolean(target) && !/^_(self|top|parent)$/i.test(target);
window.open = function open(url, target = "_blank", ...rest) {
  if (opensTab(target)) tabAsked = true;
  return native.open(url, target, ...rest);
};
native.addEventListener.call(
  window,
  "click",
  (event) => {
    const link = event.composedPath()[0]?.closest?.("a[href], area[href]");
    const held = event.ctrlKey || event.shiftKey || event.metaKey;
    // Looked at when all listeners have run: one of them may have prevented it.
    if (link && (held || opensTab(link.target)))
      native.setTimeout(() => (tabAsked ||= !event.defaultPrevented), 0);
  },
  true,
);

let restless = false; // a page that never stops changing is not waited for twice

/**
 * Resolves when nothing changed for `calm` ms and no short timer is pending, or after `limit` ms:
 * to whether the page has asked for a new tab since the last time.
 */
function quiet(calm, limit) {
  const started = performance.now();
  let changed = started;
  const observer = new MutationObserver(() => (changed = performance.now()));
  observer.observe(document, {
    subtree: true,
    childList: true,
    attributes: true,
    characterData: true,
  });
  return new Promise((resolve) => {
    const look = () => {
      const now = performance.now();
      const calmFor = now - (restless ? started : changed);
      if (now - started > limit && calmFor < calm) restless = true;
      if (now - started > limit || (calmFor >= calm && timers.size === 0)) {
        observer.disconnect();
        resolve(tabAsked);
        tabAsked = false;
      } else {
        native.setTimeout(look, Math.max(5, calm - calmFor));
      }
    };
    native.setTimeout(look, calm);
  });
}
