// The start page: figures of the server, live, fifty requests as growing columns, and streams beside pages.
"use strict";

const COUNT = 50;
const COLOURS = 6;
const element = (id) => document.getElementById(id);
const token = document.querySelector("meta[name=csrf-token]")?.content ?? "";

function make(name, properties = {}, ...children) {
  const made = Object.assign(document.createElement(name), properties);
  made.append(...children);
  return made;
}

function seconds(value) {
  if (value < 0.0995) return `${(value * 1000).toFixed(value < 0.00995 ? 1 : 0)} ms`;
  return `${value.toFixed(value < 9.995 ? 2 : 1)} s`;
}

// --- Workers and their colours

const workerIndex = new Map(); // pid => index

function colour(pid) {
  if (!workerIndex.has(pid)) workerIndex.set(pid, workerIndex.size);
  return `var(--w${workerIndex.get(pid) % COLOURS})`;
}

// --- The server now

const TRACE_LENGTH = 240; // four a second, for a minute
const trace = [];
const answered = []; // [seconds of the server's clock, requests in all]

function total(workers, field) {
  return workers.reduce((sum, worker) => sum + (worker[field] || 0), 0);
}

function showStatus(status) {
  const workers = status.workers || [];
  if (workers.length === 0) {
    live("lost", "this server publishes no figures; start the demo with Fairlead");
    return;
  }
  live("live", "live");
  for (const worker of workers) {
    if (worker.pid) workerIndex.set(worker.pid, worker.index);
  }

  const inFlight = total(workers, "in_flight");
  element("in-flight").textContent = inFlight;
  element("queued").textContent = total(workers, "queued");
  element("streams").textContent = total(workers, "streams");
  showRate(status.at, total(workers, "requests"));
  showTrace(inFlight);
  element("workers").replaceChildren(...workers.map(workerCard));
}

function showRate(now, requests) {
  answered.push([now, requests]);
  while (answered.length > 2 && now - answered[0][0] > 1.2) answered.shift();
  const [then, before] = answered[0];
  const rate = now > then ? (requests - before) / (now - then) : 0;
  element("rate").textContent = Math.max(0, Math.round(rate));
}

function showTrace(inFlight) {
  trace.push(inFlight);
  if (trace.length > TRACE_LENGTH) trace.shift();
  const top = Math.max(10, ...trace);
  const start = TRACE_LENGTH - trace.length;
  element("trace").replaceChildren(area(trace.map((value, index) => [start + index, value]), top));
  element("trace-top").textContent = `scale: 0 to ${top}`;
}

// A filled path through points [x from 0 to 240, value from 0 to top].
function area(points, top) {
  const path = document.createElementNS("http://www.w3.org/2000/svg", "path");
  const line = points.map(([x, value]) => `${x.toFixed(1)} ${(48 - (value / top) * 46).toFixed(1)}`);
  path.setAttribute("d", `M${points[0][0]} 48 L${line.join(" L")} L${points.at(-1)[0]} 48`);
  return path;
}

const STATES = { booting: "starting", serving: "serving", draining: "finishing" };

function workerCard(worker) {
  const field = (name, value) => make("div", {}, make("dt", { textContent: name }), make("dd", { textContent: value }));
  const dots = make("div", { className: "dots" });
  const most = 60;
  const waiting = worker.queued || 0;
  const running = Math.min(worker.in_flight, most);
  const standing = Math.min(waiting, most - running);
  for (let i = 0; i < running; i++) dots.append(make("i"));
  for (let i = 0; i < standing; i++) dots.append(make("i", { className: "waiting" }));
  const more = worker.in_flight + waiting - running - standing;
  if (more > 0) dots.append(make("em", { textContent: `and ${more} more` }));

  const card = make("article", { className: "worker" },
    make("header", {},
      make("b", { textContent: `Worker ${worker.index}` }),
      make("span", { textContent: `${STATES[worker.state] ?? worker.state}, pid ${worker.pid}` })),
    make("dl", {},
      field("in flight", worker.in_flight), field("waiting", waiting),
      field("streams", worker.streams ?? 0), field("answered", (worker.requests || 0).toLocaleString("en"))),
    dots);
  card.style.setProperty("--worker", `var(--w${worker.index % COLOURS})`);
  return card;
}

function live(state, text) {
  const label = element("live");
  label.dataset.state = state;
  label.textContent = text;
}

function listen() {
  const source = new EventSource("/status/live");
  source.onmessage = (event) => showStatus(JSON.parse(event.data));
  source.onerror = () => live("lost", "connection lost, reconnecting …");
  // A page in a background tab keeps no stream.
  document.addEventListener("visibilitychange", () => {
    if (document.hidden) source.close();
    else listen();
  }, { once: true });
}

// Posts the parameters and calls take with each line of the response, a JSON object.
async function readLines(path, parameters, take) {
  const response = await fetch(path, {
    method: "POST",
    headers: { "content-type": "application/json", "x-csrf-token": token },
    body: JSON.stringify(parameters),
  });
  if (!response.ok) throw new Error((await response.text()).slice(0, 200) || `status ${response.status}`);
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) break;
    const lines = (rest + value).split("\n");
    rest = lines.pop();
    lines.forEach((line) => take(JSON.parse(line)));
  }
}

