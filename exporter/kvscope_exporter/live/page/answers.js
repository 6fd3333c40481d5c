// Views of the answers below /api, asked for every few seconds: why, prefixes, what-if, memory.

import { $, bytesOf, count, el, svg } from './dom.js';
import { STATE, ofName, variable } from './colours.js';
import { ask, chosen, request } from './server.js';

const ROW = 24;
const HEIGHT = 190;
/** Below this width labels are fewer, and text stands left of its line. */
const NARROW = 380;
const EDGE = { left: 44, right: 14, top: 14, bottom: 34 };

export async function showWhy() {
  const { answer, unknown } = await ask('why');
  $('why').textContent = answer?.sentence ?? unknown;
}

/** Prefixes as an icicle: what continues another stands below it. */
export async function showPrefixes() {
  const { answer, unknown } = await ask('prefixes');
  const place = $('prefixes');
  if (!answer) {
    place.replaceChildren(el('p', { className: 'dim' }, unknown));
    return;
  }
  const nodes = new Map([...answer.most_saved, ...answer.most_lost].map((each) => [each.prefix, { ...each, below: [] }]));
  const roots = [];
  for (const node of nodes.values()) (nodes.get(node.continues)?.below ?? roots).push(node);
  const total = (node) => {
    node.own = node.saved_tokens + node.lost_tokens;
    node.weight = node.own + node.below.map(total).reduce((sum, each) => sum + each, 0);
    return node.weight;
  };
  const all = roots.map(total).reduce((sum, each) => sum + each, 0);
  $('prefix-counts').textContent = `${count(answer.saved_tokens)} tokens saved, ${count(answer.lost_tokens)} lost and computed again`;
  if (!all) {
    place.replaceChildren(el('p', { className: 'dim' }, 'No prompt has begun like an earlier one yet.'));
    return;
  }
  const across = place.clientWidth;
  const drawing = svg('svg', { role: 'img', 'aria-label': 'Shared prefixes by saved tokens' });
  let depth = 0;
  const draw = (list, x, row, scale) => {
    let at = x;
    for (const node of [...list].sort((a, b) => b.weight - a.weight)) {
      const width = node.weight * scale;
      depth = Math.max(depth, row + 1);
      const group = svg('g');
      group.append(
        svg('title', {}, `${node.prefix}: ${count(node.length_tokens)} tokens long, found ${count(node.hits)} times, ${count(node.saved_tokens)} tokens saved, ${count(node.lost_tokens)} lost; ${node.resident ? 'in the cache now' : 'not in the cache now'}`),
        svg('rect', { x: at, y: row * ROW, width: Math.max(0.5, width - 1), height: ROW - 2, rx: 2, fill: node.resident ? ofName(node.prefix) : variable('--free') }),
        svg('rect', { x: at, y: row * ROW + ROW - 7, width: Math.max(0, (width - 1) * (node.lost_tokens / Math.max(1, node.own))), height: 5, class: 'lost' }),
      );
      if (width > 90) group.append(svg('text', { x: at + 5, y: row * ROW + 13, class: node.resident ? 'on' : 'off' }, `${node.prefix} ${count(node.length_tokens)}`));
      drawing.append(group);
      draw(node.below, at, row + 1, scale);
      at += width;
    }
  };
  draw(roots, 0, 0, across / all);
  drawing.setAttribute('viewBox', `0 0 ${across} ${depth * ROW}`);
  place.replaceChildren(drawing);
}

