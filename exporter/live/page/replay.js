// The controls of a recording: a slider over its time, one step back and forth, play.

import { $ } from './dom.js';
import { json, post } from './server.js';

const POLL_MS = 500;

export function beginReplay(store) {
  let status = null;
  let isHeld = false;
  const show = (next) => {
    status = next;
    store.isStanding = !status.playing || status.speed !== 1;
    const slider = $('replay-at');
    if (!isHeld) {
      [slider.min, slider.max] = [status.begins, status.ends];
      slider.value = status.at;
    }
    $('replay-time').textContent = `${new Date(1000 * status.at).toISOString().slice(11, 23)} UTC, `
      + `${(status.at - status.begins).toFixed(1)} of ${(status.ends - status.begins).toFixed(1)} s`;
    $('replay-play').textContent = status.playing ? 'Pause' : 'Play';
  };
  const does = (path, query = {}) => post(`api/replay/${path}`, query).then(show, (error) => { $('replay-time').textContent = error.message; });
  $('replay').hidden = false;
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
