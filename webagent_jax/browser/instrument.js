// Runs before the scripts of the page and records what is not observable later: the elements with
// pointer listeners, the pending short timers and animation frames. All data in the page is a
// property of one global name, which `for ... in` does not list.
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
const SHORT_TIMER = 500; // ms; actions wait for timers up to this delay
const MAX_TIMERS = 3; // nested timers that actions wait for
const MAX_FRAMES = 3; // nested requests of animation frames that actions wait for
const FRAMES_LIMIT = 200; // ms; longest wait for animation frames

const listeners = new WeakMap(); // Element -> Map(event type -> Set(listener))
const timers = new Set(); // ids of pending short timers, not nested deeper than above
const frameRequests = new Set(); // ids of pending animation frames, not nested deeper than above
// Stored before they are replaced; timers and listeners of these scripts are not recorded.
const native = {
  addEventListener: EventTarget.prototype.addEventListener,
  removeEventListener: EventTarget.prototype.removeEventListener,
  setTimeout: window.setTimeout.bind(window),
  clearTimeout: window.clearTimeout.bind(window),
  requestAnimationFrame: window.requestAnimationFrame.bind(window),
  cancelAnimationFrame: window.cancelAnimationFrame.bind(window),
  getAnimations: Document.prototype.getAnimations.bind(document),
  open: window.open.bind(window),
};

// The replacements record calls and pass them on unchanged.
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

// A debounced function may set its timer again in the timer. Deeper timers do not count; otherwise
// a page that polls would never be quiet.
let timerDepth = 0;
window.setTimeout = function setTimeout(callback, delay = 0, ...values) {
  if (typeof callback !== "function") return native.setTimeout(callback, delay, ...values);
  const depth = timerDepth + 1;
  const id = native.setTimeout(() => {
    timers.delete(id);
    timerDepth = depth;
    try {
      callback.apply(window, values);
    } finally {
      timerDepth = 0;
    }
  }, delay);
  if (depth <= MAX_TIMERS && delay <= SHORT_TIMER) timers.add(id);
  return id;
};

// Timeouts and intervals share their ids, so both functions clear both.
window.clearTimeout = window.clearInterval = function clearTimeout(id) {
  timers.delete(id);
  native.clearTimeout(id);
};

// A script that fades an element in adds it in one frame and changes its style in the next, or in
// the one after. Deeper requests do not count; otherwise a page that draws would never be quiet.
let frameDepth = 0;
window.requestAnimationFrame = function requestAnimationFrame(callback) {
  if (typeof callback !== "function") return native.requestAnimationFrame(callback);
  const depth = frameDepth + 1;
  const id = native.requestAnimationFrame((time) => {
    frameRequests.delete(id);
    frameDepth = depth;
    try {
      callback.call(window, time);
    } finally {
      frameDepth = 0;
    }
  });
  if (depth <= MAX_FRAMES) frameRequests.add(id);
  return id;
};

window.cancelAnimationFrame = function cancelAnimationFrame(id) {
  frameRequests.delete(id);
  native.cancelAnimationFrame(id);
};

/** Returns whether `element` has listeners of pointer events, or of the event `type`. */
function listensToPointer(element, type) {
  const byType = listeners.get(element);
  const sets = type ? [byType?.get(type)] : [...(byType?.values() ?? [])];
  return sets.some((set) => set?.size > 0);
}

// A new tab opens some time after the click that requests it, so `quiet` reports the request.
let tabRequested = false;
const opensTab = (target) => Boolean(target) && !/^_(self|top|parent)$/i.test(target);
window.open = function open(url, target = "_blank", ...rest) {
  if (opensTab(target)) tabRequested = true;
  return native.open(url, target, ...rest);
};
native.addEventListener.call(
  window,
  "click",
  // A link may open a tab without a call of window.open.
  (event) => {
    const link = event.composedPath()[0]?.closest?.("a[href], area[href]");
    const hasModifier = event.ctrlKey || event.shiftKey || event.metaKey;
    // Checked after all listeners, because one of them may prevent the default.
    if (link && (hasModifier || opensTab(link.target)))
      native.setTimeout(() => (tabRequested ||= !event.defaultPrevented), 0);
  },
  true,
);

