// What is shown is written in the address, behind the #: so a link names it, and a reload keeps it.

const FILTERS = ["q", "log", "site", "task", "outcome", "reward", "change", "from", "to", "sort"];
const SHOWN = ["episode", "step", "with", "step2"];

function readState() {
  const params = new URLSearchParams(location.hash.slice(1));
  const known = [...FILTERS, ...SHOWN].filter((key) => params.get(key));
  return Object.fromEntries(known.map((key) => [key, params.get(key)]));
}

function hashOf(state) {
  const params = new URLSearchParams();
  for (const key of [...FILTERS, ...SHOWN]) if (state[key]) params.set(key, state[key]);
  // Slashes may stand: the address is for people too.
  return `#${params.toString().replaceAll("%2F", "/") || "trajectories"}`;
}

const filtersOf = (state) => Object.fromEntries(FILTERS.filter((key) => state[key]).map((key) => [key, state[key]]));

function replaceState(state) {
  history.replaceState(null, "", hashOf(state));
}

const ORDERS = {
  "": { name: "as played", of: null },
  turns: { name: "most turns", of: (e) => -e.turns },
  tokens: { name: "most tokens", of: (e) => -e.tokens },
  seconds: { name: "slowest", of: (e) => -e.seconds },
  logp: { name: "least sure", of: (e) => e.logp ?? 0 },
};

const CHANGES = {
  learned: "learned",
  forgotten: "forgotten",
  kept: "kept",
  never: "never solved",
};

function inLog(episode, wanted) {
  if (wanted === "evaluation") return episode.log.update === null;
  if (wanted === "training") return episode.log.update !== null;
  return episode.log.id === wanted;
}

function rewardName({ reward }) {
  return reward === null ? "none" : reward > 0 ? "1" : "0";
}

// One test for each filter that is set.
function tests(state) {
  const words = (state.q ?? "").toLowerCase().split(/\s+/).filter(Boolean);
  const outcomes = state.outcome?.split(",");
  const found = {
    q: words.length && ((e) => words.every((word) => haystack(e).includes(word))),
    log: state.log && ((e) => inLog(e, state.log)),
    site: state.site && ((e) => e.task.site === state.site),
    task: state.task && ((e) => e.task.id.includes(state.task)),
    outcome: outcomes && ((e) => outcomes.includes(e.outcome)),
    reward: state.reward && ((e) => rewardName(e) === state.reward),
    change: state.change && ((e) => e.change === state.change),
    from: state.from && ((e) => e.turns >= Number(state.from)),
    to: state.to && ((e) => e.turns <= Number(state.to)),
  };
  return Object.fromEntries(Object.entries(found).filter(([, test]) => test));
}

function select(state) {
  const all = Object.values(tests(state));
  const found = index.episodes.filter((episode) => all.every((test) => test(episode)));
  const { of } = ORDERS[state.sort ?? ""] ?? ORDERS[""];
  return of ? found.sort((a, b) => of(a) - of(b)) : found;
}

// How many there would be of each outcome, with the other filters as they are.
function outcomeCounts(state) {
  const others = Object.entries(tests(state)).filter(([key]) => key !== "outcome").map(([, test]) => test);
  const counts = Object.fromEntries(Object.keys(OUTCOMES).map((outcome) => [outcome, 0]));
  for (const episode of index.episodes) {
    if (others.every((test) => test(episode))) counts[episode.outcome] += 1;
  }
  return counts;
}