// --- Fifty at once

class Burst {
  constructor(row) {
    this.row = row;
    this.columns = row.querySelector(".columns");
    this.plot = row.querySelector(".plot");
    this.caption = row.querySelector("figcaption");
    this.button = row.querySelector("button");
    this.input = row.querySelector("input[name=duration]");
    row.querySelector("form").addEventListener("submit", (event) => {
      event.preventDefault();
      this.fire();
    });
    this.clear();
    this.input.addEventListener("input", () => {
      row.querySelector("form a").href = `/${row.dataset.kind}?duration=${this.input.value}`;
    });
  }

  clear() {
    this.bars = Array.from({ length: COUNT }, () => make("i"));
    this.columns.replaceChildren(...this.bars);
  }

  async fire() {
    if (this.button.disabled) return;
    this.duration = Number(this.input.value) || 0;
    this.answers = [];
    this.began = null;
    this.wall = null;
    this.top = Math.max(this.duration * 1.5, 0.01);
    this.clear();
    this.plot.querySelector(".ideal")?.remove();
    if (this.duration > 0) {
      this.ideal = make("div", { className: "ideal" }, make("span", {}, make("b", { textContent: seconds(this.duration) }), "alone"));
      this.plot.append(this.ideal);
    } else {
      this.ideal = null;
    }
    this.button.disabled = true;
    this.say("Opening fifty connections …");
    try {
      await this.read();
      this.finish();
    } catch (error) {
      this.say(`Failed: ${error.message}`, "error");
    } finally {
      this.button.disabled = false;
    }
  }

  async read() {
    const parameters = { kind: this.row.dataset.kind, duration: this.input.value || "0", count: COUNT };
    await readLines("/bursts", parameters, (message) => this.take(message));
  }

  take(message) {
    if (message.started) {
      this.began = performance.now();
      requestAnimationFrame(() => this.grow());
    } else if (message.finished !== undefined) {
      this.wall = message.finished;
    } else {
      this.answers[message.index] = message;
      const bar = this.bars[message.index];
      if (message.worker) bar.style.setProperty("--worker", colour(message.worker));
      bar.className = message.status === 200 ? "done" : "failed";
      bar.title = `request ${message.index + 1}: ${seconds(message.seconds)}, ${message.error || `status ${message.status}`}`;
    }
  }

  // Called for each frame until all have answered.
  grow() {
    if (this.wall !== null) return;
    this.draw((performance.now() - this.began) / 1000);
    const done = this.answers.filter(Boolean).length;
    this.say(`${done} of ${COUNT} answered …`);
    requestAnimationFrame(() => this.grow());
  }

  draw(elapsed) {
    const longest = this.answers.reduce((most, answer) => Math.max(most, answer?.seconds ?? 0), 0);
    const running = this.answers.filter(Boolean).length < COUNT;
    this.top = Math.max(this.duration * 1.5, longest * 1.12, running ? elapsed * 1.12 : 0, 0.001);
    this.bars.forEach((bar, index) => {
      const took = this.answers[index]?.seconds ?? elapsed;
      bar.style.setProperty("--tall", Math.min(1, took / this.top).toFixed(4));
    });
    if (this.ideal) this.ideal.style.bottom = `${((this.duration / this.top) * 100).toFixed(2)}%`;
  }

  finish() {
    const answers = this.answers.filter(Boolean);
    if (this.wall === null || answers.length === 0) throw new Error("the stream ended early");
    this.draw(this.wall);
    const times = answers.map((answer) => answer.seconds).sort((a, b) => a - b);
    const failed = answers.filter((answer) => answer.status !== 200);
    const workers = new Set(answers.map((answer) => answer.worker).filter(Boolean)).size;
    const middle = (times[(times.length - 1) >> 1] + times[times.length >> 1]) / 2;
    const field = (name, value, className = "") =>
      make("div", {}, make("dt", { textContent: name }), make("dd", { textContent: value, className }));
    const list = make("dl", {},
      field("fastest", seconds(times[0])), field("median", seconds(middle)),
      field("slowest", seconds(times[times.length - 1])), field("all done after", seconds(this.wall), "all"));
    const note = make("div");
    if (failed.length) {
      note.className = "error";
      note.textContent = `${failed.length} failed: ${failed[0].error || `status ${failed[0].status}`}`;
    } else {
      const by = `${answers.length} requests, by ${workers} worker${workers === 1 ? "" : "s"}`;
      const alone = this.duration > 0 ? `; one after the other: ${seconds(this.duration * answers.length)}` : "";
      note.textContent = by + alone;
    }
    this.caption.replaceChildren(list, note);
    this.row.dataset.finished = this.wall;
  }

  say(text, className = "") {
    if (this.caption.textContent === text) return;
    this.caption.replaceChildren(make("span", { textContent: text, className }));
  }
}

// --- A thousand streams beside pages

const whole = (value) => Math.round(value).toLocaleString("en");
const latency = (value) => (value === null ? "–" : seconds(value));

