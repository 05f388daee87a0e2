'use strict';
/* Draws /status and /api/history each second. What a restart of millrace forgets, the page remembers: its rows go
 * on, and a gap shows where nobody answered. Numbers that a test compares stand in data-figure / data-value. */

const MINUTES = [1, 2, 5, 10, 15]; /* a chart's width: the least that holds what there is */
const KEPT_MS = 15 * 60 * 1000, PERIOD_MS = 1000, HIDDEN_PERIOD_MS = 15000, TIMEOUT_MS = 5000, GAP_MS = 3500;
const TABLES = 200, PARTITIONS = 20, EVENTS = 12;
const byId = (id) => document.getElementById(id);

/* ---- values as text ---- */

const known = (value) => typeof value === 'number' && isFinite(value);
const whole = new Intl.NumberFormat('en-US', {maximumFractionDigits: 0});

function scaled(value, step, units) {
  let unit = 0;
  while (Math.abs(value) >= step && unit < units.length - 1) { value /= step; unit++; }
  return (unit === 0 || value >= 100 ? value.toFixed(0) : value.toFixed(1)) + units[unit];
}
const text = {
  count: (v) => known(v) ? whole.format(v) : '–',
  short: (v) => !known(v) ? '–' : v < 10 && v % 1 ? v.toFixed(1) : scaled(v, 1000, ['', ' k', ' M', ' G']),
  bytes: (v) => known(v) ? scaled(v, 1024, [' B', ' KiB', ' MiB', ' GiB', ' TiB']) : '–',
  cores: (v) => known(v) ? v.toFixed(2) : '–',
  seconds: (v) => {
    if (!known(v)) return '–';
    if (v === 0) return '0 s';
    if (v < 1e-3) return (v * 1e6).toFixed(0) + ' µs';
    if (v < 1) return (v * 1e3).toFixed(v < 0.01 ? 1 : 0) + ' ms';
    if (v < 120) return v.toFixed(v < 10 ? 1 : 0) + ' s';
    if (v < 7200) return (v / 60).toFixed(v % 60 && v < 600 ? 1 : 0) + ' min';
    return v < 172800 ? (v / 3600).toFixed(1) + ' h' : (v / 86400).toFixed(1) + ' days';
  },
};
/* The histograms end at 100 s: what took longer is no figure. */
text.percentile = (v) => known(v) && v >= 100 ? '>100 s' : text.seconds(v);
const clock = (ms) => new Date(ms).toLocaleTimeString([], {hour12: false});
const words = (name) => name.replace(/_/g, ' ');

/* ---- elements ---- */

function element(name, attributes = {}, ...children) {
  const made = name.startsWith('svg:') ?
      document.createElementNS('http://www.w3.org/2000/svg', name.slice(4)) : document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  made.append(...children);
  return made;
}
/* Text changes only where it differs, so that a selection and a screen reader are left alone. */
function say(where, what) { if (where.textContent !== what) where.textContent = what; }

/* ---- charts ---- */

const CHARTS = [
  {title: 'Rate', unit: text.short, least: 10, lines: [['changes_rate', 'changes/s'], ['records_rate', 'acknowledged/s']]},
  {title: 'In flight', unit: text.short, least: 10, lines: [['messages_in_flight', 'records']]},
  {title: 'Flush time', unit: text.percentile, tick: text.seconds, least: 0.001, lines: [['flush_p99', 'p99'], ['flush_p50', 'p50']]},
  {title: 'Latency, commit to acknowledgement', unit: text.percentile, tick: text.seconds, least: 0.001,
    lines: [['latency_p99', 'p99'], ['latency_p95', 'p95'], ['latency_p50', 'p50']]},
  {title: 'Lag', unit: text.bytes, least: 1024, binary: true, lines: [['lag_bytes', 'not confirmed']],
    also: [['lag_seconds', 'behind', text.seconds]]},
  {title: 'Memory', unit: text.bytes, least: 1 << 20, binary: true, lines: [['resident_bytes', 'resident']],
    also: [['cpu', 'cores', text.cores]]},
];
const HEIGHT = 132, LEFT = 52, RIGHT = 6, TOP = 8, BOTTOM = 20;
const rows = []; /* {time_ms, state, stage, changes_rate, …}, oldest first */
let cursorMs = null, minutesShown = MINUTES[0], windowMs = 60000;

