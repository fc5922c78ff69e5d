// One step of an episode: the page, what was thought, done and answered, and how sure the policy was.

function part(name, title, ...content) {
  return h("section", { class: `part ${name}` }, h("h4", {}, title), content);
}

function renderStep(episode, steps, at) {
  const step = steps[at];
  return [
    h("div", { class: "page-side" }, pageFrame(step, `at step ${at + 1}`)),
    h("div", { class: "mind-side" },
      step.thought && part("thought", "Thought", h("p", {}, step.thought)),
      part(step.invalid ? "did invalid" : "did", step.invalid ? "Invalid reply" : "Did",
        h("p", {}, step.did), step.call && h("code", {}, step.call)),
      step.answer.length > 0 && part("answer", "The page answered", step.answer.map(pageAnswer)),
      sureness(step, episode.log.update !== null),
      time(step),
      h("div", { class: "part demand" }, exactPrompt(steps, at), exactReply(step))),
  ];
}

function renderEnd(episode, last) {
  const { outcome, reward, turns, tokens, answer, note } = episode;
  const told = reward === null ? " without a reward" : ` with reward ${reward}`;
  const taken = [plural(turns, "turn"), plural(tokens, "sampled token"), seconds(episode.seconds)].join(" · ");
  return [
    h("div", { class: "page-side" }, last ? pageFrame({ shot: last }, "as the episode left it")
      : h("p", { class: "nothing" }, "No picture was kept of how the page was left.")),
    h("div", { class: "mind-side" },
      part("ended", "Outcome", h("p", {}, outcomePill(outcome), told), h("p", { class: "quiet" }, taken)),
      answer !== null && part("thought", "Answer", h("p", {}, answer || "(empty)")),
      note && part("answer", "Note", h("p", { class: "error" }, note))),
  ];
}

// --- the page ---

function pageFrame(step, caption) {
  const address = h("figcaption", { class: "address" },
    h("i", { "aria-hidden": "true" }), h("span", {}, step.url ?? caption), step.title && h("b", {}, step.title));
  return h("figure", { class: "frame" }, address,
    step.shot && picture(step.shot, caption), step.seen && observation(step));
}

// A window on the picture: what lies outside `crop` is empty.
function picture({ name, size, crop, mark }, caption) {
  const [x, y, width, height] = crop;
  const share = (value, whole) => `${100 * value / whole}%`;
  const image = h("img", {
    src: `report/pictures/${name}`,
    alt: `The page ${caption}${mark ? "; the marked element is the one acted on" : ""}`,
    width: size[0], height: size[1], decoding: "async",
    style: { width: share(size[0], width), left: share(-x, width), top: share(-y, height) },
  });
  const widest = `${Math.round(Math.min(2.2 * width, 1000, 440 * width / height))}px`;
  return h("div", { class: "shot" },
    h("div", { class: "window", style: { "aspect-ratio": `${width}/${height}`, "max-width": widest } },
      image,
      mark && h("i", { class: "mark", "aria-hidden": "true", style: {
        left: share(mark[0] - x, width), top: share(mark[1] - y, height),
        width: share(mark[2], width), height: share(mark[3], height),
      } })));
}

function observation({ seen, acted, told, truncated }) {
  const line = (text, i) => (acted.includes(i) ? h("mark", {}, hidden("acted on: "), text) : text);
  const props = { class: "seen", tabindex: "0", role: "region", "aria-label": "What the agent saw" };
  return h("div", { ...props, "data-scrolls": true },
    told && h("p", { class: "told" }, h("b", {}, "Told: "), told),
    h("ol", {}, seen.map((text, i) => h("li", {}, line(text, i)))),
    truncated && h("p", { class: "told" }, "The page was longer than what an observation may hold."));
}

function pageAnswer([kind, text]) {
  if (kind === "error") return h("p", { class: "error" }, h("b", {}, "Error "), text);
  if (kind === "=") return h("p", { class: "quiet" }, text);
  const came = kind === "+";
  const sign = h("span", { role: "img", "aria-label": came ? "came" : "went" }, came ? "+" : "−");
  return h("p", { class: came ? "came" : "went" }, sign, " ", text);
}

// --- how sure ---

const SURE = [0.9, 0.6, 0.3, 0.1]; // probabilities between the five shades

const shade = (logp) => SURE.filter((limit) => Math.exp(logp ?? 0) < limit).length;

