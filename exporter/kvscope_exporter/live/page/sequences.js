// Sequences: their states over the last minute, a table, and one of them with its block table.

import { CACHED } from './store.js';
import { $, count, el, legend, prepared, seconds } from './dom.js';
import { SEQUENCE, STATE, variable } from './colours.js';
import { ask, json } from './server.js';

const SPAN_MS = 60000;
const ROW = 9;
const MOST_ROWS = 60;
const MOST_CELLS = 1024;
const ORDER = ['decode', 'prefill', 'preempted', 'swapped', 'queued', 'finished', 'aborted'];
const ENDED = new Set(['finished', 'aborted']);

export class SequenceView {
  constructor(store, map) {
    this.store = store;
    this.map = map;
    this.selected = null;
    legend($('timeline-legend'), Object.entries(SEQUENCE).map(([state, colour]) => [colour, state]));
    $('timeline').addEventListener('click', (event) => {
      const row = this.drawn?.[Math.floor(event.offsetY / ROW)];
      if (row) this.select(row.id);
    });
  }

  draw() {
    const ready = prepared($('timeline'));
    if (!ready || !this.store.head) return;
    const [context, width, height] = ready;
    const now = this.store.nowMs;
    const begin = now - SPAN_MS;
    const rows = [...this.store.sequences.values()]
      .filter((row) => !ENDED.has(row.state) || row.changes.at(-1)[1] > begin)
      .sort((a, b) => (a.state === 'queued') - (b.state === 'queued') || ENDED.has(a.state) - ENDED.has(b.state) || b.id - a.id)
      .slice(0, Math.floor(height / ROW))
      .sort((a, b) => a.id - b.id);
    this.drawn = rows;
    const place = (ms) => (width * (Math.max(begin, ms) - begin)) / SPAN_MS;
    rows.forEach((row, index) => {
      row.changes.forEach(([state, from], position) => {
        const until = row.changes[position + 1]?.[1] ?? (ENDED.has(state) ? from + 250 : now);
        if (until < begin) return;
        context.fillStyle = SEQUENCE[state];
        context.fillRect(place(from), index * ROW + 1, Math.max(1, place(until) - place(from)), ROW - 2);
      });
      if (row.id === this.selected) {
        context.strokeStyle = variable('--ink');
        context.strokeRect(0.5, index * ROW + 0.5, width - 1, ROW - 1);
      }
    });
  }

  /** The table; called about twice a second. */
  list() {
    const rows = [...this.store.sequences.values()];
    const counts = Object.fromEntries(ORDER.map((state) => [state, 0]));
    for (const row of rows) counts[row.state] += 1;
    const { waiting = 0, running = 0 } = this.store.figures.at(-1) ?? {};
    $('sequence-counts').textContent = `${running} running, ${waiting} waiting`;
    rows.sort((a, b) => ORDER.indexOf(a.state) - ORDER.indexOf(b.state) || b.id - a.id);
    const size = this.store.pool?.block_size ?? 0;
    const body = $('sequences').tBodies[0];
    if (body.contains(document.activeElement) && rows.length === this.listed) return;
    this.listed = rows.length;
    body.replaceChildren(...rows.slice(0, MOST_ROWS).map((row) => el('tr', {},
      el('td', {}, el('button', { type: 'button', onclick: () => this.select(row.id) }, String(row.id))),
      el('td', {}, el('i', { colour: SEQUENCE[row.state] }), row.state),
      el('td', { title: row.tenant }, row.tenant),
      el('td', {}, row.prompt_tokens === null ? '?' : count(row.prompt_tokens)),
      el('td', {}, count(row.output_tokens)),
      el('td', {}, count(row.hit_blocks * size)),
      el('td', {}, row.blocks === null ? '' : count(row.blocks)),
      el('td', {}, row.preemptions ? String(row.preemptions) : ''))));
  }

  async select(number) {
    this.selected = this.selected === number ? null : number;
    $('sequence').hidden = this.selected === null;
    this.map.highlight([]);
    if (this.selected !== null) await this.tell();
  }

  /** The chosen one, as it is now. */
  async tell() {
    if (this.selected === null || this.asking) return;
    this.asking = true;
    try {
      const [document, bill] = await Promise.all([
        json('live/sequence', { engine: this.store.engine, id: this.selected }),
        ask('preemptions').catch(() => ({ answer: null })),
      ]);
      if (document.sequence.id === this.selected) this.#show(document, bill.answer);
    } catch {
      $('sequence').textContent = `Sequence ${this.selected} has ended and is no longer kept.`;
    } finally {
      this.asking = false;
    }
  }

  #show({ sequence, is_whole: isWhole, tables }, bill) {
    const { cell } = this.store.columns;
    const { isNamed } = this.store;
    const now = this.store.nowMs;
    const all = Object.values(tables).flat().filter((block) => block >= 0);
    this.map.highlight(all);
    const groups = Object.entries(tables).map(([group, table]) => el('div', { className: 'table', tabIndex: 0, role: 'group', 'aria-label': 'block table' },
      ...(Object.keys(tables).length > 1 ? [el('span', { className: 'dim' }, this.store.head.groups[group] ?? `group ${group}`)] : []),
      ...table.slice(0, MOST_CELLS).map((block, position) => {
        const references = block < 0 || !cell ? 0 : cell[block] - CACHED;
        return el('span', {
          className: references > 1 ? 'cell shared' : 'cell',
          colour: block < 0 ? variable('--free') : references > 1 ? STATE.shared : STATE.active,
          title: block < 0 ? `tokens from ${position * this.store.pool.block_size}: ${isNamed ? 'not findable now' : 'given back'}`
            : `tokens from ${position * this.store.pool.block_size} lie in ${isNamed ? 'the page with square' : 'block'} ${block}${references > 1 ? `, shared by ${references}` : ''}`,
          onclick: () => block >= 0 && this.map.select(block),
        }, block < 0 ? '–' : String(block));
      }),
      ...(table.length > MOST_CELLS ? [el('span', { className: 'dim' }, `and ${table.length - MOST_CELLS} more`)] : [])));
    const shared = cell ? all.filter((block) => cell[block] > CACHED + 1).length : 0;
    const lost = (bill?.preemptions ?? []).filter((each) => each.sequence === sequence.id);
    $('sequence').replaceChildren(
      el('strong', {}, `Sequence ${sequence.id}: ${sequence.state}`),
      el('span', { className: 'dim' }, ` since ${seconds(Math.max(0, now - sequence.changes.at(-1)[1]))}`
        + `, ${all.length} ${isNamed ? 'pages with a name' : 'blocks'}, ${shared} of them shared`),
      el('div', { className: 'dim' }, sequence.changes.map(([state, ms]) => `${state} ${seconds(Math.max(0, now - ms))} ago`).join(' → ')),
      ...(isWhole ? [] : [el('div', { className: 'dim' }, 'It ran before this page was opened: only the blocks that it got since are known.')]),
      ...groups,
      ...lost.map((each) => el('div', {}, `Preempted ${seconds(1000 * each.ago_seconds)} ago (${each.cause.replaceAll('_', ' ')}): `
        + `${each.blocks} blocks given back, ${each.recomputed_tokens ?? '?'} of ${each.discarded_tokens} tokens computed again. `
        + (each.taken_by?.length ? `Taken by ${each.taken_by.map((one) => `sequence ${one.sequence ?? '?'} (${one.blocks})`).join(', ')}.` : ''))),
    );
  }
}