function prepareBeside() {
  const button = element("beside-start");
  const result = element("beside-result");
  button.addEventListener("click", async () => {
    const seen = [];
    let summary = null;
    button.disabled = true;
    result.textContent = "Asking for pages …";
    try {
      await readLines("/stream_loads", { streams: 1000, duration: 10 }, (message) => {
        if (message.finished) summary = message;
        else showBeside(seen, message);
      });
      if (!summary) throw new Error("the stream ended early");
      result.textContent = besideSummary(summary);
      element("beside").dataset.finished = summary.finished;
    } catch (error) {
      result.textContent = `Failed: ${error.message}`;
    } finally {
      button.disabled = false;
    }
  });
}

function showBeside(seen, message) {
  seen.push(message);
  element("beside-p50").textContent = latency(message.p50);
  element("beside-p99").textContent = latency(message.p99);
  element("beside-tokens").textContent = whole(message.tokens_per_second);
  element("beside-streams").textContent = whole(message.streams);
  drawBeside("latency", seen, ["p50", "p99"], (top) => seconds(top));
  drawBeside("token", seen, ["tokens_per_second"], whole);
  const doing = message.streams < 1000 ? "Opening streams" : "All streams have begun";
  if (message.at > 3) element("beside-result").textContent = `${doing} …`;
}

// The time from 0 to the newest line fills the width.
function drawBeside(name, seen, fields, unit) {
  const top = Math.max(0.001, ...seen.flatMap((message) => fields.map((field) => message[field] ?? 0)));
  const x = (message) => (message.at / Math.max(17, seen.at(-1).at)) * 240;
  element(`${name}-trace`).replaceChildren(
    ...fields.map((field) => area(seen.map((message) => [x(message), message[field] ?? 0]), top)));
  element(`${name}-top`).textContent = `scale: 0 to ${unit(top)}`;
}

function besideSummary({ streams, reopened, alone, beside }) {
  const pages = (phase) => `median ${latency(phase.p50)}, p99 ${latency(phase.p99)}`;
  const failed = alone.failed + (beside?.failed ?? 0);
  return [
    `Pages alone: ${pages(alone)}.`,
    beside ? `Beside ${whole(streams)} streams: ${pages(beside)}, ${whole(beside.tokens_per_second)} tokens per second.`
      : `Only ${whole(streams)} streams began.`,
    reopened ? `Streams that were rejected or ended, and opened again: ${whole(reopened)}.` : "",
    failed ? `Pages that failed: ${whole(failed)}.` : "",
  ].filter(Boolean).join(" ");
}

// --- Up, down and live

function prepareUpload() {
  element("upload").addEventListener("submit", async (event) => {
    event.preventDefault();
    const result = element("upload-result");
    const began = performance.now();
    result.textContent = "Sending …";
    try {
      const response = await fetch("/uploads", {
        method: "POST", headers: { "x-csrf-token": token }, body: new FormData(event.target),
      });
      if (!response.ok) throw new Error(`status ${response.status}`);
      const { bytes, sha256 } = await response.json();
      const took = seconds((performance.now() - began) / 1000);
      result.textContent = `${bytes.toLocaleString("en")} bytes in ${took}, SHA-256 ${sha256.slice(0, 16)}…`;
    } catch (error) {
      result.textContent = `Failed: ${error.message}`;
    }
  });
}

function prepareDownload() {
  const button = element("download");
  button.addEventListener("click", async () => {
    const progress = element("download-progress");
    const result = element("download-result");
    const began = performance.now();
    button.disabled = true;
    progress.hidden = false;
    let bytes = 0;
    try {
      const response = await fetch("/download?duration=2");
      const reader = response.body.getReader();
      for (;;) {
        const { value, done } = await reader.read();
        if (done) break;
        bytes += value.length;
        progress.value = bytes;
        result.textContent = `${(bytes / 1e6).toFixed(1)} MB …`;
      }
      result.textContent = `${bytes.toLocaleString("en")} bytes in ${seconds((performance.now() - began) / 1000)}`;
    } catch (error) {
      result.textContent = `Failed after ${bytes.toLocaleString("en")} bytes: ${error.message}`;
    } finally {
      button.disabled = false;
    }
  });
}

function prepareEvents() {
  const button = element("events");
  button.addEventListener("click", () => {
    const result = element("events-result");
    const source = new EventSource("/events?duration=5");
    const end = (text) => {
      source.close();
      button.disabled = false;
      result.textContent = text;
    };
    let count = 0;
    button.disabled = true;
    result.textContent = "Listening …";
    source.onmessage = (event) => {
      const { number, of, worker } = JSON.parse(event.data);
      count = number;
      result.textContent = `${"●".repeat(number)}${"○".repeat(of - number)} from worker ${worker}`;
    };
    source.addEventListener("end", () => end(`${"●".repeat(count)} all ${count} received`));
    source.onerror = () => end("The stream ended early.");
  });
}

document.querySelectorAll(".kind").forEach((row) => new Burst(row));
prepareBeside();
prepareUpload();
prepareDownload();
prepareEvents();
listen();
