// Episodes: an index of all episodes, and files with their turns, loaded on demand.

const index = { logs: [], tasks: [], findings: {}, episodes: [], byId: new Map() };
const chunks = new Map(); // path of a file -> promise of its episodes
const pendingLoads = new Map(); // path of a file -> function that resolves its promise

function loadScript(path) {
  return new Promise((resolve, reject) => {
    const script = h("script", { src: path });
    script.onload = () => { script.remove(); resolve(); };
    script.onerror = () => { script.remove(); reject(new Error(`${path} is missing`)); };
    document.head.append(script);
  });
}

// Functions that the files of `report/` call with their data.
window.trajectories = {
  index: (data) => readIndex(data),
  chunk: (log, number, episodes) => pendingLoads.get(`report/${log}/${number}.js`)?.(episodes),
};

function loadChunk(path) {
  if (!chunks.has(path)) {
    chunks.set(path, new Promise((resolve, reject) => {
      pendingLoads.set(path, resolve);
      loadScript(path).catch((error) => { chunks.delete(path); reject(error); });
    }));
  }
  return chunks.get(path);
}

async function loadTurns(episode) {
  const episodes = await loadChunk(`report/${episode.log.id}/${episode.chunk}.js`);
  return episodes[episode.index];
}

function readIndex(data) {
  index.byId.clear();
  index.logs = data.logs;
  index.tasks = data.tasks;
  index.findings = data.findings; // description by finding
  const counts = new Map(data.logs.map((log) => [log, 0]));
  const episodes = data.episodes.map((entry) => {
    const log = data.logs[entry.log];
    const episode = { ...entry, log, task: data.tasks[entry.task], turns: entry.trace.length };
    episode.id = `${log.id}/${counts.get(log)}`;
    counts.set(log, counts.get(log) + 1);
    // Parts of a group are in several logs if the run continued with another number of processes.
    episode.groupKey = `${log.update ?? log.id} ${entry.group >= 0 ? entry.group : episode.task.id}`;
    index.byId.set(episode.id, episode);
    return episode;
  });
  index.episodes = withoutSuperseded(episodes);
  pairEvaluations();
}

// Episodes without those whose attempt ran again after an infrastructure fault. Links to these
// remain valid.
function withoutSuperseded(episodes) {
  const key = (episode) => `${episode.groupKey} ${episode.attempt}`;
  const isFault = (episode) => Number(episode.outcome === "INFRA");
  // An attempt after a fault may be in the log of another process, which comes first.
  const inOrder = [...episodes].sort((a, b) => isFault(b) - isFault(a));
  const last = new Map(inOrder.map((episode) => [key(episode), episode]));
  return episodes.filter((episode) => !isFault(episode) || last.get(key(episode)) === episode);
}

// Pair the first attempt at each evaluated task with that of the previous evaluation, as the
// comparison of success rates does.
function pairEvaluations() {
  const evaluations = index.logs.filter((log) => log.update === null);
  const byKey = new Map();
  const key = (log, episode) => `${log.id} ${episode.task.id}`;
  for (const episode of index.episodes) {
    const isFirst = episode.log.update === null && episode.attempt === 0;
    if (isFirst && episode.reward !== null) byKey.set(key(episode.log, episode), episode);
  }
  for (const episode of byKey.values()) {
    const previous = evaluations[evaluations.indexOf(episode.log) - 1];
    episode.baseline = previous && byKey.get(key(previous, episode));
    if (!episode.baseline) continue;
    const [wasSolved, isSolved] = [episode.baseline.reward > 0, episode.reward > 0];
    episode.change = wasSolved ? (isSolved ? "kept" : "forgotten") : (isSolved ? "learned" : "never");
  }
}

function searchText(episode) {
  episode.searchText ??= [episode.id, episode.task.id, episode.task.site, episode.task.intent, episode.answer ?? "",
    episode.infra_error, ...episode.action].join("\n").toLowerCase();
  return episode.searchText;
}
