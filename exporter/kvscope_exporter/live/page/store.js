// The engine's state as the page knows it: a snapshot, and the frames since. See docs/reference/live-stream.md.

import { chosen, events, request } from './server.js';

const MAGIC = 'KVSLIVE1';
const RETRY_MS = 1000;
export const [FREE, RESERVED, CACHED] = [0, 1, 2];
export const KEPT_STEPS = 200;
/** Figures, a second apart, over which rates are smoothed. */
const SMOOTHED = 10;
/** Slices of ten seconds. */
const KEPT_SLICES = 30;
const SUMS = ['hit_blocks', 'queried_blocks', 'decode_tokens', 'prefill_tokens', 'preemptions'];

const bytes = (text) => Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0));
const typed = (name, buffer) => (name === 'cell' || name === 'group' ? new Uint8Array(buffer) : new Uint32Array(buffer));

export class Store {
  constructor() {
    this.columns = {};
    this.sequences = new Map();
    this.steps = [];
    this.head = null;
    this.pool = null;
    this.frame = 0;
    this.problem = 'connecting';
    this.figures = [];
    this.smoothed = SMOOTHED;
    this.listeners = { change: [], snapshot: [] };
    this.counts = { frames: 0, snapshots: 0, bytes: 0, behind: 0 };
  }

  on(what, listener) {
    this.listeners[what].push(listener);
  }

  /** Milliseconds of the engine's clock now: it goes on between two steps. */
  get nowMs() {
    return this.atMs + (this.isStanding ? 0 : performance.now() - this.atPage);
  }

  get hasMap() {
    return (this.pool?.map === 'blocks' || this.isNamed) && Boolean(this.columns.cell);
  }

  /** Whether the squares are names of cached content: the engine numbers no blocks. */
  get isNamed() {
    return this.pool?.map === 'names';
  }

  /** Whether the stream knows sequences and steps, and not only names. */
  get hasSteps() {
    return Boolean(this.sums);
  }

  /** Follow the chosen engine until aborted. */
  async follow(signal) {
    while (!signal.aborted) {
      try {
        await this.#stream(signal);
        this.#trouble('the connection ended');
      } catch (error) {
        if (signal.aborted) return;
        this.#trouble(error.message, error);
      }
      await new Promise((resolve) => setTimeout(resolve, RETRY_MS));
    }
  }

  /** Show the moment of the past that is chosen, and stand there. */
  async stand() {
    this.isStanding = true;
    await this.#snapshot();
  }

  /** The figures of the five minutes before that moment, from slices of the engine's course. */
  recall(course) {
    const slices = course?.slices.slice(-KEPT_SLICES) ?? [];
    const before = (name) => slices.reduce((sum, slice) => sum - slice.sums[name], this.sums[name]);
    const sums = Object.fromEntries(SUMS.map((name) => [name, before(name)]));
    this.smoothed = 1;
    this.figures = slices.map((slice, index) => {
      for (const name of SUMS) sums[name] += slice.sums[name];
      const { running, waiting, active, usable } = slice.levels;
      const ms = this.atMs - 1000 * course.slice_seconds * (slices.length - 1 - index);
      return { ms, ...sums, running, waiting, pool: { active, num_blocks: usable, reserved: 0 } };
    });
  }

  /** Leave that moment, before the present is followed. */
  leave() {
    [this.isStanding, this.figures, this.smoothed] = [false, [], SMOOTHED];
  }

