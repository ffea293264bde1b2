// Draws a panel's charts when they come into view, and lets one row of checkboxes show and hide methods everywhere.
(() => {
  const hidden = new Set();
  const figures = {};
  const touch = matchMedia("(pointer: coarse)").matches;
  const panels = [...document.querySelectorAll("section.panel")];
  const plots = (root) => [...root.querySelectorAll(".plot")];
  const shown = () => panels.find((panel) => !panel.hidden);

  function figuresOf(panel) {
    return (figures[panel.id] ??= JSON.parse(document.getElementById(`figures-${panel.id}`).textContent));
  }

  function draw(div) {
    if (div.dataset.drawn) return;
    div.dataset.drawn = "true";
    const { data, layout } = figuresOf(div.closest("section.panel"))[div.dataset.chart];
    for (const trace of data) if (trace.meta) trace.visible = !hidden.has(trace.meta);
    // A finger that scrolls the page must not zoom into a chart.
    Plotly.newPlot(div, data, { ...layout, dragmode: touch ? false : "zoom" }, { responsive: true, displayModeBar: false });
  }

  const watcher = new IntersectionObserver(
    (entries) => entries.filter((e) => e.isIntersecting).forEach((e) => draw(e.target)),
    { rootMargin: "300px" },
  );

  function show(id) {
    for (const panel of panels) panel.hidden = panel.id !== id;
    for (const div of plots(shown())) if (div.dataset.drawn) Plotly.Plots.resize(div);
  }

  function apply(method) {
    const visible = !hidden.has(method);
    for (const div of document.querySelectorAll(".plot[data-drawn]")) {
      const traces = div.data.flatMap((trace, k) => (trace.meta === method ? [k] : []));
      if (traces.length) Plotly.restyle(div, { visible }, traces);
    }
    for (const row of document.querySelectorAll("tr[data-method]"))
      if (row.dataset.method === method) row.classList.toggle("off", !visible);
  }

  for (const box of document.querySelectorAll("input[data-method]"))
    box.addEventListener("change", () => {
      hidden[box.checked ? "delete" : "add"](box.dataset.method);
      apply(box.dataset.method);
    });

  for (const button of document.querySelectorAll("button[data-show]"))
    button.addEventListener("click", () => {
      for (const box of document.querySelectorAll("input[data-method]"))
        if (box.checked !== (button.dataset.show === "all")) box.click();
    });

  const select = document.getElementById("panel");
  select?.addEventListener("change", () => show(select.value));
  for (const link of document.querySelectorAll("a[data-panel]"))
    link.addEventListener("click", () => {
      select.value = link.dataset.panel;
      show(select.value);
    });

  // Paper is narrower than the window, and a chart that was never in view must be printed too.
  addEventListener("beforeprint", () => {
    for (const div of plots(shown())) {
      draw(div);
      Plotly.relayout(div, { width: 330, height: 255 });
    }
  });
  addEventListener("afterprint", () => {
    for (const div of plots(shown())) Plotly.relayout(div, { width: null, height: null, autosize: true });
  });

  if (panels.length) show(panels[0].id);
  for (const div of document.querySelectorAll(".plot")) watcher.observe(div);
})();
