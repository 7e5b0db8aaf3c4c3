// Shows what /-/status says. Nothing is typed in: until it has answered there are dashes.

const PERIOD_MS = 1000;
const SAMPLES = 60;
const still = matchMedia("(prefers-reduced-motion: reduce)");
const line = document.querySelector("#connection");
const number = new Intl.NumberFormat("en");
const compact = new Intl.NumberFormat("en", { notation: "compact", maximumFractionDigits: 2 });

/** One entry per worker: its element, its canvas, and callbacks a second over the last minute. */
let workers = [];
let shards = [];
let before = null;
let lastSampleAt = 0;

const formats = {
  exact: (value) => number.format(value),
  bytes(value) {
    const units = ["B", "kB", "MB", "GB", "TB"];
    let unit = 0;
    for (; value >= 1000 && unit < units.length - 1; unit++) value /= 1000;
    return `${unit && value < 100 ? value.toFixed(1) : Math.round(value)} ${units[unit]}`;
  },
  duration(seconds) {
    const s = Math.floor(seconds);
    if (s < 60) return `${s} s`;
    if (s < 3600) return `${Math.floor(s / 60)} min ${s % 60} s`;
    if (s < 86400) return `${Math.floor(s / 3600)} h ${Math.floor((s % 3600) / 60)} min`;
    return `${number.format(Math.floor(s / 86400))} d ${Math.floor((s % 86400) / 3600)} h`;
  },
};

/** A number in full as long as it stays short. */
function count(value) {
  return (value < 1e7 ? number : compact).format(value);
}

/** A hue for a color's number. The golden angle keeps neighbors apart; the default color is gray. */
function paint(color) {
  return color === 0 ? "var(--default)" : `oklch(var(--tone) ${(color * 137.508) % 360})`;
}

function show(status) {
  for (const element of document.querySelectorAll("[data-show]")) {
    const value = element.dataset.show.split(".").reduce((part, name) => part?.[name], status);
    const format = formats[element.dataset.as];
    const text = value == null ? "–" : format ? format(value) : typeof value === "number" ? count(value) : value;
    if (element.textContent !== text) element.textContent = text;
  }
  for (const element of document.querySelectorAll("[data-plural]")) {
    element.textContent = status[element.dataset.plural] === 1 ? element.dataset.one : element.dataset.many;
  }
  document.documentElement.style.setProperty("--own", paint(status.served_by.color));
  document.querySelector("#serial").hidden = !status.serial;
  document.querySelector("#parallel").hidden = status.serial;
  showWorkers(status);
  showShards(status.page_cache);
}

function showWorkers(status) {
  if (workers.length !== status.per_worker.length) {
    workers = status.per_worker.map((_, index) => makeWorker(index));
    document.querySelector("#worker-list").replaceChildren(...workers.map((worker) => worker.element));
  }
  // A server that was started again counts from zero.
  const seconds = before ? status.uptime_s - before.uptime_s : 0;
  const comparable = seconds > 0 && before.per_worker.length === workers.length;
  status.per_worker.forEach((counts, index) => {
    const worker = workers[index];
    const rate = comparable ? Math.max(0, (counts.callbacks - before.per_worker[index].callbacks) / seconds) : null;
    worker.rates = [...worker.rates, rate].slice(-SAMPLES - 2);
    worker.rate.textContent = rate === null ? "–" : `${number.format(Math.round(rate))} callbacks/s`;
    worker.counts.textContent =
      `${number.format(counts.callbacks)} callbacks · ` +
      `${number.format(counts.steals)} ${counts.steals === 1 ? "steal" : "steals"} · slept ${number.format(counts.parks)} times`;
    worker.canvas.setAttribute("aria-label", `Worker ${index}: ${worker.rate.textContent}`);
  });
  document.querySelector("#peak").textContent = comparable ? number.format(Math.round(peak())) : "–";
}

function makeWorker(index) {
  const element = document.createElement("li");
  element.innerHTML = `<h3>Worker ${index}<span></span></h3><p></p><canvas role="img"></canvas>`;
  const [rate, counts, canvas] = ["span", "p", "canvas"].map((name) => element.querySelector(name));
  return { element, rate, counts, canvas, rates: [] };
}

