// Requests to the server, with the key where one is needed. All paths are relative to the page, so
// that it works behind a proxy that puts it below another path.

import { inside } from './inside.js';

const KEY = 'kvscope-key';

export class NeedsKey extends Error {}

/** The query that names server and engine; set once they are chosen. `past` is the Unix time of a
    moment that is looked at instead of the present, null otherwise. */
export const chosen = { target: '', engine: '', past: null };
/** What is known of a moment of the past too, and where. */
const OF_A_MOMENT = [
  [/^live\/(snapshot|sequence|block)$/, 'live/past/$1'],
  [/^api\/(why|prefixes|whatif|course)$/, 'live/past/api/$1'],
  [/^(?:scrape|metrics)$/, 'live/past/page'],
];

export function setKey(key) {
  sessionStorage.setItem(KEY, key);
}

function headers() {
  const key = sessionStorage.getItem(KEY);
  return key ? { Authorization: `Bearer ${key}` } : {};
}

function address(path, query) {
  const all = new URLSearchParams();
  if (chosen.target) all.set('target', chosen.target);
  for (const [name, value] of Object.entries(query)) all.set(name, value);
  const [here, there] = (chosen.past !== null && OF_A_MOMENT.find(([known]) => known.test(path))) || [];
  if (here) {
    path = path.replace(here, there);
    all.set('at', chosen.past);
  }
  const text = all.toString();
  return text ? `${path}?${text}` : path;
}

/** A response, or an Error with the server's own words. */
export async function request(path, query = {}, options = {}) {
  const asked = [address(path, query), { ...options, headers: { ...headers(), ...options.headers } }];
  const answer = await (inside ? inside.fetch(...asked) : fetch(...asked));
  if (answer.status === 401) throw new NeedsKey('a key is needed');
  if (!answer.ok) throw new Error((await answer.text()).trim() || `status ${answer.status}`);
  return answer;
}

export async function json(path, query = {}) {
  return (await request(path, query)).json();
}

/** The answer of the chosen engine to a question of /api, or null with the reason in `unknown`. */
export async function ask(question) {
  const reply = await json(`api/${question}`);
  const found = reply.engines.find((each) => `${each.model_name}/${each.engine}` === chosen.engine);
  return { answer: found?.answer ?? null, unknown: found?.unknown ?? 'nothing is known of this engine yet' };
}

export async function post(path, query = {}) {
  return (await request(path, query, { method: 'POST', headers: { 'Content-Type': 'application/json' } })).json();
}

/** Server-sent events, one at a time: [name, data]. EventSource could not send a key. */
export async function* events(path, query, signal) {
  const answer = await request(path, query, { signal });
  const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = '';
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    const parts = (rest + value).split('\n\n');
    rest = parts.pop();
    for (const part of parts) {
      const fields = Object.fromEntries(part.split('\n').map((line) => {
        const colon = line.indexOf(': ');
        return [line.slice(0, colon), line.slice(colon + 2)];
      }));
      if (fields.event) yield [fields.event, fields.data];
    }
  }
}
