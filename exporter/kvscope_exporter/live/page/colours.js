// Colours that remain different for the colour-blind (Okabe and Ito), and ramps that also differ in
// lightness. A pixel is 0xAABBGGRR, as a canvas keeps it.

export const STATE = { active: '#e69f00', shared: '#d55e00', cached: '#56b4e9', reserved: '#8a929c' };
export const SEQUENCE = {
  queued: '#8a929c', prefill: '#d55e00', decode: '#e69f00', preempted: '#cc79a7', swapped: '#0072b2',
  finished: '#009e73', aborted: '#444c56',
};
export const PREFILL = '#d55e00';
export const DECODE = '#56b4e9';
export const VICTIM = '#cc79a7';
const GROUPS = ['#e69f00', '#56b4e9', '#009e73', '#f0e442', '#0072b2', '#d55e00', '#cc79a7'];
const RAMP = ['#440154', '#46327e', '#365c8d', '#277f8e', '#1fa187', '#4ac16d', '#a0da39', '#fde725'];

export function isDark() {
  const own = document.documentElement.dataset.theme;
  return own ? own === 'dark' : matchMedia('(prefers-color-scheme: dark)').matches;
}

export function variable(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(name).trim();
}

export function pixel(colour) {
  const number = parseInt(colour.slice(1), 16);
  return (0xff000000 | ((number & 0xff) << 16) | (number & 0xff00) | (number >> 16)) >>> 0;
}

/** 0 to 1 along a ramp from dark to bright. */
export function ramp(share) {
  return RAMP[Math.min(RAMP.length - 1, Math.max(0, Math.floor(share * RAMP.length)))];
}

export function ofGroup(group) {
  return GROUPS[group % GROUPS.length];
}

const hashed = new Map();

/** One of many colours for a number or a text; the same each time. */
export function ofName(name) {
  let colour = hashed.get(name);
  if (colour === undefined) {
    let hash = 2166136261;
    for (const letter of String(name)) hash = Math.imul(hash ^ letter.charCodeAt(0), 16777619);
    hash = (hash ^ (hash >>> 15)) >>> 0;
    colour = fromHsl((hash * 137.508) % 360, 0.62, [0.42, 0.56, 0.7][hash % 3]);
    if (hashed.size > 20000) hashed.clear();
    hashed.set(name, colour);
  }
  return colour;
}

function fromHsl(hue, saturation, lightness) {
  const width = saturation * Math.min(lightness, 1 - lightness);
  const part = (shift) => {
    const place = (shift + hue / 30) % 12;
    const value = lightness - width * Math.max(-1, Math.min(place - 3, 9 - place, 1));
    return Math.round(255 * value).toString(16).padStart(2, '0');
  };
  return `#${part(0)}${part(8)}${part(4)}`;
}
