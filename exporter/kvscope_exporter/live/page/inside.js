// The recording inside this file, at some moments of it; it answers in place of a server, as
// `kvscope rec play` would. Without one there is a server. See kvscope/export/moments.py.

const TICK_MS = 100;
const [ELSEWHERE, NOT_NOW] = ['This file has moments of the recording and not all of it: kvscope rec play shows the rest.', 'This engine is not known at this moment.'];

class Inside {
  #index;
  #texts;
  #number = 0;
  #opened = [null, null];
  #speed = 1;
  #timer = null;
  #viewers = new Set();

  constructor(index, texts) {
    this.#index = index;
    this.#texts = texts;
    this.#show(this.#nearest(index.status.at));
  }

  /** As the browser's own. */
  async fetch(address, { signal } = {}) {
    const [path, asked] = address.split('?');
    const query = new URLSearchParams(asked);
    const json = (document) => new Response(JSON.stringify(document));
    if (path === 'live/engines') return json(this.#index.overview);
    if (path === 'live/events') return new Response(this.#changes(signal));
    if (path.startsWith('api/replay')) {
      this.#move(path.split('/')[2], query);
      return json({ ...this.#index.status, at: this.#index.moments[this.#number], speed: this.#speed, playing: this.#timer !== null });
    }
    const { document, bytes } = await this.#moment();
    const engine = document.engines[query.get('engine')];
    if (path === 'live/snapshot' && engine) return new Response(bytes.slice(engine.begin, engine.end));
    if (path === 'metrics') return new Response(document.metrics);
    const found = path === 'live/sequence' ? engine?.sequences[query.get('id')] : document.answers[path.replace('api/', '')];
    return found ? json(found) : new Response(path === 'live/snapshot' ? NOT_NOW : ELSEWHERE, { status: 404 });
  }

  /** Figures of an engine from its start, or that of the recording, to the present moment. */
  figures(engine) {
    const all = this.#index.figures.slice(0, this.#number + 1).map((each) => each[engine]).filter(Boolean);
    const start = all.findLastIndex((each, place) => place && each.steps < all[place - 1].steps);
    return all.slice(Math.max(0, start));
  }

  async #moment() {
    if (this.#opened[0] !== this.#number) this.#opened = [this.#number, this.#open(this.#texts[this.#number])];
    return this.#opened[1];
  }

  async #open(text) {
    const packed = Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0));
    const buffer = await new Response(new Blob([packed]).stream().pipeThrough(new DecompressionStream('deflate'))).arrayBuffer();
    const end = 4 + new DataView(buffer).getUint32(0, true);
    return { document: JSON.parse(new TextDecoder().decode(buffer.slice(4, end))), bytes: buffer.slice(end) };
  }

  /** A stream that asks for a new snapshot at each other moment. */
  #changes(signal) {
    let viewer;
    return new ReadableStream({
      start: (controller) => {
        viewer = controller;
        this.#viewers.add(controller);
        signal?.addEventListener('abort', () => this.#viewers.delete(controller) && controller.error(signal.reason));
      },
      cancel: () => this.#viewers.delete(viewer),
    });
  }

  #move(verb, query) {
    if (!verb) return;
    clearInterval(this.#timer);
    this.#timer = null;
    if (verb === 'play') this.#play(Number(query.get('speed')));
    if (verb === 'step') this.#show(this.#number + Number(query.get('by')));
    if (verb === 'seek') this.#show(this.#nearest(Number(query.get('at'))));
  }

  /** From the beginning, when it stands at the end. */
  #play(speed) {
    const { moments } = this.#index;
    const last = moments.length - 1;
    this.#show(this.#number === last ? 0 : this.#number);
    const [from, began] = [moments[this.#number], performance.now()];
    this.#speed = speed;
    this.#timer = setInterval(() => {
      const at = from + (speed * (performance.now() - began)) / 1000;
      this.#show(moments.findLastIndex((moment) => moment <= at));
      if (this.#number === last) this.#move('pause');
    }, TICK_MS);
  }

  #nearest(at) {
    const away = this.#index.moments.map((moment) => Math.abs(moment - at));
    return away.indexOf(Math.min(...away));
  }

  #show(number) {
    const place = Math.max(0, Math.min(this.#index.moments.length - 1, number));
    if (place === this.#number) return;
    this.#number = place;
    for (const viewer of this.#viewers) viewer.enqueue(new TextEncoder().encode('event: behind\ndata: {}\n\n'));
  }
}

const index = document.getElementById('recording');
/** null: the page is served. */
export const inside = index && new Inside(JSON.parse(index.textContent), [...document.querySelectorAll('script.moment')].map((each) => each.textContent));
