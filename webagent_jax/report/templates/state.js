// The URL fragment contains the current view, so links and reloads restore it.

const FILTERS = ["q", "log", "site", "task", "outcome", "reward", "change", "finding", "from", "to", "sort"];
const VIEW_KEYS = ["episode", "turn", "with", "turn2"];

function readState() {
  const params = new URLSearchParams(location.hash.slice(1));
  const keys = [...FILTERS, ...VIEW_KEYS].filter((key) => params.get(key));
  return Object.fromEntries(keys.map((key) => [key, params.get(key)]));
}

function toHash(state) {
  const params = new URLSearchParams();
  for (const key of [...FILTERS, ...VIEW_KEYS]) if (state[key]) params.set(key, state[key]);
  // Unescaped slashes keep the URL readable.
  return `#${params.toString().replaceAll("%2F", "/") || "trajectories"}`;
}

const pickFilters = (state) => Object.fromEntries(FILTERS.filter((key) => state[key]).map((key) => [key, state[key]]));

function replaceState(state) {
  history.replaceState(null, "", toHash(state));
}

const ORDERS = {
  "": { name: "order of the run", key: null },
  turns: { name: "most turns", key: (e) => -e.turns },
  tokens: { name: "most tokens", key: (e) => -e.tokens },
  seconds: { name: "slowest", key: (e) => -e.seconds },
  logp: { name: "lowest log-probability", key: (e) => e.logp ?? 0 },
};

const CHANGES = {
  learned: "learned",
  forgotten: "forgotten",
  kept: "kept",
  never: "never solved",
};

function isInLog(episode, log) {
  if (log === "evaluation") return episode.log.update === null;
  if (log === "training") return episode.log.update !== null;
  return episode.log.id === log;
}

function rewardName({ reward }) {
  return reward === null ? "none" : reward > 0 ? "1" : "0";
}

// Predicates of the active filters.
function filterTests(state) {
  const words = (state.q ?? "").toLowerCase().split(/\s+/).filter(Boolean);
  const outcomes = state.outcome?.split(",");
  const tests = {
    q: words.length && ((e) => words.every((word) => searchText(e).includes(word))),
    log: state.log && ((e) => isInLog(e, state.log)),
    site: state.site && ((e) => e.task.site === state.site),
    task: state.task && ((e) => e.task.id.includes(state.task)),
    outcome: outcomes && ((e) => outcomes.includes(e.outcome)),
    reward: state.reward && ((e) => rewardName(e) === state.reward),
    change: state.change && ((e) => e.change === state.change),
    finding: state.finding && ((e) => e.findings.includes(state.finding)),
    from: state.from && ((e) => e.turns >= Number(state.from)),
    to: state.to && ((e) => e.turns <= Number(state.to)),
  };
  return Object.fromEntries(Object.entries(tests).filter(([, test]) => test));
}

function select(state) {
  const all = Object.values(filterTests(state));
  const matches = index.episodes.filter((episode) => all.every((test) => test(episode)));
  const { key } = ORDERS[state.sort ?? ""] ?? ORDERS[""];
  return key ? matches.sort((a, b) => key(a) - key(b)) : matches;
}

// Number of episodes per outcome under the other filters.
function outcomeCounts(state) {
  const others = Object.entries(filterTests(state)).filter(([key]) => key !== "outcome").map(([, test]) => test);
  const counts = Object.fromEntries(Object.keys(OUTCOMES).map((outcome) => [outcome, 0]));
  for (const episode of index.episodes) {
    if (others.every((test) => test(episode))) counts[episode.outcome] += 1;
  }
  return counts;
}
