// Which charts a report has.

const data = JSON.parse(document.getElementById("report-data").textContent);
const several = data.runs.length > 1;
const PER = data.runs[0].per_token ? " per token" : "";
const NAMES = { raw: `E_raw${PER}`, norm: `E_norm${PER}` };
const POPULATIONS = data.runs.every((run) => run.particles);
const UNITS = POPULATIONS ? "particles" : "chains";
const BAND = `The line is the median over ${UNITS}, the band holds the middle 80 %.`;
const AFTER = POPULATIONS ? "at the end of the path" : "after burn-in";

const energyChart = (run, trace, label, hue) => ({
  title: `${label} by ${clockOf(run)}`, series: energySeries(run, trace, hue), shade: shadeOf(run),
  x: { label: clockOf(run), whole: true }, y: { label },
  right: run.temperature ? { label: "target temperature" } : null,
  caption: trace.chains.length > 1 ? BAND : "",
});

const rateChart = (run, hue) => ({
  title: `Accepted and novel by ${clockOf(run)}`,
  caption: `Shares of steps over all ${unitOf(run)}s; bands hold the middle 80 % of the ${unitOf(run)}s. Novel: accepted and different.`,
  x: { label: clockOf(run), whole: true }, y: { label: "share of steps", include: [0, 1] }, shade: shadeOf(run),
  series: [["accepted", 0, 0], ["novel", 2, 1]].map(([name, tone, dash]) => ({
    name, tone: hue(tone), dash, marker: dash, x: run.epochs, y: run[name].middle,
    low: run.chains > 1 ? run[name].low : null, high: run.chains > 1 ? run[name].high : null,
  })),
});

const correlationChart = (run, hue) => {
  const found = run.correlations;
  if (!found.length) return null;
  return {
    title: "Autocorrelation by lag",
    caption: "How much of a value is still known so many epochs later; chains that disagree with each other keep it above 0.",
    x: { label: "lag (epochs)", whole: true }, y: { label: "autocorrelation", include: [0, 1] },
    series: found.map((one, index) => ({ name: one.name, tone: hue([0, 2, 1, 3][index]), dash: index, marker: index, x: one.lags, y: one.values })),
  };
};

const positionChart = (run, hue) => {
  const found = run.positions;
  if (!found) return null;
  const over = found.templates > 1 ? ` Over all ${found.templates} lines of input.` : "";
  return {
    title: "Accepted and novel by position", wide: true,
    caption: `Shares of the visits to each position after burn-in.${over}`,
    x: { label: "position", whole: true }, y: { label: "share of visits", include: [0, 1] },
    series: [["accepted", 0, 0], ["novel", 2, 1]].map(([name, tone, dash]) => ({
      name, tone: hue(tone), dash, marker: dash, x: found.positions, y: found[name],
    })),
  };
};

const histogramChart = (name) => {
  const found = data.histograms[name];
  if (!found) return null;
  return {
    title: data.runs.some((run) => run.burn_in) ? `${NAMES[name]} ${AFTER}` : NAMES[name],
    caption: POPULATIONS ? `Shares of all particles ${AFTER}.` : "Shares of all traced epochs and chains after burn-in.",
    x: { label: NAMES[name] }, y: { label: "share", include: [0] },
    series: data.runs.map((run, index) => ({
      name: several ? run.label : `all ${UNITS}`, tone: index % 7, dash: several ? index % 7 : 0, steps: true, x: found.edges, y: found.shares[index],
    })),
  };
};

const overlaid = (title, label, pick, include) => ({
  title: `${title} by ${clockOf(data.runs[0])}, all runs`, x: { label: clockOf(data.runs[0]), whole: true }, y: { label, include },
  series: data.runs.map((run, index) => {
    const { middle, low, high } = pick(run);
    return { name: run.label, tone: index % 7, dash: index % 7, marker: index % 7, x: run.epochs, y: middle, low, high, strong: true };
  }),
});

const comparisonCharts = () => [
  ...Object.keys(NAMES).map((name) => ({ ...overlaid(NAMES[name], NAMES[name], (run) => run.energies[name].spread), caption: BAND })),
  ...Object.keys(NAMES).map((name) => ({ ...histogramChart(name), title: `${NAMES[name]} ${AFTER}, all runs` })),
  overlaid("Accepted", "share of steps", (run) => run.accepted, [0, 1]),
  overlaid("Novel", "share of steps", (run) => run.novel, [0, 1]),
].filter((spec) => spec.series);

const runCharts = (index) => {
  const run = data.runs[index];
  // With several runs, colours distinguish runs; with one, they distinguish quantities.
  const hue = (own) => (several ? index % 7 : own);
  const overEpochs = [
    energyChart(run, run.energies.raw, NAMES.raw, hue(0)),
    energyChart(run, run.energies.norm, NAMES.norm, hue(2)),
    ...Object.entries(run.experts).map(([name, trace], place) => energyChart(run, trace, name, hue((3 + place) % 7))),
    rateChart(run, hue),
  ];
  const specs = [
    ...(run.verdict.state === "independent draws" ? [] : overEpochs),
    correlationChart(run, hue),
    ...(several ? [] : [histogramChart("raw"), histogramChart("norm")]),
    positionChart(run, hue),
  ].filter(known);
  if (!several) return specs;
  return specs.map((spec) => ({ ...spec, title: `${spec.title}: ${run.label}` }));
};

const drawCharts = () => {
  for (const holder of document.querySelectorAll("[data-charts]")) {
    const specs = holder.dataset.charts === "comparison" ? comparisonCharts() : runCharts(Number(holder.dataset.run));
    for (const spec of specs) new Chart(holder, spec);
  }
  for (const holder of document.querySelectorAll("[data-family]")) {
    const index = Number(holder.dataset.run);
    const family = data.runs[index].families[Number(holder.dataset.family)];
    for (const spec of familyCharts(family, (own) => (several ? index % 7 : own))) new Chart(holder, spec);
  }
};