function niceTop(top, binary) {
  const base = binary ? Math.pow(1024, Math.floor(Math.log(top) / Math.log(1024))) : 1;
  const part = top / base, decade = Math.pow(10, Math.floor(Math.log10(part)));
  for (const step of [1, 1.2, 1.6, 2, 3, 4, 5, 6, 8, 10]) if (part <= step * decade * 1.0001) return step * decade * base;
  return top;
}

function makeChart(spec) {
  const values = element('ul'), time = element('time');
  const svg = element('svg:svg', {tabindex: '0', role: 'img', 'aria-label': spec.title});
  const card = element('div', {class: 'chart'}, element('h3', {}, spec.title, time), values, svg);
  const shown = [...spec.lines.map(([key, label], i) => [key, label, spec.unit, 's' + (i + 1)]),
                 ...(spec.also || []).map(([key, label, unit]) => [key, label, unit, 's0'])];
  const numbers = shown.map(([key, label, unit, style]) => {
    const number = element('b', {'data-chart': key});
    const item = element('li', {class: style}, number, label);
    values.append(item);
    return {key, label, unit, number};
  });
  svg.addEventListener('pointermove', (event) => {
    const box = svg.getBoundingClientRect(), width = box.width - LEFT - RIGHT;
    setCursor(newest() - windowMs * (1 - (event.clientX - box.left - LEFT) / width));
  });
  svg.addEventListener('pointerleave', () => setCursor(null));
  svg.addEventListener('blur', () => setCursor(null));
  svg.addEventListener('keydown', (event) => {
    const step = {ArrowLeft: -1, ArrowRight: 1, PageUp: -60, PageDown: 60}[event.key];
    if (step) setCursor((cursorMs === null ? newest() : cursorMs) + step * 1000);
    if (event.key === 'Escape') setCursor(null);
    if (step) event.preventDefault();
  });
  byId('charts').append(card);
  return {spec, svg, time, numbers};
}
const charts = CHARTS.map(makeChart);

const newest = () => rows.length ? rows[rows.length - 1].time_ms : Date.now();

function setCursor(ms) {
  cursorMs = ms === null || !rows.length ? null : Math.min(newest(), Math.max(rows[0].time_ms, ms));
  drawCharts();
}

/* The row at the cursor, or the last one. */
function chosen() {
  if (cursorMs === null) return rows[rows.length - 1];
  return rows.reduce((best, row) =>
    Math.abs(row.time_ms - cursorMs) < Math.abs(best.time_ms - cursorMs) ? row : best);
}

/* One point a pixel at most: the largest value of those that fall on it, so that no peak is lost. */
function path(key, x, y, end) {
  let line = '', fill = '', pen = null, last = null;
  const point = (px, value) => {
    if (pen === null) { line += `M${px} ${y(value)}`; fill += `M${px} ${end}L${px} ${y(value)}`; }
    else { line += `L${px} ${y(value)}`; fill += `L${px} ${y(value)}`; }
    pen = px;
  };
  /* A point between two gaps is a dot. */
  const lift = () => {
    if (pen === null) return;
    if (/M[^L]*$/.test(line)) line += 'h0';
    fill += `L${pen} ${end}Z`;
    pen = null;
  };
  let column = null, top = null;
  const flush = () => { if (column !== null) point(column, top); column = null; };
  for (const row of rows) {
    /* No line where nobody answered, nor across seconds in which nothing was delivered. */
    if ((last !== null && row.time_ms - last > GAP_MS) || !known(row[key])) { flush(); lift(); }
    last = row.time_ms;
    if (!known(row[key])) continue;
    const px = Math.round(x(row.time_ms));
    if (px !== column) { flush(); column = px; top = row[key]; } else top = Math.max(top, row[key]);
  }
  flush(); lift();
  return {line, fill};
}

