// Draws the page's curves, and lets a reader sort its tables. Uses no network.
"use strict";
(() => {
  const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  const COLOURS = 7;
  const MOST_POWERS = 8;
  const make = (tag, attributes, ...inner) => {
    const element = document.createElement(tag);
    for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
    element.append(...inner);
    return element;
  };
  const number = (value) => {
    if (value === null || value === undefined) return "";
    const size = Math.abs(value);
    if (value === 0) return "0";
    return size < 1e-4 || size >= 1e7 ? value.toExponential(3) : String(Number(value.toPrecision(5)));
  };

  // A label beside an axis: 0.001, or 1e-5 where that is shorter.
  const label = (value) => {
    const size = Math.abs(value);
    const plain = value === 0 || (size >= 1e-3 && size < 1e5);
    return plain ? String(Number(value.toPrecision(5))) : value.toExponential(4).replace(/\.?0*e\+?/, "e");
  };

  // Values that have a label: multiples of a round number, some five of them.
  function multiples(min, max) {
    const rough = (max - min) / 5;
    const unit = 10 ** Math.floor(Math.log10(rough));
    const step = unit * ([1, 2, 5].find((digit) => digit * unit >= rough) ?? 10);
    const first = Math.ceil(min / step);
    return Array.from({ length: Math.floor(max / step) - first + 1 }, (_, at) => (first + at) * step);
  }

  // On a logarithmic axis: powers of ten, at most eight of them; up to three decades also 2 and 5 times each.
  function powers(min, max) {
    if (max / min < 10) return multiples(min, max);
    const [first, last] = [Math.floor(Math.log10(min)), Math.ceil(Math.log10(max))];
    const stride = Math.ceil((last - first) / MOST_POWERS);
    const digits = max / min < 1000 ? [1, 2, 5] : [1];
    const ticks = [];
    for (let power = Math.ceil(first / stride) * stride; power <= last; power += stride) {
      for (const digit of digits) ticks.push(Number(`${digit}e${power}`));
    }
    return ticks.filter((tick) => tick >= min && tick <= max);
  }

  // A place across: steps are whole, and none is rounded.
  const position = (value) => (Number.isInteger(value) ? String(value) : number(value));

  let charts = [];
  const drawn = [];
  // What a reader has chosen: a page that is served is drawn anew as its runs go on.
  const chosen = new Map();
  const sorted = new Map();

  // One chart: the lines of a few curves in colour, those of more, and pale ones, in grey.
  function chart(figure) {
    const data = charts[figure.dataset.chart];
    const place = figure.querySelector(".plot");
    const few = Math.min(data.lines.filter((line) => !line.pale).length, COLOURS);
    const state = chosen.get(data.title) ?? { log: data.log, hidden: new Set(), zoom: null };
    chosen.set(data.title, state);
    const isHidden = (line) => state.hidden.has(data.lines[line].name);
    const shade = (line) => (line < few ? colour(`--c${line}`) : colour("--faint"));

    // The library draws later series above earlier ones: the best are last.
    const order = data.lines.map((_, line) => line).reverse();
    const rows = [data.x];
    const series = [{}];
    const bands = [];
    const members = data.lines.map(() => []);
    for (const line of order) {
      const { y, band } = data.lines[line];
      const add = (values, options) => {
        members[line].push(series.length);
        rows.push(values);
        series.push({ spanGaps: true, points: { show: false }, ...options });
      };
      if (band) {
        bands.push({ series: [series.length + 1, series.length], fill: () => shade(line) + (few > 3 ? "12" : "26") });
        add(band[0], { width: 0, stroke: "transparent" });
        add(band[1], { width: 0, stroke: "transparent" });
      }
      const known = y.filter((value) => value !== null).length;
      add(y, {
        stroke: () => shade(line),
        width: line < few ? 1.75 : 1,
        // A single point has no line.
        points: known <= (line < few ? 40 : 1) ? { show: true, size: 4, fill: () => shade(line) } : { show: false },
      });
    }
    const range = (self, low, high) => {
      if (low === null) return state.log ? [0.1, 1] : [0, 1];
      if (state.log) {
        const room = Math.max((high / low) ** 0.04, 1.02);
        return [low / room, high * room];
      }
      if (data.within) {
        const [least, most] = [Math.min(low, data.within[0]), Math.max(high, data.within[1])];
        return [least, most + (most - least || 1) * 0.05];
      }
      const room = (high - low) * 0.05 || Math.abs(high) * 0.1 || 1;
      return [low - room, high + room];
    };
    const positive = (values) => values.map((value) => (value > 0 ? value : null));
    const axis = {
      stroke: () => colour("--soft"),
      grid: { stroke: () => colour("--rule"), width: 1 },
      ticks: { show: false },
      font: "12px system-ui, sans-serif",
    };

    const snapped = (self, left, top) => [left < 0 ? left : self.valToPos(data.x[self.posToIdx(left)], "x"), top];
    let plot = null;
    function draw() {
      const width = place.clientWidth;
      if (width === 0) return;
      if (plot) plot.destroy();
      const shown = state.log && !data.positive ? [rows[0], ...rows.slice(1).map(positive)] : rows;
      plot = new uPlot(
        {
          width,
          height: Math.round(Math.min(360, Math.max(230, width * 0.42))),
          scales: { x: { time: false }, y: { distr: state.log ? 3 : 1, range } },
          axes: [
            { ...axis, space: 76, grid: { show: false }, label: data.across, labelSize: 20, labelFont: "12px system-ui, sans-serif", labelGap: 0, size: 30 },
            {
              ...axis,
              size: 62,
              // The library's own labels end at 1e17. It draws none where it finds no distance between them: any will do.
              incrs: () => [1e300],
              splits: (self, side, min, max) => (state.log ? powers : multiples)(min, max),
              filter: (self, ticks) => ticks,
              grid: { ...axis.grid, filter: (self, ticks) => ticks },
              values: (self, ticks) => ticks.map(label),
            },
          ],
          series: series.map((one, at) => ({ ...one, show: !members.some((own, line) => own.includes(at) && isHidden(line)) })),
          bands,
          legend: { show: false },
          // The line stands where the values are that are read from it.
          cursor: { move: snapped, drag: { x: true, y: false, dist: 6 }, focus: { prox: 24 }, points: { size: 6 } },
          hooks: {
            setCursor: [(self) => read(self.cursor.idx)],
            setScale: [(self, key) => key === "x" && zoomed(self)],
          },
        },
        shown,
        place,
      );
      plot.root.setAttribute("aria-hidden", "true");
      if (state.zoom) plot.setScale("x", state.zoom);
    }

    // Above the chart: its axis, and the way back from a zoom.
    const log = make("button", { type: "button", "aria-pressed": String(state.log) }, "log");
    const reset = make("button", { type: "button", disabled: "" }, "reset zoom");
    log.addEventListener("click", () => {
      state.log = !state.log;
      log.setAttribute("aria-pressed", String(state.log));
      draw();
    });
    reset.addEventListener("click", () => {
      state.zoom = null;
      draw();
    });
    function zoomed(self) {
      const { min, max } = self.scales.x;
      const isAll = min <= data.x[0] && max >= data.x[data.x.length - 1];
      state.zoom = isAll ? null : { min, max };
      reset.disabled = isAll;
    }
    figure.prepend(make("div", { class: "tools" }, log, reset));

    // Below: a button for each curve, which hides and shows it, with its value under the cursor.
    const legend = make("div", { class: "legend" });
    const values = [];
    const toggle = (name, lines, shadeOf) => {
      const swatch = document.createElementNS("http://www.w3.org/2000/svg", "svg");
      swatch.setAttribute("width", "16");
      swatch.setAttribute("height", "4");
      swatch.setAttribute("aria-hidden", "true");
      const bar = document.createElementNS("http://www.w3.org/2000/svg", "rect");
      bar.setAttribute("width", "16");
      bar.setAttribute("height", "4");
      bar.setAttribute("fill", `var(${shadeOf})`);
      swatch.append(bar);
      const value = make("span", { class: "value" });
      const button = make("button", { type: "button", "aria-pressed": String(!isHidden(lines[0])) }, swatch, make("span", {}, name), value);
      button.addEventListener("click", () => {
        const hide = !isHidden(lines[0]);
        const names = lines.map((line) => data.lines[line].name);
        names.forEach((name) => (hide ? state.hidden.add(name) : state.hidden.delete(name)));
        button.setAttribute("aria-pressed", String(!hide));
        draw();
      });
      legend.append(button);
      return value;
    };
    for (let line = 0; line < few; line++) values.push(toggle(data.lines[line].name, [line], `--c${line}`));
    const others = data.lines.map((_, line) => line).slice(few);
    if (others.length > 0) toggle(others.length > 1 ? `${others.length} others` : data.lines[few].name, others, "--faint");
    const readout = make("span", { class: "readout" });
    figure.querySelector("figcaption").append(readout);
    // Read aloud when keys move the cursor, not when a mouse does.
    const spoken = make("div", { class: "spoken", role: "status" });
    figure.append(spoken);
    place.after(legend);

    function read(at) {
      const isOn = at !== null && at !== undefined;
      readout.textContent = isOn ? `${data.across} ${position(data.x[at])}` : "";
      values.forEach((value, line) => {
        // Curves have values at other places: the nearest one to the left.
        let own = at;
        const y = data.lines[line].y;
        while (isOn && own > 0 && y[own] === null) own--;
        value.textContent = isOn ? number(y[own]) : "";
      });
    }

    // Keyboard: the arrows move the cursor, + and - zoom around it, 0 resets the zoom.
    let at = 0;
    place.addEventListener("keydown", (event) => {
      if (!plot) return;
      const last = data.x.length - 1;
      const stride = event.shiftKey ? Math.max(1, Math.round(last / 20)) : 1;
      const { min, max } = plot.scales.x;
      if (event.key === "ArrowRight") at = Math.min(last, at + stride);
      else if (event.key === "ArrowLeft") at = Math.max(0, at - stride);
      else if (event.key === "Home") at = 0;
      else if (event.key === "End") at = last;
      else if (event.key === "+" || event.key === "-") {
        const half = ((max - min) / 2) * (event.key === "+" ? 0.5 : 2);
        plot.setScale("x", { min: Math.max(data.x[0], data.x[at] - half), max: Math.min(data.x[last], data.x[at] + half) });
      } else if (event.key === "0" || event.key === "Escape") reset.click();
      else return;
      event.preventDefault();
      plot.setCursor({ left: plot.valToPos(data.x[at], "x"), top: 10 });
      read(at);
      const named = values.map((value, line) => [data.lines[line].name, value.textContent]);
      const shown = named.filter(([, value], line) => value !== "" && !isHidden(line));
      spoken.textContent = `${readout.textContent}: ${shown.map((pair) => pair.join(" ")).join(", ")}`;
    });

    draw();
    new ResizeObserver(() => plot === null || Math.abs(plot.width - place.clientWidth) > 1 ? draw() : null).observe(place);
    drawn.push({ draw, destroy: () => plot?.destroy() });
  }

  const redraw = () => drawn.forEach((one) => one.draw());
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redraw);
  for (const event of ["beforeprint", "afterprint"]) {
    addEventListener(event, () => {
      document.documentElement.classList.toggle("print", event === "beforeprint");
      redraw();
    });
  }

  // A cell as a number, with its unit.
  const UNITS = {
    "%": 0.01, ns: 1e-9, "µs": 1e-6, ms: 1e-3, s: 1, min: 60, h: 3600, k: 1e3, M: 1e6, G: 1e9, T: 1e12, B: 1,
    KiB: 1024, MiB: 1024 ** 2, GiB: 1024 ** 3, TiB: 1024 ** 4,
  };
  const parsed = (text) => {
    const found = /^([-+<]?[\d.,]+(?:e[-+]?\d+)?)\s*([^\s\[]*)/.exec(text.trim());
    return found ? Number(found[1].replace(/[,<+]/g, "")) * (UNITS[found[2]] ?? 1) : null;
  };
  function sortable(table) {
    const body = table.tBodies[0];
    const title = table.caption.textContent;
    const heads = [...table.tHead.rows[0].cells];
    heads.forEach((head, column) => {
      const button = make("button", { type: "button" }, ...head.childNodes);
      head.append(button);
      button.addEventListener("click", () => {
        const isRising = head.getAttribute("aria-sort") !== "ascending";
        sorted.set(title, { column, isRising });
        heads.forEach((other) => other.removeAttribute("aria-sort"));
        head.setAttribute("aria-sort", isRising ? "ascending" : "descending");
        const key = (row) => row.cells[column].textContent;
        // Displayed cells are rounded. If that would change the order, cells have the rank of their exact
        // value.
        const value = (row) => (row.cells[column].dataset.place === undefined ? parsed(key(row)) : Number(row.cells[column].dataset.place));
        const compare = (a, b) => {
          const [x, y] = [value(a), value(b)];
          if (x !== null && y !== null) return x - y;
          // Cells without a number (`best`, or empty) come first.
          if (x !== null || y !== null) return x === null ? -1 : 1;
          return key(a).localeCompare(key(b));
        };
        const rows = [...body.rows].sort((a, b) => (isRising ? compare(a, b) : compare(b, a)));
        body.append(...rows);
      });
    });
    const before = sorted.get(title);
    const button = before && heads[before.column]?.querySelector("button");
    if (button) for (let click = before.isRising ? 1 : 2; click > 0; click--) button.click();
  }

  function show() {
    charts = JSON.parse(document.getElementById("charts").textContent);
    drawn.splice(0).forEach((one) => one.destroy());
    // Folded charts have no width yet, and are drawn when they are opened.
    document.querySelectorAll(".chart[data-chart]").forEach(chart);
    document.querySelectorAll("table.sortable").forEach(sortable);
  }
  show();
  document.addEventListener("renewed", show);
})();