export async function showWhatIf() {
  const { answer, unknown } = await ask('whatif');
  const curve = answer?.curves.find((each) => each.points.some((point) => point.hit_ratio !== null));
  if (!curve) {
    $('whatif').replaceChildren(el('p', { className: 'dim' }, unknown && !answer ? unknown : 'No prompt has been looked up yet.'));
    return;
  }
  const points = curve.points.filter((point) => point.scale !== null && point.hit_ratio !== null);
  const limit = curve.points.find((point) => point.scale === null)?.hit_ratio;
  const across = $('whatif').clientWidth;
  const [least, most] = [Math.log2(points[0].scale), Math.log2(points.at(-1).scale)];
  const top = Math.max(0.05, limit ?? 0, ...points.map((point) => point.hit_ratio));
  const x = (scale) => EDGE.left + ((across - EDGE.left - EDGE.right) * (Math.log2(scale) - least)) / Math.max(1, most - least);
  const y = (ratio) => HEIGHT - EDGE.bottom - ((HEIGHT - EDGE.top - EDGE.bottom) * ratio) / top;
  const drawing = svg('svg', { viewBox: `0 0 ${across} ${HEIGHT}`, role: 'img', 'aria-label': 'Share of blocks found by size of the pool' });
  for (const ratio of [0, top / 2, top]) {
    drawing.append(svg('line', { class: 'axis', x1: EDGE.left, x2: across - EDGE.right, y1: y(ratio), y2: y(ratio) }),
      svg('text', { class: 'dim', x: EDGE.left - 6, y: y(ratio) + 4, 'text-anchor': 'end' }, `${Math.round(100 * ratio)} %`));
  }
  const isNarrow = across < NARROW;
  for (const point of points.filter((each) => Number.isInteger(Math.log2(each.scale) / (isNarrow ? 2 : 1)))) {
    drawing.append(svg('text', { class: 'dim', x: x(point.scale), y: HEIGHT - EDGE.bottom + 16, 'text-anchor': point === points.at(-1) ? 'end' : 'middle' }, count(point.capacity_blocks)));
  }
  drawing.append(svg('text', { class: 'dim', x: across - EDGE.right, y: HEIGHT - 4, 'text-anchor': 'end' }, 'blocks'));
  if (limit !== undefined && limit !== null) {
    drawing.append(svg('line', { x1: EDGE.left, x2: across - EDGE.right, y1: y(limit), y2: y(limit), stroke: '#009e73', 'stroke-dasharray': '5 4' }));
  }
  drawing.append(svg('polyline', { fill: 'none', stroke: STATE.cached, 'stroke-width': 2.5, points: points.map((point) => `${x(point.scale)},${y(point.hit_ratio)}`).join(' ') }));
  const here = points.find((point) => point.scale === 1);
  if (here) {
    drawing.append(svg('line', { x1: x(1), x2: x(1), y1: EDGE.top, y2: HEIGHT - EDGE.bottom, class: 'here' }),
      svg('circle', { cx: x(1), cy: y(here.hit_ratio), r: 5, class: 'lost' }),
      svg('text', { x: x(1) + (isNarrow ? -7 : 7), y: HEIGHT - EDGE.bottom - 8, 'text-anchor': isNarrow ? 'end' : 'start' }, `you are here: ${Math.round(100 * here.hit_ratio)} %`));
  }
  $('whatif-counts').textContent = `last ${curve.window === 'start' ? 'hours' : curve.window}`
    + (limit === undefined || limit === null ? '' : `; never losing anything: ${Math.round(100 * limit)} %`);
  $('whatif').replaceChildren(drawing);
}

/** What the engine runs with. */
export async function showSettings() {
  const { answer, unknown } = await ask('course');
  const facts = Object.entries(answer?.facts ?? {});
  $('settings').replaceChildren(...facts.map(([name, value]) => el('div', {}, el('dt', {}, name.replace('setting.', '')), el('dd', {}, String(value)))));
  if (!answer) $('settings').replaceChildren(el('div', {}, el('dt', {}, 'unknown'), el('dd', {}, unknown)));
}

const PARTS = ['#0072b2', '#56b4e9', '#e69f00', '#d55e00', '#009e73', '#cc79a7', '#f0e442', '#8a929c', '#444c56'];

export async function showMemory(store) {
  const text = await (await request(chosen.target ? 'scrape' : 'metrics')).text();
  const devices = new Map();
  for (const line of text.split('\n')) {
    const found = /^kvscope_gpu_memory_component_bytes\{(.*)\} (\S+)/.exec(line);
    if (!found) continue;
    const label = (name) => new RegExp(`\\b${name}="([^"]*)"`).exec(found[1])?.[1] ?? '';
    const device = label('gpu') || label('uuid') || '0';
    if (!devices.has(device)) devices.set(device, []);
    devices.get(device).push([label('component'), Number(found[2])]);
  }
  const pool = store.pool;
  const poolBytes = pool ? pool.num_blocks * pool.bytes_per_block : 0;
  $('memory-counts').textContent = poolBytes ? `the pool: ${bytesOf(poolBytes)}, ${bytesOf(pool.bytes_per_block)} a block` : '';
  if (!devices.size && poolBytes && pool.active !== null) {
    const part = (number) => number * pool.bytes_per_block;
    devices.set('pool', [['active', part(pool.active)], ['cached', part(pool.cached)], ['free', part(pool.free)]]);
  }
  if (!devices.size) {
    $('memory').replaceChildren(el('p', { className: 'dim' }, 'Neither a GPU nor a pool with memory is known here.'));
    return;
  }
  const colours = { active: STATE.active, cached: STATE.cached, free: variable('--free') };
  $('memory').replaceChildren(...[...devices].map(([device, parts]) => {
    const all = parts.reduce((sum, [, size]) => sum + size, 0);
    const colour = (name, index) => colours[name] ?? PARTS[index % PARTS.length];
    const bar = el('div', { className: 'memory-bar' }, ...parts.map(([name, size], index) => {
      const piece = el('div', { colour: colour(name, index), title: `${name}: ${bytesOf(size)}` });
      piece.style.width = `${(100 * size) / Math.max(1, all)}%`;
      return piece;
    }));
    const keys = el('div', { className: 'legend' }, ...parts.map(([name, size], index) => el('span', {}, el('i', { colour: colour(name, index) }), `${name.replaceAll('_', ' ')} ${bytesOf(size)}`)));
    return el('div', {}, el('div', { className: 'dim' }, device === 'pool' ? 'the pool, on the host' : `GPU ${device}: ${bytesOf(all)}`), bar, keys);
  }));
}
