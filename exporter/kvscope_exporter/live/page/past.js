// Back through what the flight recorder keeps: a slider, and one step back and forth. The page stands at
// a moment until the reader returns to the present.

import { $ } from './dom.js';
import { ask, chosen, json } from './server.js';

/** leave: stop following the present; come: follow it again; answer: ask again what is answered. */
export function beginPast(store, leave, come, answer) {
  const slider = $('past-at');
  let isOpen = false;
  let turn = Promise.resolve();
  const say = (text) => { $('past-time').textContent = text; };
  const show = async (query) => {
    const moment = await json('live/past', query);
    if (!isOpen) return;
    [slider.min, slider.max, slider.value] = [moment.begins, moment.ends, moment.at];
    chosen.past = moment.at;
    await store.stand();
    store.recall((await ask('course')).answer);
    await answer();
    const at = Number(moment.at);
    say(`${new Date(1000 * at).toISOString().slice(11, 23)} UTC, ${(moment.ends - at).toFixed(1)} s before the end of what is kept`);
  };
  /** One after the other, so that the last one asked for is the one that is shown. */
  const go = (query) => { turn = turn.then(() => isOpen && show(query())).catch((error) => say(error.message)); };
  $('past-open').addEventListener('click', () => {
    if (isOpen || !store.head) return;
    isOpen = true;
    leave();
    document.body.classList.add('past');
    $('past').hidden = false;
    say('Opening what is kept…');
    go(() => ({}));
    slider.focus();
  });
  $('past-leave').addEventListener('click', () => {
    isOpen = false;
    chosen.past = null;
    store.leave();
    document.body.classList.remove('past');
    $('past').hidden = true;
    come();
    $('past-open').focus();
  });
  slider.addEventListener('change', () => go(() => ({ at: Number(slider.value).toFixed(6) })));
  $('past-back').addEventListener('click', () => go(() => ({ at: chosen.past, step: -1 })));
  $('past-forward').addEventListener('click', () => go(() => ({ at: chosen.past, step: 1 })));
}