function drawChart({spec, svg, time, numbers}) {
  const width = Math.max(200, svg.clientWidth), end = HEIGHT - BOTTOM, to = newest();
  let top = spec.least;
  for (const row of rows) for (const [key] of spec.lines) if (known(row[key])) top = Math.max(top, row[key]);
  top = niceTop(top, spec.binary);
  const x = (ms) => LEFT + (width - LEFT - RIGHT) * (1 - (to - ms) / windowMs);
  const y = (value) => (end - (end - TOP) * Math.max(0, value) / top).toFixed(1);
  const parts = [];
  for (const part of [0, 0.5, 1]) {
    parts.push(element('svg:line', {class: 'grid', x1: LEFT, x2: width - RIGHT, y1: y(top * part), y2: y(top * part)}));
    const tick = element('svg:text', {class: 'tick', x: LEFT - 6, y: +y(top * part) + 4, 'text-anchor': 'end'});
    tick.textContent = (spec.tick || spec.unit)(top * part).replace(/\.0(?= |$)/, '');
    parts.push(tick);
  }
  for (const part of [0, 0.5, 1]) {
    const tick = element('svg:text', {class: 'tick', x: x(to - windowMs * (1 - part)), y: HEIGHT - 5,
      'text-anchor': ['start', 'middle', 'end'][part * 2]});
    tick.textContent = part === 1 ? 'now' : `−${text.seconds(windowMs * (1 - part) / 1000)}`;
    parts.push(tick);
  }
  spec.lines.forEach(([key], i) => {
    const drawn = path(key, x, y, end);
    if (i === 0) parts.push(element('svg:path', {class: 'fill', d: drawn.fill}));
    parts.push(element('svg:path', {class: 'p' + (i + 1), d: drawn.line}));
  });
  const row = chosen();
  if (cursorMs !== null && row) {
    parts.push(element('svg:line', {class: 'cursor', x1: x(row.time_ms), x2: x(row.time_ms), y1: TOP, y2: end}));
  }
  svg.setAttribute('viewBox', `0 0 ${width} ${HEIGHT}`);
  svg.replaceChildren(...parts);
  say(time, cursorMs !== null && row ? clock(row.time_ms) : '');
  for (const {key, unit, number} of numbers) say(number, unit(row ? row[key] : null));
  svg.setAttribute('aria-label', spec.title + ': ' + numbers.map((n) => `${n.label} ${n.number.textContent}`).join(', '));
}
function drawCharts() { charts.forEach(drawChart); }

function drawStrip() {
  const runs = [], from = newest() - windowMs;
  const push = (state, start, end) => {
    const last = runs[runs.length - 1];
    if (last && last.state === state) last.end = end; else runs.push({state, start, end});
  };
  let at = from;
  for (const row of rows) {
    if (row.time_ms - at > GAP_MS) { push('none', at, row.time_ms - 1000); at = row.time_ms - 1000; }
    push(row.state, at, row.time_ms);
    at = row.time_ms;
  }
  byId('strip').replaceChildren(...runs.map((run) => {
    const bar = element('i', {class: run.state, title: `${words(run.state)} until ${clock(run.end)}`});
    bar.style.width = 100 * (run.end - run.start) / windowMs + '%';
    return bar;
  }));
}

/* ---- the rest of the page ---- */

function figures(list, entries) {
  const boxes = entries.filter(Boolean).map(([label, value, name, raw, style]) => {
    const dd = element('dd', style ? {class: style} : {}, value);
    if (name) { dd.dataset.figure = name; dd.dataset.value = raw; }
    return element('div', {}, element('dt', {}, label), dd);
  });
  byId(list).replaceChildren(...boxes);
}

function drawHeader(status) {
  const good = {streaming: 'good', standby: 'good', failed: 'bad', poison: 'bad'}[status.state] || '';
  byId('state').className = 'state ' + good;
  const cause = status.standstill.cause;
  say(byId('state'), words(status.state) + (cause === 'none' ? '' : ` (${words(cause)})`));
  say(byId('about'), `slot ${status.slot.name} → ${status.sink.type} · in this state for ` +
      `${text.seconds((status.time_ms - status.state_since_ms) / 1000)} · version ${status.version}`);
  byId('reason').hidden = !status.reason;
  say(byId('reason'), status.reason);
  document.title = (status.ready ? '' : '● ') + 'millrace – ' + words(status.state);
}

