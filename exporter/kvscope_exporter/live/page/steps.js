// The last 200 steps, and the headline figures as strips.

import { $, count, el, legend, prepared } from './dom.js';
import { DECODE, PREFILL, STATE, VICTIM, variable } from './colours.js';

const STEPS = 200;

export function beginSteps() {
  legend($('step-legend'), [[PREFILL, 'prompt tokens'], [DECODE, 'decode tokens'], [variable('--ink'), 'duration']]);
}

export function drawSteps(store) {
  const ready = prepared($('steps'));
  if (!store.steps.length) $('step-counts').textContent = '';
  if (!ready || !store.steps.length) return;
  const [context, width, height] = ready;
  const steps = store.steps.slice(-STEPS);
  const most = Math.max(...steps.map((step) => step[2] + step[3]), 1);
  const longest = Math.max(...steps.map((step) => step[1]), 1);
  const bar = width / STEPS;
  const floor = height - 2;
  steps.forEach((step, index) => {
    const x = (STEPS - steps.length + index) * bar;
    const [prefill, decode] = [(floor * step[2]) / most, (floor * step[3]) / most];
    context.fillStyle = PREFILL;
    context.fillRect(x, floor - prefill, Math.max(1, bar - 0.6), prefill);
    context.fillStyle = DECODE;
    context.fillRect(x, floor - prefill - decode, Math.max(1, bar - 0.6), decode);
  });
  context.strokeStyle = variable('--ink');
  context.lineWidth = 1.2;
  context.beginPath();
  steps.forEach((step, index) => {
    context.lineTo((STEPS - steps.length + index + 0.5) * bar, floor - (0.95 * floor * step[1]) / longest);
  });
  context.stroke();
  const last = steps.at(-1);
  $('step-counts').textContent = `last: ${last[2]} + ${last[3]} tokens in ${(last[1] / 1000).toFixed(1)} ms; `
    + `most here: ${count(most)} tokens, ${(longest / 1000).toFixed(1)} ms`;
}

/** Name, the figure of a moment and the one before it, its text, its colour. */
const STRIPS = [
  ['running', (now) => now.running, (value) => count(value), STATE.active],
  ['waiting', (now) => now.waiting, (value) => count(value), STATE.reserved],
  ['of the pool active', (now) => (now.pool.active ?? NaN) / Math.max(1, now.pool.num_blocks - now.pool.reserved), (value) => `${Math.round(100 * value)} %`, STATE.active],
  ['of blocks found', (now, was) => (now.hit_blocks - was.hit_blocks) / (now.queried_blocks - was.queried_blocks), (value) => `${Math.round(100 * value)} %`, STATE.cached],
  ['tokens decoded a second', (now, was, s) => (now.decode_tokens - was.decode_tokens) / s, (value) => count(Math.round(value)), DECODE],
  ['prompt tokens a second', (now, was, s) => (now.prefill_tokens - was.prefill_tokens) / s, (value) => count(Math.round(value)), PREFILL],
  ['blocks evicted a second', (now, was, s) => (now.evictions - was.evictions) / s, (value) => value.toFixed(value < 10 ? 1 : 0), VICTIM],
  ['preemptions', (now, was) => now.preemptions - was.preemptions, (value, now) => count(now.preemptions), VICTIM],
];
/** The strips begin with the page, and are stretched until they hold five minutes. */
const LEAST_MS = 30000;

export function drawStrips(store) {
  const place = $('strips');
  if (!place.childElementCount) {
    place.append(...STRIPS.map(([name]) => el('div', { className: 'strip' }, el('b'), el('span', {}, name), el('canvas', { role: 'img', 'aria-label': `${name} over time` }))));
  }
  const figures = store.figures;
  STRIPS.forEach(([, of, text, colour], index) => {
    const values = figures.map((now, position) => {
      const was = figures[Math.max(0, position - store.smoothed)];
      return of(now, was, Math.max(0.001, (now.ms - was.ms) / 1000));
    });
    const strip = place.children[index];
    const last = values.at(-1);
    strip.firstChild.textContent = Number.isFinite(last) ? text(last, figures.at(-1)) : '–';
    const ready = prepared(strip.lastChild);
    if (!ready || values.length < 2) return;
    const [context, width, height] = ready;
    const top = Math.max(1e-9, ...values.filter(Number.isFinite));
    const end = figures.at(-1).ms;
    const begin = Math.min(figures[0].ms, end - LEAST_MS);
    context.strokeStyle = colour;
    context.lineWidth = 1.5;
    context.beginPath();
    let isDrawing = false;
    values.forEach((value, position) => {
      const x = (width * (figures[position].ms - begin)) / (end - begin);
      const y = height - 1.5 - ((height - 3) * value) / top;
      if (!Number.isFinite(value)) isDrawing = false;
      else if (isDrawing) context.lineTo(x, y);
      else {
        context.moveTo(x, y);
        isDrawing = true;
      }
    });
    context.stroke();
  });
}
