// One turn of an episode: observation, thought, action, page changes and token probabilities.

function part(name, title, ...content) {
  return h("section", { class: `part ${name}` }, h("h4", {}, title), content);
}

function renderTurn(episode, turns, turnIndex) {
  const turn = turns[turnIndex];
  return [
    h("div", { class: "page-side" }, pageFrame(turn, `at turn ${turnIndex + 1}`)),
    h("div", { class: "agent-side" },
      decision(turn),
      turn.page_changes.length > 0 && part("page-changes", "Page changes", turn.page_changes.map(pageChange)),
      tokenProbabilities(turn, episode.log.update !== null),
      time(turn),
      h("div", { class: "part demand" }, promptDetails(turns, turnIndex), responseDetails(turn))),
  ];
}

// Thought and action of a response.
function decision(turn) {
  return [
    turn.thought && part("thought", "Thought", h("p", {}, turn.thought)),
    part(turn.invalid ? "action invalid" : "action", turn.invalid ? "Invalid response" : "Action",
      h("p", {}, turn.action), turn.call && h("code", {}, turn.call)),
  ];
}

function renderEnd(episode, last) {
  const { outcome, reward, turns, tokens, answer, infra_error: infraError } = episode;
  const rewardText = reward === null ? " without a reward" : ` with reward ${reward}`;
  const figures = [plural(turns, "turn"), plural(tokens, "sampled token"), seconds(episode.seconds)].join(" · ");
  return [
    h("div", { class: "page-side" }, last ? pageFrame({ shot: last }, "at the end of the episode")
      : h("p", { class: "empty" }, "No screenshot of the final page.")),
    h("div", { class: "agent-side" },
      part("ended", "Outcome", h("p", {}, outcomePill(outcome), rewardText), h("p", { class: "quiet" }, figures)),
      answer !== null && part("thought", "Answer", h("p", {}, answer || "(empty)")),
      infraError && part("infra-error", "Infrastructure error", h("p", { class: "error" }, infraError))),
  ];
}

// --- the page ---

function pageFrame(turn, caption, maxHeight = 440) {
  const address = h("figcaption", { class: "address" },
    h("i", { "aria-hidden": "true" }), h("span", {}, turn.url ?? caption), turn.title && h("b", {}, turn.title));
  return h("figure", { class: "frame" }, address,
    turn.shot && screenshot(turn.shot, caption, maxHeight), turn.observation && observationText(turn));
}

// Screenshot of at most `maxHeight` pixels, reduced to `crop`: the area outside it is blank.
function screenshot({ name, size, crop, mark }, caption, maxHeight) {
  const [x, y, width, height] = crop;
  const share = (value, total) => `${100 * value / total}%`;
  const image = h("img", {
    src: `report/screenshots/${name}`,
    alt: `Page ${caption}${mark ? "; the target element is marked" : ""}`,
    width: size[0], height: size[1], decoding: "async",
    style: { width: share(size[0], width), left: share(-x, width), top: share(-y, height) },
  });
  const maxWidth = `${Math.round(Math.min(2.2 * width, 1000, maxHeight * width / height))}px`;
  return h("div", { class: "shot" },
    h("div", { class: "window", style: { "aspect-ratio": `${width}/${height}`, "max-width": maxWidth } },
      image,
      mark && h("i", { class: "mark", "aria-hidden": "true", style: {
        left: share(mark[0] - x, width), top: share(mark[1] - y, height),
        width: share(mark[2], width), height: share(mark[3], height),
      } })));
}

function observationText({ observation, acted, error, truncated }) {
  const line = (text, i) => (acted.includes(i) ? h("mark", {}, srOnly("target: "), text) : text);
  const props = { class: "observation", tabindex: "0", role: "region", "aria-label": "Observation" };
  return h("div", { ...props, "data-scrolls": true },
    error && h("p", { class: "notice" }, h("b", {}, "Error: "), error),
    h("ol", {}, observation.map((text, i) => h("li", {}, line(text, i)))),
    truncated && h("p", { class: "notice" }, "Truncated: the page exceeds the maximum length of an observation."));
}

function pageChange([kind, text]) {
  if (kind === "error") return h("p", { class: "error" }, h("b", {}, "Error "), text);
  if (kind === "=") return h("p", { class: "quiet" }, text);
  const change = kind === "+" ? "added" : "removed";
  const sign = h("span", { role: "img", "aria-label": change }, kind === "+" ? "+" : "−");
  return h("p", { class: change }, sign, " ", text);
}

// --- token probabilities ---

const SHADE_LIMITS = [0.9, 0.6, 0.3, 0.1]; // probabilities that separate the five shades

const shade = (logp) => SHADE_LIMITS.filter((limit) => Math.exp(logp ?? 0) < limit).length;

