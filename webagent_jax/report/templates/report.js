"use strict";
// One task at a time, one step at a time. Without this script the page shows all of them.

const cases = [...document.querySelectorAll(".case")];
const chips = [...document.querySelectorAll(".chips a")];
let shown = 0;

class Player {
  constructor(element) {
    this.steps = [...element.querySelectorAll(".steps > li")];
    this.counter = element.querySelector(".counter");
    this.previous = element.querySelector(".previous");
    this.next = element.querySelector(".next");
    this.previous.addEventListener("click", () => this.move(-1));
    this.next.addEventListener("click", () => this.move(1));
    element.querySelector(".controls").hidden = false;
    element.addEventListener("keydown", (event) => this.key(event));
    this.show(0);
  }

  show(at) {
    this.at = at;
    this.steps.forEach((step, i) => { step.hidden = i !== at; });
    this.counter.textContent = this.steps[at].dataset.name;
    // aria-disabled keeps the focus on the button, where `disabled` would drop it.
    this.previous.setAttribute("aria-disabled", at === 0);
    this.next.setAttribute("aria-disabled", at === this.steps.length - 1);
  }

  move(by) {
    const to = this.at + by;
    if (to >= 0 && to < this.steps.length) this.show(to);
  }

  key(event) {
    const by = arrow(event);
    if (!by) return;
    event.preventDefault();
    event.stopPropagation();
    this.move(by);
  }
}

function arrow(event) {
  if (event.altKey || event.ctrlKey || event.metaKey || event.shiftKey) return 0;
  return { ArrowLeft: -1, ArrowRight: 1 }[event.key] ?? 0;
}

const players = cases.map((element) =>
  [...element.querySelectorAll(".player")].map((player) => new Player(player)));

function showCase(at) {
  shown = (at + cases.length) % cases.length;
  cases.forEach((element, i) => { element.hidden = i !== shown; });
  chips.forEach((chip, i) => {
    if (i === shown) chip.setAttribute("aria-current", "true");
    else chip.removeAttribute("aria-current");
  });
}

chips.forEach((chip, i) => chip.addEventListener("click", (event) => {
  event.preventDefault();
  history.replaceState(null, "", chip.hash);
  showCase(i);
}));

// Keys that no player took step all players of the task together.
document.addEventListener("keydown", (event) => {
  if (!cases.length || event.defaultPrevented) return;
  const by = arrow(event);
  if (by) {
    players[shown].forEach((player) => player.move(by));
    event.preventDefault();
  } else if (event.key === "[" || event.key === "]") {
    showCase(shown + (event.key === "]" ? 1 : -1));
  }
});

function showLinked() {
  const linked = cases.findIndex((element) => `#${element.id}` === location.hash);
  showCase(Math.max(linked, 0));
}

if (cases.length) {
  showLinked();
  addEventListener("hashchange", showLinked);
}
