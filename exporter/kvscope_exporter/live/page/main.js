// Starts the page: finds the engine, follows it, and draws.

import { Store } from './store.js';
import { BlockMap } from './map.js';
import { SequenceView } from './sequences.js';
import { beginSteps, drawSteps, drawStrips } from './steps.js';
import { drawStatic } from './static.js';
import { showMemory, showPrefixes, showSettings, showWhatIf, showWhy } from './answers.js';
import { beginPlan } from './plan.js';
import { beginPast } from './past.js';
import { beginReplay } from './replay.js';
import { inside } from './inside.js';
import { beginTour } from './tour.js';
import { showActs } from './acts.js';
import { $, el } from './dom.js';
import { NeedsKey, chosen, json, setKey } from './server.js';

const TABLE_MS = 500;
const FIND_MS = 2000;
const HIDDEN_MS = 60000;
/** Parts that a stream which only names content has nothing for. */
const OF_STEPS = ['strips', 'sequence-view', 'step-view', 'prefix-view', 'whatif-view', 'settings-view'];
const ONLY_NAMES = 'This stream names the content of the cache: neither requests nor steps are known, so nothing can be said of what happened.';
const THEME = 'kvscope-theme';

const store = new Store();
const map = new BlockMap(store);
const sequences = new SequenceView(store, map);
globalThis.kvscopeLive = { store, map, sequences, chosen };

let following = null;
let isReplay = false;

function choose(target, engine) {
  following?.abort();
  following = new AbortController();
  [chosen.target, chosen.engine, store.engine] = [target, engine, engine];
  const query = new URLSearchParams(location.search);
  if (target) query.set('target', target);
  query.set('engine', engine);
  if (!inside) history.replaceState(null, '', `?${query}`);
  if (!store.head) $('why').textContent = 'Asking what happened…';
  store.follow(following.signal);
}

/** A page that nobody sees gives its stream back: a browser has six connections to a server. */
function rest() {
  if (following && !store.isStanding) following.abort();
}

function resume() {
  if (following?.signal.aborted && !store.isStanding) choose(chosen.target, chosen.engine);
}

/** Look for engines until there is one; then keep the list of them up to date. */
async function find() {
  try {
    const { servers, is_replay: replayed, acts } = await json('live/engines');
    showActs(acts);
    $('key-form').hidden = true;
    if (replayed && !isReplay) beginReplay(store);
    isReplay = replayed;
    $('past-open').hidden = replayed;
    const engines = servers.flatMap((server) => server.engines.engines.map((engine) => ({ server, engine })));
    list(engines);
    if (!following && engines.length) {
      const query = new URLSearchParams(location.search);
      const first = engines.find(({ server, engine }) => server.name === (query.get('target') ?? '') && engine.key === query.get('engine'))
        ?? engines.find(({ server }) => server.name === query.get('target')) ?? engines[0];
      choose(first.server.name, first.engine.key);
    } else if (!engines.length && !following) {
      const notes = servers.map((server) => `${server.title} (${server.state}): ${server.engines.note}`);
      $('why').textContent = notes.join('\n') || 'No server is watched.';
      status('no engine to look at', true);
    }
  } catch (error) {
    if (error instanceof NeedsKey) {
      $('key-form').hidden = false;
      $('why').textContent = 'This server answers only with a key.';
    }
    status(error.message, true);
  }
  setTimeout(find, FIND_MS);
}

function list(engines) {
  const choice = $('engine');
  const now = JSON.stringify(engines.map(({ server, engine }) => [server.name, engine.key]));
  choice.hidden = engines.length < 2;
  if (choice.dataset.shown === now) return;
  choice.dataset.shown = now;
  choice.replaceChildren(...engines.map(({ server, engine }) => el('option', {
    value: JSON.stringify([server.name, engine.key]),
    selected: server.name === chosen.target && engine.key === chosen.engine,
  }, `${server.title} ${engine.key}`)));
}

function status(text, isBad) {
  $('status').textContent = text;
  $('status').dataset.state = isBad ? 'bad' : 'good';
}

function repeat(ms, work) {
  const turn = () => (store.head && !document.hidden ? work().catch(() => {}) : Promise.resolve()).finally(() => setTimeout(turn, store.head ? ms : 300));
  turn();
}

function draw(now) {
  map.draw(now);
  if (now - (draw.tableAt ?? -TABLE_MS) > TABLE_MS && store.head) {
    draw.tableAt = now;
    for (const part of OF_STEPS) $(part).hidden = !store.hasSteps;
    if (!store.hasSteps) $('why').textContent = ONLY_NAMES;
    else {
      sequences.list();
      drawStrips(store);
      drawStatic(store);
    }
    if (!store.problem) {
      const { model_name: model, server, server_version: version } = store.head;
      status([model, `${server} ${version}`.trim(), ...(store.hasSteps ? [`step ${store.sums.steps}`] : [])].join(' · '), false);
      $('key-form').hidden = true;
    }
  }
  if (store.problem && following) status(store.problem, true);
  sequences.draw();
  drawSteps(store);
  requestAnimationFrame(draw);
}

function explain(isOn) {
  document.body.classList.toggle('explained', isOn);
  $('help').setAttribute('aria-pressed', String(isOn));
}

function theme(next) {
  if (next) document.documentElement.dataset.theme = next;
  map.colour(map.mode);
  beginSteps();
}

$('engine').addEventListener('change', (event) => choose(...JSON.parse(event.target.value)));
$('key-form').addEventListener('submit', (event) => {
  event.preventDefault();
  setKey($('key').value);
  $('key').value = '';
  if (following) choose(chosen.target, chosen.engine);
});
$('help').addEventListener('click', () => explain($('help').getAttribute('aria-pressed') !== 'true'));
$('theme').addEventListener('click', () => {
  const dark = document.documentElement.dataset.theme ?? (matchMedia('(prefers-color-scheme: dark)').matches ? 'dark' : 'light');
  const next = dark === 'dark' ? 'light' : 'dark';
  localStorage.setItem(THEME, next);
  theme(next);
});
addEventListener('keydown', (event) => {
  if (event.key === '?' && !['INPUT', 'SELECT'].includes(event.target.tagName)) explain(!document.body.classList.contains('explained'));
});
addEventListener('pagehide', rest);
addEventListener('pageshow', resume);
document.addEventListener('visibilitychange', () => {
  clearTimeout(rest.timer);
  if (document.hidden) rest.timer = setTimeout(rest, HIDDEN_MS);
  else resume();
});
matchMedia('(prefers-color-scheme: dark)').addEventListener('change', () => theme(null));

theme(localStorage.getItem(THEME));
beginTour(store, map, sequences);
beginPlan();
const whereSteps = (show) => () => (store.hasSteps ? show() : Promise.resolve());
const [why, prefixes, whatIf, settings] = [showWhy, showPrefixes, showWhatIf, showSettings].map(whereSteps);
const memory = () => showMemory(store);
const answers = [why, prefixes, whatIf, memory, settings];
const answer = () => Promise.all(answers.map((show) => show()));
document.body.classList.toggle('inside', Boolean(inside));
store.on('snapshot', () => isReplay && answer().catch(() => {}));
beginPast(
  store,
  () => following?.abort(),
  () => { choose(chosen.target, chosen.engine); answer().catch(() => {}); },
  answer,
);
find();
repeat(5000, why);
repeat(5000, prefixes);
repeat(10000, whatIf);
repeat(60000, settings);
repeat(5000, memory);
repeat(1000, () => sequences.tell());
requestAnimationFrame(draw);
