// The last sequences as they would have run in static batches, where a batch ends with its longest one.

import { $, legend, prepared } from './dom.js';
import { DECODE, PREFILL, variable } from './colours.js';

const MOST_STEPS = 400;
const LEAST_ROW = 2;
/** Fewer say nothing about a server under load. */
const LEAST_STEPS = 20;

/** Whole batches of the sequences that have ended, in the order in which they came. */
export function batchesOf(sequences, places) {
  const ended = [...sequences]
    .filter((row) => row.state === 'finished' && row.prompt_tokens !== null && row.output_tokens > 0)
    .sort((a, b) => a.id - b.id);
  const batches = [];
  for (let from = 0; from + places <= ended.length; from += places) {
    const lengths = ended.slice(from, from + places).map((row) => row.output_tokens);
    batches.push({ lengths, steps: Math.max(...lengths) });
  }
  return batches;
}

/** The share of places that work in a step, in static batches. */
export function shareAtWork(batches, places) {
  const steps = batches.reduce((sum, batch) => sum + batch.steps, 0);
  const tokens = batches.reduce((sum, batch) => sum + batch.lengths.reduce((all, one) => all + one, 0), 0);
  return tokens / (steps * places);
}

export function drawStatic(store) {
  if (!$('static-view').open) return;
  const places = Math.max(0, ...store.steps.map((step) => step[4]));
  const batches = places ? batchesOf(store.sequences.values(), places) : [];
  $('static').hidden = !batches.length;
  $('static-legend').hidden = !batches.length;
  if (!batches.length) {
    $('static-said').textContent = 'Not enough sequences have ended since this page was opened.';
    return;
  }
  const there = shareAtWork(batches, places);
  const pressed = store.steps.filter((step) => step[5] > 0);
  const here = pressed.reduce((sum, step) => sum + step[4], 0) / (pressed.length * places);
  const percent = (share) => `${Math.round(100 * share)} %`;
  $('static-said').textContent = `Calculated: the last ${batches.length * places} sequences in ${batches.length} static `
    + `batch${batches.length > 1 ? 'es' : ''} of ${places}, the most that ran at once here. ${percent(1 - there)} of the places would wait for the longest of their batch. `
    + (pressed.length < LEAST_STEPS ? 'In the steps above hardly any request waits, so there is nothing to compare them with.'
      : `In the steps above ${percent(1 - here)} are free while requests wait: static batches would take ${(here / there).toFixed(1)} times as many steps.`);
  legend($('static-legend'), [[PREFILL, 'prompt'], [DECODE, 'a token a step'], [variable('--free'), 'waits for the longest']]);
  paint(batches, places);
}

function paint(batches, places) {
  const ready = prepared($('static'));
  if (!ready) return;
  const [context, width, height] = ready;
  const shown = [];
  for (let steps = 0; batches.length > shown.length; ) {
    const batch = batches[batches.length - 1 - shown.length];
    steps += batch.steps;
    if (shown.length && steps > MOST_STEPS) break;
    shown.unshift(batch);
  }
  const step = width / shown.reduce((sum, batch) => sum + batch.steps, 0);
  const row = height / places;
  const gap = row > 2 * LEAST_ROW ? 1 : 0;
  let begin = 0;
  for (const batch of shown) {
    batch.lengths.forEach((length, place) => {
      const bar = (colour, from, until) => {
        context.fillStyle = colour;
        context.fillRect((begin + from) * step, place * row, Math.max(0, (until - from) * step), row - gap);
      };
      bar(variable('--free'), 0, batch.steps);
      bar(DECODE, 1, length);
      bar(PREFILL, 0, 1);
    });
    begin += batch.steps;
    context.fillStyle = variable('--ink');
    context.fillRect(begin * step - 1, 0, 1, height);
  }
}
