// What the page needs from a server: itself, its job, Grafana's icons and font, and Prometheus.
import fs from 'node:fs/promises';
import http from 'node:http';
import path from 'node:path';
import { fileURLToPath } from 'node:url';

const HERE = path.dirname(fileURLToPath(import.meta.url));
const PAGE = path.join(HERE, 'dist');
const ICONS = path.join(HERE, 'node_modules/@grafana/ui/dist/public/img/icons');
const ICONS_URL = '/public/build/img/icons/';
const FONT = path.join(HERE, 'node_modules/@fontsource/inter/files');
const FONT_FILES = {
  '/public/fonts/inter/Inter-Regular.woff2': 'inter-latin-400-normal.woff2',
  '/public/fonts/inter/Inter-Medium.woff2': 'inter-latin-500-normal.woff2',
  '/public/fonts/inter/Inter-Italic.woff2': 'inter-latin-400-italic.woff2',
};
const TYPES = {
  '.css': 'text/css',
  '.html': 'text/html',
  '.js': 'text/javascript',
  '.svg': 'image/svg+xml',
  '.woff2': 'font/woff2',
};

/** On a free loopback port. Returns {url, close}. Queries, some of 12,000 characters, are in URLs. */
export async function serve(job, prometheus) {
  const server = http.createServer({ maxHeaderSize: 1 << 17 }, (request, response) => {
    answer(request, response, job, prometheus).catch((error) => {
      response.writeHead(502, { 'content-type': 'application/json' });
      response.end(JSON.stringify({ status: 'error', error: String(error) }));
    });
  });
  await new Promise((resolve) => server.listen(0, '127.0.0.1', resolve));
  return { url: `http://127.0.0.1:${server.address().port}/`, close: () => server.close() };
}

async function answer(request, response, job, prometheus) {
  const { pathname, search } = new URL(request.url, 'http://localhost');
  if (pathname === '/job.json') {
    return send(response, 200, 'application/json', JSON.stringify(job));
  }
  if (pathname.startsWith('/prometheus/')) {
    const asked = prometheus.replace(/\/$/, '') + pathname.slice('/prometheus'.length) + search;
    const upstream = await fetch(asked);
    return send(response, upstream.status, 'application/json', Buffer.from(await upstream.arrayBuffer()));
  }
  if (pathname in FONT_FILES) return file(response, FONT, FONT_FILES[pathname]);
  if (pathname === '/favicon.ico') return send(response, 204, 'image/x-icon', '');
  const icon = pathname.startsWith(ICONS_URL);
  const inside = icon ? pathname.slice(ICONS_URL.length) : pathname === '/' ? 'index.html' : pathname;
  return file(response, icon ? ICONS : PAGE, inside);
}

async function file(response, folder, inside) {
  const name = path.join(folder, path.normalize(`/${inside}`)); // never above the folder
  try {
    return send(response, 200, TYPES[path.extname(name)] ?? 'application/octet-stream', await fs.readFile(name));
  } catch {
    return send(response, 404, 'text/plain', '');
  }
}

function send(response, status, type, body) {
  response.writeHead(status, { 'content-type': type });
  response.end(body);
}
