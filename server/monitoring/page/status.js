// Keeps the status page up to date from /status.json, and draws its charts. What comes is shown by
// textContent and attributes of numbers alone: nothing of it is ever taken for HTML.
'use strict';

const kStepMs = 2000;
const kSamplesMax = 150;  // five minutes
const kWidth = 300, kHeight = 90;
const byId = (id) => document.getElementById(id);

// --- Numbers

function rateText(rate) {
  if (!Number.isFinite(rate)) return '–';
  return rate < 100 ? String(Number(rate.toPrecision(3))) : Math.round(rate).toLocaleString('en');
}
function timeText(ns) {
  if (!Number.isFinite(ns)) return '–';
  if (ns === 0) return '0 s';
  const [unit, size] = ns < 1e3 ? ['ns', 1] : ns < 1e6 ? ['µs', 1e3] : ns < 1e9 ? ['ms', 1e6] : ['s', 1e9];
  return `${(ns / size).toPrecision(3)} ${unit}`;
}
function bytesText(bytes) {
  const units = ['B', 'KiB', 'MiB', 'GiB', 'TiB'];
  let unit = 0;
  for (; bytes >= 1024 && unit + 1 < units.length; ++unit) bytes /= 1024;
  return `${unit === 0 ? bytes : bytes.toPrecision(3)} ${units[unit]}`;
}
// As Prometheus: linear within a bucket. Of a histogram's counts, by bucket; NaN: there are none.
function quantile(counts, q) {
  const all = counts.reduce((sum, count) => sum + count, 0);
  if (all <= 0) return NaN;
  let below = 0;
  for (let i = 0; i < counts.length; ++i) {
    const lower = i === 0 ? 0 : 256 * 2 ** (i - 1);
    if (below + counts[i] >= q * all && counts[i] > 0) {
      if (i + 1 === counts.length) return lower;
      return lower + (256 * 2 ** i - lower) * (q * all - below) / counts[i];
    }
    below += counts[i];
  }
  return NaN;
}

// --- What happened between two states

function changesOf(before, now) {
  const seconds = now.uptime_seconds - before.uptime_seconds;
  const rate = (id) => (now.counts[id] - before.counts[id]) / seconds;
  const more = (id) => now.counts[id] - before.counts[id];
  const times = (kind, q) => quantile(now.latencies[kind].map((count, i) => count - before.latencies[kind][i]), q);
  const gets = more('client_gets');
  const perGet = (id) => gets > 0 ? more(id) / gets : NaN;
  return {
    rate,
    put50: times('put', 0.5), put99: times('put', 0.99), get50: times('get', 0.5), get99: times('get', 0.99),
    reads: perGet('client_reads'), torn: perGet('client_torn_reads'),
  };
}

// --- Charts: two lines at most

const charts = [
  {id: 'operations', title: 'Operations a second', text: rateText, names: ['requests', 'GETs of clients'],
   values: (change) => [change.rate('requests'), change.rate('client_gets')]},
  {id: 'put', title: 'PUTs at the server', text: timeText, names: ['p50', 'p99'], values: (change) => [change.put50, change.put99]},
  {id: 'get', title: 'GETs, as clients report them', text: timeText, names: ['p50', 'p99'], values: (change) => [change.get50, change.get99]},
  {id: 'memory', title: 'Memory', text: bytesText, names: ['in use', 'of'],
   values: (change, state) => [state.memory_bytes - state.memory.filter((use) => use.id.endsWith('free')).reduce((sum, use) => sum + use.bytes, 0), state.memory_bytes]},
  {id: 'lag', title: 'Lag of the log', text: timeText, names: ['lag'], values: (change, state) => [state.log_lag_seconds * 1e9],
   isIn: (state) => state.log_lag_seconds !== undefined},
];
let samples = [];  // of all charts: [[…], …]