// Animations of these properties change neither what is visible nor where.
const COSMETIC = /color|shadow|filter|outline|background|border|decoration|^(fill|stroke)/i;
const KEYFRAME_FIELDS = new Set(["offset", "computedOffset", "easing", "composite"]);

function isCosmetic(animation) {
  if (animation.transitionProperty) return COSMETIC.test(animation.transitionProperty);
  return animation.effect
    .getKeyframes()
    .flatMap(Object.keys)
    .every((name) => KEYFRAME_FIELDS.has(name) || COSMETIC.test(name));
}

/**
 * Returns the ms until transitions and animations end that change what is visible, 0 without any.
 * Those that last longer than `limit` ms, or forever, do not count.
 */
function animationTime(limit) {
  let longest = 0;
  for (const animation of native.getAnimations()) {
    const { playState, playbackRate, currentTime, timeline, effect } = animation;
    if (playState !== "running" || timeline !== document.timeline) continue;
    const { endTime } = effect.getComputedTiming();
    const rest = (playbackRate < 0 ? -currentTime : endTime - currentTime) / playbackRate;
    if (rest > longest && rest <= limit && !isCosmetic(animation)) longest = rest;
  }
  return longest;
}

/** Returns whether timers or animation frames are pending, `elapsed` ms after the wait began. */
const hasPendingCalls = (elapsed) =>
  timers.size > 0 || (frameRequests.size > 0 && elapsed < FRAMES_LIMIT);

/** Returns the documents of this frame and of the same-origin frames in it, nested ones too. */
function documentsIn(page) {
  const inner = [...page.querySelectorAll("iframe, frame")].flatMap(({ contentDocument }) =>
    contentDocument ? documentsIn(contentDocument) : [],
  );
  return [page, ...inner];
}

/** Returns a document or shadow root, and the open shadow roots in it, nested ones too. */
function rootsIn(root) {
  const roots = [root];
  // Faster than a list of all elements.
  const walker = document.createTreeWalker(root, NodeFilter.SHOW_ELEMENT);
  while (walker.nextNode()) {
    const { shadowRoot } = walker.currentNode;
    if (shadowRoot) roots.push(...rootsIn(shadowRoot));
  }
  return roots;
}

// Whether the last wait has seen no quiet document; the next one does not wait for its changes.
let isUnsettled = false;

/**
 * Waits until nothing has changed for `quietMs` ms and no short timer, animation frame or animation
 * is pending, in this document and its same-origin frames, or for `limit` ms.
 * Resolves to whether the page has requested a new tab since the last call.
 */
function quiet(quietMs, limit) {
  const startTime = performance.now();
  let lastChange = startTime;
  const observer = new MutationObserver(() => (lastChange = performance.now()));
  const changes = { subtree: true, childList: true, attributes: true, characterData: true };
  for (const root of documentsIn(document).flatMap(rootsIn)) observer.observe(root, changes);
  // A frame may have loaded another document since, so its scripts are looked up at each check.
  const scripts = () =>
    documentsIn(document).flatMap((page) => page.defaultView?.__webagent ?? []);
  return new Promise((resolve) => {
    const check = () => {
      const now = performance.now();
      const elapsed = now - startTime;
      const quietFor = isUnsettled ? elapsed : now - lastChange;
      const isWaiting = scripts().some((frame) => frame.hasPendingCalls(elapsed));
      const isQuiet = quietFor >= quietMs && !isWaiting;
      const animated = isQuiet
        ? Math.max(...scripts().map((frame) => frame.animationTime(limit - elapsed)))
        : 0;
      if (elapsed > limit || (isQuiet && animated === 0)) {
        observer.disconnect();
        isUnsettled = now - lastChange < quietMs;
        resolve(tabRequested);
        tabRequested = false;
      } else {
        // The end of an animation is a change too: scripts may respond to it.
        if (animated > 0) lastChange = now + animated;
        native.setTimeout(check, Math.max(5, quietMs - quietFor, animated && animated + quietMs));
      }
    };
    native.setTimeout(check, quietMs);
  });
}
