// The calculator: what fits on a GPU, by the numbers of a model. The server calculates, as `kvscope plan` does.

import { $, bytesOf, count, el } from './dom.js';
import { json } from './server.js';

const REST_MS = 300;
const FIRST = 'H100-80GB';

/** [name, text] of each figure of a plan. */
function figures(plan) {
  const { bytes, pool, settings } = plan;
  return [
    ['K and V of a token', bytesOf(bytes.per_token)],
    ['a block', `${bytesOf(bytes.per_block)}, ${settings.block_size} tokens`],
    ['a sequence of that length', bytesOf(bytes.per_sequence)],
    ['weights on a GPU', bytesOf(bytes.weights)],
    ...(pool ? [
      ['pool on a GPU', `${bytesOf(pool.bytes)}, ${count(pool.blocks)} blocks`],
      ['tokens in the pool', count(pool.tokens)],
      ['whole sequences', count(Math.floor(10 * pool.full_sequences) / 10)],
    ] : []),
  ];
}

export function beginPlan() {
  const form = $('plan');
  let timer = null;
  let asked = 0;
  const say = (text, rows = [], notes = []) => {
    $('plan-said').replaceChildren(text, ...notes.map((note) => el('div', { className: 'dim' }, `Note: ${note}.`)));
    $('planned').replaceChildren(...rows.map(([name, value]) => el('div', {}, el('dt', {}, name), el('dd', {}, value))));
  };
  const calculate = async () => {
    const wrong = [...form.elements].find((field) => !field.checkValidity());
    if (wrong) {
      say(`${wrong.labels[0].firstChild.textContent.trim()}: ${wrong.validationMessage}`);
      return;
    }
    asked += 1;
    const number = asked;
    const query = Object.fromEntries(new FormData(form));
    query.params = String(Number(query.params) * 1e9);
    try {
      const plan = await json('api/plan', query);
      if (number === asked) say(`${plan.verdict.text}.`, figures(plan), plan.notes);
    } catch (error) {
      if (number === asked) say(error.message);
    }
  };
  // GPUs are asked for when the form comes into sight, as is the first plan.
  const begin = async () => {
    try {
      const gpus = await json('api/plan/gpus');
      form.elements.gpu.replaceChildren(...gpus.map((name) => el('option', { selected: name === FIRST }, name)));
      await calculate();
    } catch (error) {
      say(error.message);
    }
  };
  const seen = new IntersectionObserver((entries) => {
    if (!entries.some((entry) => entry.isIntersecting)) return;
    if (!form.elements.gpu.length) begin();
  });
  seen.observe(form);
  form.addEventListener('submit', (event) => event.preventDefault());
  form.addEventListener('input', () => {
    clearTimeout(timer);
    timer = setTimeout(calculate, REST_MS);
  });
}
