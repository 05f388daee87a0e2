'use strict';
/* Draws /status every few seconds. */

const PERIOD_MS = 3000;
const KINDS = {streaming: 'good', ready: 'good', held: 'bad', unknown: 'bad', backoff: 'bad', standby: 'rest', stopped: 'rest', drained: 'rest'};
const BYTES = [['B', 1], ['KiB', 2 ** 10], ['MiB', 2 ** 20], ['GiB', 2 ** 30], ['TiB', 2 ** 40]];
const SECONDS = [['s', 1], ['min', 60], ['h', 3600], ['d', 86400]];
const byId = (id) => document.getElementById(id);
let shown = {pipelines: []};

function scaled(value, units) {
  const [unit, size] = units.findLast(([, least]) => value >= least) ?? units[0];
  return typeof value === 'number' ? `${(value / size).toFixed(unit === 'B' ? 0 : 1)} ${unit}` : undefined;
}

function pill(state, words = state) {
  const made = document.createElement('span');
  made.className = `state ${KINDS[state] ?? ''}`;
  made.textContent = words;
  return made;
}

/* A cell is a text, an element, or nothing. */
function fill(table, rows, none) {
  const body = byId(table).tBodies[0], heads = byId(table).tHead.rows[0].cells;
  body.replaceChildren(...rows.map((cells) => {
    const row = document.createElement('tr');
    cells.forEach((content, at) => {
      const cell = row.insertCell();
      cell.dataset.label = heads[at].textContent.trim();
      cell.append(content ?? '–');
    });
    return row;
  }));
  if (rows.length === 0) {
    const cell = body.insertRow().insertCell();
    cell.colSpan = heads.length;
    cell.className = 'empty';
    cell.append(none);
  }
}

function drawPipelines() {
  const words = byId('filter').value.toLowerCase();
  const found = shown.pipelines.filter((one) => [one.name, one.state, one.node, one.error].some((text) => text?.toLowerCase().includes(words)));
  fill('pipelines', found.map((one) => [
    one.name, pill(one.surplus ? 'held' : one.state, one.state), scaled(one.lag_seconds, SECONDS), scaled(one.retained_wal_bytes, BYTES), one.node,
    scaled(one.rss_bytes, BYTES), scaled(one.bill.cpu_seconds, SECONDS), one.starts?.toString(),
    [['unreserved', 'lost'].includes(one.slot) ? `slot ${one.slot}` : '', one.error].filter(Boolean).join('; '),
  ]), words === '' ? 'No pipeline is applied yet.' : `Nothing here contains “${byId('filter').value}”.`);
}

function nodeState(node) {
  if (node.unknown) return 'unknown';
  if (node.drain) return node.drained ? 'drained' : 'draining';
  return node.ready ? 'ready' : 'not ready';
}

function draw(status) {
  shown = status;
  const counts = {};
  for (const one of status.pipelines) counts[one.state] = (counts[one.state] ?? 0) + 1;
  byId('fleet').textContent = document.title = `Fleet ${status.fleet}`;
  byId('about').textContent = `${status.pipelines.length} pipelines, revision ${status.revision}`;
  byId('states').replaceChildren(...Object.entries(counts).map(([state, count]) => pill(state, `${count} ${state}`)));
  byId('reason').hidden = status.whole || status.revision === 0;
  byId('reason').textContent = 'What Kafka keeps of this fleet is not what was applied; millrace fleet plan shows the difference, and apply writes all again.';
  drawPipelines();
  fill('nodes', status.nodes.map((one) => [
    one.name, pill(nodeState(one)), one.processes?.toString(), one.revision.toString(), one.program,
  ]), 'No agent has said anything yet.');
}

function say(words, isLive) {
  byId('contact').textContent = words;
  byId('contact').className = `contact ${isLive ? 'live' : 'lost'}`;
  document.body.classList.toggle('old', !isLive);
}

async function look() {
  try {
    const answer = await fetch('status', {signal: AbortSignal.timeout(20000)});
    const status = await answer.json();
    if (answer.ok) draw(status);
    say(answer.ok ? 'live' : status.error, answer.ok);
  } catch {
    say('no answer', false);
  }
  document.body.dataset.turn = Date.now();
  setTimeout(look, PERIOD_MS);
}
byId('filter').addEventListener('input', drawPipelines);
look();