function tokenProbabilities(turn, isTraining) {
  const tokens = turn.logp.map((logp, i) => ({ logp, i })).filter(({ logp }) => logp !== null);
  if (tokens.length === 0) return null;
  const mean = tokens.reduce((sum, { logp }) => sum + logp, 0) / tokens.length;
  const lowest = tokens.reduce((a, b) => (b.logp < a.logp ? b : a));
  const lowestText = `${tokenName(turn, lowest.i)}, ${percent(Math.exp(lowest.logp))}`;
  const summary = `mean log-probability ${nats(mean)}; lowest probability: ${lowestText}`;
  const body = turn.pieces ? tokenTexts(turn) : tokenBars(turn, summary);
  const readout = h("p", { class: "readout", "aria-hidden": "true" }, summary);
  const update = (event) => {
    const i = event.target.closest?.("[data-i]")?.dataset.i;
    readout.textContent = i === undefined ? summary : describeToken(turn, Number(i));
  };
  body.addEventListener("pointerover", update);
  body.addEventListener("pointerleave", update);
  const shades = [0, 1, 2, 3, 4].map((n) => h("i", { class: `p${n}` }));
  return part("probabilities", "Sampled tokens", body, readout, srOnly(summary),
    h("p", { class: "scale" },
      h("span", { "aria-hidden": "true" }, "probability high ", shades, " low"),
      h("span", {}, samplingNote(turn, isTraining))));
}

function tokenTexts({ pieces, logp }) {
  const end = () => h("small", {}, "end");
  const text = (piece, i) => h("span", { class: `t p${shade(logp[i])}`, "data-i": i }, piece || end());
  return h("p", { class: "tokens" }, pieces.map(text));
}

function tokenBars({ logp }, label) {
  const height = (value) => `${Math.max(4, 100 * Math.exp(value ?? 0))}%`;
  const bar = (value, i) => h("i", { "data-i": i, class: `p${shade(value)}`, style: { height: height(value) } });
  return h("div", { class: "bars", role: "img", "aria-label": label }, logp.map(bar));
}

function tokenName({ pieces }, i) {
  if (!pieces) return `token ${i + 1}`;
  return pieces[i] === "" ? "the end" : `“${pieces[i].trim() || pieces[i]}”`;
}

function describeToken(turn, i) {
  const logp = turn.logp[i];
  const probability = () => `${percent(Math.exp(logp))}, log-probability ${nats(logp)}`;
  return `${tokenName(turn, i)}: ${logp === null ? "unknown probability" : probability()}`;
}

// The policy version is shown for training only: an evaluation has one policy.
function samplingNote({ versions, finish }, isTraining) {
  const [first, last] = versions ?? [];
  const policy = first === last ? `policy version ${first}` : `policy versions ${first} to ${last}`;
  const truncation = finish === "length" && "truncated by the token limit";
  return [isTraining && versions && policy, truncation].filter(Boolean).join(" · ");
}

// --- time ---

function time(turn) {
  const all = Object.entries(turn.seconds);
  const phases = all.filter(([name]) => !name.includes("/"));
  const parts = (phase) => all.filter(([name]) => name.startsWith(`${phase}/`));
  const total = phases.reduce((sum, [, s]) => sum + s, 0);
  if (total === 0) return null;
  const bar = ([name, s]) => h("i", { class: `phase-${name}`, title: name, style: { "flex-grow": s } });
  const line = ([name, s]) => h("li", {},
    h("i", { class: `phase-${name}`, "aria-hidden": "true" }), `${name} `, h("b", {}, seconds(s)),
    parts(name).map(([key, v]) => h("small", {}, ` ${key.split("/")[1]} ${seconds(v)}`)));
  return part("time", `Time, ${seconds(total)}`,
    h("div", { class: "spent", "aria-hidden": "true" }, phases.map(bar)),
    h("ul", { class: "spent-on" }, phases.map(line)));
}

// --- prompt and response on demand ---

function onDemand(title, text) {
  const details = h("details", {}, h("summary", {}, title));
  details.addEventListener("toggle", () => {
    if (details.open && details.childElementCount === 1) {
      details.append(h("pre", { tabindex: "0", "data-scrolls": true }, text()));
    }
  });
  return details;
}

function promptDetails(turns, turnIndex) {
  const count = plural(turns[turnIndex].prompt_tokens, "token");
  if (!turns[turnIndex].prompt) {
    return h("p", { class: "quiet" }, `The prompt has ${count}. Its text is missing because no tokenizer was found.`);
  }
  // A prompt is stored as the length of the prefix shared with the previous prompt, and the rest.
  const restore = (previous, { prompt: [length, rest] }) => previous.slice(0, length) + rest;
  return onDemand(`Exact prompt, ${count}`, () => turns.slice(0, turnIndex + 1).reduce(restore, ""));
}

function responseDetails(turn) {
  return onDemand(`Exact response, ${plural(turn.response_tokens, "token")}`, () => turn.response);
}