function sureness(step, training) {
  const known = step.logp.map((logp, i) => ({ logp, i })).filter(({ logp }) => logp !== null);
  if (known.length === 0) return null;
  const mean = known.reduce((sum, { logp }) => sum + logp, 0) / known.length;
  const least = known.reduce((a, b) => (b.logp < a.logp ? b : a));
  const leastTold = `${tokenName(step, least.i)}, ${percent(Math.exp(least.logp))}`;
  const told = `mean log-probability ${nats(mean)}; least sure of ${leastTold}`;
  const body = step.pieces ? tokenTexts(step) : tokenBars(step, told);
  const readout = h("p", { class: "readout", "aria-hidden": "true" }, told);
  const tell = (event) => {
    const i = event.target.closest?.("[data-i]")?.dataset.i;
    readout.textContent = i === undefined ? told : tokenTold(step, Number(i));
  };
  body.addEventListener("pointerover", tell);
  body.addEventListener("pointerleave", tell);
  const shades = [0, 1, 2, 3, 4].map((n) => h("i", { class: `p${n}` }));
  return part("sureness", "Sampled tokens", body, readout, hidden(told),
    h("p", { class: "scale" },
      h("span", { "aria-hidden": "true" }, "sure ", shades, " unsure"),
      h("span", {}, sampledBy(step, training))));
}

function tokenTexts({ pieces, logp }) {
  const end = () => h("small", {}, "end");
  const text = (piece, i) => h("span", { class: `t p${shade(logp[i])}`, "data-i": i }, piece || end());
  return h("p", { class: "tokens" }, pieces.map(text));
}

function tokenBars({ logp }, told) {
  const height = (value) => `${Math.max(4, 100 * Math.exp(value ?? 0))}%`;
  const bar = (value, i) => h("i", { "data-i": i, class: `p${shade(value)}`, style: { height: height(value) } });
  return h("div", { class: "bars", role: "img", "aria-label": told }, logp.map(bar));
}

function tokenName({ pieces }, i) {
  if (!pieces) return `token ${i + 1}`;
  return pieces[i] === "" ? "the end" : `“${pieces[i].trim() || pieces[i]}”`;
}

function tokenTold(step, i) {
  const logp = step.logp[i];
  const known = () => `${percent(Math.exp(logp))}, log-probability ${nats(logp)}`;
  return `${tokenName(step, i)}: ${logp === null ? "probability unknown" : known()}`;
}

// The versions are told of training alone: an evaluation has one policy.
function sampledBy({ versions, finish }, training) {
  const [first, last] = versions ?? [];
  const policy = first === last ? `policy of update ${first}` : `policies of updates ${first} to ${last}`;
  const cut = finish === "length" && "cut off by the token limit";
  return [training && versions && policy, cut].filter(Boolean).join(" · ");
}

// --- where the time went ---

function time(step) {
  const all = Object.entries(step.seconds);
  const phases = all.filter(([name]) => !name.includes("/"));
  const parts = (phase) => all.filter(([name]) => name.startsWith(`${phase}/`));
  const whole = phases.reduce((sum, [, s]) => sum + s, 0);
  if (whole === 0) return null;
  const bar = ([name, s]) => h("i", { class: `phase-${name}`, title: name, style: { "flex-grow": s } });
  const line = ([name, s]) => h("li", {},
    h("i", { class: `phase-${name}`, "aria-hidden": "true" }), `${name} `, h("b", {}, seconds(s)),
    parts(name).map(([key, v]) => h("small", {}, ` ${key.split("/")[1]} ${seconds(v)}`)));
  return part("time", `Time, ${seconds(whole)}`,
    h("div", { class: "spent", "aria-hidden": "true" }, phases.map(bar)),
    h("ul", { class: "spent-on" }, phases.map(line)));
}

// --- on demand ---

function onDemand(title, text) {
  const details = h("details", {}, h("summary", {}, title));
  details.addEventListener("toggle", () => {
    if (details.open && details.childElementCount === 1) {
      details.append(h("pre", { tabindex: "0", "data-scrolls": true }, text()));
    }
  });
  return details;
}

function exactPrompt(steps, at) {
  const count = plural(steps[at].prompt_tokens, "token");
  if (!steps[at].prompt) {
    return h("p", { class: "quiet" }, `The prompt had ${count}; no tokenizer was at hand to write it out.`);
  }
  // Each prompt is told by how much of the one before it keeps, and the rest.
  const grow = (before, { prompt: [kept, rest] }) => before.slice(0, kept) + rest;
  return onDemand(`The exact prompt, ${count}`, () => steps.slice(0, at + 1).reduce(grow, ""));
}

function exactReply(step) {
  return onDemand(`The exact reply, ${plural(step.response_tokens, "token")}`, () => step.reply);
}
