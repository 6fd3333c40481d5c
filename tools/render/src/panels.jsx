// Every kind of panel that is drawn, inside Grafana's panel frame.
import {
  getDisplayValueAlignmentFactors,
  getFieldDisplayValues,
  renderMarkdown,
} from '@grafana/data';
import { BarGauge, BigValue, PanelChrome } from '@grafana/ui';
import { TableNG } from '@grafana/ui/unstable';
import { Component } from 'react';

import { fieldConfigOf } from './fields.js';
import { Graph } from './graph.jsx';
import { Gauge, Heatmap, StateTimeline } from './standins.jsx';
import { theme, timeZone } from './theme.js';
import { XYChart } from './xychart.jsx';

const SPACING = 8;
const TIGHT = ['timeseries', 'table', 'heatmap', 'state-timeline', 'xychart'];

const KINDS = {
  timeseries: Graph,
  heatmap: Heatmap,
  'state-timeline': StateTimeline,
  xychart: XYChart,
  table: Table,
  stat: (props) => <EachValue {...props} of={Stat} sparkline={graphMode(props.panel) !== 'none'} />,
  gauge: (props) => <EachValue {...props} of={Gauge} />,
  bargauge: (props) => <EachValue {...props} of={Bar} />,
};

export function Panel({ panel, title, width, height, data, range, spans, onError }) {
  const statusMessage = data.errors[0];
  return (
    <PanelChrome
      title={title}
      description={panel.description || undefined}
      width={width}
      height={height}
      displayMode={panel.transparent ? 'transparent' : 'default'}
      statusMessage={statusMessage}
      padding={TIGHT.includes(panel.type) ? 'sm' : 'md'}
    >
      {(innerWidth, innerHeight) => (
        <Guard onError={onError}>
          <Content {...{ panel, data, range, spans }} width={innerWidth} height={innerHeight} />
        </Guard>
      )}
    </PanelChrome>
  );
}

function Content({ panel, data, ...rest }) {
  if (panel.type === 'text') return <Text options={panel.options} />;
  const Kind = KINDS[panel.type];
  if (!Kind) return <Note {...rest}>{`${panel.type}: not drawn here`}</Note>;
  if (data.frames.every((frame) => !frame.length)) {
    return <Note {...rest}>{panel.fieldConfig?.defaults?.noValue ?? data.errors[0] ?? 'No data'}</Note>;
  }
  return <Kind panel={panel} frames={data.frames} {...rest} />;
}

function Text({ options = {} }) {
  const html = options.mode === 'html' ? options.content : renderMarkdown(options.content ?? '');
  return <div className="markdown-html" dangerouslySetInnerHTML={{ __html: html }} />;
}

function Note({ width, height, children }) {
  const color = theme.colors.text.secondary;
  return <div style={{ width, height, display: 'grid', placeItems: 'center', color }}>{children}</div>;
}

function Table({ frames, panel, width, height }) {
  const { showHeader, cellHeight, sortBy } = panel.options ?? {};
  return (
    <TableNG
      data={frames[0]}
      width={width}
      height={height}
      noHeader={showHeader === false}
      cellHeight={cellHeight}
      sortBy={sortBy}
      fieldConfig={fieldConfigOf(panel)}
      enableVirtualization={false}
      structureRev={1}
    />
  );
}

const graphMode = (panel) => panel.options?.graphMode ?? 'area';

function Stat({ value, panel, width, height, count }) {
  const { colorMode = 'value', justifyMode = 'auto', textMode = 'auto', wideLayout = true, text } =
    panel.options ?? {};
  return (
    <BigValue
      {...{ colorMode, justifyMode, textMode, wideLayout, text, width, height, theme, count }}
      value={value.display}
      sparkline={value.sparkline}
      graphMode={graphMode(panel)}
    />
  );
}

function Bar({ value, panel, width, height, alignment }) {
  const options = panel.options ?? {};
  return (
    <BarGauge
      value={value.display}
      field={value.field}
      display={value.view?.getFieldDisplayProcessor(value.colIndex)}
      width={width}
      height={height}
      orientation={options.orientation === 'vertical' ? 'vertical' : 'horizontal'}
      displayMode={options.displayMode ?? 'gradient'}
      showUnfilled={options.showUnfilled ?? true}
      valueDisplayMode={options.valueMode}
      alignmentFactors={alignment}
      itemSpacing={SPACING}
      lcdCellWidth={10}
      theme={theme}
    />
  );
}

/** One of `of` for each reduced value, side by side or one above the other. */
function EachValue({ of: One, frames, panel, width, height, sparkline = false }) {
  const { reduceOptions, orientation = 'auto' } = panel.options ?? {};
  const values = getFieldDisplayValues({
    fieldConfig: fieldConfigOf(panel),
    reduceOptions: { values: false, calcs: ['lastNotNull'], fields: '', ...reduceOptions },
    replaceVariables: (text) => text,
    data: frames,
    sparkline,
    theme,
    timeZone,
  });
  const alignment = getDisplayValueAlignmentFactors(values);
  const wide = orientation === 'auto' && width > height && panel.type !== 'bargauge';
  const across = orientation === 'vertical' || wide;
  const share = (whole) => (whole - SPACING * (values.length - 1)) / values.length;
  const size = { width: across ? share(width) : width, height: across ? height : share(height) };
  return (
    <div style={{ display: 'flex', flexDirection: across ? 'row' : 'column', gap: SPACING }}>
      {values.map((value, index) => (
        <div key={index} style={size}>
          <One {...size} {...{ value, panel, alignment }} count={values.length} />
        </div>
      ))}
    </div>
  );
}

class Guard extends Component {
  state = {};

  static getDerivedStateFromError(error) {
    return { error };
  }

  componentDidCatch(error) {
    this.props.onError(error);
  }

  render() {
    return this.state.error ? <pre>{String(this.state.error)}</pre> : this.props.children;
  }
}
