// The episodes: an index of all of them, and their steps in files that are loaded when looked at.

const index = { logs: [], tasks: [], episodes: [], byId: new Map() };
const chunks = new Map(); // promises of the episodes of a file, by its path
const arrivals = new Map(); // who waits for a file that is being loaded

function loadScript(path) {
  return new Promise((resolve, reject) => {
    const script = h("script", { src: path });
    script.onload = () => { script.remove(); resolve(); };
    script.onerror = () => { script.remove(); reject(new Error(`${path} is not there`)); };
    document.head.append(script);
  });
}

// What the files call.
window.trajectories = {
  index: (found) => readIndex(found),
  chunk: (log, number, episodes) => arrivals.get(`report/${log}/${number}.js`)?.(episodes),
};

function loadChunk(path) {
  if (!chunks.has(path)) {
    chunks.set(path, new Promise((resolve, reject) => {
      arrivals.set(path, resolve);
      loadScript(path).catch((error) => { chunks.delete(path); reject(error); });
    }));
  }
  return chunks.get(path);
}

async function loadSteps(episode) {
  const episodes = await loadChunk(`report/${episode.log.id}/${episode.chunk}.js`);
  return episodes[episode.place];
}

function readIndex(found) {
  index.logs = found.logs;
  index.tasks = found.tasks;
  const counts = new Map(found.logs.map((log) => [log, 0]));
  index.episodes = found.episodes.map((entry) => {
    const log = found.logs[entry.log];
    const episode = { ...entry, log, task: found.tasks[entry.task], turns: entry.trace.length };
    episode.id = `${log.id}/${counts.get(log)}`;
    counts.set(log, counts.get(log) + 1);
    episode.family = `${log.id} ${entry.group >= 0 ? entry.group : episode.task.id}`;
    index.byId.set(episode.id, episode);
    return episode;
  });
  pairEvaluations();
}

// An episode of an evaluation has its counterpart in the evaluation before: the same attempt at the
// same task.
function pairEvaluations() {
  const evaluations = index.logs.filter((log) => log.update === null);
  const seen = new Map();
  const key = (log, episode) => `${log.id} ${episode.task.id} ${episode.sibling}`;
  for (const episode of index.episodes) {
    if (episode.log.update === null && episode.reward !== null) seen.set(key(episode.log, episode), episode);
  }
  for (const episode of seen.values()) {
    const before = evaluations[evaluations.indexOf(episode.log) - 1];
    episode.before = before && seen.get(key(before, episode));
    if (!episode.before) continue;
    const [was, is] = [episode.before.reward > 0, episode.reward > 0];
    episode.change = was ? (is ? "kept" : "forgotten") : (is ? "learned" : "never");
  }
}

function haystack(episode) {
  episode.words ??= [episode.id, episode.task.id, episode.task.site, episode.task.intent, episode.answer ?? "",
    episode.note, ...episode.did].join("\n").toLowerCase();
  return episode.words;
}
