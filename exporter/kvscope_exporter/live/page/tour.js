// A guided tour in ten steps, each of which waits until the engine really does what it tells of.
// A demo can be asked to do so at once.

import { CACHED } from './store.js';
import { actButton } from './acts.js';
import { $, el } from './dom.js';

const STEPS = [
  ['The pool', 'map-view', 'A server keeps the keys and values of all tokens that it has seen in a pool of blocks. Each square is one of them; their number is fixed when the server starts.', null],
  ['A block table', 'sequence-view', 'A sequence’s tokens need not lie side by side: its block table says which block holds which tokens. Choose a sequence in the table; its blocks are outlined in the map.', (at) => at.sequences.selected !== null],
  ['Batching', 'step-view', 'Each bar is a step. All running sequences compute their next token together, and prompts of new ones fill up what is left. A sequence that ends leaves at once.', (at) => at.store.steps.some((step) => step[2] && step[3])],
  ['The cache', 'map-view', 'A sequence that ends gives its blocks back. Full ones keep their content: they are cached, and blue.', (at) => at.store.pool?.cached > 0],
  ['The hash chain', 'map-view', 'A cached block’s name is a hash of its tokens and of all blocks before it, so equal names mean equal beginnings. Colour the map by prefix: one colour is one beginning.', (at) => at.map.mode === 'prefix'],
  ['A hit', 'prefix-view', 'A prompt that begins like an earlier one finds its blocks and does not compute them. Those are saved tokens.', (at) => at.since((figures) => figures.hit_blocks) > 0, 'share'],
  ['Sharing and copy-on-write', 'map-view', 'Several sequences use one block at the same time: it has several references, and who wants to write into it gets a copy. Such blocks are darker.', (at) => at.store.columns.cell?.some((cell) => cell > CACHED + 1), 'fork'],
  ['Eviction', 'map-view', 'When no block is free, the cached one that was not used for the longest time loses its content. The framed ones are next; a flash is an eviction.', (at) => at.since((figures) => figures.evictions) > 0, 'fill'],
  ['Preemption', 'sequence-view', 'When nothing is left to evict, a running sequence is preempted: it gives its blocks back and has to compute again what is lost meanwhile.', (at) => at.since((figures) => figures.preemptions) > 0, 'fill'],
  ['The right size', 'whatif-view', 'What would another size bring? The curve is computed from the same requests while they run. To size a pool before there is a server, fill in the form below it.', null],
];

export function beginTour(store, map, sequences) {
  let step = -1;
  let timer = null;
  let before = null;
  const panel = $('tour');
  const at = {
    store, map, sequences,
    since: (figure) => (before && store.figures.length ? figure(store.figures.at(-1)) - figure(before) : 0),
  };
  const leave = () => {
    clearInterval(timer);
    panel.hidden = true;
    document.querySelector('.toured')?.classList.remove('toured');
    step = -1;
    $('tour-start').focus();
  };
  const go = (next) => {
    document.querySelector('.toured')?.classList.remove('toured');
    clearInterval(timer);
    if (next < 0 || next >= STEPS.length) {
      leave();
      return;
    }
    step = next;
    before = store.figures.at(-1) ?? null;
    const [title, place, text, happened, act] = STEPS[step];
    const provoking = act ? actButton(act) : null;
    const section = $(place);
    section.classList.add('toured');
    section.scrollIntoView({ block: 'nearest' });
    const state = el('p', { className: 'dim' });
    const onward = el('button', { type: 'button', onclick: () => go(step + 1) }, step === STEPS.length - 1 ? 'End' : 'Next');
    panel.replaceChildren(
      el('h2', { id: 'tour-title' }, `${step + 1} of ${STEPS.length}: ${title}`), el('p', {}, text), state, ...(provoking ? [provoking] : []),
      el('div', { className: 'bar' },
        el('button', { type: 'button', onclick: () => go(step - 1), disabled: step === 0 }, 'Back'), onward,
        el('span', { className: 'space' }), el('button', { type: 'button', onclick: leave }, 'Leave')));
    panel.hidden = false;
    onward.focus();
    const look = () => {
      const done = !happened || Boolean(happened(at));
      panel.dataset.happened = String(done);
      state.hidden = !happened;
      state.textContent = done ? 'It has just happened here.' : 'Waiting until it happens here…';
    };
    look();
    timer = setInterval(look, 250);
  };
  $('tour-start').addEventListener('click', () => go(0));
  panel.addEventListener('keydown', (event) => event.key === 'Escape' && leave());
}
