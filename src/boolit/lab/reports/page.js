"use strict";
// Sorts tables, draws the charts in view, hides and shows activations and, on a live page, fetches updates.
(() => {
  const root = document.documentElement;
  const state = { hidden: {}, sorted: {} }; // by place, so that an update keeps the reader's choices
  const dark = () => root.dataset.theme === "dark";
  const prefersDark = matchMedia("(prefers-color-scheme: dark)");

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

  function sortBy(table, column, ascending) {
    const value = (row) => {
      const cell = row.cells[column];
      return cell.dataset.value === undefined ? cell.textContent.trim() : Number(cell.dataset.value);
    };
    const empty = (x) => x === "" || x === "–" || x === "no test";
    const rows = [...table.tBodies[0].rows].map((row, place) => ({ row, place, value: value(row) }));
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
      const ascending = before ? before === "descending" : !numeric; // numbers: the largest first
      state.sorted[number] = [column, ascending];
      sortBy(table, column, ascending);
    }));
    const [column, ascending] = state.sorted[number] || [];
    if (column !== undefined && column < heads.length) sortBy(table, column, ascending);
  }

  // Charts

  function theme() {
    const text = dark() ? "#e8ebef" : "#1b1f24", line = dark() ? "#3a434e" : "#d5dae0";
    return {
      background: null,
      font: "system-ui, 'Segoe UI', Roboto, 'DejaVu Sans', sans-serif",
      view: { stroke: null },
      axis: { labelColor: text, titleColor: text, gridColor: line, domainColor: line, tickColor: line, labelFontSize: 12,
        titleFontSize: 12, titleFontWeight: 500, labelOverlap: true },
    };
  }

  function prepareCharts(place) {
    const data = JSON.parse(place.querySelector('script[type="application/json"]').textContent);
    const buttons = [...place.querySelectorAll(".legend button")], figures = [...place.querySelectorAll(".chart")];
    const hidden = new Set(state.hidden[place.id] || []);

    function colored(spec) {
      let text = JSON.stringify(spec);
      if (dark()) data.series.forEach((one) => { text = text.replaceAll(`"${one.color}"`, `"${one.dark}"`); });
      return JSON.parse(text);
    }

    async function draw(figure) {
      figure.wanted = true;
      const spec = colored(data.charts[figure.dataset.chart]);
      spec.params.forEach((each) => { if (each.name === "hidden") each.value = [...hidden]; });
      const options = { renderer: "canvas", ast: true, logLevel: 1, actions: false, config: theme(),
        tooltip: { theme: dark() ? "dark" : "light" } };
      if (figure.shown) figure.shown.finalize();
      figure.shown = await vegaEmbed(figure.querySelector(".plot"), spec, options);
      figure.view = figure.shown.view;
      figure.dataset.ready = "";
    }

    function colorLegend() {
      buttons.forEach((button, number) => {
        const one = data.series[number];
        button.querySelector(".swatch").style.color = dark() ? one.dark : one.color;
        button.setAttribute("aria-pressed", String(!hidden.has(one.name)));
      });
    }

    const observer = new IntersectionObserver((entries) => entries.forEach((entry) => {
      if (entry.isIntersecting) { observer.unobserve(entry.target); draw(entry.target); }
    }), { rootMargin: "200px" });
    figures.forEach((figure) => observer.observe(figure));
    buttons.forEach((button, number) => button.addEventListener("click", () => {
      const { name } = data.series[number];
      if (!hidden.delete(name)) hidden.add(name);
      state.hidden[place.id] = [...hidden];
      colorLegend();
      figures.forEach((figure) => figure.view && figure.view.signal("hidden", [...hidden]).runAsync());
    }));
    colorLegend();
    place.redraw = () => { colorLegend(); figures.filter((figure) => figure.wanted).forEach(draw); };
    place.drawAll = () => figures.filter((figure) => !figure.wanted).forEach(draw);
  }

  function prepare() {
    document.querySelectorAll("table.results").forEach(prepareTable);
    document.querySelectorAll(".charts").forEach(prepareCharts);
  }

  // Updates of a page that is served while its runs are trained

  async function follow(main) {
    let tag = main.dataset.state;
    for (;;) {
      try {
        const line = document.getElementById("progress");
        line.textContent = await (await fetch("/progress", { cache: "no-store" })).text();
        await new Promise((done) => setTimeout(done, 2000));
        const answer = await fetch("/state", { headers: { "If-None-Match": tag }, cache: "no-store" });
        const seen = answer.headers.get("ETag");
        if (answer.status !== 200 || !seen || seen === tag) continue;
        const text = await (await fetch("/", { cache: "no-store" })).text();
        tag = seen;
        const fresh = new DOMParser().parseFromString(text, "text/html");
        const [x, y] = [scrollX, scrollY];
        main.style.minHeight = `${main.offsetHeight}px`; // the page does not jump while charts are drawn
        main.replaceChildren(...fresh.querySelector("main").childNodes);
        document.title = fresh.title;
        prepare();
        scrollTo({ left: x, top: y, behavior: "instant" });
        main.dataset.updates = String(Number(main.dataset.updates || 0) + 1);
      } catch { // the server has ended or is busy; the page stays as it is
        await new Promise((done) => setTimeout(done, 2000));
      }
    }
  }

  const main = document.getElementById("main");
  setTheme(remembered() || (prefersDark.matches ? "dark" : "light"));
  prefersDark.addEventListener("change", () => remembered() || setTheme(prefersDark.matches ? "dark" : "light"));
  document.getElementById("theme").addEventListener("click", () => {
    const name = dark() ? "light" : "dark";
    remembered(name);
    setTheme(name);
  });
  addEventListener("beforeprint", () => document.querySelectorAll(".charts").forEach((place) => place.drawAll()));
  prepare();
  if ("state" in main.dataset) follow(main);
})();
