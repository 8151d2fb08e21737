// The list of runs, and the form that starts one.

const runLine = (run) => {
  const title = html("h3", {}, run.error ? run.name : html("a", { href: `run?id=${run.id}` }, run.title));
  if (run.error) return html("li", { class: "broken" }, title, html("p", { class: "small" }, run.error));
  const done = run.epochs_done >= run.epochs;
  const figures = [
    `${run.chains.toLocaleString("en")} ${unitOf(run)}${run.chains === 1 ? "" : "s"}`,
    `${done ? "" : `${run.epochs_done} of `}${run.epochs} ${run.particles ? "points of the path" : "epochs"}`,
    known(run.energy_raw_mean) ? `E_raw ${shortNumber(run.energy_raw_mean)}` : null,
    known(run.energy_norm_mean) ? `E_norm ${shortNumber(run.energy_norm_mean)}` : null,
    known(run.acceptance_rate) ? `accepted ${percent(run.acceptance_rate)}` : null,
  ].filter(known);
  const when = (run.created ?? "").replace("T", " ").replace("+00:00", " UTC");
  return html(
    "li", { "data-run": run.id }, title,
    html("p", { class: "pills" }, html("span", { class: "wears small" }, "Reading the verdict …"), done ? "" : pill("not finished", "open")),
    html("p", { class: "small said-of-it" }),
    html("p", { class: "small figures" }, [run.energy ? `${run.kernel} · ${run.energy}` : run.kernel, run.model].join(" · ")),
    html("p", { class: "small figures" }, figures.join(" · ")),
    html("p", { class: "small" }, run.title === run.name ? when : `${run.name} · ${when}`),
  );
};

// Diagnosing many runs takes a while, so a card asks for its verdict when it comes into sight.
const verdicts = new Map();
const dress = async (card) => {
  const id = card.dataset.run;
  if (!verdicts.has(id)) verdicts.set(id, ask(`runs/${id}/verdict`));
  try {
    const { state, tone, headline, reason } = await verdicts.get(id);
    card.querySelector(".wears").replaceWith(html("span", { class: `pill ${tone} wears`, title: reason }, state));
    card.querySelector(".said-of-it").textContent = headline;
  } catch (error) {
    verdicts.delete(id);
    card.querySelector(".wears").textContent = error.message;
  }
};
const inSight = new IntersectionObserver((seen) => {
  for (const { isIntersecting, target } of seen) {
    if (!isIntersecting) continue;
    inSight.unobserve(target);
    dress(target);
  }
}, { rootMargin: "200px" });

const showRuns = (runs) => {
  const list = byId("runs-list");
  const draw = () => {
    const query = byId("find").value.trim().toLowerCase();
    const found = runs.filter((run) => `${run.title} ${run.name} ${run.folder} ${run.model} ${run.kernel} ${run.energy}`.toLowerCase().includes(query));
    list.replaceChildren(...found.map(runLine));
    list.querySelectorAll("[data-run]").forEach((card) => inSight.observe(card));
    byId("runs-said").textContent = runs.length === 0
      ? "No runs yet: start one below, or with maskov sample --out runs/first."
      : `${found.length} of ${runs.length} run${runs.length === 1 ? "" : "s"}, the newest first`;
  };
  byId("find").addEventListener("input", draw);
  draw();
};

const fillForm = (offered) => {
  const form = byId("start-form");
  if (!offered.may_start) {
    byId("start-said").textContent = "This server was started with --read-only: it starts no runs.";
    return;
  }
  const option = (value, text) => html("option", { value }, text);
  form.model.append(...Object.entries(offered.models).map(([name, about]) => option(name, `${name}: ${about}`)));
  form.method.append(...Object.entries(offered.methods).map(([name, about]) => option(name, about)));
  form.energy.append(...offered.fields.energy.enum.map((name) => option(name, `E_${name}`)));
  for (const [name, field] of Object.entries(offered.fields)) {
    if (known(field.default)) form[name].value = field.default;
    if (known(field.minimum)) { form[name].min = field.minimum; form[name].max = field.maximum; }
    if (known(field.maxLength) && form[name].tagName === "INPUT") form[name].maxLength = field.maxLength;
  }
  const adapt = () => {
    form.energy.disabled = form.method.value !== "mh";
    form.temperature.disabled = form.text.disabled = form.method.value === "mask-predict";
    const started = !form.text.disabled && form.text.value.trim() !== "";
    form.freeze.disabled = !started;
    form.length.disabled = started;
  };
  form.method.addEventListener("change", adapt);
  form.text.addEventListener("input", adapt);
  adapt();
  form.hidden = false;
};

byId("start-form").addEventListener("submit", async (event) => {
  event.preventDefault();
  const form = event.target;
  const wrong = [...form.elements].find((field) => field.willValidate && !field.checkValidity());
  if (wrong) {
    byId("refusal").textContent = `${wrong.labels[0].firstChild.textContent.trim()}: ${wrong.validationMessage}`;
    wrong.focus();
    return;
  }
  const request = { model: form.model.value, method: form.method.value };
  for (const name of ["chains", "length", "epochs", "seed"]) if (!form[name].disabled) request[name] = Number(form[name].value);
  for (const name of ["name", "text", "freeze", "prefix"]) if (!form[name].disabled && form[name].value.trim()) request[name] = form[name].value.trim();
  if (!form.energy.disabled) request.energy = form.energy.value;
  if (!form.temperature.disabled) request.temperature = Number(form.temperature.value);
  byId("refusal").textContent = "";
  try {
    await ask("live", request);
    location.href = "live";
  } catch (error) {
    byId("refusal").textContent = error.message;
  }
});

ask("runs").then(showRuns, (error) => { byId("runs-said").textContent = error.message; });
ask("choices").then(fillForm, (error) => { byId("start-said").textContent = error.message; })
  .finally(() => { document.documentElement.dataset.ready = "true"; });