function showShards(page_cache) {
  if (shards.length !== page_cache.length) {
    shards = page_cache.map(() => {
      const element = document.createElement("li");
      element.innerHTML = `<div class="well"><div class="spot"></div></div><b></b><span class="unit"></span><span class="held"></span>`;
      return element;
    });
    document.querySelector("#shard-list").replaceChildren(...shards);
  }
  const most = Math.max(1, ...page_cache.map((shard) => shard.hits));
  page_cache.forEach((shard, index) => {
    const element = shards[index];
    // The area is what the eye compares. An unused shard stays a dot.
    element.style.setProperty("--size", (0.1 + 0.9 * Math.sqrt(shard.hits / most)).toFixed(3));
    element.style.setProperty("--spot", paint(shard.color));
    element.querySelector("b").textContent = (shard.hits < 1e6 ? number : compact).format(shard.hits);
    element.querySelector(".unit").textContent = shard.hits === 1 ? "hit" : "hits";
    element.querySelector(".held").textContent =
      `${number.format(shard.pages)} ${shard.pages === 1 ? "page" : "pages"} · ${formats.bytes(shard.bytes)}`;
  });
}

function peak() {
  return Math.max(1, ...workers.flatMap((worker) => worker.rates));
}

/** Draws every worker's minute; `progress` (0 to 1) is how far the next sample has slid in. */
function draw(progress) {
  const top = peak();
  for (const { canvas, rates } of workers) {
    const scale = devicePixelRatio || 1;
    const [width, height] = [canvas.clientWidth, canvas.clientHeight];
    if (canvas.width !== Math.round(width * scale) || canvas.height !== Math.round(height * scale)) {
      canvas.width = Math.round(width * scale);
      canvas.height = Math.round(height * scale);
    }
    const style = getComputedStyle(canvas);
    const context = canvas.getContext("2d");
    context.setTransform(scale, 0, 0, scale, 0, 0);
    context.clearRect(0, 0, width, height);
    const step = width / (SAMPLES - 1);
    const points = rates
      .map((rate, index) => [width - (rates.length - 2 - index + progress) * step, rate])
      .filter(([, rate]) => rate !== null)
      .map(([x, rate]) => [x, height - 2 - (height - 14) * (rate / top)]);
    if (points.length < 2) continue;
    curve(context, points);
    context.strokeStyle = style.getPropertyValue("--teal");
    context.lineWidth = 1.75;
    context.stroke();
    context.lineTo(points.at(-1)[0], height);
    context.lineTo(points[0][0], height);
    context.globalAlpha = 0.16;
    context.fillStyle = context.strokeStyle;
    context.fill();
    context.globalAlpha = 1;
  }
}

/** A line through the middles between points, rounded at the points: calm, and never beyond what was measured. */
function curve(context, points) {
  context.beginPath();
  context.moveTo(...points[0]);
  for (let index = 1; index < points.length - 1; index++) {
    const [x, y] = points[index];
    const [nextX, nextY] = points[index + 1];
    context.quadraticCurveTo(x, y, (x + nextX) / 2, (y + nextY) / 2);
  }
  context.lineTo(...points.at(-1));
}

function animate(now) {
  if (!still.matches && workers.length) draw(Math.min(1, (now - lastSampleAt) / PERIOD_MS));
  requestAnimationFrame(animate);
}

function say(state, text) {
  line.className = state;
  if (line.textContent !== text) line.textContent = text;
  document.body.classList.toggle("stale", state === "gone");
}

async function ask() {
  if (document.hidden) return;
  try {
    const response = await fetch("/-/status", { cache: "no-store", signal: AbortSignal.timeout(5000) });
    if (!response.ok) throw new Error(response.statusText);
    const status = await response.json();
    show(status);
    before = status;
    lastSampleAt = performance.now();
    draw(still.matches ? 1 : 0);
    say("live", "Live from this server");
  } catch {
    say("gone", before ? "The server is gone; these are its last numbers" : "The server shows no numbers");
  }
}

async function run() {
  await ask();
  setTimeout(run, PERIOD_MS);
}

document.querySelector("#load").textContent = `wrk -t2 -c64 -d20 ${location.origin}/`;
document.addEventListener("visibilitychange", ask);
run();
requestAnimationFrame(animate);