const MEANING = {
  none: 'The flow keeps up: nothing holds it.',
  receive: 'PostgreSQL sends no faster.',
  decode: 'Decoding is at the limit of its thread.',
  encode: 'Encoding is at the limit of its thread.',
  produce: 'Producing is at the limit of its thread.',
  flush: 'The sink acknowledges no faster; millrace waits for it.',
};

function drawStages(status) {
  const p50 = (name) => status.run.path[name] ? text.percentile(status.run.path[name].p50) : '–';
  const times = {
    receive: 'commit to receipt ' + p50('receive'), decode: p50('decode'), encode: p50('encode'),
    produce: p50('produce'), flush: p50('flush'),
  };
  say(byId('sink-name'), status.sink.type === 'kafka' ? 'Kafka' : status.sink.type);
  for (const stage of byId('stages').children) {
    const name = stage.dataset.stage;
    stage.classList.toggle('holds', name === status.bottleneck);
    stage.classList.toggle('away', status.state !== 'standby' &&
                                   ((name === 'receive' && !status.source.connected && !status.source.left_alone) ||
                                    (name === 'flush' && !status.sink.connected) ||
                                    (name === status.bottleneck && status.standstill.cause !== 'none')));
    say(stage.querySelector('span'), times[name]);
  }
  byId('stages').dataset.bottleneck = status.bottleneck;
  say(byId('bottleneck'), (status.standstill.cause === 'none' ? MEANING[status.bottleneck] :
      `Here the flow stands still (${words(status.standstill.cause)}).`) + ' Times are the median of this run.');
}

/* While existing rows are copied, and of a copy that was broken off. */
function drawCopy(status) {
  const copy = status.snapshot;
  byId('copy-section').hidden = copy.state === 'none' || copy.state === 'done';
  if (byId('copy-section').hidden) return;
  figures('copy', [
    ['copied', `${copy.percent} %`],
    ['tables', `${text.count(copy.tables_done)} of ${text.count(copy.tables)}`, 'millrace_snapshot_tables_done', copy.tables_done],
    ['rows', `${text.count(copy.rows)}, ${text.count(copy.rows_per_second)} a second`, 'millrace_snapshot_rows', copy.rows],
    ['time left', known(copy.seconds_left) ? text.seconds(copy.seconds_left) : copy.state === 'running' ? '–' : 'interrupted'],
    copy.slot_is_short && ['slot', 'lost before the copy is done', null, null, 'bad'],
    ...copy.progress.filter((table) => table.state === 'read').slice(0, 8).map((table) =>
      [table.table, `${table.percent} %, ${text.count(table.rows)} rows`]),
  ]);
}

/* What the daemon's own proof has come to, where it is on. */
function drawFigures(status) {
  const totals = status.totals, slot = status.slot, pool = status.pool;
  figures('totals', [
    ['changes received', text.count(totals.changes), 'millrace_changes_total', totals.changes],
    ['records acknowledged', text.count(totals.acknowledged), 'millrace_records_acknowledged_total', totals.acknowledged],
    ['in flight', `${text.count(status.in_flight.messages)} records, ${text.bytes(status.in_flight.bytes)}`,
      'millrace_messages_in_flight', status.in_flight.messages],
    ['transactions', text.count(totals.transactions), 'millrace_transactions_total', totals.transactions],
    ['bytes acknowledged', text.bytes(totals.bytes_acknowledged), 'millrace_record_bytes_acknowledged_total', totals.bytes_acknowledged],
    ['flush, median and p99', `${text.percentile(status.run.flush.p50)}, ${text.percentile(status.run.flush.p99)}`],
    ['latency, median and p99', `${text.percentile(status.run.latency.p50)}, ${text.percentile(status.run.latency.p99)}`],
    ['batches free', `${text.count(pool.free)} of ${text.count(pool.batches)}`],
    ['waited for the sink', text.seconds(totals.backpressure_seconds)],
    ['reconnects, new sessions', `${text.count(totals.reconnects)}, ${text.count(totals.rebuilds)}`],
    ['up for', text.seconds(status.uptime)],
  ]);
  const forecast = slot.forecast_seconds;
  const risk = known(forecast) && forecast < 3600 ? 'bad' : known(forecast) && forecast < 86400 ? 'wait' : '';
  figures('slot', [
    ['received', status.positions.received],
    ['confirmed', status.positions.confirmed, 'confirmed', status.positions.confirmed],
    ['server', status.positions.server],
    ['lag', `${text.bytes(status.lag.bytes)}, ${text.seconds(status.lag.seconds)}`],
    ['slot', slot.name],
    slot.known && ['WAL status', slot.wal_status, null, null,
      {lost: 'bad', unreserved: 'bad'}[slot.wal_status] || ''],
    slot.known && ['WAL kept for it', text.bytes(slot.retained_bytes)],
    slot.known && ['WAL until it is in danger', 'safe_bytes' in slot ? text.bytes(slot.safe_bytes) : 'no limit is set'],
    'safe_bytes' in slot && ['forecast', known(forecast) ? 'lost in ' + text.seconds(forecast) : 'does not shrink',
      null, null, risk],
    slot.known && ['looked at', text.seconds(slot.age_seconds) + ' ago'],
    ['publication', status.source.publication],
  ]);
}

