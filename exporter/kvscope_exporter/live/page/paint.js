// The colours of blocks, by what the reader wants to see of them.

import { CACHED, FREE, RESERVED } from './store.js';
import { STATE, isDark, ofGroup, ofName, pixel, ramp, variable } from './colours.js';

const OLDEST_MS = 600000;
const DIM = 0.45;

/** The colour of a block, as a function for many; good until the next frame. */
export function painter(store, mode) {
  const { cell, owner, prefix, touched, group } = store.columns;
  const free = pixel(isDark() ? '#262c34' : '#e4e7eb');
  const unknown = pixel(isDark() ? '#4a535e' : '#b8c0ca');
  const reserved = pixel(STATE.reserved);
  const [cached, active, shared] = [STATE.cached, STATE.active, STATE.shared].map(pixel);
  const dimmed = (colour) => {
    const mix = (part, ground) => Math.round(part * DIM + ground * (1 - DIM));
    const ground = isDark() ? 0x17 : 0xff;
    return (0xff000000 | (mix((colour >> 16) & 255, ground) << 16) | (mix((colour >> 8) & 255, ground) << 8) | mix(colour & 255, ground)) >>> 0;
  };
  const named = new Map();
  const remembered = (key, make) => {
    let colour = named.get(key);
    if (colour === undefined) named.set(key, (colour = pixel(make(key))));
    return colour;
  };
  const idleIsDim = (block, colour) => (cell[block] === CACHED && store.hasSteps ? dimmed(colour) : colour);
  const now = store.nowMs;
  const paint = {
    state: (block) => (cell[block] === CACHED ? cached : cell[block] > CACHED + 1 ? shared : active),
    owner: (block) => (owner[block] ? idleIsDim(block, remembered(owner[block], ofName)) : unknown),
    prefix: (block) => (prefix[block] ? idleIsDim(block, remembered(prefix[block], ofName)) : unknown),
    tenant: (block) => {
      const tenant = store.sequences.get(owner[block] - 1)?.tenant;
      return tenant ? idleIsDim(block, remembered(tenant, ofName)) : unknown;
    },
    references: (block) => (cell[block] === CACHED ? dimmed(cached) : remembered(cell[block], (n) => ramp(Math.log2(n - CACHED) / 6))),
    age: (block) => {
      if (cell[block] > CACHED) return remembered(0.999, ramp);
      if (!touched[block]) return unknown;
      const age = Math.max(0, now - touched[block] * 100);
      return remembered(Math.round(50 * (1 - Math.log1p(age / 1000) / Math.log1p(OLDEST_MS / 1000))) / 53, ramp);
    },
    group: (block) => (group && group[block] !== 255 ? idleIsDim(block, pixel(ofGroup(group[block]))) : unknown),
  }[mode];
  return (block) => (cell[block] === FREE ? free : cell[block] === RESERVED ? reserved : paint(block));
}

/** What the colours mean: [colour, text] of each. */
export function legendOf(store, mode) {
  const free = store.isNamed ? 'no name' : 'free';
  const entries = {
    state: [[variable('--free'), free], [STATE.cached, 'cached'], ...(store.hasSteps ? [[STATE.active, 'active'], [STATE.shared, 'active, shared by several']] : [])],
    owner: [[variable('--free'), free], [ofName(7), 'one colour a sequence, dim once cached']],
    prefix: [[variable('--free'), free], [ofName(7), `one colour for prompts with the same first block${store.hasSteps ? ', dim once cached' : ''}`]],
    tenant: [[variable('--free'), free], [ofName('a'), 'one colour a tenant, dim once cached']],
    references: [[variable('--free'), free], [ramp(0), 'one sequence'], [ramp(0.5), '8'], [ramp(0.99), '64 and more']],
    age: [[variable('--free'), free], [ramp(0.99), 'in use'], [ramp(0.6), 'seconds ago'], [ramp(0), 'ten minutes and more']],
    group: (store.head?.groups ?? []).map((kind, index) => [ofGroup(index), kind.replaceAll('_', ' ')]),
  }[mode];
  if (store.pool?.reserved && mode === 'state') entries.push([STATE.reserved, 'reserved']);
  return entries;
}
