// Draws the charts that the page's JSON describes, in the colours of its style sheet, and again when these change.
"use strict";
(() => {
  const descriptions = JSON.parse(document.getElementById("data").textContent);
  const color = (name) => getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
  // Ours, those of other people's machines, and each server by its name.
  const shade = (row) => {
    const name = row.ours ? "ours" : row.published ? "published" : row.name.split(/[: ]/)[0];
    return color(name) || color("peer");
  };
  const dashes = [[], [6, 3], [2, 3], [8, 3, 2, 3], [1, 2], [10, 4]];
  const short = new Intl.NumberFormat("en", { notation: "compact", maximumSignificantDigits: 3 });
  const full = new Intl.NumberFormat("en", { maximumFractionDigits: 3 });

  // The range of all rounds, as a line over the end of each bar.
  const ranges = {
    id: "ranges",
    afterDatasetsDraw(chart, _, options) {
      if (!options.rows) return;
      const { ctx, scales } = chart;
      ctx.save();
      ctx.strokeStyle = color("text");
      options.rows.forEach((row, index) => {
        if (row.low === undefined || row.low === row.high) return;
        const y = chart.getDatasetMeta(0).data[index].y;
        const [low, high] = [row.low, row.high].map((value) => scales.x.getPixelForValue(value));
        ctx.beginPath();
        ctx.moveTo(low, y);
        ctx.lineTo(high, y);
        for (const x of [low, high]) { ctx.moveTo(x, y - 4); ctx.lineTo(x, y + 4); }
        ctx.stroke();
      });
      ctx.restore();
    },
  };

  const axis = (title, more = {}) => ({
    title: { display: !!title, text: title, color: color("soft") },
    ticks: { color: color("text"), callback: (value) => short.format(value) },
    grid: { color: color("line") }, ...more,
  });
  // Few wait for long, and they are what matters: their number is shown on a logarithmic axis too.
  const tens = (value) => (/^10*$/.test(String(value)) ? short.format(value) : "");
  // Of a logarithmic axis: 1, 2 and 5 of each decade.
  const decades = (value) => {
    const digit = (value / 10 ** Math.floor(Math.log10(value) + 1e-9)).toFixed(3);
    return /^[125]\.000/.test(digit) ? short.format(value) : "";
  };
  // From and to such a value, so that there are some to be labelled.
  const bounds = (values) => {
    const round = (value, up) => {
      const decade = 10 ** Math.floor(Math.log10(value) + 1e-9);
      const steps = [1, 2, 5, 10].map((step) => step * decade);
      return up ? steps.find((step) => step >= value) : steps.findLast((step) => step <= value);
    };
    return { min: round(Math.min(...values), false), max: round(Math.max(...values), true) };
  };
  const stroke = (row, index) => ({
    borderColor: shade(row), backgroundColor: shade(row), borderWidth: row.ours ? 3 : 1.5, pointRadius: 2,
    borderDash: row.ours ? [] : dashes[index % dashes.length],
  });
  const legend = () => ({ labels: { color: color("text"), boxWidth: 24, boxHeight: 1 } });
  const common = { responsive: true, maintainAspectRatio: false, animation: false };

  // Of all percentiles; a logarithmic axis has no nought.
  const waits = (rows) => rows.flatMap((row) => row.values.map(([, value]) => value)).filter((value) => value > 0);
  // Names have half of a chart at most, so that long ones take two lines.
  const wrapped = (text) => (text.length > 18 ? text.split(/(?<=,) | (?=\()/) : text);
  const label = ({ name, failed, errors }) =>
    wrapped(name + (failed ? ` (${failed} failed)` : errors ? ` (${short.format(errors)} errors)` : ""));
  const lines = (rows, points) =>
    rows.map((row, index) => ({ label: row.name, data: points(row), ...stroke(row, index) }));

  const draw = {
    bars: ({ rows, unit }) => ({
      type: "bar",
      data: {
        labels: rows.map(label),
        datasets: [{ data: rows.map((row) => row.value), backgroundColor: rows.map(shade), borderRadius: 2 }],
      },
      options: {
        ...common, indexAxis: "y",
        scales: {
          x: axis(unit, { beginAtZero: true, suggestedMax: Math.max(...rows.map((row) => row.high ?? row.value)) }),
          y: { grid: { display: false }, ticks: { color: color("text"), autoSkip: false } },
        },
        plugins: { legend: { display: false }, ranges: { rows },
          tooltip: { callbacks: { label: (item) => `${full.format(item.raw)} ${unit}` } } },
      },
      plugins: [ranges],
    }),
    latencies: ({ rows, unit }) => ({
      type: "line",
      data: {
        labels: rows[0].values.map(([name]) => name.replace("p999", "p99.9")),
        datasets: lines(rows, (row) => row.values.map(([, value]) => value)),
      },
      options: {
        ...common,
        scales: {
          x: { ...axis(), ticks: { color: color("text") } },
          y: axis(unit, {
            type: "logarithmic", ...bounds(waits(rows)),
            ticks: { color: color("text"), autoSkip: false, callback: decades },
          }),
        },
        plugins: { legend: legend() },
      },
    }),
    growth: ({ rows, unit }) => ({
      type: "line",
      data: { datasets: lines(rows, (row) => row.points.map(([x, y]) => ({ x, y }))) },
      options: {
        ...common,
        scales: { x: axis("connections", { type: "linear" }), y: axis(unit, { beginAtZero: true }) },
        plugins: { legend: legend() },
      },
    }),
    histogram: ({ rows, unit, ours }) => ({
      type: "bar",
      data: {
        labels: rows.map(([label]) => label),
        datasets: [{
          data: rows.map(([, count]) => count), backgroundColor: color(ours ? "ours" : "peer"),
          barPercentage: 1, categoryPercentage: 0.95,
        }],
      },
      options: {
        ...common,
        scales: {
          x: { ...axis("seconds"), ticks: { color: color("text"), autoSkip: false, maxRotation: 90 } },
          y: axis("requests", { type: "logarithmic", min: 0.7, ticks: { color: color("text"), callback: tens } }),
        },
        plugins: { legend: { display: false }, title: { display: true, text: unit, color: color("text") } },
      },
    }),
  };

  const charts = new Map();
  const show = (canvas) => {
    charts.get(canvas)?.destroy();
    const description = descriptions[canvas.dataset.chart];
    charts.set(canvas, new Chart(canvas, draw[description.kind](description)));
  };
  const all = () => document.querySelectorAll("canvas[data-chart]").forEach(show);
  all();
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", all);
  document.documentElement.dataset.ready = charts.size;
})();