/* ---- tables that a click on a heading sorts ---- */

/* `columns`: [member, as text]; rows are objects. Text sorts from a to z first, numbers from the largest. With `what` there is a
 * field above the table that leaves the rows whose first column contains what is typed. */
function makeTable(id, columns, empty, what) {
  const table = byId(id), order = {column: null, down: true};
  const filter = element('input', {type: 'search', class: 'filter', maxlength: '80', placeholder: `filter ${what}`, 'aria-label': `filter ${what}`});
  let last = [];
  if (what) table.parentNode.before(filter);
  filter.addEventListener('input', () => draw(last));
  const heads = [...table.tHead.rows[0].cells];
  heads.forEach((head, i) => {
    const button = element('button', {type: 'button'}, head.textContent);
    head.replaceChildren(button);
    button.addEventListener('click', () => {
      const first = typeof (last[0] || {})[columns[i][0]] !== 'string';
      order.down = order.column === i ? !order.down : first;
      order.column = i;
      draw(last);
    });
  });
  function compare(a, b) {
    const name = columns[order.column][0], x = a[name], y = b[name];
    const by = typeof x === 'string' ? x.localeCompare(y) : (known(x) ? x : -1) - (known(y) ? y : -1);
    return order.down ? -by : by;
  }
  function draw(rows) {
    last = rows;
    heads.forEach((head, i) => head.setAttribute('aria-sort',
      order.column !== i ? 'none' : order.down ? 'descending' : 'ascending'));
    const typed = filter.value.trim().toLowerCase();
    const kept = rows.filter((row) => String(row[columns[0][0]]).toLowerCase().includes(typed));
    const sorted = order.column === null ? kept : kept.sort(compare);
    const body = sorted.map((row) => element('tr', {}, ...columns.map(([name, shown]) => element('td', {}, shown(row[name], row)))));
    const none = element('tr', {}, element('td', {colspan: String(columns.length), class: 'empty'}, typed ? `Nothing here contains “${typed}”.` : empty));
    table.tBodies[0].replaceChildren(...(body.length ? body : [none]));
  }
  return draw;
}

let tablesBefore = null, lastEventsOn = false, allTablesShown = true;
const tableName = (name) => {
  if (!lastEventsOn || name === '') return name || '(messages)';
  const button = element('button', {type: 'button', class: 'link', 'aria-label': `last event of ${name}`}, name);
  button.addEventListener('click', () => showLastEvent(name));
  return button;
};
const showTables = makeTable('tables', [['table', tableName], ['insert', text.count], ['update', text.count],
  ['delete', text.count], ['rate', text.short]], 'No change has come yet.', 'tables');
const showPartitions = makeTable('partitions', [['topic', String], ['partition', String], ['messages', text.count],
  ['bytes', text.bytes]], 'Nothing is in flight.');

