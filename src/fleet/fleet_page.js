'use strict';
/* Draws /status every few seconds. */

const PERIOD_MS = 3000;
const byId = (id) => document.getElementById(id);
const number = (value, digits, unit, by = 1) => typeof value === 'number' ? (value / by).toFixed(digits) + unit : '–';

function fill(body, rows) {
  body.replaceChildren(...rows.map((cells) => {
    const row = document.createElement('tr');
    for (const cell of cells) row.insertCell().textContent = cell ?? '–';
    return row;
  }));
}

function draw(status) {
  byId('fleet').textContent = `Fleet ${status.fleet}`;
  byId('about').textContent = `${status.pipelines.length} pipelines, revision ${status.revision}`;
  fill(byId('pipelines'), status.pipelines.map((one) => [
    one.name, one.state, one.node, number(one.lag_seconds, 1, ' s'), number(one.retained_wal_bytes, 1, ' MiB', 1 << 20),
    number(one.rss_bytes, 1, ' MiB', 1 << 20), number(one.bill?.cpu_seconds, 1, ' s'), number(one.starts, 0, ''), one.error,
  ]));
  fill(byId('nodes'), status.nodes.map((one) => [one.name, one.pipelines, one.is_ready, one.drain, one.program]));
}

async function look() {
  try {
    const answer = await fetch('status', {signal: AbortSignal.timeout(20000)});
    const status = await answer.json();
    if (answer.ok) draw(status); else byId('about').textContent = status.error;
  } catch {
    byId('about').textContent = 'no answer';
  }
  setTimeout(look, PERIOD_MS);
}
look();
