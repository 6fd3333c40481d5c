// The map of blocks: one pixel a block in an image beside the page, drawn enlarged onto the canvas.

import { CACHED, FREE, RESERVED } from './store.js';
import { $, el, legend, prepared, seconds } from './dom.js';
import { VICTIM, isDark, variable } from './colours.js';
import { legendOf, painter } from './paint.js';
import { request } from './server.js';

const VICTIMS = 100;
const VICTIM_MS = 500;
const FLASH_MS = 700;
const MOST_FLASHES = 3000;
const MOST_ZOOM = 64;

export class BlockMap {
  constructor(store) {
    this.store = store;
    this.canvas = $('map');
    this.image = document.createElement('canvas');
    this.mode = 'state';
    this.view = { zoom: 1, x: 0, y: 0 };
    this.victims = new Set();
    this.victimsAt = 0;
    this.flashes = new Map();
    this.selected = null;
    this.dirty = true;
    store.on('snapshot', () => this.#begin());
    store.on('change', (ids, evicted) => this.#change(ids, evicted));
    $('colour').addEventListener('change', (event) => this.colour(event.target.value));
    this.#listen();
  }

  colour(mode) {
    this.mode = mode;
    $('colour').value = mode;
    this.#repaint();
    this.#explain();
  }

  /** Called once for each picture on the screen. */
  draw(now) {
    const { store } = this;
    $('map').hidden = !store.hasMap;
    $('no-map').hidden = (store.hasMap && !store.isNamed) || !store.pool;
    if (store.pool && !$('no-map').hidden) this.#excuse();
    if (!store.hasMap) return;
    if (this.mode === 'age' && now - (this.paintedAt ?? 0) > 1000) this.#repaint();
    if (now - this.victimsAt > VICTIM_MS) this.#findVictims(now);
    if (!this.dirty && !this.flashes.size) return;
    this.dirty = false;
    this.#layOut();
    const ready = prepared(this.canvas);
    if (!ready) return;
    const [context, width, height] = ready;
    this.image.getContext('2d').putImageData(this.pixels, 0, 0);
    const { size, left, top } = this.#place(width, height);
    context.imageSmoothingEnabled = size < 1;
    context.drawImage(this.image, left, top, this.columns * size, this.rows * size);
    if (size >= 5) this.#drawGaps(context, size, left, top, width, height);
    this.#drawMarks(context, size, left, top, now);
    $('counts').textContent = this.#counts();
  }

  #counts() {
    const { num_blocks: all, active, cached, free, names } = this.store.pool;
    const share = (number) => `${Math.round((100 * number) / Math.max(1, all))} %`;
    if (!all) return `${names.toLocaleString('en')} names in the cache`;
    if (this.store.isNamed) return `${all.toLocaleString('en')} pages: ${share(active)} active, ${share(cached)} cached, ${share(free)} free; ${names.toLocaleString('en')} have a name`;
    return `${all.toLocaleString('en')} blocks: ${share(active)} active, ${share(cached)} cached, ${share(free)} free`;
  }

  #excuse() {
    const { map, active, cached, free, num_blocks: all } = this.store.pool;
    $('no-map').textContent = {
      counted: `This engine counts its pages and gives them neither numbers nor names, so no map can be drawn: ${active ?? '?'} pages are active, ${cached ?? '?'} cached, ${free ?? '?'} free. KVSCOPE_OBSERVER_NAMES=on in its environment names them.`,
      names: all
        ? 'This engine gives its pages no numbers: a square is a page with a name, in no particular place. A page that is free, or in use and not findable yet, has none.'
        : 'This stream names the content of the cache and nothing else: a square is a name. Who uses it is not known, nor what is free.',
    }[map] ?? 'What is in the cache is unknown: events were lost, or the engine has not created its pool yet. It is known again with the next snapshot of the engine.';
    if (map === 'names') return;
    $('counts').textContent = '';
    $('legend').replaceChildren();
  }

