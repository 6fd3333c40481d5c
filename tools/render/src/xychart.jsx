// Grafana's XY chart, which it keeps in its server: our own drawing of manually mapped series.
import { formattedValueToString, getFieldDisplayName } from '@grafana/data';
import { useLayoutEffect, useRef } from 'react';

import { theme } from './theme.js';

const [LEFT, RIGHT, TOP, BOTTOM] = [56, 26, 10, 64];
const GRID = theme.colors.border.weak;
const [INK, PALE] = [theme.colors.text.primary, theme.colors.text.secondary];

export function XYChart({ frames, panel, width, height }) {
  const reference = useRef(null);
  const drawn = (panel.options?.series ?? []).flatMap((series) => seriesOf(series, frames[0]));
  useLayoutEffect(() => {
    const ratio = window.devicePixelRatio || 1;
    const canvas = Object.assign(reference.current, { width: width * ratio, height: height * ratio });
    const pen = canvas.getContext('2d');
    pen.scale(ratio, ratio);
    pen.font = `12px ${theme.typography.fontFamily}`;
    if (drawn.length) draw(pen, drawn, width, height);
  });
  return <canvas ref={reference} style={{ width, height }} />;
}

/** One to draw, or none where the frame lacks a column. */
function seriesOf({ name, x, y }, frame) {
  const find = ({ matcher }) =>
    frame.fields.find((field) => getFieldDisplayName(field, frame, [frame]) === matcher.options);
  const [across, up] = [find(x), find(y)];
  if (!across || !up) return [];
  const points = across.values
    .map((value, index) => [value, up.values[index]])
    .filter((point) => point.every(Number.isFinite));
  const color = theme.visualization.getColorByName(up.config.color?.fixedColor ?? 'text');
  return [{ name: name?.fixed, across, up, points, color, looks: up.config.custom ?? {} }];
}

function draw(pen, drawn, width, height) {
  const all = drawn.flatMap(({ points }) => points);
  const scales = [
    scale(all.map(([value]) => value), drawn[0].across.config, LEFT, width - RIGHT, 8),
    scale(all.map(([, value]) => value), drawn[0].up.config, height - BOTTOM, TOP, 5),
  ];
  axes(pen, scales, drawn[0], width, height);
  const [x, y] = scales;
  for (const { points, color, looks } of drawn) {
    const { show = 'points', lineWidth = 1, lineStyle, pointSize } = looks;
    Object.assign(pen, { strokeStyle: color, fillStyle: color, lineWidth });
    if (show.includes('lines')) {
      pen.setLineDash(lineStyle?.fill === 'dash' ? (lineStyle.dash ?? [10, 10]) : []);
      pen.beginPath();
      points.forEach(([across, up]) => pen.lineTo(x.at(across), y.at(up)));
      pen.stroke();
    }
    if (show.includes('points')) {
      for (const [across, up] of points) {
        pen.beginPath();
        pen.arc(x.at(across), y.at(up), (pointSize?.fixed ?? 5) / 2, 0, 2 * Math.PI);
        pen.fill();
      }
    }
  }
  legend(pen, drawn, height);
}

/** Pixels of a value, and round numbers between the bounds. */
function scale(values, { min, max, custom }, from, to, parts) {
  if (custom?.scaleDistribution?.type === 'log') return byFactors(values, custom.scaleDistribution.log, from, to, parts);
  const low = min ?? Math.min(...values);
  const span = (max ?? Math.max(...values)) - low || 1;
  const power = 10 ** Math.floor(Math.log10(span / parts));
  const step = [1, 2, 5, 10].map((times) => times * power).find((one) => span / one <= parts);
  const high = max ?? Math.ceil((low + span) / step - 1e-9) * step;
  const ticks = [];
  for (let tick = Math.ceil(low / step) * step; tick <= high + step / 1e6; tick += step) ticks.push(tick);
  return { ticks, at: (value) => from + ((to - from) * (value - low)) / (high - low) };
}

/** The same where equal distances are equal factors; ticks are powers of the base. */
function byFactors(values, base, from, to, parts) {
  const log = (value) => Math.log(value) / Math.log(base);
  const low = Math.floor(log(Math.min(...values)));
  const high = Math.max(low + 1, Math.ceil(log(Math.max(...values))));
  const step = Math.ceil((high - low) / parts);
  const ticks = [];
  for (let power = low; power <= high; power += step) ticks.push(base ** power);
  return { ticks, at: (value) => from + ((to - from) * (log(value) - low)) / (high - low) };
}

function axes(pen, [x, y], { across, up }, width, height) {
  Object.assign(pen, { strokeStyle: GRID, lineWidth: 1, textBaseline: 'middle' });
  const line = (...ends) => {
    pen.beginPath();
    ends.forEach((end) => pen.lineTo(...end));
    pen.stroke();
  };
  const write = (text, left, top, textAlign) => {
    Object.assign(pen, { fillStyle: INK, textAlign });
    pen.fillText(text, left, top);
  };
  for (const tick of y.ticks) {
    line([LEFT, y.at(tick)], [width - RIGHT, y.at(tick)]);
    write(formattedValueToString(up.display(tick)), LEFT - 6, y.at(tick), 'right');
  }
  for (const tick of x.ticks) {
    line([x.at(tick), TOP], [x.at(tick), height - BOTTOM]);
    write(formattedValueToString(across.display(tick)), x.at(tick), height - BOTTOM + 12, 'center');
  }
  write(across.config.custom?.axisLabel ?? '', (LEFT + width - RIGHT) / 2, height - 34, 'center');
}

function legend(pen, drawn, height) {
  let left = 8;
  for (const { name, color } of drawn) {
    pen.fillStyle = color;
    pen.fillRect(left, height - 13, 14, 4);
    Object.assign(pen, { fillStyle: PALE, textAlign: 'left' });
    pen.fillText(name, left + 19, height - 11);
    left += pen.measureText(name).width + 36;
  }
}