  async #stream(signal) {
    const waiting = [];
    let isTaking = false;
    let [hasEnded, isBehind] = [false, false];
    // An engine that restarts has no snapshot for a while: then it is asked for again.
    const take = async () => {
      if (isTaking || hasEnded) return;
      isTaking = true;
      try {
        do {
          isBehind = false;
          await this.#snapshot();
        } while (isBehind);
        isTaking = false;
        if (waiting.splice(0).some((frame) => this.#apply(frame))) take();
      } catch (error) {
        isTaking = false;
        waiting.length = 0;
        this.#trouble(error.message, error);
        setTimeout(take, RETRY_MS);
      }
    };
    take();
    try {
      for await (const [name, data] of events('live/events', { engine: chosen.engine }, signal)) {
        this.counts.bytes += data.length;
        if (name === 'unknown') this.#trouble(JSON.parse(data).reason);
        if (name === 'behind') {
          this.counts.behind += 1;
          waiting.length = 0;
          isBehind = true;
          take();
        }
        if (name !== 'frame') continue;
        const frame = JSON.parse(data);
        if (isTaking) waiting.push(frame);
        else if (this.#apply(frame)) take();
      }
    } finally {
      hasEnded = true;
    }
  }

  async #snapshot() {
    const answer = await request('live/snapshot', { engine: chosen.engine });
    const buffer = await answer.arrayBuffer();
    const text = (from, to) => new TextDecoder().decode(new Uint8Array(buffer, from, to - from));
    if (text(0, MAGIC.length) !== MAGIC) throw new Error('the server is of another version than this page');
    const begin = MAGIC.length + 4;
    const end = begin + new DataView(buffer).getUint32(MAGIC.length, true);
    const head = JSON.parse(text(begin, end));
    this.columns = {};
    for (const [name, [offset, length]] of Object.entries(head.columns)) {
      this.columns[name] = typed(name, buffer.slice(end + offset, end + offset + length));
    }
    this.head = head;
    this.frame = head.frame;
    this.sequences = new Map(head.sequences.map((row) => [row.id, row]));
    this.steps = head.steps;
    this.counts.snapshots += 1;
    this.counts.bytes += buffer.byteLength;
    this.#tell(head);
    for (const listener of this.listeners.snapshot) listener();
    for (const listener of this.listeners.change) listener(null, new Uint32Array());
  }

  /** Whether a new snapshot is needed instead. */
  #apply(frame) {
    if (frame.frame <= this.frame) return false;
    if (!this.head || frame.epoch !== this.head.epoch || frame.frame !== this.frame + 1) return true;
    this.frame = frame.frame;
    this.counts.frames += 1;
    const { id, ...columns } = Object.fromEntries(
      Object.entries(frame.columns ?? {}).map(([name, text]) => [name, typed(name, bytes(text).buffer)]),
    );
    for (const [name, column] of Object.entries(columns)) {
      const own = this.columns[name];
      for (let place = 0; place < id.length; place += 1) own[id[place]] = column[place];
    }
    for (const row of frame.sequences ?? []) this.sequences.set(row.id, row);
    for (const [number, tokens, blocks] of frame.grown ?? []) {
      const row = this.sequences.get(number);
      if (row) Object.assign(row, { output_tokens: tokens, blocks });
    }
    for (const number of frame.gone ?? []) this.sequences.delete(number);
    if (frame.steps) this.steps = [...this.steps, ...frame.steps].slice(-KEPT_STEPS);
    this.#tell(frame);
    const evicted = frame.evicted ? new Uint32Array(bytes(frame.evicted).buffer) : new Uint32Array();
    for (const listener of this.listeners.change) listener(id ?? new Uint32Array(), evicted);
    return false;
  }

  #tell(message) {
    this.pool = message.pool;
    this.atMs = message.now_ms;
    this.atPage = performance.now();
    this.problem = message.up ? '' : 'the engine is not heard any more: this was its last state';
    this.up = message.up;
    this.wallMs = message.wall_ms;
    this.sums = message.figures;
    if (!this.hasSteps) return;
    const last = this.figures.at(-1);
    if (last && (message.now_ms < last.ms || message.figures.steps < last.steps)) this.figures = [];
    if (!last || message.now_ms - last.ms >= 1000 || message.now_ms < last.ms) {
      this.figures.push({ ms: message.now_ms, ...message.figures, pool: message.pool });
      if (this.figures.length > 300) this.figures.shift();
    }
  }

  #trouble(text, error = null) {
    this.problem = text;
    this.error = error;
    for (const listener of this.listeners.change) listener(new Uint32Array(), new Uint32Array());
  }
}