function make(parent, name, attributes = {}, text = '') {
  const space = ['svg', 'polyline', 'line'].includes(name) ? 'http://www.w3.org/2000/svg' : 'http://www.w3.org/1999/xhtml';
  const made = document.createElementNS(space, name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  made.textContent = text;
  parent.append(made);
  return made;
}
function makeCharts(state) {
  for (const chart of charts) {
    chart.shown = chart.isIn === undefined || chart.isIn(state);
    if (!chart.shown) continue;
    const figure = make(byId('charts'), 'figure', {tabindex: 0, id: `chart-${chart.id}`});
    const caption = make(figure, 'figcaption');
    make(caption, 'b', {}, chart.title);
    chart.nows = chart.names.map((name, i) => make(caption, 'span', {class: `now${i}`}));
    chart.top = make(caption, 'span', {class: 'top'});
    chart.svg = make(figure, 'svg', {viewBox: `0 0 ${kWidth} ${kHeight}`, preserveAspectRatio: 'none', role: 'img'});
    chart.lines = chart.names.map((name, i) => make(chart.svg, 'polyline', {class: `line${i}`}));
    chart.cursor = make(chart.svg, 'line', {class: 'cursor', y1: 0, y2: kHeight, visibility: 'hidden'});
    chart.at = null;  // the sample under the cursor, from the newest; null: none
    figure.addEventListener('keydown', (event) => {
      const step = {ArrowLeft: 1, ArrowRight: -1}[event.key];
      if (step === undefined && event.key !== 'Escape') return;
      event.preventDefault();
      chart.at = step === undefined ? null : Math.min(Math.max((chart.at ?? -1) + step, 0), samples.length - 1);
      draw(chart);
    });
  }
}
function draw(chart) {
  const k = charts.indexOf(chart);
  const finite = samples.flatMap((sample) => sample.values[k]).filter(Number.isFinite);
  const top = Math.max(...finite, 1e-9);
  const x = (i) => kWidth - (samples.length - 1 - i) * kWidth / (kSamplesMax - 1);
  chart.lines.forEach((line, n) => {
    const points = samples.map((sample, i) => [x(i), sample.values[k][n]]).filter((point) => Number.isFinite(point[1]));
    line.setAttribute('points', points.map(([at, value]) => `${at.toFixed(1)},${(kHeight - 2 - value / top * (kHeight - 6)).toFixed(1)}`).join(' '));
  });
  const index = samples.length - 1 - (chart.at ?? 0);
  const shown = samples[index];
  chart.names.forEach((name, n) => { chart.nows[n].textContent = `${name} ${chart.text(shown.values[k][n])}`; });
  chart.top.textContent = chart.at === null ? `top ${chart.text(finite.length > 0 ? top : NaN)}` : shown.time;
  chart.cursor.setAttribute('visibility', chart.at === null ? 'hidden' : 'visible');
  chart.cursor.setAttribute('x1', x(index));
  chart.cursor.setAttribute('x2', x(index));
  chart.svg.setAttribute('aria-label', `${chart.title}: ${chart.nows.map((now) => now.textContent).join(', ')}`);
}

// --- The state

// False: the page has other rows than the state.
function showRows(state, change) {
  const rows = new Set(Array.from(document.querySelectorAll('tbody tr'), (row) => row.id));
  const now = {
    put_p50: timeText(change?.put50), put_p99: timeText(change?.put99), get_p50: timeText(change?.get50),
    get_p99: timeText(change?.get99), reads_per_get: rateText(change?.reads), torn_per_get: rateText(change?.torn),
  };
  for (const row of state.rows) {
    if (!rows.delete(`row-${row.id}`)) return false;
    const cells = byId(`row-${row.id}`).children;
    [row.label, row.value, row.average].forEach((text, i) => { cells[i].textContent = text; });
    cells[3].textContent = now[row.id] ?? (row.is_counter && change !== null ? rateText(change.rate(row.id)) : '');
  }
  return rows.size === 0;
}
function show(state, change) {
  document.title = byId('title').textContent = state.title;
  byId('health').textContent = state.health;
  byId('health').className = state.is_healthy ? 'good' : 'bad';
  if (!showRows(state, change)) location.reload();  // a cluster's members changed, for instance
  let x = 0;
  for (const use of state.memory) {
    const rect = byId(`use-${use.id}`);
    const width = 1000 * use.bytes / state.memory_bytes;
    rect.setAttribute('x', x);
    rect.setAttribute('width', width);
    x += width;
  }
  if (change === null) return;
  samples.push({time: new Date().toLocaleTimeString(), values: charts.map((chart) => chart.shown ? chart.values(change, state) : [])});
  if (samples.length > kSamplesMax) samples.shift();
  for (const chart of charts) {
    if (chart.shown) draw(chart);
  }
}

let last = null;
let isPaused = false;

async function step() {
  try {
    const answer = await fetch('/status.json', {cache: 'no-store', signal: AbortSignal.timeout(5000)});
    const state = await answer.json();
    if (last === null) {
      makeCharts(state);
      document.documentElement.classList.add('is-live');
    }
    // A server that was started again begins anew.
    const isNext = last !== null && state.uptime_seconds > last.uptime_seconds;
    show(state, isNext ? changesOf(last, state) : null);
    last = state;
    byId('told').textContent = `as of ${new Date().toLocaleTimeString()}, every ${kStepMs / 1000} s`;
  } catch (error) {
    byId('health').textContent = 'the server does not answer; what follows is old';
    byId('health').className = 'bad';
  }
}
function pauseOrContinue() {
  isPaused = !isPaused;
  byId('pause').textContent = isPaused ? 'Continue' : 'Pause';
}
byId('pause').addEventListener('click', pauseOrContinue);
document.addEventListener('keydown', (event) => {
  if (event.key === 'p' && !event.ctrlKey && !event.metaKey && !event.altKey) pauseOrContinue();
});
// One request at a time, however long it takes; none while the page is hidden.
(async () => {
  while (true) {
    if (!isPaused && !document.hidden) await step();
    await new Promise((resolve) => setTimeout(resolve, kStepMs));
  }
})();