  #begin() {
    const { cell } = this.store.columns;
    this.flashes.clear();
    this.victimsAt = 0;
    if (!cell) return;
    this.columns = 0;
    $('colour').querySelector('[value=group]').hidden = !this.store.columns.group;
    for (const mode of ['owner', 'tenant', 'references']) {
      $('colour').querySelector(`[value=${mode}]`).hidden = !this.store.hasSteps;
    }
    this.#layOut();
    this.#explain();
  }

  /** As many columns as make the cells square in this canvas. */
  #layOut() {
    const { cell } = this.store.columns;
    const shape = this.canvas.clientWidth / Math.max(1, this.canvas.clientHeight);
    const columns = Math.max(1, Math.min(cell.length, Math.ceil(Math.sqrt(cell.length * shape))));
    if (columns === this.columns && this.pixels) return;
    this.columns = columns;
    this.rows = Math.ceil(cell.length / columns);
    this.image.width = columns;
    this.image.height = this.rows;
    this.pixels = new ImageData(columns, this.rows);
    this.paint = new Uint32Array(this.pixels.data.buffer);
    this.#repaint();
  }

  #place(width, height) {
    const base = Math.min(width / this.columns, height / this.rows);
    const size = base * this.view.zoom;
    return { size, left: this.view.x, top: this.view.y };
  }

  #change(ids, evicted) {
    this.dirty = true;
    if (!this.store.hasMap || !this.paint) return;
    if (ids === null) {
      this.#repaint();
      return;
    }
    const colour = painter(this.store, this.mode);
    for (const block of ids) this.paint[block] = colour(block);
    const now = performance.now();
    for (const block of evicted) if (this.flashes.size < MOST_FLASHES) this.flashes.set(block, now);
    if (this.selected !== null && ids.includes(this.selected)) this.#tellLife();
  }

  #repaint() {
    if (!this.paint || !this.store.hasMap) return;
    const colour = painter(this.store, this.mode);
    const count = this.store.columns.cell.length;
    for (let block = 0; block < count; block += 1) this.paint[block] = colour(block);
    this.paintedAt = performance.now();
    this.dirty = true;
  }

  /** The next hundred in the LRU; known only of engines that evict in that order. */
  #findVictims(now) {
    this.victimsAt = now;
    const policy = this.store.head.eviction_policy;
    const { place } = this.store.columns;
    const found = [];
    const shorten = () => found.sort((a, b) => place[a] - place[b]).splice(VICTIMS);
    if (policy === null || policy.toLowerCase() === 'lru') {
      let limit = Infinity;
      for (let block = 0; block < place.length; block += 1) {
        if (!place[block] || place[block] >= limit) continue;
        if (found.push(block) === 2 * VICTIMS) {
          shorten();
          limit = place[found.at(-1)];
        }
      }
      shorten();
    }
    this.victims = new Set(found);
    this.dirty = true;
  }

  #drawGaps(context, size, left, top, width, height) {
    context.strokeStyle = variable('--panel');
    context.lineWidth = Math.min(2, size / 8);
    context.beginPath();
    const end = { x: Math.min(width, left + this.columns * size), y: Math.min(height, top + this.rows * size) };
    for (let column = Math.max(0, Math.floor(-left / size)); left + column * size <= end.x; column += 1) {
      context.moveTo(left + column * size, Math.max(0, top));
      context.lineTo(left + column * size, end.y);
    }
    for (let row = Math.max(0, Math.floor(-top / size)); top + row * size <= end.y; row += 1) {
      context.moveTo(Math.max(0, left), top + row * size);
      context.lineTo(end.x, top + row * size);
    }
    context.stroke();
    const rest = this.rows * this.columns - this.store.columns.cell.length;
    context.fillStyle = variable('--panel');
    context.fillRect(left + (this.columns - rest) * size, top + (this.rows - 1) * size, rest * size + 1, size + 1);
  }

  #drawMarks(context, size, left, top, now) {
    const at = (block) => [left + (block % this.columns) * size, top + Math.floor(block / this.columns) * size];
    const inset = Math.max(0.5, size / 10);
    context.lineWidth = Math.max(1, Math.min(3, size / 6));
    context.strokeStyle = VICTIM;
    for (const block of this.victims) {
      if (this.store.columns.cell[block] !== CACHED) continue;  // it was evicted or found meanwhile
      const [x, y] = at(block);
      if (size < 4) {
        context.fillStyle = VICTIM;
        context.fillRect(x, y, Math.max(1, size), Math.max(1, size));
      } else context.strokeRect(x + inset, y + inset, size - 2 * inset, size - 2 * inset);
    }
    for (const [block, since] of this.flashes) {
      const age = (now - since) / FLASH_MS;
      if (age >= 1) this.flashes.delete(block);
      else {
        const [x, y] = at(block);
        context.fillStyle = isDark() ? `rgb(255 255 255 / ${0.8 * (1 - age)})` : `rgb(0 0 0 / ${0.7 * (1 - age)})`;
        const edge = size > 8 ? size * 0.3 : 0;
        context.fillRect(x + edge, y + edge, Math.max(1.5, size - 2 * edge), Math.max(1.5, size - 2 * edge));
      }
    }
    const outlined = new Set(this.highlighted ?? []);
    if (this.selected !== null) outlined.add(this.selected);
    context.strokeStyle = variable('--ink');
    context.lineWidth = 2;
    for (const block of outlined) {
      const [x, y] = at(block);
      context.strokeRect(x - 0.5, y - 0.5, Math.max(3, size + 1), Math.max(3, size + 1));
    }
  }

  /** Outline these blocks: those of a sequence. */
  highlight(blocks) {
    this.highlighted = blocks;
    this.dirty = true;
  }

  #explain() {
    const order = this.store.isNamed ? 'a flash: evicted' : 'framed: the next hundred to be evicted; a flash: evicted';
    legend($('legend'), [...legendOf(this.store, this.mode), [VICTIM, order]]);
  }

  blockAt(x, y) {
    if (!this.store.hasMap || !this.columns) return null;
    const { size, left, top } = this.#place(this.canvas.clientWidth, this.canvas.clientHeight);
    const [column, row] = [Math.floor((x - left) / size), Math.floor((y - top) / size)];
    const block = row * this.columns + column;
    const isInside = column >= 0 && column < this.columns && row >= 0 && block < this.store.columns.cell.length;
    return isInside ? block : null;
  }

  zoom(factor, x = this.canvas.clientWidth / 2, y = this.canvas.clientHeight / 2) {
    const next = Math.min(MOST_ZOOM, Math.max(1, this.view.zoom * factor));
    const grown = next / this.view.zoom;
    this.view = { zoom: next, x: x - (x - this.view.x) * grown, y: y - (y - this.view.y) * grown };
    if (next === 1) this.view = { zoom: 1, x: 0, y: 0 };
    this.dirty = true;
  }

  move(x, y) {
    if (this.view.zoom === 1) return;
    this.view.x += x;
    this.view.y += y;
    this.dirty = true;
  }

  #listen() {
    const { canvas } = this;
    canvas.addEventListener('wheel', (event) => {
      if (!event.ctrlKey && !event.shiftKey && this.view.zoom === 1 && event.deltaY > 0) return;
      event.preventDefault();
      this.zoom(event.deltaY < 0 ? 1.25 : 0.8, event.offsetX, event.offsetY);
    }, { passive: false });
    let held = null;
    canvas.addEventListener('pointerdown', (event) => {
      held = { x: event.offsetX, y: event.offsetY, moved: 0 };
      canvas.setPointerCapture(event.pointerId);
    });
    canvas.addEventListener('pointermove', (event) => {
      if (held) {
        held.moved += Math.abs(event.offsetX - held.x) + Math.abs(event.offsetY - held.y);
        this.move(event.offsetX - held.x, event.offsetY - held.y);
        [held.x, held.y] = [event.offsetX, event.offsetY];
      }
      this.#hover(event);
    });
    canvas.addEventListener('pointerup', (event) => {
      if (held && held.moved < 4) this.select(this.blockAt(event.offsetX, event.offsetY));
      held = null;
    });
    canvas.addEventListener('pointerleave', () => { $('tip').hidden = true; });
    canvas.addEventListener('keydown', (event) => {
      const step = 60;
      const keys = {
        '+': () => this.zoom(1.5), '=': () => this.zoom(1.5), '-': () => this.zoom(1 / 1.5), 0: () => this.zoom(0),
        ArrowLeft: () => this.move(step, 0), ArrowRight: () => this.move(-step, 0),
        ArrowUp: () => this.move(0, step), ArrowDown: () => this.move(0, -step),
        n: () => this.select(((this.selected ?? -1) + 1) % this.store.columns.cell.length),
        p: () => this.select(Math.max(0, (this.selected ?? 1) - 1)), Escape: () => this.select(null),
      };
      if (keys[event.key] && !event.ctrlKey && !event.metaKey) {
        keys[event.key]();
        event.preventDefault();
      }
    });
    addEventListener('resize', () => { this.dirty = true; });
  }

  /** One line about a block, from what the page has. */
  describe(block) {
    const { cell, owner, touched, prefix } = this.store.columns;
    const state = cell[block] === FREE ? 'free' : cell[block] === RESERVED ? 'reserved' : cell[block] === CACHED ? 'cached'
      : `active, ${cell[block] - CACHED} reference${cell[block] > CACHED + 1 ? 's' : ''}`;
    const { isNamed } = this.store;
    if (isNamed && cell[block] === FREE) return 'no name';
    const lines = [`${isNamed ? 'name' : 'block'} ${block}: ${isNamed && !this.store.hasSteps ? 'in the cache' : state}${this.victims.has(block) && cell[block] === CACHED ? ', among the next to be evicted' : ''}`];
    if (owner[block]) lines.push(`${isNamed ? 'asked for' : 'taken'} last by sequence ${owner[block] - 1}`);
    if (touched[block]) lines.push(`last used ${seconds(Math.max(0, this.store.nowMs - touched[block] * 100))} ago`);
    if (prefix[block]) lines.push(`prompt begins ${prefix[block].toString(16).padStart(8, '0')}`);
    return lines.join('\n');
  }

  #hover(event) {
    const block = this.blockAt(event.offsetX, event.offsetY);
    const tip = $('tip');
    tip.hidden = block === null;
    if (block === null) return;
    tip.textContent = this.describe(block);
    tip.style.left = `${Math.min(event.clientX + 14, innerWidth - tip.offsetWidth - 8)}px`;
    tip.style.top = `${Math.min(event.clientY + 14, innerHeight - tip.offsetHeight - 8)}px`;
  }

  select(block) {
    this.selected = block;
    this.dirty = true;
    $('block').hidden = block === null;
    if (block !== null) this.#tellLife();
  }

  async #tellLife() {
    const block = this.selected;
    if (this.asking) return;
    this.asking = true;
    try {
      const answer = await request('live/block', { engine: this.store.engine, id: block });
      if (block === this.selected) this.#showLife(await answer.json());
    } catch (error) {
      $('block').replaceChildren(el('strong', {}, this.describe(block).replaceAll('\n', ', ')), el('div', { className: 'dim' }, error.message));
    } finally {
      this.asking = false;
    }
  }

  #showLife(life) {
    const now = this.store.nowMs;
    const events = life.events.map(([ms, name, sequence, cause]) => el('li', {},
      `${seconds(Math.max(0, now - ms))} ago: ${name.replace(/([a-z])([A-Z])/g, '$1 $2').toLowerCase()}`
      + `${sequence === null ? '' : `, sequence ${sequence}`}${cause ? ` (${cause.replace('_', ' ')})` : ''}`));
    $('block').replaceChildren(
      el('strong', {}, this.describe(life.id).replaceAll('\n', ', ')),
      el('div', { className: 'dim' }, life.name ? `name ${life.name}` : 'no content that a prompt could find',
        life.born_ms === null ? '' : `, written ${seconds(Math.max(0, now - life.born_ms))} ago`,
        life.owners.length ? `, now of sequence ${life.owners.slice(0, 12).join(', ')}` : '',
        life.hits ? `, found ${life.hits} times lately` : ''),
      el('ul', { className: 'life', tabIndex: 0, 'aria-label': 'the last events of the block' }, ...events),
    );
  }
}
