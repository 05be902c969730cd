"use strict";
// Sorts tables, shows the charts that are in view, hides and shows activations, and, in a live page, fetches what is new.
(() => {
  const ERRORS = 1; // what Vega logs: no advice on specifications
  const root = document.documentElement;
  const state = { hidden: {}, panel: {}, sorted: {} }; // by place, so that a live page keeps what was chosen
  const dark = () => root.dataset.theme === "dark";
  const reading = matchMedia("(prefers-color-scheme: dark)");

  function remembered(value) {
    try {
      if (value !== undefined) localStorage.setItem("boolit-theme", value);
      return localStorage.getItem("boolit-theme");
    } catch { return null; } // a page opened as a file may have no storage
  }

  function setTheme(name) {
    root.dataset.theme = name;
    const button = document.getElementById("theme");
    button.hidden = false;
    button.textContent = name === "dark" ? "Light" : "Dark";
    button.setAttribute("aria-label", `Show the page ${name === "dark" ? "light" : "dark"}`);
    document.querySelectorAll(".charts").forEach((place) => place.redraw && place.redraw());
  }

  // Tables

  function sortValue(row, column) {
    const cell = row.cells[column];
    const number = cell.dataset.value;
    return number === undefined ? cell.textContent.trim() : Number(number);
  }

  function sortBy(table, column, ascending) {
    const empty = (value) => value === "" || value === "–" || value === "no test";
    const rows = [...table.tBodies[0].rows].map((row, place) => ({ row, place, value: sortValue(row, column) }));
    rows.sort((a, b) => {
      if (empty(a.value) || empty(b.value)) return empty(a.value) - empty(b.value) || a.place - b.place;
      const numbers = typeof a.value === "number" && typeof b.value === "number";
      const order = numbers ? a.value - b.value : String(a.value).localeCompare(String(b.value), "en", { numeric: true });
      return (ascending ? order : -order) || a.place - b.place;
    });
    table.tBodies[0].append(...rows.map((each) => each.row));
    [...table.tHead.rows[0].cells].forEach((head, place) => {
      if (place === column) head.setAttribute("aria-sort", ascending ? "ascending" : "descending");
      else head.removeAttribute("aria-sort");
    });
  }

  function prepareTable(table, number) {
    const heads = [...table.tHead.rows[0].cells];
    heads.forEach((head, column) => head.querySelector("button").addEventListener("click", () => {
      const before = head.getAttribute("aria-sort");
      const numeric = [...table.tBodies[0].rows].some((row) => row.cells[column].dataset.value !== undefined);
      const ascending = before ? before === "descending" : !numeric; // of numbers, the largest first
      state.sorted[number] = [column, ascending];
      sortBy(table, column, ascending);
    }));
    const [column, ascending] = state.sorted[number] || [];
    if (column !== undefined && column < heads.length) sortBy(table, column, ascending);
  }

  // Charts

  function expand(table) {
    const columns = Object.entries(table).map(([name, own]) => {
      if (Array.isArray(own)) return [name, own];
      const { levels, rows } = own;
      return [name, levels.length > 1 ? rows.map((place) => levels[place]) : Array(rows[0] || 0).fill(levels[0])];
    });
    const count = columns.length ? columns[0][1].length : 0;
    return Array.from({ length: count }, (_, place) => Object.fromEntries(columns.map(([name, own]) => [name, own[place]])));
  }

  function setColours(node, colours) {
    if (!node || typeof node !== "object") return;
    if (node.color && node.color.scale && node.color.scale.domain) {
      node.color.scale.range = node.color.scale.domain.map((name) => colours[name]);
    }
    Object.values(node).forEach((child) => setColours(child, colours));
  }

  function theme() {
    const text = dark() ? "#e8ebef" : "#1b1f24", line = dark() ? "#3a434e" : "#d5dae0";
    const font = "system-ui, 'Segoe UI', Roboto, 'DejaVu Sans', sans-serif";
    return {
      background: null,
      font,
      view: { stroke: null },
      axis: { labelColor: text, titleColor: text, gridColor: line, domainColor: line, tickColor: line, labelFontSize: 12,
        titleFontSize: 12, titleFontWeight: 500, labelOverlap: true },
    };
  }

  function prepareCharts(place) {
    const data = JSON.parse(place.querySelector('script[type="application/json"]').textContent);
    const id = place.id, buttons = [...place.querySelectorAll(".legend button")], select = place.querySelector(".panel select");
    const hidden = new Set(state.hidden[id] || []);
    const tables = {}; // expanded when the first chart of each is shown
    const panel = () => (select ? select.value : data.panel);
    if (select && state.panel[id] !== undefined) {
      if ([...select.options].some((option) => option.value === state.panel[id])) select.value = state.panel[id];
    }

    // Vega adds fields of its own to rows, so every chart has copies; of a table with panels, those of the chosen one.
    function rowsOf(name) {
      tables[name] = tables[name] || expand(data.tables[name]);
      return tables[name].filter((row) => !("panel" in row) || row.panel === panel()).map((row) => ({ ...row }));
    }

    async function draw(figure) {
      figure.wanted = true;
      const spec = structuredClone(data.charts[figure.dataset.chart]);
      const colours = Object.fromEntries(data.series.map((one) => [one.name, dark() ? one.dark : one.light]));
      setColours(spec, colours);
      spec.datasets = { [spec.data.name]: rowsOf(spec.data.name) };
      spec.params.forEach((each) => { if (each.name === "hidden") each.value = [...hidden]; });
      const options = { renderer: "canvas", ast: true, logLevel: ERRORS, actions: false, config: theme(),
        tooltip: { theme: dark() ? "dark" : "light" } };
      const plot = figure.querySelector(".plot");
      if (figure.shown) figure.shown.finalize();
      figure.shown = await vegaEmbed(plot, spec, options);
      figure.view = figure.shown.view;
      figure.dataset.ready = "";
    }

    const figures = [...place.querySelectorAll(".chart")];
    const observer = new IntersectionObserver((entries) => entries.forEach((entry) => {
      if (entry.isIntersecting) { observer.unobserve(entry.target); draw(entry.target); }
    }), { rootMargin: "200px" });
    figures.forEach((figure) => observer.observe(figure));

    function colourLegend() {
      buttons.forEach((button, number) => {
        const one = data.series[number];
        button.querySelector(".swatch").style.color = dark() ? one.dark : one.light;
        button.setAttribute("aria-pressed", String(!hidden.has(one.name)));
      });
    }

    buttons.forEach((button, number) => button.addEventListener("click", () => {
      const { name } = data.series[number];
      if (!hidden.delete(name)) hidden.add(name);
      state.hidden[id] = [...hidden];
      colourLegend();
      figures.forEach((figure) => figure.view && figure.view.signal("hidden", [...hidden]).runAsync());
    }));
    if (select) select.addEventListener("change", () => {
      state.panel[id] = select.value;
      figures.filter((figure) => figure.view).forEach((figure) => {
        const { name } = data.charts[figure.dataset.chart].data;
        figure.view.data(name, rowsOf(name)).runAsync();
      });
    });
    colourLegend();
    place.redraw = () => { colourLegend(); figures.filter((figure) => figure.wanted).forEach(draw); };
    place.drawAll = () => figures.filter((figure) => !figure.wanted).forEach(draw);
  }

  function prepare() {
    document.querySelectorAll("table.results").forEach(prepareTable);
    document.querySelectorAll(".charts").forEach(prepareCharts);
  }

  // A page that is served while its runs are trained

  async function follow(main) {
    let tag = main.dataset.state;
    const wait = (seconds) => new Promise((done) => setTimeout(done, 1000 * seconds));
    for (;;) {
      await wait(2);
      try {
        const answer = await fetch("/state", { headers: { "If-None-Match": tag }, cache: "no-store" });
        const seen = answer.headers.get("ETag");
        if (answer.status !== 200 || !seen) continue;
        if (seen === tag) continue;
        const text = await (await fetch("/", { cache: "no-store" })).text();
        tag = seen;
        const fresh = new DOMParser().parseFromString(text, "text/html");
        const [x, y] = [scrollX, scrollY], height = main.offsetHeight;
        main.style.minHeight = `${height}px`; // so that the page does not jump while charts are drawn
        main.replaceChildren(...fresh.querySelector("main").childNodes);
        document.title = fresh.title;
        prepare();
        scrollTo({ left: x, top: y, behavior: "instant" });
        main.dataset.updates = String(Number(main.dataset.updates || 0) + 1);
      } catch { /* the server has ended, or is busy: what is shown stays */ }
    }
  }

  const main = document.getElementById("main");
  setTheme(remembered() || (reading.matches ? "dark" : "light"));
  reading.addEventListener("change", () => remembered() || setTheme(reading.matches ? "dark" : "light"));
  document.getElementById("theme").addEventListener("click", () => {
    const name = dark() ? "light" : "dark";
    remembered(name);
    setTheme(name);
  });
  addEventListener("beforeprint", () => document.querySelectorAll(".charts").forEach((place) => place.drawAll()));
  prepare();
  if ("state" in main.dataset) follow(main);
})();