function drawTables(status) {
  const sum = (table) => table.insert + table.update + table.delete + table.truncate + table.message;
  const seconds = tablesBefore ? (status.time_ms - tablesBefore.time_ms) / 1000 : 0;
  lastEventsOn = status.last_events;
  if (document.activeElement.closest('#tables tbody') === null) showTables(status.tables.map((table) => {
    const before = tablesBefore && tablesBefore.sums[table.table];
    const rate = seconds > 0 && before !== undefined && sum(table) >= before ? (sum(table) - before) / seconds : null;
    return {...table, rate};
  }));
  tablesBefore = {time_ms: status.time_ms, sums: Object.fromEntries(status.tables.map((t) => [t.table, sum(t)]))};
  allTablesShown = status.table_count <= TABLES;
  const more = status.table_found - status.tables.length;
  byId('tables-more').hidden = more <= 0;
  say(byId('tables-more'), `and ${more} more; the busiest ${TABLES} are shown`);
}

/* What is typed above the tables. Sent along where not all tables are here: it may mean some that are not among the busiest. */
const tableFilter = () => allTablesShown ? '' : document.querySelector('input.filter').value.trim();

/* Rows are shown only when a person asks for them, and only where the configuration allows it. */
async function showLastEvent(name) {
  document.activeElement.blur();
  const answer = await fetch(`api/last-event?table=${encodeURIComponent(name)}`, {cache: 'no-store'});
  const event = (await answer.json()).event;
  byId('last-event').hidden = false;
  say(byId('last-event-title'), event ? `Last event of ${name}, ${clock(event.time_ms)}, ${text.bytes(event.bytes)}` +
    (event.cut ? ', cut' : '') : `No event of ${name} is kept.`);
  const pretty = (value) => { try { return JSON.stringify(JSON.parse(value), null, 2); } catch (_) { return value; } };
  say(byId('last-event-text'), event ? `${event.key}\n${pretty(event.value)}` : '');
}

function drawPartitions(status) {
  byId('partitions-section').hidden = status.sink.type !== 'kafka';
  showPartitions(status.in_flight.partitions.slice(0, PARTITIONS));
}

/* What is set, and where; defaults behind it. It does not change while this millrace runs. */
const UNITS = {bytes: text.bytes, ms: (v) => text.seconds(v / 1e3), us: (v) => text.seconds(v / 1e6)};
function optionValue(value, unit) {
  if (unit && typeof value === 'number') return UNITS[unit](value);
  return typeof value === 'string' ? value || '–' : JSON.stringify(value);
}
const showOptions = makeTable('options', [['name', String], ['value', String], ['origin', String]], '', 'options');

function drawOptions(status) {
  if (byId('options').dataset.start === String(status.process.start_time)) return;
  byId('options').dataset.start = status.process.start_time;
  const rows = Object.entries(status.configuration).map(([name, value]) =>
    ({name, value: optionValue(value, status.configuration_units[name]), origin: status.configuration_origins[name] || 'default'}));
  showOptions([...rows.filter((row) => row.origin !== 'default'), ...rows.filter((row) => row.origin === 'default')]);
}

function drawEvents(status) {
  const shown = status.events.slice(-EVENTS).reverse();
  byId('events').replaceChildren(...shown.map((event) => element('li', {class: event.level},
    element('time', {}, clock(event.time_ms)),
    element('p', {}, element('b', {}, words(event.event)), ' ' + event.text,
      ...(event.about ? [' ', element('span', {class: 'about'}, event.about)] : [])))));
}

