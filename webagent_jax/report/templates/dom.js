// DOM helpers. All text becomes text nodes: no function parses markup.

function h(tag, props = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(props)) {
    if (value === undefined || value === null || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (name === "style") setStyles(element, value);
    else element.setAttribute(name, value === true ? "" : value);
  }
  // Conditional children that are null, undefined, false or empty are omitted.
  element.append(...children.flat(2).filter((child) => ![null, undefined, false, ""].includes(child)));
  return element;
}

function setStyles(element, styles) {
  for (const [name, value] of Object.entries(styles)) element.style.setProperty(name, value);
}

const byId = (id) => document.getElementById(id);
const srOnly = (text) => h("span", { class: "sr" }, text);

const number = (value) => value.toLocaleString("en-US");
const plural = (n, noun) => `${number(n)} ${noun}${n === 1 ? "" : "s"}`;
const percent = (p) => `${p >= 0.0995 || p === 0 ? Math.round(100 * p) : (100 * p).toPrecision(2)}\u00a0%`;
const signed = (value) => `${value > 0 ? "+" : ""}${value.toFixed(2)}`.replace("-", "−");
const nats = (logp) => logp.toFixed(3).replace("-", "−");

function seconds(s) {
  if (s >= 60) return `${Math.floor(s / 60)} min ${Math.round(s % 60)} s`;
  return `${s.toFixed(s >= 10 ? 0 : s >= 1 ? 1 : 2)} s`;
}

const OUTCOMES = {
  SUCCESS: { sign: "✓", name: "success", kind: "good" },
  FAILURE: { sign: "✕", name: "failure", kind: "bad" },
  TRUNCATED: { sign: "…", name: "truncated", kind: "bad" },
  INFRA: { sign: "!", name: "infra", kind: "none" },
};

function outcomeSign(outcome) {
  const { sign, name, kind } = OUTCOMES[outcome];
  return h("span", { class: `sign ${kind}`, role: "img", "aria-label": name, title: name }, sign);
}

function outcomePill(outcome) {
  const { sign, name, kind } = OUTCOMES[outcome];
  return h("span", { class: `pill ${kind}` }, h("span", { "aria-hidden": "true" }, sign), ` ${name}`);
}

// Marks of the turns of an episode: no error, error, or invalid response.
const GRADES = { ".": "", e: "error", x: "invalid" };
const GRADE_NAMES = { ".": "", e: "error", x: "invalid response" };

function traceMarks(trace) {
  const errors = [...trace].filter((grade) => grade !== ".").length;
  const label = plural(trace.length, "turn") + (errors ? `, ${errors} with errors` : "");
  const marks = [...trace].slice(0, 30).map((grade) => h("i", { class: GRADES[grade] }));
  return h("span", { class: "trace", role: "img", "aria-label": label, title: label }, marks);
}
