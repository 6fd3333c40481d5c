// The controls of a recording: a slider over its time, one step back and forth, play.

import { $, el } from './dom.js';
import { inside } from './inside.js';
import { json, post } from './server.js';

const POLL_MS = 500;
/** Most seconds that a recording inside the page takes to play, unless its reader wants otherwise. */
const PLAY_SECONDS = 60;
const MOST_MARKS = 20;
/** Moments inside the page over which rates are smoothed. */
const SMOOTHED = 3;
const MOST_TEXT = 200;

const shown = (at) => new Date(1000 * at).toISOString().slice(0, 23).replace('T', ' ');

export function beginReplay(store) {
  let status = null;
  let isHeld = false;
  const begin = ({ server, problem, marks, begins, ends }) => {
    $('what').textContent = `recording of ${server.slice(0, MOST_TEXT)}`;
    $('replay-problem').hidden = !problem;
    $('replay-problem').textContent = `The recording is not whole: ${problem}.`;
    $('replay-marks').hidden = !marks.length;
    $('replay-marks').append(...marks.slice(-MOST_MARKS).map(([at, trigger, text]) => el(
      'button', { type: 'button', onclick: () => does('seek', { at: at.toFixed(6) }) }, `${shown(at).slice(11, 19)} ${trigger.replaceAll('_', ' ')}: ${text.slice(0, MOST_TEXT)}`)));
    const speeds = [...$('replay-speed').options].map((option) => option.value);
    if (inside) $('replay-speed').value = speeds.find((speed) => speed >= 1 && PLAY_SECONDS * speed >= ends - begins) ?? speeds.at(-1);
  };
  const show = (next) => {
    if (!status) begin(next);
    status = next;
    store.isStanding = Boolean(inside) || !status.playing || status.speed !== 1;
    const slider = $('replay-at');
    if (!isHeld) {
      [slider.min, slider.max] = [status.begins, status.ends];
      slider.value = status.at;
    }
    $('replay-time').textContent = `${shown(status.at)} UTC, `
      + `${(status.at - status.begins).toFixed(1)} of ${(status.ends - status.begins).toFixed(1)} s`;
    $('replay-play').textContent = status.playing ? 'Pause' : 'Play';
  };
  const does = (path, query = {}) => post(`api/replay/${path}`, query).then(show, (error) => { $('replay-time').textContent = error.message; });
  $('replay').hidden = false;
  store.on('snapshot', () => { if (inside) [store.figures, store.smoothed] = [inside.figures(store.engine), SMOOTHED]; });
  $('replay-back').addEventListener('click', () => does('step', { by: -1 }));
  $('replay-forward').addEventListener('click', () => does('step', { by: 1 }));
  $('replay-play').addEventListener('click', () => (status?.playing ? does('pause') : does('play', { speed: $('replay-speed').value })));
  $('replay-speed').addEventListener('change', () => status?.playing && does('play', { speed: $('replay-speed').value }));
  $('replay-at').addEventListener('input', () => { isHeld = true; });
  $('replay-at').addEventListener('change', () => {
    isHeld = false;
    does('seek', { at: Number($('replay-at').value).toFixed(6) });
  });
  const poll = () => json('api/replay').then(show, () => {}).finally(() => setTimeout(poll, POLL_MS));
  poll();
}