function drawLinks(status) {
  const key = JSON.stringify(status.links);
  if (byId('links').dataset.key === key) return; /* else the focus would be lost each second */
  byId('links').dataset.key = key;
  byId('links').replaceChildren(...status.links.map((link) =>
    element('li', {}, element('a', {href: link.path.replace(/^\//, '')}, link.title))));
}

/* ---- the last minute's flame graph ---- */

const FLAME = '/pprof/last-minute/flamegraph';
const FLAME_PERIOD_MS = 10000;
let flameAskedMs = 0;

/* Of the CPU time of the whole process since its start. */
function profilerCost(status) {
  if (!known(status.profiler_seconds) || !(status.process.cpu_seconds > 0)) return '';
  const share = 100 * status.profiler_seconds / status.process.cpu_seconds;
  return ` The profiler has taken ${text.seconds(status.profiler_seconds)} of CPU time, ${share.toFixed(1)} % of the process'.`;
}

async function showFlame(path) {
  const width = Math.max(300, Math.round(byId('flame-note').clientWidth));
  const answer = await fetch(`${path}?image_width=${width}&min_width=1`, {cache: 'no-store'});
  if (!answer.ok) return; /* somebody takes a profile just now: the picture stays as it is */
  const picture = byId('flame');
  const old = picture.src;
  picture.src = URL.createObjectURL(await answer.blob());
  if (old) URL.revokeObjectURL(old);
  byId('flame-link').hidden = false;
  byId('flame').dataset.turn = Number(byId('flame').dataset.turn || 0) + 1;
}

function drawFlame(status) {
  const on = status.links.some((link) => link.path === FLAME);
  const path = FLAME.slice(1);
  say(byId('flame-note'), on ? 'Drawn again every ten seconds. Click it to search and zoom.' + profilerCost(status)
    : 'Off. Set endpoints = true and recorder = true under [profiling] and start again to see it here.');
  if (!on) byId('flame-link').hidden = true;
  if (!on || document.hidden || Date.now() - flameAskedMs < FLAME_PERIOD_MS) return;
  flameAskedMs = Date.now();
  byId('flame-link').href = path;
  showFlame(path).catch(() => {}); /* the page says already that there is no answer */
}

/* ---- asking ---- */

async function ask(path) {
  const answer = await fetch(path, {cache: 'no-store', signal: AbortSignal.timeout(TIMEOUT_MS)});
  if (!answer.ok) throw new Error(`status ${answer.status}`);
  return answer.json();
}

function takeRows(history) {
  for (const row of history.rows) {
    const taken = Object.fromEntries(history.columns.map((name, i) => [name, row[i]]));
    if (taken.time_ms > (rows.length ? newest() : 0)) rows.push(taken);
  }
  while (rows.length && rows[0].time_ms < newest() - KEPT_MS) rows.shift();
  const held = rows.length ? newest() - rows[0].time_ms : 0;
  minutesShown = MINUTES.find((minutes) => minutes * 60000 >= held) || MINUTES[MINUTES.length - 1];
  windowMs = minutesShown * 60000;
  const title = minutesShown === 1 ? 'Last minute' : `Last ${minutesShown} minutes`;
  say(byId('charts-title'), title);
  say(byId('strip-from'), `${minutesShown} min ago`);
}

let lostAt = null;

async function turn() {
  try {
    const [status, history] = await Promise.all(
      [ask(`status?tables=${TABLES}&filter=${encodeURIComponent(tableFilter())}`), ask(`api/history?after=${rows.length ? newest() : 0}`)]);
    if (rows.length && status.time_ms < newest()) rows.length = 0;  // its clock was set back: all again with the next turn
    takeRows(history);
    for (const draw of [drawHeader, drawStages, drawFigures, drawCopy, drawTables, drawPartitions, drawOptions, drawEvents, drawLinks, drawFlame]) draw(status);
    drawStrip();
    drawCharts();
    lostAt = null;
    byId('contact').className = 'contact live';
    say(byId('contact'), 'live');
    document.body.dataset.start = status.process.start_time;
    document.body.dataset.turn = status.time_ms;
  } catch (error) {
    lostAt = lostAt || Date.now();
    byId('contact').className = 'contact lost';
    say(byId('contact'), `no answer since ${clock(lostAt)}, trying again`);
  }
}

/* ---- light, dark, or as the system ---- */

const THEMES = ['auto', 'light', 'dark'];
function setTheme(name) {
  if (name === 'auto') delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = name;
  say(byId('theme'), 'Theme: ' + name);
}
let theme = THEMES.includes(localStorage.getItem('theme')) ? localStorage.getItem('theme') : 'auto';
setTheme(theme);
byId('theme').addEventListener('click', () => {
  theme = THEMES[(THEMES.indexOf(theme) + 1) % THEMES.length];
  localStorage.setItem('theme', theme);
  setTheme(theme);
});

let timer = null;
async function run() {
  clearTimeout(timer);
  await turn();
  clearTimeout(timer);
  timer = setTimeout(run, document.hidden ? HIDDEN_PERIOD_MS : PERIOD_MS);
}
document.addEventListener('visibilitychange', () => { if (!document.hidden) run(); });
addEventListener('resize', drawCharts);
run();
