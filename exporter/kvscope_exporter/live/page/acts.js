// Buttons that have a demo send itself requests. No other server offers any.

import { $, el } from './dom.js';
import { post } from './server.js';

const WORDS = { share: 'send a shared prefix', fill: 'fill the pool', fork: 'fork a sample' };
const SHOWN_MS = 6000;

let offered = [];
let timer = null;

/** A button for an act; null: this server does not offer it. */
export function actButton(act) {
  if (!offered.includes(act)) return null;
  return el('button', { type: 'button', onclick: () => provoke(act) }, WORDS[act]);
}

/** The acts that the server offers, as a bar of buttons. */
export function showActs(acts) {
  if (acts.join() === offered.join()) return;
  offered = acts.filter((act) => act in WORDS);
  $('acts').hidden = !offered.length;
  $('acts').replaceChildren($('acts-title'), ...offered.map(actButton), $('act-said'));
}

async function provoke(act) {
  clearTimeout(timer);
  try {
    await post(`api/demo/${act}`);
    $('act-said').textContent = 'Sent: it waits its turn behind the demo’s own requests.';
  } catch (error) {
    $('act-said').textContent = error.message;
  }
  timer = setTimeout(() => { $('act-said').textContent = ''; }, SHOWN_MS);
}
