// The job of this page, and Grafana's theme for it.
import { createTheme } from '@grafana/data';

export const job = await (await fetch('/job.json')).json();
export const theme = createTheme({ colors: { mode: job.theme } });
export const timeZone = 'utc';
